"""The events other than calls that hooks receive, with the names and fields that Claude Code uses."""

from typing import Literal

from curtainwall.model.frozen import Frozen


class UserPromptSubmit(Frozen):
    """A message is about to reach the agent; hooks may block it or add context."""

    prompt: str


class SessionStart(Frozen):
    """A session was opened or reopened; reported once each time."""

    source: Literal["startup", "resume", "clear", "fork"]
    model: str = ""


class SessionEnd(Frozen):
    """A session was closed; reported once for each time it was open."""

    reason: str


class Stop(Frozen):
    """The agent has finished its turn; a hook that blocks sends it back to work."""

    last_assistant_message: str
    stop_hook_active: bool = False


class StopFailure(Frozen):
    """A turn ended because the model could not be reached or used; hooks cannot influence this."""

    error: str
    error_details: str = ""
    last_assistant_message: str = ""


class PreCompact(Frozen):
    """Older messages are about to be replaced by a summary; a hook may block that."""

    trigger: Literal["manual", "auto"]
    custom_instructions: str | None = None


class PostCompact(Frozen):
    """Older messages were replaced by a summary."""

    trigger: Literal["manual", "auto"]
    compact_summary: str = ""


class Notification(Frozen):
    """A human's attention is needed."""

    message: str
    title: str = ""
    notification_type: str = ""


HookEvent = UserPromptSubmit | SessionStart | SessionEnd | Stop | StopFailure | PreCompact | PostCompact | Notification
