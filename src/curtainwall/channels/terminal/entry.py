"""The two entry points: a conversation, and one task. The drawing libraries are loaded when something is drawn."""

from typing import cast

from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.terminal.oneshot import OneShot
from curtainwall.channels.terminal.settings import ConversationSettings, OneShotSettings
from curtainwall.model import SessionId, Who


async def converse(line: ChannelPorts, session: SessionId, who: Who, settings: ConversationSettings) -> int:
    """Hold a conversation on a terminal until the user leaves, and return the exit code."""
    from curtainwall.channels.terminal.conversation import TerminalConversation  # late: the terminal library takes its time

    try:
        return await TerminalConversation(line, session, who, settings).run()
    except BaseExceptionGroup as group:
        raise _first(group) from group


async def one_shot(line: ChannelPorts, session: SessionId, who: Who, task: str | None, settings: OneShotSettings) -> int:
    """Send a task, or continue what is waiting; report on it until the turn ends, and return the exit code."""
    return await OneShot(line, session, who, settings).run(task)


async def leave(line: ChannelPorts, session: SessionId, who: Who, task: str | None, settings: OneShotSettings, *, interrupted: bool) -> int:
    """Queue a task in a session that waits for a human, say how to continue, and return the exit code."""
    return await OneShot(line, session, who, settings).leave(task, interrupted=interrupted)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the other tasks."""
    error = group.exceptions[0]
    return _first(cast("BaseExceptionGroup[BaseException]", error)) if isinstance(error, BaseExceptionGroup) else error
