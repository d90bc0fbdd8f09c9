"""The watch over a turn of a process: what counts as a sign of life, and what does not."""

import asyncio
import time
from dataclasses import replace

import pytest

from curtainwall.agents.external.process.launch import AgentSilent, ProcessLimits
from curtainwall.agents.external.process.turn import ProcessTurnWatch
from curtainwall.model import (
    AnyEvent,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    Digest,
    Effect,
    Payload,
    PermitId,
    Verdict,
)

CALL = CallId("c1")
ENDS: tuple[AnyEvent, ...] = (
    CallFinished(at=1, call=CALL, permit=PermitId("p1"), ok=True, result=Payload()),
    CallLost(at=1, call=CALL),
    CallDropped(at=1, call=CALL, why="it left"),
)


def silent_watch() -> ProcessTurnWatch:
    """Return a watch that would end the agent now: it was silent for too long."""
    watch = ProcessTurnWatch(replace(ProcessLimits(), silence=60.0))
    watch.last_sign_at = time.monotonic() - 61.0
    return watch


def is_ended(watch: ProcessTurnWatch) -> bool:
    try:
        asyncio.run(watch.look())
    except AgentSilent:
        return True
    return False


def test_an_agent_that_is_silent_for_too_long_is_ended_and_one_that_is_heard_is_not() -> None:
    watch = silent_watch()
    assert is_ended(watch)
    assert watch.next_look() == 0.0
    watch.note_life()
    assert not is_ended(watch)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_silence_counts_from_the_end_of_a_call_and_not_while_it_runs(end: AnyEvent) -> None:
    watch = silent_watch()
    watch.take(CallPermitted(at=1, call=CALL, permit=PermitId("p1"), digest=Digest("d"), verdict=Verdict(effect=Effect.ALLOW, because=())))
    assert not is_ended(watch), "while its call runs an agent has nothing to say"
    watch.take(end)
    assert not is_ended(watch), "it has only now been told what came of it"
    next_look = watch.next_look()
    assert next_look is not None
    assert 50.0 < next_look <= 60.0
