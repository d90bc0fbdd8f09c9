"""The files in a project that run later by themselves: found before a confined process may write there, and looked at again afterwards.

A mount can keep what is there from being changed. What is not there yet cannot be kept from being made without leaving something behind on
the disk, so it is found afterwards and set aside under a name that nothing runs. Nothing is ever deleted.
"""

import ctypes
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from curtainwall.host.files.beneath import move_entry, open_beneath, replace_file
from curtainwall.model import holds_later_names, is_git_directory, is_later_name

MOST: Final = 65_536
"""How many bytes of a config are looked at."""

_BRANCH: Final = re.compile(r'\[branch "[\w./@#+-]+"\]', re.ASCII)
_REMOTE: Final = re.compile(r'^\[remote "([\w.-]+)"\]$', re.ASCII | re.MULTILINE)
_FOLLOWS: Final = re.compile(
    r"\t(?:remote = (?P<remote>[\w.-]+)|merge = refs/heads/[\w./@#+-]+|rebase = (?:true|false)|[a-z-]*merge-base = [\w./@#+-]+)", re.ASCII
)


def only_tracks(before: str, now: str) -> bool:
    """Tell whether two configs say the same, but for which branch follows which."""
    # Any other word could be the path of a directory, or a URL, and a push would go there.
    remotes = frozenset((".", *_REMOTE.findall(before)))
    rest = _rest(before, remotes)
    return rest is not None and rest == _rest(now, remotes)


def _rest(text: str, remotes: frozenset[str]) -> list[tuple[str, str]] | None:
    """Return every other line, each with the head that it stands under; None where a line goes on with the next."""
    found: list[tuple[str, str]] = []
    head = ""
    for line in text.split("\n"):
        if line.endswith("\\"):
            return None
        if line.startswith("["):
            head = line
        if line and not (_BRANCH.fullmatch(head) and (line == head or _follows(line, remotes))):
            found.append((head, line))
    return found


def _follows(line: str, remotes: frozenset[str]) -> bool:
    match = _FOLLOWS.fullmatch(line)
    return match is not None and match["remote"] in (None, *remotes)


MAX_FIXED: Final = 256
"""How many are kept by mounts, those nearest to the root; each costs bubblewrap more than the one before."""

MAX_ENTRIES: Final = 500_000

# In a git directory: what git runs, or what tells it where to look for that. Git itself works on without changing them.
_HOT = ("hooks", "config", "config.worktree", "commondir", "info", "modules", "worktrees")
_ENDING = ".held"
_UNSEEN = "unseen"
_LONGEST_NAME: Final = 255
_AS_OWNER: Final = stat.S_ISUID | stat.S_ISGID
_STATX = getattr(ctypes.CDLL(None), "statx", None)
_HERE, _NO_FOLLOW, _BIRTH = -100, 0x100, 0x800


class TooMany(Exception):
    """The project has more files than can be looked through for every command."""


