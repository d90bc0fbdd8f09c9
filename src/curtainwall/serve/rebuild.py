"""Recovery after a damaged database was set aside: rebinds pairs to their sessions, and resumes local agents from their disk."""

from collections.abc import AsyncIterator, Iterable

from curtainwall.compose.gate import GatedSessions
from curtainwall.config.agents import LOCAL
from curtainwall.model import SYSTEM, TEAMS, CurtainwallError, SessionOpened, SessionQuery, StreamId, session_of, session_stream
from curtainwall.teams.pairs import Pair

_MANY = 100_000


async def rebuild(wired: GatedSessions, lost: Iterable[StreamId]) -> AsyncIterator[str]:
    """Repair what logs and transcripts allow, and yield a line for each repair."""
    async for pair in _rebind_pairs(wired):
        yield f"`{pair}` leads to its conversation again, which its own log tells of"
    for session in filter(None, map(session_of, lost)):
        for pair in filter(None, map(Pair.at, wired.store.index.routes_to(session))):
            team = wired.setup.config.teams.get(pair.team)
            if team is not None and team.agent == LOCAL:
                yield await _resume_pair(wired, pair)


async def _rebind_pairs(wired: GatedSessions) -> AsyncIterator[Pair]:
    """Rebind places to the sessions opened for them, if the house log no longer has that; the newest session counts."""
    rows = wired.store.index.sessions(SessionQuery(channel=TEAMS, limit=_MANY))
    for row in sorted(rows, key=lambda row: row.changed, reverse=True):
        first = next(iter(wired.registry.feed.read(session_stream(row.session))), None)
        opened = None if first is None else first.event
        if not isinstance(opened, SessionOpened) or row.status == "closed":
            continue
        pair = Pair.named(opened.name)
        if pair is not None and pair.team == opened.team and wired.store.index.session_at(pair.route) is None:
            await wired.registry.bind(pair.route, row.session, SYSTEM)
            yield pair


async def _resume_pair(wired: GatedSessions, pair: Pair) -> str:
    """Reopen a pair whose log is lost, and let its agent continue with the newest conversation on its disk."""
    # Start-up time: only a damaged database needs this, and local agents take long to load.
    from curtainwall.teams.adoption import adopt, unclaimed_conversations

    try:
        conversations = unclaimed_conversations(wired.teams, pair)
        if not conversations:
            return f"the log of `{pair}` is lost, and its agent has nothing on disk; it begins anew"
        await adopt(wired.teams, pair, conversations[0].conversation)
    except CurtainwallError as error:
        return f"the log of `{pair}` is lost, and its agent could not go on with what it has on disk: {error}"
    return f"the log of `{pair}` is lost; its agent goes on with `{conversations[0].conversation}` from its disk, which counts as sensitive"
