"""Chains of questions: a team asks another to answer a question, so the first asker waits for all of them."""

from dataclasses import dataclass, field
from typing import assert_never

from curtainwall.model import (
    AnyEvent,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    Feed,
    InterruptAsked,
    MessageId,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerEvent,
    PeerMessageSent,
    SessionId,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    session_stream,
)
from curtainwall.operations.activity import SessionActivity
from curtainwall.teams.pairs import Shortage

_WAITING = frozenset(("teams.ask", "teams.send_message"))


@dataclass(slots=True)
class _Link:
    """One conversation of a chain: whether a budget stops it, and whose answers it waits for."""

    team: str
    session: SessionId
    tale: SessionActivity = field(default_factory=SessionActivity)
    cursor: int = 0
    _sent: dict[MessageId, tuple[str, SessionId]] = field(default_factory=dict[MessageId, tuple[str, SessionId]])

    @property
    def asked(self) -> tuple[tuple[str, SessionId], ...]:
        """Return the teams whose answer it waits for, and their sessions."""
        is_waiting = any(subject.tool in _WAITING for subject in self.tale.running.values())
        return tuple(self._sent.values()) if is_waiting else ()

    def read(self, feed: Feed) -> None:
        """Read the events since the cursor."""
        for recorded in feed.read(session_stream(self.session), self.cursor):
            self._take(recorded.event)
            self.cursor = recorded.seq

    def _take(self, event: AnyEvent) -> None:
        self.tale.take(event)
        if not isinstance(event, PeerEvent | CallEvent | TurnEvent):
            return
        match event:
            case PeerMessageSent():
                self._sent[event.message] = (event.team, event.to)
            case PeerAnswerTaken():
                self._sent.pop(event.answer.message, None)
            case CallFinished():
                # A caller that got a handle no longer waits.
                result = event.result.inline
                if isinstance(result, dict):
                    self._sent.pop(MessageId(str(result.get("handle"))), None)
            case TurnEnded():
                if event.status is not TurnStatus.WAITING:
                    self._sent.clear()
            case PeerAnswered() | PeerAnswerHeld() | TurnStarted() | TurnResumed() | InterruptAsked():
                pass
            case CallRequested() | CallDenied() | CallPermitted() | CallLost() | CallDropped():
                pass
            case _:
                assert_never(event)


class Chain:
    """A conversation and all those that it waits for, directly or not. Each log is read once, and then only its new events."""

    def __init__(self, feed: Feed, team: str, session: SessionId) -> None:
        self.session = session
        self._feed = feed
        self._first = _Link(team, session)
        self._links = {session: self._first}

    def sessions(self) -> tuple[SessionId, ...]:
        """Return the conversation and those that it waits for, the nearest first."""
        return tuple(link.session for link in self._links_now())

    def shortages(self) -> tuple[Shortage, ...]:
        """Return the used-up budgets in the whole chain; each needs a human to allow more."""
        return tuple(Shortage(link.team, link.session, link.tale.short_of) for link in self._links_now() if link.tale.short_of)

    def further(self) -> tuple[Shortage, ...]:
        """Return the shortages of the other conversations only."""
        return tuple(short for short in self.shortages() if short.session != self._first.session)

    def _links_now(self) -> list[_Link]:
        """Read new events, and return the links of the chain as it is now."""
        seen, links = {self._first.session}, [self._first]
        for link in links:
            link.read(self._feed)
            for team, session in link.asked:
                if session not in seen:
                    seen.add(session)
                    links.append(self._links.setdefault(session, _Link(team, session)))
        return links
