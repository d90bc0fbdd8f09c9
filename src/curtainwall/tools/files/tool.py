"""Run the `filesystem` tools by descriptor, along the canonical path that was judged."""

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import Masker, Piece, quoted
from curtainwall.host import LinkInTheWay, delete_entry, make_directories, open_beneath, replace_file
from curtainwall.model import CallPermitted, Place, Prepared, ToolResult, on_disk, record
from curtainwall.tools.files.diff import split_lines, unified_difference
from curtainwall.tools.files.globs import Glob
from curtainwall.tools.files.moves import move
from curtainwall.tools.files.walks import DirectoryListing, DirectoryWalk, kind_of_mode
from curtainwall.tools.runners import CannotDo, Runner, run_in_thread

MAX_READ: Final = 10 * 1024 * 1024
MAX_LISTED: Final = 5_000
MAX_MATCHES: Final = 2_000

# Never block on a pipe or a terminal.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_SNIFFED = 8192
_SMALL = 64 * 1024
# Shown lines are masked with this much context: a secret such as a private key may begin above them or end below.
_AROUND = 64 * 1024

Arguments = Mapping[str, JsonValue]
Shown = Callable[[str, Place], str]


def as_it_is(path: str, _place: Place) -> str:
    """Return a path unchanged, as an agent on this machine sees it."""
    return path


def nothing_protected(_path: str) -> bool:
    """Tell walks that no path below an approved one is protected."""
    return False


