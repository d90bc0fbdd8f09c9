"""One permitted git call: its arguments, its repository, and what it may touch there."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import Unclear, canonical_remotes, is_beneath, quoted
from curtainwall.host import Confinement, Finished, make_directories
from curtainwall.model import HostFacts, Mode, Place, Prepared, Role, inside_view, is_git_directory, record, runs_later
from curtainwall.tools.git.confined import LOCAL, LocalRepository, find_repository, try_git
from curtainwall.tools.git.network import GitNetwork, GitTarget
from curtainwall.tools.runners import CannotDo, run_in_thread
from curtainwall.tools.sandbox import SandboxedDirectory, Sandboxes

_FEW: Final = 5
_NOBODY: Final = ("Curtainwall", "curtainwall@localhost")


IsDenied = Callable[[Role, str], bool]
"""Tells whether the session's rules deny one more path, in a role."""

Denials = Callable[[str, Place], IsDenied | None]
"""Returns that check for a tool in a session; None if no rule of the user denies anything."""


@record
class WithheldFiles:
    """Files left out unless a call names them, by name patterns and an exact check, and files that the rules always deny."""

    patterns: tuple[str, ...] = ()
    is_one: Callable[[str], bool] = lambda _path: False
    denials: Denials = lambda _tool, _place: None


@record
class GitParts:
    """The common part of every call."""

    protected: tuple[str, ...]
    sandboxes: Sandboxes
    way_out: GitNetwork
    withheld: WithheldFiles = WithheldFiles()


@record
class GitCall:
    """One permitted call."""

    prepared: Prepared
    place: Place
    parts: GitParts
    notes: list[str]
    was_asked: bool = False
    """The call had to be approved first, so what the approver was shown must be true."""

    def text(self, name: str) -> str | None:
        return cast("str | None", self.prepared.arguments.get(name))

    @property
    def path(self) -> str:
        return cast("str", self.prepared.arguments["path"])

    @property
    def writes(self) -> bool:
        return any(one.role is Role.WRITE_PATH and one.value == self.path for one in self.prepared.subject.resources)

    @property
    def is_careful(self) -> bool:
        """Tell whether files that run later must stay as they are."""
        own = self.place.workspace.own and is_beneath(self.path, self.place.workspace.path)
        # What changes in a view is shown to a human before it reaches the project.
        return not own and inside_view(self.path) is None and self.place.mode is not Mode.BYPASS

    @property
    def names_secrets(self) -> bool:
        """Tell whether the call names a file with secrets; then that was judged, and the session has its label."""
        is_one = self.parts.withheld.is_one
        return any(one.role is Role.READ_PATH and is_one(one.value) for one in self.prepared.subject.resources)

    @property
    def is_denied(self) -> IsDenied | None:
        """Return the check for whether the session's rules deny a file that the call does not name."""
        return self.parts.withheld.denials(self.prepared.subject.tool, self.place)

    def spot(self) -> LocalRepository:
        return find_repository(self.path, self.place)

    @asynccontextmanager
    async def open(self, spot: LocalRepository, *, write: bool | None = None) -> AsyncGenerator[Confinement]:
        """Open the repository for a confined git, writable only if that was judged."""
        self.refuse_protected(spot.root)
        wanted = self.writes if write is None else write
        opened: SandboxedDirectory | None = None
        try:
            async with self.parts.sandboxes.open(self.place, spot.root, write=wanted, git_works=True) as opened:
                yield replace(opened.confinement, cwd=spot.path, bounds=LOCAL)
        finally:
            if opened is not None:
                self.notes.extend(opened.notes)

    def refuse_protected(self, root: str) -> None:
        if is_beneath(root, self.place.workspace.path):
            return
        inside = next((path for path in self.parts.protected if is_beneath(path, root) or is_beneath(root, path)), None)
        if inside is not None:
            raise CannotDo(f"{quoted(root)} contains or lies in the protected path {quoted(inside)}")

    def targets(self, role: Role) -> tuple[GitTarget, ...]:
        """Return the judged URLs; raise `CannotDo` if the repository now leads elsewhere."""
        urls = cast("list[str]", self.prepared.arguments["urls"])
        try:
            now = canonical_remotes(
                self.text("remote"),
                repository=self.path,
                push=role is Role.WRITE_REMOTE,
                workspace=self.place.workspace.path,
                own_ports=self.parts.way_out.own_ports,
            )
        except Unclear as fault:
            raise CannotDo(f"the remote changed after it was judged: {fault.message}") from fault
        if [one.url for one in now] != urls:
            raise CannotDo(f"the remote {quoted(self.text('remote'))} leads elsewhere than when it was judged; ask again")
        return tuple(GitTarget(one.url, self.judged(role, one.value, one.host)) for one in now)

    def judged(self, role: Role, value: str, facts: HostFacts) -> HostFacts:
        """Return the facts of a host if they match what was judged; raise `CannotDo` otherwise."""
        for resource in self.prepared.subject.resources:
            if (resource.role, resource.value, resource.facts) == (role, value, facts):
                return facts
        raise CannotDo(f"{quoted(value)} was not judged for this call")


