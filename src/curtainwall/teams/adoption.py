"""Compares what local agents keep on disk with the logs of their pairs, and adopts conversations that no log names."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from curtainwall.agents.external.process import (
    EXTENSION,
    ConversationStatus,
    ProcessHistory,
    StoredConversation,
    adoption_event,
    claim_conversation,
    conversation_status,
    conversations_in,
    process_folders,
)
from curtainwall.config.agents import LOCAL
from curtainwall.model import (
    SYSTEM,
    TEAMS,
    AddLabels,
    CommandRefused,
    Label,
    LabelSource,
    Millis,
    RecordProgress,
    SessionId,
    SessionQuery,
    record,
    session_stream,
)
from curtainwall.runtime import SessionJournal
from curtainwall.teams.conversations import Conversations
from curtainwall.teams.pairs import Pair

_MANY = 100_000
_UNKNOWN = (Label("sensitive"), Label("untrusted-content"))
"""The labels of a conversation that has no log of ours."""


@record
class DiskConversation:
    """A pair that a local agent serves, and the status of its conversation."""

    pair: Pair
    session: SessionId
    standing: ConversationStatus


def on_disk(conversations: Conversations, since: Millis = 0) -> list[DiskConversation]:
    """Compare log and disk for the pairs that a local agent serves and whose log has changed since then."""
    index = conversations.sessions.store.index
    rows = index.sessions(SessionQuery(channel=TEAMS, agent=LOCAL, since=since, limit=_MANY))
    pairs = ((Pair.at(route), row.session) for row in rows for route in index.routes_to(row.session))
    return [DiskConversation(pair, session, _status_of(conversations, session)) for pair, session in pairs if pair is not None]


def recent_on_disk(conversations: Conversations) -> list[DiskConversation]:
    """Compare log and disk for every such pair that does not count as archived."""
    return on_disk(conversations, conversations.sessions.registry.clock.now() - conversations.talk.terms.archive_after)


def unclaimed_conversations(conversations: Conversations, pair: Pair) -> Sequence[StoredConversation]:
    """Return the conversations of a pair's own agent that its log does not name, newest first. The log may be lost."""
    session = conversations.sessions.store.index.session_at(pair.route)
    if session is None or _agent(conversations, pair) != LOCAL:
        return ()
    if conversations.talk.session_of(pair) is not None:
        return _status_of(conversations, session).orphans
    folders = process_folders(conversations.sessions.home, session, conversations.peers.workspace_of(pair.team))
    return conversations_in(folders.state, folders.workspace)


def adoptable_conversations(conversations: Conversations, pair: Pair) -> Sequence[StoredConversation]:
    """Return every conversation that a pair could adopt; refuse if its agent keeps none."""
    _require_local_agent(conversations, pair)
    return (
        *unclaimed_conversations(conversations, pair),
        *abandoned_conversations(conversations, pair),
        *user_conversations(conversations, pair.team),
    )


def abandoned_conversations(conversations: Conversations, pair: Pair) -> Sequence[StoredConversation]:
    """Return the conversations in the team's project that belong to sessions without a log, newest first."""
    home, workspace = conversations.sessions.home, conversations.peers.workspace_of(pair.team)
    own = conversations.sessions.store.index.session_at(pair.route)
    places = home.sessions.iterdir() if home.sessions.is_dir() else ()
    lost = [SessionId(place.name) for place in places if place.name.isalnum() and place.name != own]
    lost = [session for session in lost if conversations.sessions.registry.feed.head(session_stream(session)) == 0]
    stored = [each for session in lost for each in conversations_in(process_folders(home, session, workspace).state, Path(workspace.path))]
    # Adoption copies a conversation; the original file stays.
    claimed = {each.standing.conversation for each in on_disk(conversations)}
    return sorted((each for each in stored if each.conversation not in claimed), key=lambda each: each.changed, reverse=True)


def user_conversations(conversations: Conversations, team: str) -> Sequence[StoredConversation]:
    """Return the conversations that the user's own Claude Code keeps for a team's project, newest first."""
    return conversations_in(_directory(), Path(conversations.peers.workspace_of(team).path))


async def adopt(
    conversations: Conversations, pair: Pair, conversation: str, source: Path | None = None, *, is_clean: bool = False
) -> SessionId:
    """Make a pair adopt a conversation, opening its session if needed; it counts as sensitive and untrusted unless `is_clean`."""
    _require_local_agent(conversations, pair)
    session = await conversations.peers.ensure(pair)
    state = conversations.peers.state(session)
    if state.turn is not None:
        raise CommandRefused(f"the agent of `{pair}` is at work; wait until it has answered")
    folders = process_folders(conversations.sessions.home, session, state.workspace)
    if source is None and conversation not in {stored.conversation for stored in conversations_in(folders.state, folders.workspace)}:
        elsewhere = (*abandoned_conversations(conversations, pair), *user_conversations(conversations, pair.team))
        source = next((stored.path for stored in elsewhere if stored.conversation == conversation), None)
    await asyncio.to_thread(claim_conversation, folders, conversation, source)
    if not is_clean:
        # INVARIANT: the session gets the labels before it continues the conversation.
        labels = tuple(LabelSource(label=label, origin=f"the adopted conversation {conversation}") for label in _UNKNOWN)
        await conversations.sessions.registry.send(session, AddLabels(by=SYSTEM, labels=labels))
    await conversations.sessions.registry.send(
        session, RecordProgress(by=SYSTEM, events=(adoption_event(conversation, conversations.sessions.registry.clock.now()),))
    )
    return session


def _require_local_agent(conversations: Conversations, pair: Pair) -> None:
    if (agent := _agent(conversations, pair)) != LOCAL:
        raise CommandRefused(f"`{pair}` is served by `{agent}`; only `{LOCAL}` keeps conversations that can be adopted")


def _agent(conversations: Conversations, pair: Pair) -> str:
    """Return who serves a pair: the agent in its log, or the team's agent if it has no log yet."""
    session = conversations.talk.session_of(pair)
    return conversations.config.now.teams[pair.team].agent if session is None else conversations.sessions.names.of(session)


def _status_of(conversations: Conversations, session: SessionId) -> ConversationStatus:
    past = ProcessHistory(EXTENSION, SessionJournal(conversations.sessions.registry).load)
    past.sync(conversations.sessions.registry.feed, session)
    assert past.workspace is not None
    return conversation_status(past, process_folders(conversations.sessions.home, session, past.workspace))


def _directory() -> Path:
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude").expanduser()
