"""A session's directories for its container: their owner, the orientation, extra mounts, and the agent's stored state."""

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import Final

from curtainwall.agents.external import SERVER, session_overview
from curtainwall.agents.external.container.spec import HOME, WORKSPACE, ContainerFolders, ExtraMount, LentProgram
from curtainwall.facts import quoted
from curtainwall.host import FileOwner, hand_over
from curtainwall.model import TryLater

_NOBODY_ELSE: Final = 1000
"""The agent's user where everything belongs to root."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def settle_owner(folders: ContainerFolders) -> tuple[int, int]:
    """Return the agent's user and group, after making sure that they own the directories; raise `TryLater`."""
    for directory in (folders.orientation, folders.run, folders.state):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Both are read-only inside. Their parent is closed to others, so only the mounts expose them.
    folders.orientation.chmod(0o755)
    folders.run.chmod(0o755)
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    status = folders.workspace.stat()
    user, group = status.st_uid or _NOBODY_ELSE, status.st_gid or _NOBODY_ELSE
    if status.st_uid == 0 and not folders.is_own and not folders.is_readonly:
        project = folders.project or folders.workspace
        how = f"`chown -R {user} {project}`, or plan mode to read it"
        raise TryLater(f"the project {quoted(str(project))} belongs to root, and an agent never is root; give it to a user: {how}")
    if folders.is_own:
        hand_over(folders.workspace, FileOwner(user, group))
    hand_over(folders.state, FileOwner(user, group))
    return user, group


def mountable(folders: ContainerFolders, lent: Iterable[LentProgram], user: int, group: int) -> Iterator[LentProgram]:
    """Yield what can be mounted into the agent's home, after creating the mount points, which the agent owns.

    Otherwise the engine would create them, owned by root. If the agent has put something else there, nothing is mounted.
    """
    for program in lent:
        with suppress(OSError):
            _make_directories(folders.state, program.inside.removeprefix(f"{HOME}/").split("/"), user, group)
            yield program


def with_places(folders: ContainerFolders, mounts: Iterable[ExtraMount], user: int, group: int) -> Iterator[ExtraMount]:
    """Yield the mounts that can be made, after creating caches, which the agent owns, and their places in its home."""
    for mount in mounts:
        if mount.is_ours:
            mount.here.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.getuid() == 0:
                hand_over(mount.here, FileOwner(user, group))
            with suppress(OSError):
                _make_directories(folders.state, mount.inside.removeprefix(f"{HOME}/").split("/"), user, group)
                yield mount
        else:
            yield mount


