"""The files of conversations beside the log: archiving packs them, and the next message unpacks them."""

import asyncio

from curtainwall.config.agents import LOCAL
from curtainwall.model import CommandRefused, SessionId
from curtainwall.teams.conversations import Conversations


async def put_away(conversations: Conversations, session: SessionId) -> str:
    """Archive a conversation now, free its space, and return what was done; refuse if something in it is open.

    The caller makes sure that no agent of this process works in it.
    """
    state = conversations.peers.state(session)
    if state.turn is not None or state.queue or state.owed:
        raise CommandRefused("a message is open in it; wait for its answer, or `curtainwall teams cancel` it")
    freed = await free_space(conversations, session)
    await conversations.archive.put_away(session)
    return f"archived; {freed:,} bytes were freed" if freed else "archived"


async def free_space(conversations: Conversations, session: SessionId) -> int:
    """Pack what a local agent keeps for a session, and return how many bytes that freed; other agents keep nothing that can be packed."""
    if conversations.sessions.names.of(session) != LOCAL:
        return 0
    # Start-up time: local agents take long to load.
    from curtainwall.agents.external.process import pack_state, process_folders

    state = conversations.peers.state(session)
    if state.opened is None or state.turn is not None:
        return 0
    folders = process_folders(conversations.sessions.home, session, state.workspace)
    return await asyncio.to_thread(pack_state, folders, str(conversation_of(conversations, session)))


def conversation_of(conversations: Conversations, session: SessionId) -> str:
    """Return the id of a local agent's conversation, or an empty string before its first message."""
    # Start-up time: as above.
    from curtainwall.agents.external.process import EXTENSION, ProcessHistory
    from curtainwall.runtime import SessionJournal

    past = ProcessHistory(EXTENSION, SessionJournal(conversations.sessions.registry).load)
    past.sync(conversations.sessions.registry.feed, session)
    return past.conversation