@dataclass(frozen=True, slots=True)
class Later:
    """What runs later by itself in a project: each path with what it was like, which file that was, the git directories, their configs."""

    found: Mapping[str, str]
    ways: Mapping[str, tuple[int, ...]]
    git: tuple[str, ...]
    configs: Mapping[str, str] = field(default_factory=dict[str, str])
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where each link leads in the project, also where nothing is there yet."""
    linked: tuple[str, ...] = ()
    """Those found that run later only because a link leads to them."""

    def fixed(self, *, git_works: bool) -> tuple[str, ...]:
        """Return the paths to keep by mounts; where git works, its directories are open but for what it runs."""
        hot = tuple(path for path in self.found if path.rpartition("/")[0] in self.git)
        # A link cannot be kept by a mount; it is looked at afterwards, like everything that is new.
        free = {path for path, likeness in self.found.items() if likeness.startswith("git ")} if git_works else {*hot}
        chosen = [path for path in self.found if path not in free and not os.path.islink(path)]
        return tuple(sorted(chosen, key=lambda path: path.count("/"))[:MAX_FIXED])


def find_later(root: str, most: int | None = MAX_ENTRIES, *, lifted: list[tuple[str, str | None]] | None = None) -> Later:
    """Return what in a project runs later by itself; raise `TooMany`.

    With a list for what had to be `lifted` we insist: a directory that cannot be listed is opened, one too deep to be named is moved up.
    """
    found: dict[str, str] = {}
    links: dict[str, str] = {}
    targets: dict[str, str] = {}
    git: list[str] = []
    insist = lifted is not None

    def note(path: str) -> None:
        try:
            found[path] = _likeness(path)
            target = os.path.realpath(path)
            if target != path and target.startswith(f"{root}/"):
                links[path] = target
                targets[target] = _likeness(target)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            if not insist:
                raise
            # Nothing that was looked at before is like this.
            found[path] = _UNSEEN

    for path, is_directory in _named_so(root, most, lifted):
        with suppress(FileNotFoundError):
            if path.endswith("/HEAD"):
                # A git directory by what it holds. Its HEAD stands for it: without one, git takes it for nothing.
                above = path.removesuffix("/HEAD")
                found[path] = f"git {os.lstat(above).st_ino}"
                for name in _HOT:
                    note(f"{above}/{name}")
            elif is_directory and path.casefold().endswith((".git", "git~1")):
                git.append(path)
                if insist:
                    _listed(path, insist=True)
                found[path] = f"git {os.lstat(path).st_ino}"
                for name in _HOT:
                    note(f"{path}/{name}")
            else:
                note(path)
    configs = {path: text for path in (f"{each}/config" for each in git) if path in found and (text := _text_of(path)) is not None}
    linked = tuple(target for target in targets if target not in found)
    found |= {target: targets[target] for target in linked}
    return Later(found, {path: _way_to(path, root) for path in found}, tuple(git), configs, links, linked)


def set_aside(root: str, before: Later, fixed: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """Rename what came or changed since, and return each path with its new name, or None where that could not be done."""
    held: list[tuple[str, str | None]] = []
    # A mount goes along when a directory above it is moved, and is gone when somebody outside puts another file in its place, as editors
    # and git do that save a file: from then on the place is free. Only while it is the same file, what changed in it came from outside.
    kept = {path for path in fixed if before.ways.get(path) == _way_to(path, root)}
    waiting, gone = [root], set[str]()
    while waiting:
        here = waiting.pop()
        # However much was made, and however it was closed, it is looked through.
        now = find_later(here, None, lifted=held)
        for path, can_move in _changed(now, before, kept):
            if not gone.isdisjoint(_lineage(path)):
                continue
            aside = renamed(path) if can_move else None
            held.append((path, aside))
            gone.add(path)
            if aside is not None and path in before.configs:
                # Without any, git would forget the remotes and what else the user had set.
                with suppress(OSError, ValueError):
                    replace_file(path, before.configs[path].encode("latin-1"), only_new=True)
            # What belonged to it by its name has to be looked at by itself now.
            if aside is not None and os.path.isdir(aside) and not os.path.islink(aside):
                waiting.append(aside)
    return tuple(held)


def _changed(now: Later, before: Later, kept: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield what came or changed, each with whether it may be renamed."""
    linked = {*now.linked}
    for path, likeness in now.found.items():
        if path in kept or before.found.get(path) == likeness or _is_tracking(path, before):
            continue
        if path not in linked:
            yield path, True
            continue
        for link in (link for link, target in now.links.items() if target == path):
            if before.found.get(link) == now.found[link]:
                yield from _changed_behind(link, path, before, kept)