GitOperation = Callable[[GitCall], Awaitable[JsonValue]]


async def make_directory(call: GitCall, path: str) -> bool:
    """Create a judged directory; return whether it is new."""
    call.refuse_protected(path)
    try:
        return await run_in_thread(call.place.session, partial(make_directories, path))
    except OSError as fault:
        raise CannotDo(f"{quoted(path)} cannot be made: {(fault.strerror or 'unknown').lower()}") from fault


async def identity(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the committer from the user's own config, which the confined git cannot see."""

    def read(key: str) -> str | None:
        quiet = {"PATH": environ.get("PATH", os.defpath), "HOME": environ.get("HOME", "/nonexistent"), "GIT_DIR": "/dev/null"}
        if "XDG_CONFIG_HOME" in environ:
            quiet["XDG_CONFIG_HOME"] = environ["XDG_CONFIG_HOME"]
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                ["git", "config", "--global", "--get", key], capture_output=True, env=quiet, cwd="/", timeout=10, check=False
            )
            return done.stdout.decode(errors="replace").strip() or None
        return None

    name, email = await asyncio.gather(asyncio.to_thread(read, "user.name"), asyncio.to_thread(read, "user.email"))
    if name is None or email is None:
        name, email = _NOBODY
    return {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", name), ("EMAIL", email))}


async def refuse_switch(call: GitCall, spot: LocalRepository, old: str, new: str) -> None:
    """Refuse a switch that would change a file that the rules deny or that runs later: nobody was asked about it."""
    if not looks_at_names(call):
        return
    async with call.open(spot, write=False) as confinement:
        if (await try_git(["rev-parse", "--quiet", "--verify", "HEAD"], confinement)).code != 0:
            done = await try_git(["ls-tree", "-r", "-z", "--full-tree", "--name-only", new, "--"], confinement)
        else:
            words = ["diff", "--no-ext-diff", "--no-textconv", "--no-relative", "--name-only", "-z", "--no-renames", old, new, "--"]
            done = await try_git(words, confinement)
    await asyncio.to_thread(refuse_names, call, spot.top, done)


def looks_at_names(call: GitCall) -> bool:
    """Tell whether it matters which files a call would write."""
    return call.is_careful or call.is_denied is not None


def refuse_names(call: GitCall, top: str, done: Finished) -> None:
    """Refuse a list of files from git if the rules deny changing one, or one runs later automatically."""
    if done.code != 0 or done.cut:
        raise CannotDo(done.err.decode(errors="replace").strip() or "too much would change to look through")
    names = [name for name in os.fsdecode(done.out).split("\0") if name]
    denied = denied_names(call, top, names, (Role.WRITE_PATH, Role.DELETE_PATH))
    if denied:
        raise CannotDo(f"this would change {shown_names(denied, _FEW)}, which the rules of this session deny")
    if not call.is_careful:
        return
    running = [name for name in names if runs_later(f"{top}/{name}", call.place.workspace.path)]
    running += _heads_of_repositories(names)
    if running:
        raise CannotDo(
            f"this would change {shown_names(running, _FEW)}, which run later by themselves; a human must do it, or give the mode `bypass`"
        )


def shown_names(names: Sequence[str], most: int) -> str:
    """Return file names quoted for a message."""
    return ", ".join(quoted(os.fsencode(name).decode(errors="replace")) for name in names[:most])


def denied_names(call: GitCall, top: str, names: Iterable[str], roles: tuple[Role, ...]) -> list[str]:
    """Return those of a repository's files that the session's rules deny in one of these roles."""
    is_denied = call.is_denied
    return [] if is_denied is None else [name for name in names if any(is_denied(role, f"{top}/{name}") for role in roles)]


def _heads_of_repositories(names: list[str]) -> list[str]:
    """Return the HEAD files of directories that git would treat as repositories once these files exist."""
    children: dict[str, set[str]] = {}
    for name in names:
        directory = name
        while directory:
            directory, _, child = directory.rpartition("/")
            children.setdefault(directory, set()).add(child)
    return [f"{path}/HEAD".lstrip("/") for path, names_inside in children.items() if is_git_directory(names_inside)]
