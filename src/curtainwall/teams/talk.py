"""Talking to teams: a message leaves the asker's session, and the answer comes back there even if nobody waits for it."""

import asyncio
from collections.abc import Callable, Sequence

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
    record,
    session_stream,
)
from curtainwall.teams.archive import Archive, ConversationTotals
from curtainwall.teams.chains import Chain
from curtainwall.teams.pair_sessions import DAY, Caller, Finish, PairSessions, TalkTerms
from curtainwall.teams.pairs import Pair, PairFigures, Shortage, TeamExchange, exchanges

_TELL_EVERY = 5.0

OnWait = Callable[[float, str], None]
"""Called while waiting, with the seconds waited so far and a status text."""


@record
class AskResult:
    """The handle of a message, and the answer if it has come."""

    handle: MessageId
    answer: PeerAnswer | None


def finish_nothing(_answer: PeerAnswer) -> FinishCall | None:
    """Finish nothing."""
    return None


class Talk:
    """Sends messages to teams, waits for answers, and reports on conversations."""

    def __init__(self, peers: PairSessions, feed: Feed, clock: Clock, terms: TalkTerms, archived: Archive) -> None:
        self.peers = peers
        self._feed = feed
        self._clock = clock
        self.terms = terms
        self._archived = archived
        self.sums: dict[SessionId, ConversationTotals] = {}
        """Totals of the logs read so far, of conversations that are not archived."""

    def message(self, pair: Pair, text: str, days: float | None = None) -> MessagePeer | None:
        """Return a message that can leave together with its permit, or None if something must be done first."""
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
        """Wait for the answer to a message; if it takes too long, the handle fetches it later."""
        ticker = asyncio.create_task(self._report_waiting(tell, pair)) if tell is not None else None
        try:
            async with asyncio.timeout(self.terms.wait if seconds is None else seconds):
                return AskResult(message, await self.peers.answer(caller.session, message, finish))
        except TimeoutError:
            return AskResult(message, None)
        finally:
            if ticker is not None:
                ticker.cancel()

    async def history(self, caller: Caller, pair: Pair) -> list[TeamExchange]:
        """Return the pair's conversation; the reader's session takes on its labels."""
        session = self.session_of(pair)
        if session is None:
            return []
        await self._touch(caller.session, pair.team, session)
        return self._exchanges(session, pair.team)

    async def reports(self, caller: Caller, team: str | None = None, handle: str | None = None) -> list[tuple[Pair, TeamExchange]]:
        """Return this asker's messages with their state, to one team or to all, oldest first."""
        reports: list[tuple[Pair, TeamExchange]] = []
        for pair, session in self.peers.pairs(caller.team):
            if team not in (None, pair.team):
                continue
            rows = [(pair, it) for it in self._exchanges(session, pair.team) if handle in (None, it.message)]
            if rows:
                await self._touch(caller.session, pair.team, session)
            reports += rows
        return sorted(reports, key=lambda each: each[1].at)

    async def cancel(self, caller: Caller, pair: Pair, handle: str | None = None) -> str:
        """Withdraw a queued message, or interrupt the turn that works on it; by default, the newest unanswered one."""
        session, by = self._existing(pair), Who(name=caller.team, channel=TEAMS)
        unanswered = [it for it in self._exchanges(session, pair.team) if it.is_open and handle in (None, it.message)]
        if not unanswered:
            raise NotFound(f"team `{pair.team}` has no message `{handle}` without an answer" if handle else "nothing is open there")
        exchange = unanswered[-1]
        if exchange.state == "queued":
            await self.peers.send(session, WithdrawMessage(by=by, message=exchange.message))
        elif exchange.state == "working":
            await self.peers.send(session, InterruptTurn(by=by, turn=exchange.turn))
        else:
            raise CommandRefused(f"the answer to `{exchange.message}` waits for a human; only they can settle it now")
        return exchange.message

    async def compact(self, caller: Caller, pair: Pair, instructions: str = "") -> None:
        """Ask for a summary of the pair's older messages; with instructions, the pair takes on the caller's labels."""
        session = self._existing(pair)
        if instructions:
            await self._pass_on(self.peers.labels(caller.session), session, f"instructions of team {caller.team} for a summary")
        await self.peers.send(session, AskCompaction(by=SYSTEM, instructions=instructions))

    def figures(self, asker: str | None = None) -> list[PairFigures]:
        """Return the figures of an asker's pairs, or of all, the most active first."""
        figures = [self._figures(pair, session) for pair, session in self.peers.pairs(asker)]
        return sorted(figures, key=lambda it: (-it.messages, str(it.pair)))

    def figures_of(self, pair: Pair) -> PairFigures | None:
        """Return the figures of one pair, if it has talked."""
        session = self.session_of(pair)
        return None if session is None else self._figures(pair, session)

    def exchanges(self, pair: Pair) -> list[TeamExchange]:
        """Return the pair's conversation for a human; reading it adds no labels."""
        session = self.session_of(pair)
        return [] if session is None else self._exchanges(session, pair.team)

    def chain(self, pair: Pair) -> Chain | None:
        """Return the chain of conversations that starts with the pair's, if it has talked."""
        session = self.session_of(pair)
        return None if session is None else Chain(self._feed, pair.team, session)

    def shortages(self, pair: Pair) -> tuple[Shortage, ...]:
        """Return the used-up budgets that hold up an answer: the pair's own, and those of the teams that it waits for."""
        chain = self.chain(pair)
        return () if chain is None else chain.shortages()

    def session_of(self, pair: Pair) -> SessionId | None:
        """Return the pair's session, if there is one."""
        return self.peers.session_of(pair)

    def _figures(self, pair: Pair, session: SessionId) -> PairFigures:
        now, after = self._clock.now(), self.terms.archive_after
        archived = self._archived.figures(pair, session)
        if archived is not None and now - archived.used > after:
            return archived
        totals = self.sums.pop(session, None) or self._archived.sum(session) or ConversationTotals()
        if totals.cursor > self._feed.head(session_stream(session)):
            # The log is not the one that was read: it was deleted, or only partly recovered.
            totals = ConversationTotals()
        totals.read(self._feed, session)
        is_put_away = self._archived.is_put_away(session)
        figures = totals.figures(pair, session, now, after, is_put_away=is_put_away)
        if figures.status != "archived" or is_put_away:
            self.sums[session] = totals
        return figures

    def _exchanges(self, session: SessionId, team: str) -> list[TeamExchange]:
        rows = exchanges(self._feed, session, self._clock.now())
        working = [it for it in rows if it.state == "working"]
        if working:
            further = Chain(self._feed, team, session).further()
            waits, is_worked_on = bool(self.peers.state(session).approvals), self.peers.is_worked_on(session)
            for it in working:
                it.further, it.waits_for_human, it.is_worked_on = further, waits, is_worked_on
        return rows

    async def _report_waiting(self, tell: OnWait, pair: Pair) -> None:
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
        present = {source.label for source in self.peers.labels(to)}
        new = tuple(LabelSource(label=source.label, origin=origin) for source in labels if source.label not in present)
        if new:
            await self.peers.send(to, AddLabels(by=SYSTEM, labels=new))

    def _message(self, session: SessionId, pair: Pair, text: str, days: float | None) -> MessagePeer:
        now = self._clock.now()
        message = MessageId(ordered_id(now, self._clock.entropy(5)))
        expires = None if days is None else now + int(days * DAY)
        return MessagePeer(by=SYSTEM, message=message, to=session, team=pair.team, text=text, expires=expires)
