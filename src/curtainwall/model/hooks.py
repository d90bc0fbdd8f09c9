"""What the user's own programs are told of besides calls; each event has the name and the fields that Claude Code gave it."""

from typing import Literal

from curtainwall.model.frozen import Frozen


class UserPromptSubmit(Frozen):
    """A message is about to reach the agent; hooks may block it or add context."""

    prompt: str


class SessionStart(Frozen):
    """A session began, or was opened again; told once each time."""

    source: Literal["startup", "resume", "clear", "fork"]
    model: str = ""


class SessionEnd(Frozen):
    """A session ended; told once each time it was open."""

    reason: str


class Stop(Frozen):
    """The agent is done with its turn; a hook that blocks sends it back to work."""

    last_assistant_message: str
    stop_hook_active: bool = False


class StopFailure(Frozen):
    """A turn ended because the model could not be reached or used; nothing can be decided about it."""

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
    """A human's attention is wanted."""

    message: str
    title: str = ""
    notification_type: str = ""


HookEvent = UserPromptSubmit | SessionStart | SessionEnd | Stop | StopFailure | PreCompact | PostCompact | Notification
