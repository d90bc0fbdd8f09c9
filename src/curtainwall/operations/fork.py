"""Forks a session: the new one has its parent's history and labels, but not its grants; the parent's own workspace is copied."""

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
    record,
    session_stream,
    stricter,
)
from curtainwall.operations.open import inherit_label, open_with_history
from curtainwall.operations.remove import remove_tree
from curtainwall.operations.sessions import Sessions
from curtainwall.session import SessionState, fold, lift

FICLONE = 0x40049409
_CHUNK = 1024 * 1024
# A directory stays open for each level of nesting.
_MAX_DEPTH = 256


@dataclass(slots=True)
class CopyReport:
    """How many files a copy took, shared and skipped."""

    files: int = 0
    shared: int = 0
    skipped: int = 0
    linked: dict[tuple[int, int], Path] = field(default_factory=dict[tuple[int, int], Path], repr=False)
    """The first copy of each file with several names."""


def copy_tree(source: Path, target: Path) -> CopyReport:
    """Copy the contents of a directory into an empty one; links are never followed out of the source."""
    report = CopyReport()
    for directory, directories, files, descriptor in os.fwalk(source, follow_symlinks=False, onerror=_raise):
        directory_copy = target / os.path.relpath(directory, source)
        if len(directory_copy.parts) - len(target.parts) > _MAX_DEPTH:
            raise CommandRefused(f"`{source}` is nested too deeply to be copied")
        for name in directories:
            _copy_entry(name, descriptor, directory_copy, report)
        for name in files:
            _copy_entry(name, descriptor, directory_copy, report)
    return report


def _raise(error: OSError) -> None:
    raise error


def _copy_entry(name: str, directory: int, directory_copy: Path, report: CopyReport) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    target = directory_copy / name
    if stat.S_ISLNK(status.st_mode):
        target.symlink_to(os.readlink(name, dir_fd=directory))
    elif stat.S_ISDIR(status.st_mode):
        target.mkdir(mode=0o700)
    elif stat.S_ISREG(status.st_mode):
        _copy_file(name, directory, target, report)
    else:
        report.skipped += 1


def _copy_file(name: str, directory: int, target: Path, report: CopyReport) -> None:
    origin = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with open(origin, "rb", buffering=0) as source:
        status = os.fstat(origin)
        if not stat.S_ISREG(status.st_mode):
            report.skipped += 1
            return
        report.files += 1
        if status.st_nlink > 1:
            first = report.linked.setdefault((status.st_dev, status.st_ino), target)
            if first != target:
                os.link(first, target)
                return
        with open(target, "xb", buffering=0) as copy:
            try:
                fcntl.ioctl(copy.fileno(), FICLONE, origin)
                report.shared += 1
            except OSError:
                _copy_data(source, copy, status.st_size)
            os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
            with contextlib.suppress(OSError):
                os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_data(source: RawIOBase, copy: RawIOBase, size: int) -> None:
    """Copy a file's data and keep its holes, which may be bigger than the disk."""
    position = 0
    while position < size:
        try:
            position = source.seek(position, os.SEEK_DATA)
        except OSError as fault:
            if fault.errno != errno.ENXIO:
                raise
            break
        end = min(source.seek(position, os.SEEK_HOLE), size)
        source.seek(position)
        copy.seek(position)
        while position < end and (piece := source.read(min(_CHUNK, end - position))):
            position += copy.write(piece) or 0
            source.seek(position)
        if position < end:
            break
    copy.truncate(size)


# The events that make up a conversation; a fork does not inherit the parent's verdicts, approvals and grants.
_CONVERSATION_EVENTS = frozenset(
    """
    HistoryInherited MessageAccepted TurnStarted TurnResumed TextStreamed AgentSpoke TurnEnded ModelRequested ModelResponded ModelFailed
    HistoryCompacted CallRequested CallDenied CallPermitted CallFinished CallLost CallDropped MessageWithdrawn ProgramFinished
    InstructionsPinned
    """.split()
)


@record
class Forked:
    """The new session and its workspace; `copied` is None if both share a project."""

    session: SessionId
    workspace: str
    mode: Mode
    copied: CopyReport | None


async def fork(sessions: Sessions, parent: SessionId, by: Who, name: str = "", limits: Limits | None = None) -> Forked:
    """Open a session with the history of another up to now; it keeps the rules of its team, job or webhook.

    It belongs to the channel of the person who forks it, and its asks are shown where the parent's are on that channel.
    """
    entries = sessions.store.log.read(session_stream(parent))
    state = fold(lift(entry) for entry in entries)
    if state.opened is None:
        raise NotFound(f"there is no session `{parent}`")
    session = SessionId(sessions.registry.mint())
    place = sessions.home.session(session)
    place.prepare()
    try:
        copied = await asyncio.to_thread(copy_tree, Path(state.workspace.path), place.workspace) if state.workspace.own else None
        # INVARIANT: read after the copy. A working parent gets a label before it can write what it read into the workspace.
        labels = sessions.state(parent).labels.values()
        workspace = sessions.workspace_at(place.workspace if state.workspace.own else state.workspace.path, own=state.workspace.own)
        history_entries = [
            {"seq": entry.seq, "type": entry.kind, "version": entry.version, "event": json.loads(entry.payload)}
            for entry in entries
            if entry.kind in _CONVERSATION_EVENTS
        ]
        history = await sessions.store.blobs.put(
            json.dumps(history_entries, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        )
        channel_routes = (route for route in state.routes if route.channel == by.channel)
        opening = OpenSession(
            by=by,
            session=session,
            name=name or f"{state.name} (fork)",
            agent=state.opened.agent,
            model=state.model,
            workspace=workspace,
            # `accept-edits` and `bypass` are standing approvals, which a fork does not inherit.
            mode=stricter(state.mode, Mode.DEFAULT),
            limits=limits or sessions.terms().limits,
            policy=sessions.terms().rules.of_session(state.opened).policy.version,
            parent=parent,
            labels=tuple(inherit_label(source, parent) for source in labels),
            routes=tuple(dict.fromkeys((*channel_routes, *sessions.terms().targets))),
            team=state.opened.team,
            job=state.opened.job,
            hook=state.opened.hook,
            channel=TEAMS if state.opened.channel == TEAMS else "",
        )
        inherits = InheritHistory(
            by=by, parent=parent, upto=entries[-1].seq, history=history, how="fork", git_directory=_git_directory_in(state, workspace)
        )
        await _finish_despite_cancellation(open_with_history(sessions, opening, inherits))
    except BaseException:
        if not _may_have_log(sessions, session):
            # The copying thread may still be running, although nobody waits for it any more.
            with suppress(OSError):
                await asyncio.to_thread(remove_tree, place.root)
        raise
    return Forked(session, workspace.path, opening.mode, copied)


def _git_directory_in(parent: SessionState, workspace: Workspace) -> str:
    """Return the git directory of a fork: the same as its parent's, or its copy if the workspace was copied."""
    directory, old_workspace = parent.git_directory, parent.workspace.path
    return workspace.path + directory.removeprefix(old_workspace) if is_beneath(directory, old_workspace) else directory


async def _finish_despite_cancellation(writing: Coroutine[None, None, None]) -> None:
    """Wait until we know whether something was written, even if cancelled meanwhile; then raise the cancellation."""
    task, cancelled = asyncio.ensure_future(writing), False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


def _may_have_log(sessions: Sessions, session: SessionId) -> bool:
    """Tell whether a session has a log; true if we cannot tell now, because then its files must not be deleted."""
    try:
        return sessions.store.log.head(session_stream(session)) > 0
    except CurtainwallError:
        return True
