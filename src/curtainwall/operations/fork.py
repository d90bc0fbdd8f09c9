"""A fork: a new session that knows what its parent knew. Labels come along, grants do not; a workspace of its own is copied."""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path

from curtainwall.facts import is_beneath
from curtainwall.model import (
    TEAMS,
    CommandRefused,
    CurtainwallError,
    InheritHistory,
    Limits,
    Mode,
    NotFound,
    OpenSession,
    SessionId,
    Who,
    Workspace,
    session_stream,
)
from curtainwall.operations.open import inherit_label, open_with_history
from curtainwall.operations.remove import remove_tree
from curtainwall.operations.sessions import Sessions
from curtainwall.session import SessionState, fold, lift

FICLONE = 0x40049409
_PIECE = 1024 * 1024
# A directory stays open for each level on the way down.
_DEEPEST = 256


@dataclass(slots=True)
class CopyReport:
    """What a copy took along, and what it left behind."""

    files: int = 0
    shared: int = 0
    skipped: int = 0
    linked: dict[tuple[int, int], Path] = field(default_factory=dict[tuple[int, int], Path], repr=False)
    """Where each file is that has several names."""


def copy_tree(source: Path, target: Path) -> CopyReport:
    """Copy what is in a directory into another that is empty; nothing outside the source is ever read through a link."""
    done = CopyReport()
    for here, directories, files, descriptor in os.fwalk(source, follow_symlinks=False, onerror=_raise):
        there = target / os.path.relpath(here, source)
        if len(there.parts) - len(target.parts) > _DEEPEST:
            raise CommandRefused(f"`{source}` is nested too deeply to be copied")
        for name in directories:
            _copy_entry(name, descriptor, there, done)
        for name in files:
            _copy_entry(name, descriptor, there, done)
    return done


def _raise(error: OSError) -> None:
    raise error


def _copy_entry(name: str, directory: int, there: Path, done: CopyReport) -> None:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    target = there / name
    if stat.S_ISLNK(found.st_mode):
        target.symlink_to(os.readlink(name, dir_fd=directory))
    elif stat.S_ISDIR(found.st_mode):
        target.mkdir(mode=0o700)
    elif stat.S_ISREG(found.st_mode):
        _copy_file(name, directory, target, done)
    else:
        done.skipped += 1


