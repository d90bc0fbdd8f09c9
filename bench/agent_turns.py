"""What our own agent adds to a turn: everything but the model, fresh, at 5,000 messages, and over 1,000 turns in a row."""

from collections.abc import AsyncGenerator, Sequence
from itertools import count
from pathlib import Path
from statistics import median

from bench.agents import USED, at_work
from bench.disk import settled_size
from bench.measuring import Figure, Rounds, Seconds, Target, clock, interleave
from bench.sample import answered, said
from curtainwall.agents.builtin.language_model import AgentMessage, Delta, ModelReply, Prompt
from curtainwall.compose.agents import RunningAgents
from curtainwall.host.user import local_user
from curtainwall.model import MessageId, SendMessage, SessionId, TurnEnded, TurnStatus, session_stream
from curtainwall.operations.open import SessionSpec, open_new

_MESSAGES, _TURNS, _HUNDRED = 5_000, 1_000, 100
_ROUNDS, _WARM_UP, _EACH = 7, 2, 10


async def agent_turns(home: Path) -> list[Figure]:
    """Turns with a model that replies at once, by a clock that stands still while the model works."""
    model = _Clocked()
    async with at_work(home, model) as (work, wanted):
        turns = _Turns(work, wanted, model)
        long = await turns.opened()
        database = home / "home" / "curtainwall.db"
        hundreds = [await turns.hundred(long, database) for _ in range(_MESSAGES // 2 // _HUNDRED)]

        async def at_length(_: int) -> Sequence[Seconds]:
            return [await turns.take(long) for _ in range(_EACH)]

        async def fresh(_: int) -> Sequence[Seconds]:
            session = await turns.opened()
            return [await turns.take(session) for _ in range(_EACH)]

        took = await interleave({"fresh": fresh, "long": at_length}, rounds=_ROUNDS, warm_up=_WARM_UP)
    return [*_overheads(took), *_growth(hundreds[: _TURNS // _HUNDRED])]


class _Clocked:
    """A model that replies at once, and knows how long it had the turn to itself."""

    name = "clocked"
    context_size = 1_000_000_000

    def __init__(self) -> None:
        self.took: Seconds = 0.0
        self._numbers = count()

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        """Yield a reply of 800 letters, in four pieces."""
        began = clock()
        said = AgentMessage(text=answered(next(self._numbers)))
        reply = ModelReply(said, {"text": said.text}, USED, "end_turn")
        self.took = clock() - began
        for part in range(4):
            yield Delta(said.text[part * 200 : part * 200 + 200])
        yield reply


class _Turns:
    """Whole turns: from the message, as a channel sends it, until the log says that the turn has ended."""

    def __init__(self, work: RunningAgents, wanted: SessionSpec, model: _Clocked) -> None:
        self._work = work
        self._wanted = wanted
        self._model = model
        self._numbers = count()
        self._by = local_user()

    async def opened(self) -> SessionId:
        """Open a session that this process looks after, and take it through a first turn."""
        session = await open_new(self._work.wired.sessions, self._wanted, self._by)
        self._work.turns.attend(session)
        await self.take(session)
        return session

    async def take(self, session: SessionId) -> Seconds:
        """Take one turn and return how long it took without the model."""
        house, stream = self._work.wired.registry, session_stream(session)
        message = SendMessage(by=self._by, message=MessageId(house.mint()), text=said(next(self._numbers)))
        cursor = house.feed.head(stream)
        began = clock()
        await self._work.desk.send(session, message)
        async for recorded in house.feed.follow(stream, cursor):
            if isinstance(recorded.event, TurnEnded):
                ended = clock()
                assert recorded.event.status is TurnStatus.DONE, recorded.event.failure
                return ended - began - self._model.took
        raise AssertionError("the feed ended")

    async def hundred(self, session: SessionId, database: Path) -> tuple[Seconds, float]:
        """Take a hundred turns and return the median one and the bytes that each added to the database."""
        before = settled_size(database)
        took = median([await self.take(session) for _ in range(_HUNDRED)])
        return took, (settled_size(database) - before) / _HUNDRED


def _overheads(took: dict[str, Rounds]) -> list[Figure]:
    fresh, long = took["fresh"], took["long"]
    note = "from the message at the desk to the end of the turn in the log, without the model's own time: six commits"
    return [
        Figure("agent's turn, fresh", fresh.p50 * 1e3, "ms", target=Target(5), note=note),
        Figure(
            "agent's turn at 5,000 messages",
            long.p50 * 1e3,
            "ms",
            fresh.p50 * 1e3,
            "ours, fresh",
            long.to(fresh),
            Target(10),
            "the same in a session of 2,500 turns and more",
        ),
    ]


def _growth(hundreds: Sequence[tuple[Seconds, float]]) -> list[Figure]:
    """Return how the first hundred of 1,000 turns stand to the last."""
    first, last = hundreds[0], hundreds[-1]
    each = [written for _, written in hundreds]
    slope = (each[-1] - each[0]) / (len(each) - 1) / _HUNDRED
    return [
        Figure(
            "1,000 turns: time",
            last[0] * 1e3,
            "ms",
            first[0] * 1e3,
            "the first hundred",
            last[0] / first[0],
            Target(1.25, of="ratio"),
            "the last hundred turns of 1,000 in one session; flat means that the ratio is 1 but for noise",
        ),
        Figure(
            "1,000 turns: bytes",
            last[1],
            "B/turn",
            first[1],
            "the first hundred",
            last[1] / first[1],
            Target(1.25, of="ratio"),
            f"what a turn adds to the database, 200 B said and 800 B answered, with requests and replies; slope {slope:+.2f} B a turn",
        ),
    ]
