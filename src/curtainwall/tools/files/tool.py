"""The `filesystem` tools as they run: by descriptor, along the canonical path that was judged."""

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import Masker, Piece, quoted
from curtainwall.host import LinkInTheWay, delete_entry, make_directories, open_beneath, replace_file
from curtainwall.model import CallPermitted, Place, Prepared, ToolResult
from curtainwall.tools.files.diff import split_lines, unified_difference
from curtainwall.tools.files.globs import Glob
from curtainwall.tools.files.moves import move
from curtainwall.tools.files.walks import DirectoryListing, DirectoryWalk, kind_of_mode
from curtainwall.tools.runners import CannotDo, Runner, run_in_thread

MAX_READ: Final = 10 * 1024 * 1024
MAX_LISTED: Final = 5_000
MAX_MATCHES: Final = 2_000

# A pipe or a terminal must not make us wait for whoever holds its other end.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_SNIFFED = 8192
_SMALL = 64 * 1024
# Lines that are shown are masked with so much around them: a secret, also a private key, may begin above them or end below.
_AROUND = 64 * 1024

Arguments = Mapping[str, JsonValue]
Shown = Callable[[str, Place], str]


def as_it_is(path: str, _place: Place) -> str:
    """Return a path as an agent sees it that lives on this machine."""
    return path


def nothing_protected(_path: str) -> bool:
    """Say that no path below an approved one is kept from walks."""
    return False


def filesystem_runners(
    masker: Masker, *, is_protected: Callable[[str], bool] = nothing_protected, shown: Shown = as_it_is
) -> Mapping[str, Runner]:
    """Return the runners of `filesystem.*`; protected paths are left out of walks, `shown` gives a path as the agent knows it."""
    deeds = {
        "read_file": _read_file,
        "read_multiple_files": _read_multiple_files,
        "write_file": _write_file,
        "edit_file": _edit_file,
        "create_directory": _create_directory,
        "list_directory": _list_directory,
        "directory_tree": _directory_tree,
        "move_file": _move_file,
        "delete_file": _delete_file,
        "search_files": _search_files,
        "get_file_info": _get_file_info,
        "list_allowed_directories": _list_allowed_directories,
    }
    return {f"filesystem.{name}": _runner(deed, masker, is_protected, shown) for name, deed in deeds.items()}


@dataclass(frozen=True, slots=True)
class _CallScope:
    """What one call works with besides its arguments."""

    place: Place
    masker: Masker
    is_protected: Callable[[str], bool]
    shown: Shown

    def name(self, path: str) -> str:
        return quoted(self.shown(path, self.place))


_Operation = Callable[[Arguments, _CallScope], JsonValue]


