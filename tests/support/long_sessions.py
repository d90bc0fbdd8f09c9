"""Sessions of very many turns, written into a log at once."""

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Batch,
    Log,
    MessageAccepted,
    MessageId,
    SessionId,
    SessionReady,
    TurnId,
    TurnStarted,
    Write,
    session_stream,
)
from tests.support.stores import ANN, NOON, opened, turn_ended
from tests.support.webs import Web


def long_session(web: Web, turns: int) -> SessionId:
    """Write a session of so many turns in which nobody works."""
    session = SessionId(web.served.wired.registry.mint())
    web.do(write_turns(web.served.wired.store.log, session, turns))
    return session


async def write_turns(log: Log, session: SessionId, count: int) -> None:
    """Write a session of so many turns, each a question and its answer."""
    begun: tuple[AnyEvent, ...] = (opened(session, agent="nobody", channel="local"), SessionReady(at=NOON))
    turns = (
        event
        for number in range(count)
        for event in (
            MessageAccepted(at=NOON, message=MessageId(f"m{number}"), text=f"question {number};", by=ANN),
            TurnStarted(at=NOON, turn=TurnId(f"t{number}"), messages=(MessageId(f"m{number}"),)),
            AgentSpoke(at=NOON, turn=TurnId(f"t{number}"), text=f"answer {number};"),
            turn_ended(turn=f"t{number}"),
        )
    )
    await log.append(Batch((Write(session_stream(session), 0, (*begun, *turns)),)))