def _make_directories(top: Path, names: list[str], user: int, group: int) -> None:
    """Create nested directories for a user without following links; raise `OSError` if something else is in the way."""
    at = os.open(top, _DIRECTORY)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            inner = os.open(name, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
            if os.getuid() == 0 and os.fstat(at).st_uid == 0:
                os.fchown(at, user, group)
    finally:
        os.close(at)


def write_orientation(folders: ContainerFolders, files: dict[str, str]) -> None:
    """Write files for the agent, each one atomically."""
    for name, text in files.items():
        hidden = folders.orientation / f".{name}.new"
        hidden.write_text(text, encoding="utf-8")
        hidden.chmod(0o644)
        hidden.rename(folders.orientation / name)


_WORDS = """\
You work in a sandbox that Curtainwall runs.

Free: everything in {workspace}{readonly}, your home {home} and /tmp. Run programs and use your own tools there as you like; nobody is \
asked.
Mediated: the tools of the server `{server}` reach what lies outside: other files of the user, the web (`fetch`), git remotes, \
credentials. Each call is judged by rules. It may run at once, it may be refused, or a person may be asked first; then the call takes as \
long as that person takes, which can be hours. Wait for it; do not call again.
Denied: there is no network here but the way to your own model. `curl`, `git push`, `pip install` and the like fail from your shell; use \
the tools of `{server}` instead. A refusal names the rule that decided and what would be allowed instead. It is final: do not look for a \
way around it. Tell the user what was refused and why.
The root file system is read-only, and what is in /tmp may be gone by your next turn.
{view}
{overview}"""

_VIEW: Final = """\
{workspace} is your own view of the user's project. What you change there is shown to the user once you are done, and the project gets \
what they accept. Git directories are not taken over, so commits stay in your view.
"""


def orientation(
    *, is_readonly: bool = False, is_view: bool = False, tools: str = "", hosts: str = "", instructions: Sequence[str] = ()
) -> str:
    """Return the orientation text; `tools` lists the session's tools, and `hosts` says which hosts are open."""
    readonly = " (to be read: it cannot be changed now)" if is_readonly else ""
    view = _VIEW.format(workspace=WORKSPACE) if is_view else ""
    overview = session_overview(tools, hosts, *instructions)
    return _WORDS.format(workspace=WORKSPACE, home=HOME, server=SERVER, readonly=readonly, view=view, overview=overview)


# OpenCode installs its plugin package into every configuration directory that it can write to, and has no setting against it.
SEALED: Final[Mapping[str, tuple[str, ...]]] = {"opencode": (".config/opencode", ".opencode")}
"""Below the agent's home."""

_SOURCE: Final = "sealed"
_IGNORE: Final = ".gitignore"


def sealed_mounts(agent: str, folders: ContainerFolders) -> tuple[LentProgram, ...]:
    """Return the read-only mounts over the directories that an agent must not write to."""
    places = SEALED.get(agent, ())
    if places:
        source = folders.orientation / _SOURCE
        source.mkdir(mode=0o755, exist_ok=True)
        # OpenCode writes this file if it is missing, and exits if it cannot.
        (source / _IGNORE).touch(mode=0o644)
    return tuple(LentProgram(here=folders.orientation / _SOURCE, inside=f"{HOME}/{place}") for place in places)


DISCOVERY: Final[Mapping[str, str]] = {
    "claude-code": ".claude/skills",
    "codex": ".agents/skills",
    "opencode": ".agents/skills",
    "gemini": ".agents/skills",
}
"""Below the agent's home. Agents find a workspace's own skills in the workspace."""


def skill_mounts(agent: str, folders: Mapping[str, str]) -> tuple[LentProgram, ...]:
    """Return the read-only mounts for skills in these folders, by name; none if we do not know where the agent looks for skills.

    The parent directories belong to the agent, which writes there too. The caller must create them.
    """
    root = DISCOVERY.get(agent)
    if root is None:
        return ()
    return tuple(LentProgram(here=Path(path), inside=f"{HOME}/{root}/{name}") for name, path in sorted(folders.items()))


_MOST: Final = 20_000
"""How many names are examined; an agent that stores more counts as having lost its conversation."""


async def state_sizes(home: Path, patterns: Sequence[str], most: int = _MOST) -> Mapping[Path, int]:
    """Return the files below an agent's home that match the patterns, with their sizes. Runs in a thread, because it may take a while."""
    return await asyncio.to_thread(_sizes, home, patterns, most) if patterns else {}


def _sizes(home: Path, patterns: Sequence[str], most: int) -> Mapping[Path, int]:
    search = _Search(most)
    return {path: status.st_size for pattern in patterns for path, status in search.find(home, pattern.split("/"))}


class _Search:
    """One search, which ends after a limited number of names."""

    def __init__(self, most: int) -> None:
        self._left = most

    def find(self, directory: Path, parts: Sequence[str]) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the entries. Links do not count as directories, and entries that vanish meanwhile are skipped."""
        for path in self._named(directory, parts[0]):
            try:
                about = path.lstat()
            except (OSError, ValueError):
                continue
            if len(parts) == 1:
                yield path, about
            elif stat.S_ISDIR(about.st_mode):
                yield from self.find(path, parts[1:])

    def _named(self, directory: Path, pattern: str) -> Iterator[Path]:
        if not has_magic(pattern):
            if pattern not in ("", ".", ".."):
                yield directory / pattern
            return
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        return
                    if fnmatchcase(entry.name, pattern):
                        yield directory / entry.name
        except OSError:
            return
