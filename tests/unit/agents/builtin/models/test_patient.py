"""What passes is tried again as long as nobody saw a word of it; the waits are counted, not slept."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from curtainwall.agents.builtin.language_model import AgentMessage, Delta, ModelFault, ModelReply, ModelRetry, Prompt
from curtainwall.agents.builtin.models import ModelRetryPolicy, RetryingModel
from curtainwall.model import Usage
from tests.support.covers import covers

WHOLE = ModelReply(message=AgentMessage(text="yes"), raw=None, usage=Usage())
PROMPT = Prompt("s", ())


@dataclass
class Moody:
    """A model that does, one after the other, what it was told: says something, or fails."""

    moods: list[list[str | ModelFault | ModelReply]]
    asked: int = 0
    closed: int = 0
    name: str = "moody"
    context_size: int = 1

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        mood = self.moods[self.asked]
        self.asked += 1
        try:
            for each in mood:
                if isinstance(each, ModelFault):
                    raise each
                yield Delta(each) if isinstance(each, str) else each
        finally:
            self.closed += 1


@dataclass
class Waits:
    """A clock that only remembers."""

    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def play(model: Moody, waits: Waits, patience: ModelRetryPolicy | None = None) -> list[Delta | ModelRetry | ModelReply]:
    patient = RetryingModel(model, waits.sleep, patience=patience, chance=lambda: 1.0)
    seen: list[Delta | ModelRetry | ModelReply] = []

    async def listen() -> None:
        async for piece in patient.reply(PROMPT):
            seen.append(piece)  # noqa: PERF401 - what came before a fault counts

    try:
        asyncio.run(listen())
    except ModelFault as fault:
        fault.add_note(f"after {seen}")
        raise
    return seen


@covers("models.passing-faults-are-retried")
def test_a_busy_provider_is_asked_again_later_and_later() -> None:
    waits, busy = Waits(), [ModelFault("busy", "slow down")]
    *again, said, whole = play(Moody([busy, busy, busy, ["yes", WHOLE]]), waits)
    assert (said, whole) == (Delta("yes"), WHOLE)
    assert waits.slept == [1.0, 2.0, 4.0]
    assert again == [ModelRetry(2, 6, 1.0, "slow down"), ModelRetry(3, 6, 2.0, "slow down"), ModelRetry(4, 6, 4.0, "slow down")]
    assert str(again[1]) == "trying again in 2 s (3 of 6): slow down"


@covers("models.retries-are-told")
def test_that_it_is_asked_again_is_told_before_anybody_waits() -> None:
    waits, model = Waits(), Moody([[ModelFault("busy", "slow down")], [ModelFault("busy", "slow down")], [WHOLE]])

    async def listen() -> list[tuple[ModelRetry, int]]:
        patient = RetryingModel(model, waits.sleep, chance=lambda: 1.0)
        return [(piece, len(waits.slept)) async for piece in patient.reply(PROMPT) if isinstance(piece, ModelRetry)]

    assert asyncio.run(listen()) == [(ModelRetry(2, 6, 1.0, "slow down"), 0), (ModelRetry(3, 6, 2.0, "slow down"), 1)]


@covers("models.patience-ends")
def test_a_server_that_is_not_there_is_given_up_sooner() -> None:
    waits, model = Waits(), Moody([[ModelFault("unreachable", "nothing listens", is_absent=True)]] * 9)
    with pytest.raises(ModelFault):
        play(model, waits)
    assert waits.slept == [1.0, 2.0]


@covers("models.passing-faults-are-retried")
def test_the_provider_says_how_long_to_wait() -> None:
    waits = Waits()
    play(Moody([[ModelFault("busy", "later", retry_after=17)], [WHOLE]]), waits)
    assert waits.slept == [18.0]


@pytest.mark.parametrize("kind", ["key", "overflow", "rejected"])
@covers("models.passing-faults-are-retried")
def test_what_does_not_pass_is_not_tried_again(kind: str) -> None:
    waits, model = Waits(), Moody([[ModelFault(kind, "no")]])  # type: ignore[arg-type] - one of the kinds
    with pytest.raises(ModelFault, match="no"):
        play(model, waits)
    assert (model.asked, waits.slept) == (1, [])


@pytest.mark.parametrize("kind", ["silent", "unreachable", "busy"])
@covers("models.nothing-is-shown-twice")
def test_once_a_word_was_shown_the_fault_is_raised(kind: str) -> None:
    waits, model = Waits(), Moody([["par", "tial", ModelFault(kind, "gone")], [WHOLE]])  # type: ignore[arg-type] - one of the kinds
    with pytest.raises(ModelFault, match="gone") as raised:
        play(model, waits)
    assert model.asked == 1
    assert "partial" in "".join(raised.value.__notes__).replace("'), Delta(text='", "")


@covers("models.passing-faults-are-retried")
def test_silence_before_the_first_word_is_retried() -> None:
    waits = Waits()
    assert play(Moody([[ModelFault("silent", "…")], [WHOLE]]), waits)[1:] == [WHOLE]


@covers("models.patience-ends")
def test_patience_ends_with_the_tries() -> None:
    waits, model = Waits(), Moody([[ModelFault("busy", "no")]] * 9)
    with pytest.raises(ModelFault):
        play(model, waits, ModelRetryPolicy(tries=4))
    assert (model.asked, len(waits.slept)) == (4, 3)


@covers("models.patience-ends")
def test_patience_ends_with_the_time() -> None:
    waits, model = Waits(), Moody([[ModelFault("busy", "come back tomorrow", retry_after=86_400)], [WHOLE]])
    with pytest.raises(ModelFault, match="tomorrow"):
        play(model, waits)
    assert waits.slept == []


def test_leaving_early_closes_the_model_at_once() -> None:
    model = Moody([["a", "b", WHOLE]])

    async def leave() -> None:
        reply = RetryingModel(model, asyncio.sleep).reply(PROMPT)
        assert await anext(reply) == Delta("a")
        await reply.aclose()
        assert model.closed == 1

    asyncio.run(leave())