def filesystem_runners(
    masker: Masker, *, is_protected: Callable[[str], bool] = nothing_protected, shown: Shown = as_it_is
) -> Mapping[str, Runner]:
    """Return the runners of `filesystem.*`; protected paths are left out of walks, `shown` gives a path as the agent knows it."""
    operations = {
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
    return {f"filesystem.{name}": _runner(operation, masker, is_protected, shown) for name, operation in operations.items()}


@record
class _CallScope:
    """The surroundings of one call, besides its arguments."""

    place: Place
    masker: Masker
    is_protected: Callable[[str], bool]
    shown: Shown

    def name(self, path: str) -> str:
        return quoted(self.shown(path, self.place))


_Operation = Callable[[Arguments, _CallScope], JsonValue]


def _runner(operation: _Operation, masker: Masker, is_protected: Callable[[str], bool], shown: Shown) -> Runner:
    async def run(prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        scope = _CallScope(place, masker, is_protected, shown)
        if operation is _read_file and _is_small(_first_path(prepared.arguments)):
            return ToolResult(ok=True, value=_done(operation, prepared.arguments, scope))
        return ToolResult(ok=True, value=await run_in_thread(place.session, partial(_done, operation, prepared.arguments, scope)))

    return run


def _is_small(path: str) -> bool:
    """Guess whether reading a file is faster than starting a thread for it; nothing else depends on this."""
    try:
        status = os.lstat(on_disk(path))
    except OSError:
        return True
    return stat.S_ISREG(status.st_mode) and status.st_size <= _SMALL


def _done(operation: _Operation, arguments: Arguments, scope: _CallScope) -> JsonValue:
    try:
        return operation(arguments, scope)
    except OSError as error:
        raise CannotDo(_fault_text(error, _first_path(arguments), scope)) from error


def _first_path(arguments: Arguments) -> str:
    return next((value for key in ("path", "source") if isinstance(value := arguments.get(key), str)), "")


def _fault_text(error: OSError, path: str, scope: _CallScope) -> str:
    """Describe an error for the agent."""
    name = scope.name(path)
    if isinstance(error, LinkInTheWay):
        return f"{name} changed after it was judged: a link stands in the way now; ask again"
    match error.errno:
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
            return f"{name}: {(error.strerror or 'it failed').lower()}"


def _text_of(arguments: Arguments, key: str) -> str:
    return cast("str", arguments[key])


# Reading


def _bytes_of(path: str, scope: _CallScope, *, last: bool | None = None) -> bytes:
    """Return a regular file's bytes, or with `last` only its first or last part, so that the file may exceed the limit."""
    descriptor = open_beneath(path, _READ)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise CannotDo(f"{scope.name(path)} is no regular file")
        if last is None and status.st_size > MAX_READ:
            raise CannotDo(
                f"{scope.name(path)} has {status.st_size} bytes, more than {MAX_READ}; read its first or last lines with `head` or `tail`"
            )
        if last and status.st_size > MAX_READ:
            file.seek(status.st_size - MAX_READ)
        pieces: list[bytes] = []
        remaining = MAX_READ + 1
        while remaining > 0 and (piece := file.read(remaining)):
            pieces.append(piece)
            remaining -= len(piece)
        content = b"".join(pieces)
        if last and status.st_size > MAX_READ:
            # Half a line may be half a secret.
            content = content.partition(b"\n")[2] or content
    if len(content) > MAX_READ and last is None:
        raise CannotDo(f"{scope.name(path)} grows past {MAX_READ} bytes; read its first or last lines with `head` or `tail`")
    return content[:MAX_READ]


def _decoded(content: bytes, path: str, scope: _CallScope, *, is_piece: bool = False) -> str:
    if b"\0" in content[:_SNIFFED]:
        raise CannotDo(f"{scope.name(path)} is binary, not text")
    if is_piece:
        # The cut may split a character; a file that is not text has many more invalid ones.
        text = content.decode(errors="replace")
        if text[4:-4].count("�") > content.count("�".encode()):
            raise CannotDo(f"{scope.name(path)} is not UTF-8 text")
        return text
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CannotDo(f"{scope.name(path)} is not UTF-8 text") from None


def _read_file(arguments: Arguments, scope: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    head, tail = cast("int | None", arguments.get("head")), cast("int | None", arguments.get("tail"))
    if head is not None and tail is not None:
        raise CannotDo("`head` and `tail` cannot be asked for at once")
    if head is None and tail is None:
        return _decoded(_bytes_of(path, scope), path, scope)
    text = _decoded(_bytes_of(path, scope, last=tail is not None), path, scope, is_piece=True)
    lines = split_lines(text)
    if head is not None:
        return _shown_part(text, 0, sum(map(len, lines[:head])), scope.masker)
    return _shown_part(text, len(text) - sum(map(len, lines[-cast("int", tail) :])), len(text), scope.masker)


def _shown_part(text: str, start: int, end: int, masker: Masker) -> str:
    """Return a part of a text; a secret that overlaps it appears whole and masked."""
    at = text.rfind("\n", 0, max(0, start - _AROUND)) + 1
    parts: list[str] = []
    for piece in masker.pieces(text[at : end + _AROUND]):
        piece_end = at + len(piece.real)
        if at < end and start < piece_end:
            parts.append(piece.shown if piece.is_hidden else piece.real[max(0, start - at) : end - at])
        at = piece_end
    return "".join(parts)


def _read_multiple_files(arguments: Arguments, scope: _CallScope) -> JsonValue:
    results: list[JsonValue] = []
    remaining = MAX_READ
    for path in cast("list[str]", arguments["paths"]):
        shown = scope.shown(path, scope.place)
        try:
            content = _bytes_of(path, scope)
            remaining -= len(content)
            if remaining < 0:
                raise CannotDo(f"the files together have more than {MAX_READ} bytes; read fewer at once")
            results.append({"path": shown, "content": _decoded(content, path, scope)})
        except CannotDo as error:
            results.append({"path": shown, "error": str(error)})
        except OSError as error:
            results.append({"path": shown, "error": _fault_text(error, path, scope)})
    return results


# Writing


def _write_file(arguments: Arguments, scope: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    content = _text_of(arguments, "content").encode()
    replace_file(path, content)
    return f"wrote {len(content)} {'byte' if len(content) == 1 else 'bytes'} to {scope.name(path)}"


def _edit_file(arguments: Arguments, scope: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    before = after = scope.masker.pieces(_decoded(_bytes_of(path, scope), path, scope))
    for number, edit in enumerate(cast("list[dict[str, str]]", arguments["edits"]), start=1):
        after = _edited(after, edit["oldText"], edit["newText"], number)
    text = "".join(piece.real for piece in after)
    if text == "".join(piece.real for piece in before):
        raise CannotDo("the edits change nothing")
    if arguments.get("dryRun") is not True:
        replace_file(path, text.encode())
    # Masked text stays masked whatever the edits put around it, because a single line of a key does not look like a secret.
    old, new = ("".join(piece.shown for piece in pieces) for pieces in (before, after))
    return unified_difference(old, scope.masker.mask_text(new), scope.shown(path, scope.place))


def _edited(pieces: Sequence[Piece], old: str, new: str, number: int) -> list[Piece]:
    """Return the text with one piece of it replaced.

    INVARIANT: hidden text is never searched, so a correct guess at a secret looks the same as a missing text.
    """
    visible = [piece.real for piece in pieces if not piece.is_hidden]
    count = sum(text.count(old) for text in visible)
    if count == 0 and "\r" not in old and any("\r\n" in text for text in visible):
        # Agents see and write plain line endings; the file keeps its own.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        count = sum(text.count(old) for text in visible)
    if count == 1:
        return [piece if piece.is_hidden else Piece(text := piece.real.replace(old, new), text, is_hidden=False) for piece in pieces]
    if count == 0:
        raise CannotDo(f"nothing was changed: the `oldText` of edit {number} is not in the file; read it again and copy the text exactly")
    raise CannotDo(
        f"nothing was changed: the `oldText` of edit {number} is in the file {count} times; add lines around it until it is there once"
    )


def _create_directory(arguments: Arguments, scope: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    return f"made {scope.name(path)}" if make_directories(path) else f"{scope.name(path)} was already there"


def _move_file(arguments: Arguments, scope: _CallScope) -> JsonValue:
    return move(arguments, scope.name)


def _delete_file(arguments: Arguments, scope: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    try:
        delete_entry(path)
    except IsADirectoryError:
        raise CannotDo(f"{scope.name(path)} is a directory; only files are deleted") from None
    return f"deleted {scope.name(path)}"


# Looking around


def _list_directory(arguments: Arguments, _scope: _CallScope) -> JsonValue:
    descriptor = open_beneath(_text_of(arguments, "path"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        listing = DirectoryListing(descriptor)
        listed = listing.first(MAX_LISTED)
    finally:
        os.close(descriptor)
    entries: list[JsonValue] = [{"name": _inert(name), "type": kind} for name, kind in listed]
    more = max(0, listing.count - MAX_LISTED)
    note = f"there are {'more than ' if listing.cut else ''}{more:,} others; `filesystem.search_files` finds them by a pattern, as `a*`"
    return {"entries": entries, "left_out": more, **({"note": note} if more or listing.cut else {})}


def _inert(name: str) -> str:
    """Return a file's name in a form that JSON can hold."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _directory_tree(arguments: Arguments, scope: _CallScope) -> JsonValue:
    walk = DirectoryWalk(_text_of(arguments, "path"), scope.is_protected)
    root: list[JsonValue] = []
    levels: list[list[JsonValue]] = [root]
    cut = False
    for count, entry in enumerate(walk):
        if count >= MAX_LISTED:
            cut = True
            break
        del levels[entry.depth :]
        node: dict[str, JsonValue] = {"name": entry.name, "type": entry.kind}
        levels[-1].append(node)
        if entry.kind == "directory":
            children: list[JsonValue] = []
            node["children"] = children
            levels.append(children)
    note = "not all of it is here; show a directory further down, or let `filesystem.search_files` find names by a pattern"
    return {"tree": root, "cut": True, "note": note} if cut or walk.cut else {"tree": root, "cut": False}


def _search_files(arguments: Arguments, scope: _CallScope) -> JsonValue:
    root = _text_of(arguments, "path")
    wanted = Glob(_text_of(arguments, "pattern"))
    unwanted = [Glob(pattern) for pattern in cast("list[str]", arguments.get("excludePatterns") or [])]
    walk = DirectoryWalk(root, scope.is_protected, ignores=True)
    matches: list[JsonValue] = []
    left_out = "/"
    cut = False
    for entry in walk:
        # Skip everything inside an excluded directory.
        if entry.inner.startswith(left_out):
            continue
        if any(glob.matches(entry.inner) for glob in unwanted):
            left_out = f"{entry.inner}/"
            continue
        if wanted.matches(entry.inner):
            if len(matches) >= MAX_MATCHES:
                cut = True
                break
            matches.append(scope.shown(f"{root.rstrip('/')}/{entry.inner}", scope.place))
    note = "there may be more; search in a directory further down, or with a pattern that fits fewer names"
    return {"matches": matches, "cut": True, "note": note} if cut or walk.cut else {"matches": matches, "cut": False}


def _get_file_info(arguments: Arguments, scope: _CallScope) -> JsonValue:
    path = _text_of(arguments, "path")
    descriptor = open_beneath(path, os.O_PATH)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return {
        "path": scope.shown(path, scope.place),
        "type": kind_of_mode(status.st_mode),
        "size": status.st_size,
        "modified": _timestamp(status.st_mtime),
        "accessed": _timestamp(status.st_atime),
        "changed": _timestamp(status.st_ctime),
        "permissions": stat.filemode(status.st_mode),
    }


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _list_allowed_directories(_arguments: Arguments, scope: _CallScope) -> JsonValue:
    return [scope.shown(scope.place.workspace.path, scope.place)]