def _changed_behind(link: str, target: str, before: Later, kept: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield what is to be set aside where something came or changed behind a link that is as it was.

    INVARIANT: a target is never renamed where the confined process could not have done so itself, or the process would only have to
    lead a link there. A link that came or changed is set aside itself, and its target left alone.
    """
    leads_as_before = before.links.get(link) == target
    is_kept = not kept.isdisjoint(_lineage(target))
    if leads_as_before and is_kept:
        return
    can_move_target = not is_kept and before.found.keys().isdisjoint(_lineage(target.rpartition("/")[0]))
    can_move_link = kept.isdisjoint(_lineage(link))
    if can_move_target and (leads_as_before or not can_move_link):
        yield target, True
    else:
        yield link, can_move_link


def take_owners_bits(root: str, since: int) -> tuple[str, ...]:
    """Take the bits setuid and setgid from files that were changed since a time in nanoseconds, and return those that had one.

    Others of this machine would run such a program as its owner. What the user had made so before stays so.
    """
    taken: list[str] = []
    for path, found in _below(root):
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_mode & _AS_OWNER and found.st_ctime_ns >= since:
            with suppress(OSError, ValueError):
                taken += [path] if take_bits(path) else []
    return tuple(taken)


def take_bits(path: str) -> bool:
    """Take the bits setuid and setgid from a file, and tell whether it had one.

    By a descriptor, with no link followed: whoever else works there must not have us change the mode of something outside.
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
    """Yield a path and the directories that it lies in."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _is_tracking(path: str, before: Later) -> bool:
    """Tell whether a git config says by now only that other branches follow others."""
    old = before.configs.get(path)
    new = _text_of(path) if old is not None else None
    return old is not None and new is not None and only_tracks(old, new)


def _text_of(path: str) -> str | None:
    """Return what a short file says, byte by byte; None for anything else."""
    with suppress(OSError, ValueError), open(open_beneath(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        content = file.read(MOST + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
        return content.decode("latin-1") if content is not None and len(content) <= MOST else None
    return None


def _way_to(path: str, root: str) -> tuple[int, ...]:
    """Return which directories lead from the project to a path, and which file it is: a number may be given again, a birth not."""
    names = path[len(root) :].split("/")[1:]
    places = [f"{root}/{'/'.join(names[: count + 1])}" for count in range(len(names))]
    try:
        return tuple(number for place in places for number in (os.lstat(place).st_ino, _born(place)))
    except OSError:
        return (-1,)


def _born(path: str) -> int:
    """Return when a file was made, in nanoseconds; 0 where its disk does not say. Nobody can set this time."""
    buffer = (ctypes.c_uint64 * 32)()
    if _STATX is None or _STATX(_HERE, os.fsencode(path), _NO_FOLLOW, _BIRTH, buffer) != 0 or not buffer[0] & _BIRTH:
        return 0
    return buffer[10] * 1_000_000_000 + (buffer[11] & 0xFFFFFFFF)


def _named_so(root: str, most: int | None, lifted: list[tuple[str, str | None]] | None) -> Iterator[tuple[str, bool]]:
    """Yield the paths whose names run later, each with whether it is a directory; what lies in such a one belongs to it."""
    waiting, seen = [root], 0
    while waiting:
        here = waiting.pop()
        try:
            listed = _listed(here, insist=lifted is not None)
        except OSError as fault:
            if lifted is None:
                raise TooMany from fault
            aside = renamed(here, to=root)
            lifted.append((here, aside))
            waiting.extend([aside] if aside is not None else [])
            continue
        above = "" if here == root else here.rpartition("/")[2]
        if is_git_directory({entry.name for entry in listed}):
            yield f"{here}/HEAD", False
        for entry in listed:
            seen += 1
            if most is not None and seen > most:
                raise TooMany
            is_directory = entry.is_dir(follow_symlinks=False)
            # A link is not walked through, so in place of a directory that may hold such names it counts as what it could lead to.
            if is_later_name(entry.name, above) or (entry.is_symlink() and holds_later_names(entry.name)):
                yield entry.path, is_directory
            elif is_directory:
                waiting.append(entry.path)


def _listed(path: str, *, insist: bool) -> list[os.DirEntry[str]]:
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
        _unlock(path)
        return _listed(path, insist=False)
    return []


def _unlock(path: str) -> None:
    os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | stat.S_IRWXU)


def likeness_of(path: str) -> str | None:
    """Return what tells whether something was changed; None where nothing is."""
    try:
        return _likeness(path)
    except OSError:
        return None


def _likeness(path: str) -> str:
    """Return what tells whether a file, or anything in a directory, was changed; the kernel alone sets the time of change."""
    found = os.lstat(path)
    outline = f"{found.st_mode} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    if not stat.S_ISDIR(found.st_mode):
        return outline
    digest = hashlib.sha256(outline.encode())
    for inside, inner in _below(path):
        outline = "" if inner is None else f"{inner.st_mode} {inner.st_ino} {inner.st_size} {inner.st_ctime_ns}"
        digest.update(os.fsencode(f"{inside}\0{outline}\0"))
    return digest.hexdigest()


def _below(path: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield whatever lies in a directory, always in the same order, with what it is like where the kernel can tell.

    INVARIANT: no depth ends this early. Whoever could do that would have everything else left in its place.
    """
    waiting = [path]
    while waiting:
        here, listed = waiting.pop(), list[str]()
        with suppress(OSError):
            listed = sorted(os.listdir(here))
        for inside in (f"{here}/{name}" for name in listed):
            try:
                found = os.lstat(inside)
            except FileNotFoundError:
                continue
            except OSError:
                found = None
            if found is not None and stat.S_ISDIR(found.st_mode):
                waiting.append(inside)
            yield inside, found


def renamed(path: str, to: str | None = None) -> str | None:
    """Set a path aside, where it lies or in another directory, and return its new name."""
    above, _, name = path.rpartition("/")
    for number in ("", *map(str, range(2, 100))):
        ending = f"{_ENDING}{number}"
        # A name may be as long as names can be.
        short = os.fsdecode(os.fsencode(name)[: _LONGEST_NAME - len(ending)])
        aside = f"{to or above}/{short}{ending}"
        try:
            _moved(path, aside)
        except FileExistsError:
            continue
        except OSError:
            return None
        return aside
    return None


def _moved(path: str, aside: str) -> None:
    try:
        move_entry(path, aside)
    except PermissionError:
        # Whoever made it may have closed the door behind it.
        for one in {os.path.dirname(path), os.path.dirname(aside)}:
            _unlock(one)
        if os.path.isdir(path) and not os.path.islink(path):
            _unlock(path)
        move_entry(path, aside)
