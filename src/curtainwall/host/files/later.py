"""Files in a project that something runs later, such as git hooks: listed before a confined process may write there, and again afterwards.

A mount protects the files that exist. To prevent the creation of new ones we would have to leave something on the disk, so we look for them
afterwards and set them aside under a name that nothing runs. Nothing is ever deleted.
"""

import ctypes
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Final

from curtainwall.host.files.beneath import move_entry, open_beneath, replace_file
from curtainwall.model import holds_later_names, is_git_directory, is_later_name, record

MOST: Final = 65_536
"""The most bytes of a config that we compare."""

_BRANCH: Final = re.compile(r'\[branch "[\w./@#+-]+"\]', re.ASCII)
_REMOTE: Final = re.compile(r'^\[remote "([\w.-]+)"\]$', re.ASCII | re.MULTILINE)
_TRACKING: Final = re.compile(
    r"\t(?:remote = (?P<remote>[\w.-]+)|merge = refs/heads/[\w./@#+-]+|rebase = (?:true|false)|[a-z-]*merge-base = [\w./@#+-]+)", re.ASCII
)


def only_tracks(before: str, now: str) -> bool:
    """Tell whether two git configs differ only in which branch tracks which."""
    # Any other word could be a directory or a URL, and a push would go there.
    remotes = frozenset((".", *_REMOTE.findall(before)))
    rest = _lines_besides_tracking(before, remotes)
    return rest is not None and rest == _lines_besides_tracking(now, remotes)


def _lines_besides_tracking(text: str, remotes: frozenset[str]) -> list[tuple[str, str]] | None:
    """Return every line that is not about tracking, each with its section head; None if a line continues on the next."""
    lines: list[tuple[str, str]] = []
    head = ""
    for line in text.split("\n"):
        if line.endswith("\\"):
            return None
        if line.startswith("["):
            head = line
        if line and not (_BRANCH.fullmatch(head) and (line == head or _is_tracking_line(line, remotes))):
            lines.append((head, line))
    return lines


def _is_tracking_line(line: str, remotes: frozenset[str]) -> bool:
    match = _TRACKING.fullmatch(line)
    return match is not None and match["remote"] in (None, *remotes)


MAX_FIXED: Final = 256
"""How many paths mounts protect, those nearest to the root first; each costs bubblewrap more than the one before."""

MAX_ENTRIES: Final = 500_000

# In a git directory: what git runs, or what tells git where to find that. Git works without changing them.
_RUN_BY_GIT = ("hooks", "config", "config.worktree", "commondir", "info", "modules", "worktrees")
_SUFFIX = ".held"
_UNKNOWN_LIKENESS = "unseen"
_LONGEST_NAME: Final = 255
_AS_OWNER: Final = stat.S_ISUID | stat.S_ISGID
_STATX = getattr(ctypes.CDLL(None), "statx", None)
_AT_CWD, _NO_FOLLOW, _BIRTH = -100, 0x100, 0x800


class TooMany(Exception):
    """The project has more files than we can look through for every command."""


@record
class Later:
    """The files of a project that run later: each path with its likeness and its file identity, the git directories, and their configs."""

    likenesses: Mapping[str, str]
    identities: Mapping[str, tuple[int, ...]]
    git: tuple[str, ...]
    configs: Mapping[str, str] = field(default_factory=dict[str, str])
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    """The target of each link in the project, even if it does not exist yet."""
    linked: tuple[str, ...] = ()
    """The paths that run later only because a link leads to them."""

    def fixed(self, *, git_works: bool) -> tuple[str, ...]:
        """Return the paths to protect with mounts; if git has to work, its directories are open except for what it runs."""
        hot = tuple(path for path in self.likenesses if path.rpartition("/")[0] in self.git)
        # A mount cannot protect a link; we check it afterwards, like everything that is new.
        free = {path for path, likeness in self.likenesses.items() if likeness.startswith("git ")} if git_works else {*hot}
        chosen = [path for path in self.likenesses if path not in free and not os.path.islink(path)]
        return tuple(sorted(chosen, key=lambda path: path.count("/"))[:MAX_FIXED])


def find_later(root: str, most: int | None = MAX_ENTRIES, *, lifted: list[tuple[str, str | None]] | None = None) -> Later:
    """Return what runs later in a project; raise `TooMany`.

    With a `lifted` list we look everywhere: a directory that cannot be listed is made readable, and one too deep to be named is moved up
    and added to the list.
    """
    likenesses: dict[str, str] = {}
    links: dict[str, str] = {}
    target_likeness: dict[str, str] = {}
    git: list[str] = []
    insist = lifted is not None

    def note(path: str) -> None:
        try:
            likenesses[path] = _likeness(path)
            target = os.path.realpath(path)
            if target != path and target.startswith(f"{root}/"):
                links[path] = target
                target_likeness[target] = _likeness(target)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            if not insist:
                raise
            # This equals no likeness that was recorded before.
            likenesses[path] = _UNKNOWN_LIKENESS

    for path, is_directory in _later_paths(root, most, lifted):
        with suppress(FileNotFoundError):
            if path.endswith("/HEAD"):
                # This directory has the contents of a git directory. Its HEAD represents it: git ignores a directory without one.
                above = path.removesuffix("/HEAD")
                likenesses[path] = f"git {os.lstat(above).st_ino}"
                for name in _RUN_BY_GIT:
                    note(f"{above}/{name}")
            elif is_directory and path.casefold().endswith((".git", "git~1")):
                git.append(path)
                if insist:
                    _list_directory(path, insist=True)
                likenesses[path] = f"git {os.lstat(path).st_ino}"
                for name in _RUN_BY_GIT:
                    note(f"{path}/{name}")
            else:
                note(path)
    configs = {path: text for path in (f"{each}/config" for each in git) if path in likenesses and (text := _read_short(path)) is not None}
    linked = tuple(target for target in target_likeness if target not in likenesses)
    likenesses |= {target: target_likeness[target] for target in linked}
    return Later(likenesses, {path: _identity_of(path, root) for path in likenesses}, tuple(git), configs, links, linked)