def _copy_file(name: str, directory: int, target: Path, done: CopyReport) -> None:
    origin = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with open(origin, "rb", buffering=0) as source:
        found = os.fstat(origin)
        if not stat.S_ISREG(found.st_mode):
            done.skipped += 1
            return
        done.files += 1
        if found.st_nlink > 1:
            first = done.linked.setdefault((found.st_dev, found.st_ino), target)
            if first != target:
                os.link(first, target)
                return
        with open(target, "xb", buffering=0) as copy:
            try:
                fcntl.ioctl(copy.fileno(), FICLONE, origin)
                done.shared += 1
            except OSError:
                _copy_data(source, copy, found.st_size)
            os.fchmod(copy.fileno(), stat.S_IMODE(found.st_mode) & 0o777)
            with contextlib.suppress(OSError):
                os.utime(copy.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_data(source: RawIOBase, copy: RawIOBase, size: int) -> None:
    """Copy what a file holds and leave its holes as they are: they may be bigger than the disk."""
    at = 0
    while at < size:
        try:
            at = source.seek(at, os.SEEK_DATA)
        except OSError as fault:
            if fault.errno != errno.ENXIO:
                raise
            break
        end = min(source.seek(at, os.SEEK_HOLE), size)
        source.seek(at)
        copy.seek(at)
        while at < end and (piece := source.read(min(_PIECE, end - at))):
            at += copy.write(piece) or 0
            source.seek(at)
        if at < end:
            break
    copy.truncate(size)


# What a conversation is made of; verdicts, approvals and grants of the parent are its own affair.
_TOLD = frozenset(
    """
    HistoryInherited MessageAccepted TurnStarted TurnResumed TextStreamed AgentSpoke TurnEnded ModelRequested ModelResponded ModelFailed
    HistoryCompacted CallRequested CallDenied CallPermitted CallFinished CallLost CallDropped MessageWithdrawn ProgramFinished
    InstructionsPinned
    """.split()
)


@dataclass(frozen=True, slots=True)
class Forked:
    """The new session, and what became of the workspace; `copied` is None where a project is shared."""

    session: SessionId
    workspace: str
    mode: Mode
    copied: CopyReport | None


async def fork(sessions: Sessions, parent: SessionId, by: Who, name: str = "", limits: Limits | None = None) -> Forked:
    """Open a session on the history of another, up to where that one's log ends now; it keeps the rules of its team, job or webhook.

    It belongs to the channel of whoever forks it, and its asks are shown where the parent's are on that channel.
    """
    entries = sessions.store.log.read(session_stream(parent))
    state = fold(lift(entry) for entry in entries)
    if state.opened is None:
        raise NotFound(f"there is no session `{parent}`")
    session = SessionId(sessions.house.mint())
    place = sessions.home.session(session)
    place.prepare()
    try:
        copied = await asyncio.to_thread(copy_tree, Path(state.workspace.path), place.workspace) if state.workspace.own else None
        # INVARIANT: read after the copy. A parent that is at work has its labels before it has what it could write down in there.
        labels = sessions.state(parent).labels.values()
        workspace = sessions.workspace_at(place.workspace if state.workspace.own else state.workspace.path, own=state.workspace.own)
        told = [
            {"seq": it.seq, "type": it.kind, "version": it.version, "event": json.loads(it.payload)} for it in entries if it.kind in _TOLD
        ]
        history = await sessions.store.blobs.put(
            json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        )
        here = (route for route in state.routes if route.channel == by.channel)
        opening = OpenSession(
            by=by,
            session=session,
            name=name or f"{state.name} (fork)",
            agent=state.opened.agent,
            model=state.model,
            workspace=workspace,
            # `accept-edits` and `bypass` are standing answers, and those stay behind.
            mode=Mode.PLAN if state.mode is Mode.PLAN else Mode.DEFAULT,
            limits=limits or sessions.terms().limits,
            policy=sessions.terms().rules.of_session(state.opened).policy.version,
            parent=parent,
            labels=tuple(inherit_label(source, parent) for source in labels),
            routes=tuple(dict.fromkeys((*here, *sessions.terms().targets))),
            team=state.opened.team,
            job=state.opened.job,
            hook=state.opened.hook,
            channel=TEAMS if state.opened.channel == TEAMS else "",
        )
        inherits = InheritHistory(
            by=by, parent=parent, upto=entries[-1].seq, history=history, how="fork", git_directory=_moved(state, workspace)
        )
        await _to_its_end(open_with_history(sessions, opening, inherits))
    except BaseException:
        if not _may_be_there(sessions, session):
            # A copy that nobody waits for any more may still be at it.
            with suppress(OSError):
                await asyncio.to_thread(remove_tree, place.root)
        raise
    return Forked(session, workspace.path, opening.mode, copied)


def _moved(parent: SessionState, workspace: Workspace) -> str:
    """Return where git works in a fork: in the same place as in its parent, which is in the copy where the workspace was copied."""
    chosen, before = parent.git_directory, parent.workspace.path
    return workspace.path + chosen.removeprefix(before) if is_beneath(chosen, before) else chosen


async def _to_its_end(writing: Coroutine[None, None, None]) -> None:
    """Wait for something until it is known whether it was written, however often somebody wants to stop; then stop."""
    task, stopped = asyncio.ensure_future(writing), False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            stopped = True
    task.result()
    if stopped:
        raise asyncio.CancelledError


def _may_be_there(sessions: Sessions, session: SessionId) -> bool:
    """Tell whether a session has a log, also where that cannot be told now: its files are not to be taken from it."""
    try:
        return sessions.store.log.head(session_stream(session)) > 0
    except CurtainwallError:
        return True
