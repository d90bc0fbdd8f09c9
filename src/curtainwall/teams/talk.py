"""Talking to teams: a message leaves the asker's session and the answer comes back there, whoever waits for it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from curtainwall.model import (
    SYSTEM,
    TEAMS,
    AddLabels,
    AskCompaction,
    Clock,
    CommandRefused,
    Feed,
    FinishCall,
    InterruptTurn,
    LabelSource,
    MessageId,
    MessagePeer,
    NotFound,
    PeerAnswer,
    SessionId,
    Who,
    WithdrawMessage,
    ordered_id,
    session_stream,
)
from curtainwall.teams.archive import Archive, ConversationTotals
from curtainwall.teams.chains import Chain
from curtainwall.teams.pair_sessions import DAY, Caller, Finish, PairSessions, TalkTerms
from curtainwall.teams.pairs import Pair, PairFigures, Shortage, TeamExchange, exchanges

_TELL_EVERY = 5.0

OnWait = Callable[[float, str], None]
"""Takes for how many seconds an answer has been waited for, and words."""


@dataclass(frozen=True, slots=True)
class AskResult:
    """What an asker hears: the handle of its message, and the answer where it has come."""

    handle: MessageId
    answer: PeerAnswer | None


def finish_nothing(_answer: PeerAnswer) -> FinishCall | None:
    """Finish nothing."""
    return None


class Talk:
    """The talk of every session of one house with its teams."""

    def __init__(self, peers: PairSessions, feed: Feed, clock: Clock, terms: TalkTerms, archived: Archive) -> None:
        self.peers = peers
        self._feed = feed
        self._clock = clock
        self.terms = terms
        self._archived = archived
        self.sums: dict[SessionId, ConversationTotals] = {}
        """What the logs amount to that were read here, of conversations that are not archived."""

    def message(self, pair: Pair, text: str, days: float | None = None) -> MessagePeer | None:
        """Return a message that can leave together with the permit for it; None where something has to be seen to before."""
        session = self.peers.at_hand(pair)
        return None if session is None else self._message(session, pair, text, days)

    async def send(self, caller: Caller, pair: Pair, text: str, *, days: float | None = None) -> MessageId:
        """Send a message and return its handle."""
        session = await self.peers.open(pair, caller, text)
        command = self._message(session, pair, text, days)
        await self.peers.send(caller.session, command)
        return command.message

    async def answer(
        self,
        caller: Caller,
        pair: Pair,
        message: MessageId,
        *,
        seconds: float | None = None,
        tell: OnWait | None = None,
        finish: Finish = finish_nothing,
    ) -> AskResult:
        """Wait for the answer to a message; where it takes too long, the handle leads to it later."""
        telling = asyncio.create_task(self._tell_now_and_then(tell, pair)) if tell is not None else None
        try:
            async with asyncio.timeout(self.terms.wait if seconds is None else seconds):
                return AskResult(message, await self.peers.answer(caller.session, message, finish))
        except TimeoutError:
            return AskResult(message, None)
        finally:
            if telling is not None:
                telling.cancel()

    async def history(self, caller: Caller, pair: Pair) -> list[TeamExchange]:
        """Return the pair's conversation; whoever reads it has touched what it was written from."""
        session = self.session_of(pair)
        if session is None:
            return []
        await self._touch(caller.session, pair.team, session)
        return self._exchanges(session, pair.team)

    async def reports(self, caller: Caller, team: str | None = None, handle: str | None = None) -> list[tuple[Pair, TeamExchange]]:
        """Return what became of this asker's messages, to one team or to all, oldest first."""
        found: list[tuple[Pair, TeamExchange]] = []
        for pair, session in self.peers.pairs(caller.team):
            if team not in (None, pair.team):
                continue
            told = [(pair, it) for it in self._exchanges(session, pair.team) if handle in (None, it.message)]
            if told:
                await self._touch(caller.session, pair.team, session)
            found += told
        return sorted(found, key=lambda each: each[1].at)

    async def cancel(self, caller: Caller, pair: Pair, handle: str | None = None) -> str:
        """Take back a message that waits, or stop the turn that works on it; without a handle, the newest that has no answer."""
        session, by = self._existing(pair), Who(name=caller.team, channel=TEAMS)
        unanswered = [it for it in self._exchanges(session, pair.team) if it.is_open and handle in (None, it.message)]
        if not unanswered:
            raise NotFound(f"team `{pair.team}` has no message `{handle}` without an answer" if handle else "nothing is open there")
        wanted = unanswered[-1]
        if wanted.state == "queued":
            await self.peers.send(session, WithdrawMessage(by=by, message=wanted.message))
        elif wanted.state == "working":
            await self.peers.send(session, InterruptTurn(by=by, turn=wanted.turn))
        else:
            raise CommandRefused(f"the answer to `{wanted.message}` waits for a human; only they can settle it now")
        return wanted.message

    async def compact(self, caller: Caller, pair: Pair, instructions: str = "") -> None:
        """Let the pair's older messages become a summary; what is said about it comes from whatever its caller has touched."""
        session = self._existing(pair)
        if instructions:
            await self._pass_on(self.peers.labels(caller.session), session, f"instructions of team {caller.team} for a summary")
        await self.peers.send(session, AskCompaction(by=SYSTEM, instructions=instructions))

    def figures(self, asker: str | None = None) -> list[PairFigures]:
        """Return the figures of an asker's pairs, or of all, the most active first."""
        told = [self._figures(pair, session) for pair, session in self.peers.pairs(asker)]
        return sorted(told, key=lambda it: (-it.messages, str(it.pair)))

    def figures_of(self, pair: Pair) -> PairFigures | None:
        """Return the figures of one pair, where it has talked."""
        session = self.session_of(pair)
        return None if session is None else self._figures(pair, session)

    def exchanges(self, pair: Pair) -> list[TeamExchange]:
        """Return the pair's conversation for a human, who touches nothing by reading."""
        session = self.session_of(pair)
        return [] if session is None else self._exchanges(session, pair.team)

    def chain(self, pair: Pair) -> Chain | None:
        """Return the pair's conversation with those that it waits for, where it has talked."""
        session = self.session_of(pair)
        return None if session is None else Chain(self._feed, pair.team, session)

    def shortages(self, pair: Pair) -> tuple[Shortage, ...]:
        """Return the used-up budgets that keep an answer from coming: the pair's own, and those of the teams that it waits for."""
        chain = self.chain(pair)
        return () if chain is None else chain.shortages()

    def session_of(self, pair: Pair) -> SessionId | None:
        """Return the pair's session where there is one."""
        return self.peers.session_of(pair)

    def _figures(self, pair: Pair, session: SessionId) -> PairFigures:
        now, after = self._clock.now(), self.terms.archive_after
        known = self._archived.figures(pair, session)
        if known is not None and now - known.used > after:
            return known
        sum_ = self.sums.pop(session, None) or self._archived.sum(session) or ConversationTotals()
        if sum_.cursor > self._feed.head(session_stream(session)):
            # Of a log that is not the one that was read: it was deleted, or rescued in part.
            sum_ = ConversationTotals()
        sum_.read(self._feed, session)
        told = sum_.figures(pair, session, now, after)
        if told.status != "archived":
            self.sums[session] = sum_
        return told

    def _exchanges(self, session: SessionId, team: str) -> list[TeamExchange]:
        found = exchanges(self._feed, session, self._clock.now())
        working = [it for it in found if it.state == "working"]
        if working:
            further = Chain(self._feed, team, session).further()
            for it in working:
                it.further = further
        return found

    async def _tell_now_and_then(self, tell: OnWait, pair: Pair) -> None:
        waited, chain = 0.0, None
        while True:
            await asyncio.sleep(_TELL_EVERY)
            waited += _TELL_EVERY
            chain = chain or self.chain(pair)
            short = chain.shortages() if chain is not None else ()
            tell(waited, "; ".join(map(str, short)) or f"waiting for team {pair.team}")

    def _existing(self, pair: Pair) -> SessionId:
        session = self.session_of(pair)
        if session is None:
            raise NotFound(f"`{pair.asker}` has not talked to `{pair.team}`{f' in thread `{pair.thread}`' if pair.thread else ''} yet")
        return session

    async def _touch(self, reader: SessionId, team: str, read: SessionId) -> None:
        await self._pass_on(self.peers.labels(read), reader, f"the conversation with team {team}")

    async def _pass_on(self, labels: Sequence[LabelSource], to: SessionId, origin: str) -> None:
        known = {source.label for source in self.peers.labels(to)}
        new = tuple(LabelSource(label=source.label, origin=origin) for source in labels if source.label not in known)
        if new:
            await self.peers.send(to, AddLabels(by=SYSTEM, labels=new))

    def _message(self, session: SessionId, pair: Pair, text: str, days: float | None) -> MessagePeer:
        now = self._clock.now()
        message = MessageId(ordered_id(now, self._clock.entropy(5)))
        expires = None if days is None else now + int(days * DAY)
        return MessagePeer(by=SYSTEM, message=message, to=session, team=pair.team, text=text, expires=expires)