def quarantine(root: str, before: Later, fixed: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """Rename what appeared or changed since, and return each path with its new name, or None if it could not be renamed."""
    held: list[tuple[str, str | None]] = []
    # A mount moves along with a directory above it, and it vanishes when someone outside replaces the file, as editors and git do when they
    # save: from then on the path is unprotected. Only if it is still the same file do we know that any change in it came from outside.
    protected = {path for path in fixed if before.identities.get(path) == _identity_of(path, root)}
    waiting, handled = [root], set[str]()
    while waiting:
        here = waiting.pop()
        # Look through everything, however much there is and whatever its permissions are.
        now = find_later(here, None, lifted=held)
        for path, can_move in _changed(now, before, protected):
            if not handled.isdisjoint(_lineage(path)):
                continue
            aside = rename_aside(path) if can_move else None
            held.append((path, aside))
            handled.add(path)
            if aside is not None and path in before.configs:
                # Without a config, git would forget the remotes and the user's other settings.
                with suppress(OSError, ValueError):
                    replace_file(path, before.configs[path].encode("latin-1"), only_new=True)
            # Its contents were covered by its name, so now they have to be checked one by one.
            if aside is not None and os.path.isdir(aside) and not os.path.islink(aside):
                waiting.append(aside)
    return tuple(held)


def _changed(now: Later, before: Later, protected: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield what appeared or changed, each with whether it may be renamed."""
    linked = {*now.linked}
    for path, likeness in now.likenesses.items():
        if path in protected or before.likenesses.get(path) == likeness or _is_tracking(path, before):
            continue
        if path not in linked:
            yield path, True
            continue
        for link in (link for link, target in now.links.items() if target == path):
            if before.likenesses.get(link) == now.likenesses[link]:
                yield from _changed_behind(link, path, before, protected)


def _changed_behind(link: str, target: str, before: Later, protected: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield what to set aside if something appeared or changed behind an unchanged link.

    INVARIANT: we never rename a target that the confined process could not have renamed itself; otherwise it would only have to point a
    link there. A link that is new or changed is set aside itself, and its target is left alone.
    """
    leads_as_before = before.links.get(link) == target
    is_protected = not protected.isdisjoint(_lineage(target))
    if leads_as_before and is_protected:
        return
    can_move_target = not is_protected and before.likenesses.keys().isdisjoint(_lineage(target.rpartition("/")[0]))
    can_move_link = protected.isdisjoint(_lineage(link))
    if can_move_target and (leads_as_before or not can_move_link):
        yield target, True
    else:
        yield link, can_move_link


def take_owners_bits(root: str, since: int) -> tuple[str, ...]:
    """Clear setuid and setgid on files that changed since a time in nanoseconds, and return the files that had one.

    Other users of this machine would run such a program as its owner. Files that the user had marked before stay as they are.
    """
    changed: list[str] = []
    for path, status in _below(root):
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_mode & _AS_OWNER and status.st_ctime_ns >= since:
            with suppress(OSError, ValueError):
                changed += [path] if clear_setid(path) else []
    return tuple(changed)


def clear_setid(path: str) -> bool:
    """Clear setuid and setgid on a file, and tell whether it had one.

    This goes by descriptor and follows no link, so that nobody who works there can make us change the mode of a file outside.
    """
    descriptor = open_beneath(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) or not mode & _AS_OWNER:
            return False
        os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(mode) & ~_AS_OWNER)
    finally:
        os.close(descriptor)
    return True


def _lineage(path: str) -> Iterator[str]:
    """Yield a path and the directories above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _is_tracking(path: str, before: Later) -> bool:
    """Tell whether a git config has changed only in which branches track which."""
    old = before.configs.get(path)
    new = _read_short(path) if old is not None else None
    return old is not None and new is not None and only_tracks(old, new)


def _read_short(path: str) -> str | None:
    """Return the text of a short file, one character per byte; None for anything else."""
    with suppress(OSError, ValueError), open(open_beneath(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        content = file.read(MOST + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
        return content.decode("latin-1") if content is not None and len(content) <= MOST else None
    return None


def _identity_of(path: str, root: str) -> tuple[int, ...]:
    """Return inode and birth time of every step from the project to a path: the kernel reuses inode numbers, but not birth times."""
    names = path[len(root) :].split("/")[1:]
    places = [f"{root}/{'/'.join(names[: count + 1])}" for count in range(len(names))]
    try:
        return tuple(number for place in places for number in (os.lstat(place).st_ino, _birth_time(place)))
    except OSError:
        return (-1,)


def _birth_time(path: str) -> int:
    """Return when a file was created, in nanoseconds; 0 if its disk does not record it. Nobody can set this time."""
    buffer = (ctypes.c_uint64 * 32)()
    if _STATX is None or _STATX(_AT_CWD, os.fsencode(path), _NO_FOLLOW, _BIRTH, buffer) != 0 or not buffer[0] & _BIRTH:
        return 0
    return buffer[10] * 1_000_000_000 + (buffer[11] & 0xFFFFFFFF)


def _later_paths(root: str, most: int | None, lifted: list[tuple[str, str | None]] | None) -> Iterator[tuple[str, bool]]:
    """Yield the paths whose names run later, each with whether it is a directory; such a directory covers its contents."""
    waiting, count = [root], 0
    while waiting:
        here = waiting.pop()
        try:
            entries = _list_directory(here, insist=lifted is not None)
        except OSError as fault:
            if lifted is None:
                raise TooMany from fault
            aside = rename_aside(here, to=root)
            lifted.append((here, aside))
            waiting.extend([aside] if aside is not None else [])
            continue
        directory_name = "" if here == root else here.rpartition("/")[2]
        if is_git_directory({entry.name for entry in entries}):
            yield f"{here}/HEAD", False
        for entry in entries:
            count += 1
            if most is not None and count > most:
                raise TooMany
            is_directory = entry.is_dir(follow_symlinks=False)
            # We do not walk through links, so a link in place of a directory that may hold such names counts as one of them.
            if is_later_name(entry.name, directory_name) or (entry.is_symlink() and holds_later_names(entry.name)):
                yield entry.path, is_directory
            elif is_directory:
                waiting.append(entry.path)


def _list_directory(path: str, *, insist: bool) -> list[os.DirEntry[str]]:
    """Return what a directory holds; raise `OSError` only where its path is too long for the kernel."""
    try:
        with os.scandir(path) as listing:
            return list(listing)
    except PermissionError:
        if not insist:
            return []
    except OSError as fault:
        if fault.errno == errno.ENAMETOOLONG:
            raise
        return []
    with suppress(PermissionError, FileNotFoundError):
        _make_accessible(path)
        return _list_directory(path, insist=False)
    return []


def _make_accessible(path: str) -> None:
    os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | stat.S_IRWXU)


def likeness_of(path: str) -> str | None:
    """Return a string that changes when the file or directory changes; None if there is nothing."""
    try:
        return _likeness(path)
    except OSError:
        return None


def _likeness(path: str) -> str:
    """Return a string that changes when a file, or anything in a directory, changes; only the kernel sets the time of change."""
    status = os.lstat(path)
    outline = f"{status.st_mode} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    if not stat.S_ISDIR(status.st_mode):
        return outline
    digest = hashlib.sha256(outline.encode())
    for inside, inner_status in _below(path):
        outline = (
            ""
            if inner_status is None
            else f"{inner_status.st_mode} {inner_status.st_ino} {inner_status.st_size} {inner_status.st_ctime_ns}"
        )
        digest.update(os.fsencode(f"{inside}\0{outline}\0"))
    return digest.hexdigest()


def _below(path: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield everything in a directory, always in the same order, with its status if the kernel can tell.

    INVARIANT: no depth ends this early. Otherwise a deep directory could keep us from setting everything else aside.
    """
    waiting = [path]
    while waiting:
        here, names = waiting.pop(), list[str]()
        with suppress(OSError):
            names = sorted(os.listdir(here))
        for inside in (f"{here}/{name}" for name in names):
            try:
                status = os.lstat(inside)
            except FileNotFoundError:
                continue
            except OSError:
                status = None
            if status is not None and stat.S_ISDIR(status.st_mode):
                waiting.append(inside)
            yield inside, status


def rename_aside(path: str, to: str | None = None) -> str | None:
    """Rename a path so that nothing runs it, in its directory or into another one, and return its new path."""
    above, _, name = path.rpartition("/")
    for number in ("", *map(str, range(2, 100))):
        ending = f"{_SUFFIX}{number}"
        # The name may already have the maximum length.
        short = os.fsdecode(os.fsencode(name)[: _LONGEST_NAME - len(ending)])
        aside = f"{to or above}/{short}{ending}"
        try:
            _move(path, aside)
        except FileExistsError:
            continue
        except OSError:
            return None
        return aside
    return None


def _move(path: str, aside: str) -> None:
    try:
        move_entry(path, aside)
    except PermissionError:
        # Its creator may have removed the write permission.
        for directory in {os.path.dirname(path), os.path.dirname(aside)}:
            _make_accessible(directory)
        if os.path.isdir(path) and not os.path.islink(path):
            _make_accessible(path)
        move_entry(path, aside)
