"""The meter of a turn: what flows counts at once, and what was used is in the log when it has ended."""

from pathlib import Path

from curtainwall.compose.external.meter import TurnMeter
from curtainwall.egress import CountedUsage, Dialect, ModelCall, ModelCallEnd
from curtainwall.facts import Masker
from curtainwall.model import (
    Basis,
    BudgetExhausted,
    BudgetKind,
    MessageId,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    RaiseBudget,
    SendMessage,
    StartTurn,
    TurnAt,
    TurnId,
)
from curtainwall.runtime import Actor, SessionJournal, SystemClock
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, events, house, open_session
from tests.support.talking import of, run

TURN = TurnId("turn")
CHEAP = "claude-haiku-4-5"
MASKER = Masker(b"k" * 32)


def model_call(number: int, model: str = "claude-sonnet-4-5") -> ModelCall:
    return ModelCall(number, "anthropic", Dialect.ANTHROPIC, model, "/v1/messages", 4_000)


async def begun(actor: Actor) -> None:
    await actor.submit(SendMessage(by=ANN, message=MessageId("m"), text="go"))
    await actor.submit(StartTurn(by=ANN, turn=TURN))


@covers("brokered.metered", "brokered.budget")
def test_replies_that_flow_together_stop_at_the_limit_and_a_raise_lets_them_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, tmp_path)
            async with opened.hold(session) as actor:
                await begun(actor)
                meter = TurnMeter(
                    TurnAt(session=session, turn=TURN), lambda: actor.state, SessionJournal(opened), opened.clock, MASKER, None
                )
                one, two = model_call(1, CHEAP), model_call(2, CHEAP)
                assert (await meter.begins(one)).allowed
                assert (await meter.begins(two)).allowed
                assert meter.counts(one, CountedUsage(600_000, 10)) is None
                stop = meter.counts(two, CountedUsage(399_990, 0))
                assert stop == "the budget of 1e+06 tokens is used up; a person can raise it"
                assert not (await meter.begins(model_call(3))).allowed, "not even a third one begins while these are only counted here"
                await meter.ended(one, CountedUsage(600_000, 10, measured=True, stop_reason="end_turn"), ModelCallEnd("done", 200))
                await meter.ended(two, CountedUsage(399_990, 0), ModelCallEnd("stopped", 200, stop))
                await meter.settled()
                told = events(opened, session)
                assert len(of(ModelRequested, told)) == 2
                (whole,), (cut,) = of(ModelResponded, told), of(ModelFailed, told)
                assert (whole.stop_reason, whole.raw.inline, whole.usage.tokens_basis) == ("end_turn", None, Basis.MEASURED)
                assert whole.usage.dollars > 0.1
                assert (cut.failure, cut.usage.input_tokens, cut.usage.tokens_basis) == (stop, 399_990, Basis.ESTIMATED)
                assert [event.kind for event in of(BudgetExhausted, told)] == [BudgetKind.TOKENS]
                refused = await meter.begins(model_call(4))
                assert refused.reason == "the budget of tokens is used up; a person can raise it"
                await actor.submit(RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=2_000_000))
                assert (await meter.begins(model_call(5))).allowed
                await meter.ended(model_call(5), CountedUsage(), ModelCallEnd("left"))

    run(story())


@covers("brokered.budget")
def test_dollars_are_counted_while_a_reply_flows_and_nothing_begins_after_the_turn(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, tmp_path)
            async with opened.hold(session) as actor:
                await begun(actor)
                meter = TurnMeter(
                    TurnAt(session=session, turn=TURN), lambda: actor.state, SessionJournal(opened), opened.clock, MASKER, None
                )
                dear, unknown = model_call(1), model_call(2, "nobody-knows-its-price")
                assert (await meter.begins(dear)).allowed
                assert meter.counts(dear, CountedUsage(0, 400_000)) == "the budget of 5 dollars is used up; a person can raise it"
                await meter.ended(dear, CountedUsage(), ModelCallEnd("refused", 529))
                assert (await meter.begins(unknown)).allowed
                assert meter.counts(unknown, CountedUsage(0, 400_000)) is None
                await meter.ended(unknown, CountedUsage(0, 10, stop_reason="stop"), ModelCallEnd("left", 200))
                (failed,), (kept,) = of(ModelFailed, events(opened, session)), of(ModelResponded, events(opened, session))
                assert failed.failure == "the provider answered with status 529"
                assert (kept.stop_reason, kept.usage.dollars_basis) == ("stop", Basis.UNKNOWN), "a client may leave once it has it all"
                late = TurnMeter(
                    TurnAt(session=session, turn=TurnId("over")), lambda: actor.state, SessionJournal(opened), opened.clock, MASKER, None
                )
                assert (await late.begins(dear)).reason == "the turn is over"

    run(story())