def _runner(deed: _Operation, masker: Masker, is_protected: Callable[[str], bool], shown: Shown) -> Runner:
    async def run(prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        desk = _CallScope(place, masker, is_protected, shown)
        if deed is _read_file and _is_small(_first_path(prepared.arguments)):
            return ToolResult(ok=True, value=_done(deed, prepared.arguments, desk))
        return ToolResult(ok=True, value=await run_in_thread(place.session, partial(_done, deed, prepared.arguments, desk)))

    return run


def _is_small(path: str) -> bool:
    """Tell whether reading a file takes less time than waking a thread for it; a guess, and nothing else depends on it."""
    try:
        found = os.lstat(path)
    except OSError:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size <= _SMALL


def _done(deed: _Operation, arguments: Arguments, desk: _CallScope) -> JsonValue:
    try:
        return deed(arguments, desk)
    except OSError as fault:
        raise CannotDo(_fault_text(fault, _first_path(arguments), desk)) from fault


def _first_path(arguments: Arguments) -> str:
    return next((value for key in ("path", "source") if isinstance(value := arguments.get(key), str)), "")


def _fault_text(fault: OSError, path: str, desk: _CallScope) -> str:
    """Return what went wrong, for the agent."""
    name = desk.name(path)
    if isinstance(fault, LinkInTheWay):
        return f"{name} changed after it was judged: a link stands in the way now; ask again"
    match fault.errno:
        case errno.ENOENT:
            return f"{name} does not exist, or the directory that should hold it does not"
        case errno.EISDIR:
            return f"{name} is a directory, not a file"
        case errno.ENOTDIR:
            return f"{name} is not a directory, or goes on behind a file"
        case errno.EACCES | errno.EPERM:
            return f"{name} is not open to this user"
        case errno.EEXIST:
            return f"something is already there; delete it first, or choose another name than {name}"
        case errno.EXDEV:
            return f"{name} cannot be moved to another disk in one step; read, write and delete it instead"
        case errno.ENOSPC | errno.EDQUOT:
            return f"the disk is full; {name} was not changed"
        case _:
            return f"{name}: {(fault.strerror or 'it failed').lower()}"


def _text_of(arguments: Arguments, key: str) -> str:
    return cast("str", arguments[key])


# Reading


def _bytes_of(path: str, desk: _CallScope, *, last: bool | None = None) -> bytes:
    """Return a regular file's bytes; where `last` says so only its first or last piece, which may then be bigger than the limit."""
    opened = open_beneath(path, _READ)
    with open(opened, "rb", buffering=0) as file:
        found = os.fstat(opened)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(found.st_mode):
            raise CannotDo(f"{desk.name(path)} is no regular file")
        if last is None and found.st_size > MAX_READ:
            raise CannotDo(
                f"{desk.name(path)} has {found.st_size} bytes, more than {MAX_READ}; read its first or last lines with `head` or `tail`"
            )
        if last and found.st_size > MAX_READ:
            file.seek(found.st_size - MAX_READ)
        pieces: list[bytes] = []
        left = MAX_READ + 1
        while left > 0 and (piece := file.read(left)):
            pieces.append(piece)
            left -= len(piece)
        content = b"".join(pieces)
        if last and found.st_size > MAX_READ:
            # Half a line may be half a secret.
            content = content.partition(b"\n")[2] or content
    if len(content) > MAX_READ and last is None:
        raise CannotDo(f"{desk.name(path)} grows past {MAX_READ} bytes; read its first or last lines with `head` or `tail`")
    return content[:MAX_READ]


def _decoded(content: bytes, path: str, desk: _CallScope, *, is_piece: bool = False) -> str:
    if b"\0" in content[:_SNIFFED]:
        raise CannotDo(f"{desk.name(path)} is binary, not text")
    if is_piece:
        # The cut may go through a character; a file that is no text at all is found by the many that do not fit.
        text = content.decode(errors="replace")
        if text[4:-4].count("�") > content.count("�".encode()):
            raise CannotDo(f"{desk.name(path)} is not UTF-8 text")
        return text
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CannotDo(f"{desk.name(path)} is not UTF-8 text") from None


def _read_file(arguments: Arguments, desk: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    head, tail = cast("int | None", arguments.get("head")), cast("int | None", arguments.get("tail"))
    if head is not None and tail is not None:
        raise CannotDo("`head` and `tail` cannot be asked for at once")
    if head is None and tail is None:
        return _decoded(_bytes_of(path, desk), path, desk)
    text = _decoded(_bytes_of(path, desk, last=tail is not None), path, desk, is_piece=True)
    lines = split_lines(text)
    if head is not None:
        return _shown_part(text, 0, sum(map(len, lines[:head])), desk.masker)
    return _shown_part(text, len(text) - sum(map(len, lines[-cast("int", tail) :])), len(text), desk.masker)


def _shown_part(text: str, start: int, end: int, masker: Masker) -> str:
    """Return a part of a text; a secret that reaches into it is there as a whole, masked."""
    at = text.rfind("\n", 0, max(0, start - _AROUND)) + 1
    shown: list[str] = []
    for piece in masker.pieces(text[at : end + _AROUND]):
        behind = at + len(piece.real)
        if at < end and start < behind:
            shown.append(piece.shown if piece.is_hidden else piece.real[max(0, start - at) : end - at])
        at = behind
    return "".join(shown)


def _read_multiple_files(arguments: Arguments, desk: _CallScope) -> JsonValue:
    read: list[JsonValue] = []
    left = MAX_READ
    for path in cast("list[str]", arguments["paths"]):
        shown = desk.shown(path, desk.place)
        try:
            content = _bytes_of(path, desk)
            left -= len(content)
            if left < 0:
                raise CannotDo(f"the files together have more than {MAX_READ} bytes; read fewer at once")
            read.append({"path": shown, "content": _decoded(content, path, desk)})
        except CannotDo as fault:
            read.append({"path": shown, "error": str(fault)})
        except OSError as fault:
            read.append({"path": shown, "error": _fault_text(fault, path, desk)})
    return read


# Writing


def _write_file(arguments: Arguments, desk: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    content = _text_of(arguments, "content").encode()
    replace_file(path, content)
    return f"wrote {len(content)} {'byte' if len(content) == 1 else 'bytes'} to {desk.name(path)}"


def _edit_file(arguments: Arguments, desk: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    before = after = desk.masker.pieces(_decoded(_bytes_of(path, desk), path, desk))
    for number, edit in enumerate(cast("list[dict[str, str]]", arguments["edits"]), start=1):
        after = _edited(after, edit["oldText"], edit["newText"], number)
    text = "".join(piece.real for piece in after)
    if text == "".join(piece.real for piece in before):
        raise CannotDo("the edits change nothing")
    if arguments.get("dryRun") is not True:
        replace_file(path, text.encode())
    # What was masked stays so, whatever the edits put around it, and a line of a key is none without the others.
    old, new = ("".join(piece.shown for piece in pieces) for pieces in (before, after))
    return unified_difference(old, desk.masker.mask_text(new), desk.shown(path, desk.place))


def _edited(pieces: Sequence[Piece], old: str, new: str, number: int) -> list[Piece]:
    """Return the text with one piece of it replaced.

    INVARIANT: what is hidden is never looked into, so no guess at it is told from a text that is not there.
    """
    seen = [piece.real for piece in pieces if not piece.is_hidden]
    count = sum(text.count(old) for text in seen)
    if count == 0 and "\r" not in old and any("\r\n" in text for text in seen):
        # Agents see and write plain line ends; the file keeps its own.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        count = sum(text.count(old) for text in seen)
    if count == 1:
        return [piece if piece.is_hidden else Piece(text := piece.real.replace(old, new), text, is_hidden=False) for piece in pieces]
    if count == 0:
        raise CannotDo(f"nothing was changed: the `oldText` of edit {number} is not in the file; read it again and copy the text exactly")
    raise CannotDo(
        f"nothing was changed: the `oldText` of edit {number} is in the file {count} times; add lines around it until it is there once"
    )


def _create_directory(arguments: Arguments, desk: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    return f"made {desk.name(path)}" if make_directories(path) else f"{desk.name(path)} was already there"


def _move_file(arguments: Arguments, desk: _CallScope) -> JsonValue:
    return move(arguments, desk.name)


def _delete_file(arguments: Arguments, desk: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    try:
        delete_entry(path)
    except IsADirectoryError:
        raise CannotDo(f"{desk.name(path)} is a directory; only files are deleted") from None
    return f"deleted {desk.name(path)}"


# Looking around


def _list_directory(arguments: Arguments, _desk: _CallScope) -> JsonValue:
    opened = open_beneath(_text_of(arguments, "path"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        listing = DirectoryListing(opened)
        listed = listing.first(MAX_LISTED)
    finally:
        os.close(opened)
    shown: list[JsonValue] = [{"name": _inert(name), "type": kind} for name, kind in listed]
    more = max(0, listing.count - MAX_LISTED)
    note = f"there are {'more than ' if listing.cut else ''}{more:,} others; `filesystem.search_files` finds them by a pattern, as `a*`"
    return {"entries": shown, "left_out": more, **({"note": note} if more or listing.cut else {})}


def _inert(name: str) -> str:
    """Return a file's name as JSON can hold it."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _directory_tree(arguments: Arguments, desk: _CallScope) -> JsonValue:
    walk = DirectoryWalk(_text_of(arguments, "path"), desk.is_protected)
    root: list[JsonValue] = []
    levels: list[list[JsonValue]] = [root]
    cut = False
    for count, found in enumerate(walk):
        if count >= MAX_LISTED:
            cut = True
            break
        del levels[found.depth :]
        node: dict[str, JsonValue] = {"name": found.name, "type": found.kind}
        levels[-1].append(node)
        if found.kind == "directory":
            children: list[JsonValue] = []
            node["children"] = children
            levels.append(children)
    note = "not all of it is here; show a directory further down, or let `filesystem.search_files` find names by a pattern"
    return {"tree": root, "cut": True, "note": note} if cut or walk.cut else {"tree": root, "cut": False}


def _search_files(arguments: Arguments, desk: _CallScope) -> JsonValue:
    root = _text_of(arguments, "path")
    wanted = Glob(_text_of(arguments, "pattern"))
    unwanted = [Glob(pattern) for pattern in cast("list[str]", arguments.get("excludePatterns") or [])]
    walk = DirectoryWalk(root, desk.is_protected, ignores=True)
    matches: list[JsonValue] = []
    left_out = "/"
    cut = False
    for found in walk:
        # What lies in a directory that was left out is left out too.
        if found.inner.startswith(left_out):
            continue
        if any(glob.matches(found.inner) for glob in unwanted):
            left_out = f"{found.inner}/"
            continue
        if wanted.matches(found.inner):
            if len(matches) >= MAX_MATCHES:
                cut = True
                break
            matches.append(desk.shown(f"{root.rstrip('/')}/{found.inner}", desk.place))
    note = "there may be more; search in a directory further down, or with a pattern that fits fewer names"
    return {"matches": matches, "cut": True, "note": note} if cut or walk.cut else {"matches": matches, "cut": False}


def _get_file_info(arguments: Arguments, desk: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    opened = open_beneath(path, os.O_PATH)
    try:
        found = os.fstat(opened)
    finally:
        os.close(opened)
    return {
        "path": desk.shown(path, desk.place),
        "type": kind_of_mode(found.st_mode),
        "size": found.st_size,
        "modified": _timestamp(found.st_mtime),
        "accessed": _timestamp(found.st_atime),
        "changed": _timestamp(found.st_ctime),
        "permissions": stat.filemode(found.st_mode),
    }


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _list_allowed_directories(_arguments: Arguments, desk: _CallScope) -> JsonValue:
    return [desk.shown(desk.place.workspace.path, desk.place)]
