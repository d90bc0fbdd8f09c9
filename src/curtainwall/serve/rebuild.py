"""After a damaged database was set aside: places lead to their pairs again, and local agents go on with what they have on disk."""

from collections.abc import AsyncIterator, Iterable

from curtainwall.compose.gate import GatedSessions
from curtainwall.config.agents import LOCAL
from curtainwall.model import SYSTEM, TEAMS, CurtainwallError, SessionOpened, SessionQuery, StreamId, session_of, session_stream
from curtainwall.teams.pairs import Pair

_MANY = 100_000


async def rebuild(wired: GatedSessions, lost: Iterable[StreamId]) -> AsyncIterator[str]:
    """Put right what can be told from logs and transcripts, and say each thing that was."""
    async for pair in _rebind_pairs(wired):
        yield f"`{pair}` leads to its conversation again, which its own log tells of"
    for session in filter(None, map(session_of, lost)):
        for pair in filter(None, map(Pair.at, wired.store.index.routes_to(session))):
            team = wired.setup.config.teams.get(pair.team)
            if team is not None and team.agent == LOCAL:
                yield await _resume_pair(wired, pair)


async def _rebind_pairs(wired: GatedSessions) -> AsyncIterator[Pair]:
    """Let places lead to the sessions that were opened for them, where the log of the house no longer says so; the newest counts."""
    rows = wired.store.index.sessions(SessionQuery(channel=TEAMS, limit=_MANY))
    for row in sorted(rows, key=lambda row: row.changed, reverse=True):
        first = next(iter(wired.house.feed.read(session_stream(row.session))), None)
        opened = None if first is None else first.event
        if not isinstance(opened, SessionOpened) or row.status == "closed":
            continue
        pair = Pair.named(opened.name)
        if pair is not None and pair.team == opened.team and wired.store.index.session_at(pair.route) is None:
            await wired.house.bind(pair.route, row.session, SYSTEM)
            yield pair


async def _resume_pair(wired: GatedSessions, pair: Pair) -> str:
    """Open a pair whose log is lost anew, and let its agent go on with the newest conversation that it has on disk."""
    # Start-up time: only a damaged database needs this, and local agents take long to load.
    from curtainwall.teams.adoption import adopt, unclaimed_conversations

    try:
        own = unclaimed_conversations(wired.teams, pair)
        if not own:
            return f"the log of `{pair}` is lost, and its agent has nothing on disk; it begins anew"
        await adopt(wired.teams, pair, own[0].conversation)
    except CurtainwallError as fault:
        return f"the log of `{pair}` is lost, and its agent could not go on with what it has on disk: {fault}"
    return f"the log of `{pair}` is lost; its agent goes on with `{own[0].conversation}` from its disk, which counts as sensitive"
