"""Turns and a disk that fails: what an agent has done is written down when that is possible again, and not done twice."""

from dataclasses import dataclass
from pathlib import Path

from curtainwall.model import MessageId, SendMessage, SessionId, TurnAt, TurnResult, TurnStatus
from curtainwall.runtime import NoHooks, Turns
from tests.support.covers import covers
from tests.support.houses import ANN, FailingStore, house, kinds, open_session, run, until


@dataclass
class Filling:
    """An agent whose first turn fills the disk."""

    store: FailingStore
    turns: int = 0

    async def work(self, at: TurnAt) -> TurnResult:
        self.turns += 1
        self.store.is_full = self.turns == 1
        return TurnResult(status=TurnStatus.DONE)

    async def compact(self, session: SessionId, instructions: str) -> None:
        raise NotImplementedError

    def forget(self, session: SessionId) -> None:
        raise NotImplementedError


@covers("runtime.a-turn-ends-once")
def test_a_turn_that_ends_while_the_disk_is_full_is_written_down_later_and_not_worked_on_again(tmp_path: Path) -> None:
    async def story() -> None:
        store = FailingStore()
        agent = Filling(store)
        async with house(store) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, lambda _: agent, NoHooks(), lambda _: "")
            turns.attend(session)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: store.refused > 0)
            store.is_full = False
            await until(lambda: kinds(here, session)[-1] == "TurnEnded")
            await here.send(session, SendMessage(by=ANN, message=MessageId("m2"), text="and again"))
            await until(lambda: kinds(here, session).count("TurnEnded") == 2)
            assert (agent.turns, kinds(here, session).count("TurnStarted"), kinds(here, session).count("TurnResumed")) == (2, 2, 0)
            await turns.close()

    run(story())
