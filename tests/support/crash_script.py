"""A session's script as a real process that dies at its n-th commit: `python -m tests.support.crash_script HOME N before|after on|off`.

Run again with N = 0 it goes on wherever the log says it stopped, as any process of ours would. The far side is `HOME/../far`, a file
that only grows. With snapshots on, one is made after each step, and it prints where the one ends that it began with.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from curtainwall.model import (
    AgentSpoke,
    AnswerApproval,
    AnyCommand,
    ApprovalQuery,
    Batch,
    CommandRefused,
    Concerns,
    Conflict,
    EndTurn,
    Entry,
    GrantScope,
    Limits,
    MessageId,
    Mode,
    OpenSession,
    ReadySession,
    RecordProgress,
    RenameSession,
    ResumeTurn,
    SendMessage,
    SessionId,
    StartTurn,
    StreamId,
    TurnId,
    TurnStatus,
    Workspace,
    session_stream,
)
from curtainwall.runtime import SessionFolds, SessionGate, SessionRegistry, SystemClock
from curtainwall.session import CallStatus, Rules
from curtainwall.store import SqliteStore
from tests.support.houses import ANN, BOB, FarSide, policy, read, tools, write

SESSION = SessionId("0000000000crash0")
TURN = TurnId("turn-1")


class DyingLog:
    """A real log whose process ends right before or right after its n-th commit."""

    def __init__(self, log: SqliteStore, nth: int, when: str) -> None:
        self._log = log.log
        self._left = nth
        self._when = when

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = await self._log.append(batch)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        return self._log.read(stream, after, limit)

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        return self._log.watch(concerns)

    def head(self, stream: StreamId) -> int:
        return self._log.head(stream)

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        await self._log.erase(stream, batch)


class DyingStore:
    """A real store with a dying log."""

    def __init__(self, store: SqliteStore, nth: int, when: str) -> None:
        self.log = DyingLog(store, nth, when)
        self.inbox, self.leases, self.blobs, self.index, self.marks = store.inbox, store.leases, store.blobs, store.index, store.marks
        self.snapshots = store.snapshots


async def play(house: SessionRegistry, folds: SessionFolds, far: FarSide, workspace: Path) -> None:
    """Go through the script; every step can be repeated, because its key or the log knows that it was done."""
    gate = SessionGate(house, tools(far))

    async def say(command: AnyCommand, key: str) -> None:
        try:
            await house.send(SESSION, command, key)
        except (CommandRefused, Conflict):
            return
        finally:
            await save()

    async def save() -> None:
        async with house.hold(SESSION) as actor:
            folds.save(actor.stream, actor.folded)

    opened = OpenSession(
        by=ANN,
        session=SESSION,
        name="crash",
        agent="builtin",
        model="demo",
        workspace=Workspace(path=str(workspace), own=True),
        mode=Mode.DEFAULT,
        limits=Limits(),
        policy=house.rules().policy.version,
    )
    await say(opened, "open")
    await say(ReadySession(by=ANN), "ready")
    await say(SendMessage(by=ANN, message=MessageId("m1"), text="go"), "message")
    await say(StartTurn(by=ANN, turn=TURN), "turn")
    if not _was_requested(house, "one"):
        await gate.request(SESSION, write(workspace / "one"), wait=False)
        await save()
    await say(RecordProgress(by=ANN, events=(AgentSpoke(at=1, turn=TURN, text="hello"),)), "progress")
    if not _was_requested(house, "/etc/hostname"):
        await gate.request(SESSION, read("/etc/hostname"), wait=False)
        await save()
    await say(EndTurn(by=ANN, turn=TURN, status=TurnStatus.WAITING), "wait")
    for row in house.stores.index.approvals(ApprovalQuery()):
        scope = GrantScope.SESSION
        await say(AnswerApproval(by=BOB, approval=row.approval, granted=True, scope=scope), f"answer-{row.approval}")
    await say(ResumeTurn(by=ANN, turn=TURN), "resume")
    await gate.resume_answered(SESSION)
    if not _was_requested(house, "two"):
        await gate.request(SESSION, write(workspace / "two"), wait=False)
        await save()
    await say(EndTurn(by=ANN, turn=TURN, status=TurnStatus.DONE), "end")
    await say(RenameSession(by=ANN, name="survived"), "rename")


def _was_requested(house: SessionRegistry, path: str) -> bool:
    events = [recorded.event for recorded in house.feed.read(session_stream(SESSION))]
    return any(path in str(getattr(event, "subject", "")) for event in events)


async def main(home: Path, nth: int, when: str, snapshots: str) -> None:
    workspace = home.parent / "workspace"
    workspace.mkdir(exist_ok=True)
    rules = Rules(policy=policy())
    clock = SystemClock()
    async with SqliteStore.open(home, clock, with_snapshots=snapshots == "on") as store:
        stores = DyingStore(store, nth, when) if nth else store
        folds = SessionFolds(stores.log, store.snapshots, every=1)
        async with SessionRegistry(stores, clock, lambda: rules, folds=folds) as house:
            async with house.hold(SESSION) as actor:
                print("snapshot", actor.folded.saved, actor.folded.seq)
            await play(house, folds, FarSide(home.parent / "far"), workspace.resolve())
            async with house.hold(SESSION) as actor:
                standing = [call.standing for call in actor.state.calls.values()]
                assert CallStatus.PERMITTED not in standing
    print("finished")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
