"""The two ways in: a conversation, and one task. The libraries that draw are loaded when something is drawn."""

from typing import cast

from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.terminal.oneshot import OneShot
from curtainwall.channels.terminal.settings import ConversationSettings, OneShotSettings
from curtainwall.model import SessionId, Who


async def converse(line: ChannelPorts, session: SessionId, who: Who, settings: ConversationSettings) -> int:
    """Hold a conversation on a terminal until the human leaves, and return the exit code."""
    from curtainwall.channels.terminal.conversation import TerminalConversation  # late: the terminal library takes its time

    try:
        return await TerminalConversation(line, session, who, settings).run()
    except BaseExceptionGroup as group:
        raise _first(group) from group


async def one_shot(line: ChannelPorts, session: SessionId, who: Who, task: str | None, settings: OneShotSettings) -> int:
    """Send a task, or without one go on with what waits; tell what comes of it until the turn ends, and return the exit code."""
    return await OneShot(line, session, who, settings).run(task)


async def leave(line: ChannelPorts, session: SessionId, who: Who, task: str | None, settings: OneShotSettings, *, interrupted: bool) -> int:
    """Put a task into the queue of a session in which something waits for a human before it, say how to go on, and return the exit code."""
    return await OneShot(line, session, who, settings).leave(task, interrupted=interrupted)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the fault that ended the others."""
    fault = group.exceptions[0]
    return _first(cast("BaseExceptionGroup[BaseException]", fault)) if isinstance(fault, BaseExceptionGroup) else fault
