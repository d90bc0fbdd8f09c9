"""What a session's log says to a foreign agent's keeper: where it works, what was said, and what it calls the conversation itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    ExtensionNoted,
    MessageAccepted,
    MessageId,
    Mode,
    ModeChanged,
    ModelChanged,
    SessionOpened,
    TextStreamed,
    TurnEnded,
    TurnId,
    TurnStarted,
    Workspace,
)

_LONGEST_TALE: Final = 20_000


@dataclass(slots=True)
class Past:
    """A session up to an entry of its log; `extension` is the name under which the log keeps what only the agent's keeper knows."""

    extension: str
    cursor: int = 0
    workspace: Workspace | None = None
    agent: str = ""
    model: str = ""
    mode: Mode = Mode.DEFAULT
    conversation: str = ""
    delivered: TurnId | None = None
    """The turn whose message the agent got last."""
    wanted: list[str] = field(default_factory=list[str])
    """What the agent was not told yet."""
    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Everything that was told before, by whom and what."""
    _queued: dict[MessageId, str] = field(default_factory=dict[MessageId, str])
    _pieces: str = ""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        match event:
            case SessionOpened():
                self.workspace, self.agent, self.model, self.mode = event.workspace, event.agent, event.model, event.mode
            case ModelChanged():
                self.model = event.model
            case ModeChanged():
                self.mode = event.mode
            case MessageAccepted() if event.role == "human":
                self._queued[event.message] = event.text
            case MessageAccepted():
                self.wanted.append(event.text)
            case TurnStarted():
                self.wanted += [self._queued.pop(message) for message in event.messages if message in self._queued]
            case TextStreamed():
                self._pieces += event.text
            case AgentSpoke():
                self._pieces = ""
                self.said.append(("You", event.text))
            case TurnEnded() if self._pieces:
                self.said.append(("You", self._pieces))
                self._pieces = ""
            case ExtensionNoted() if event.extension == self.extension:
                self.note(event.data)
            case _:
                pass

    def note(self, data: Mapping[str, object]) -> None:
        """Take in what the agent's keeper wrote down: the conversation's name, and which turn's message was delivered."""
        conversation, delivered = data.get("conversation"), data.get("delivered")
        if isinstance(conversation, str):
            self.conversation = conversation
        if isinstance(delivered, str):
            self.delivered = TurnId(delivered)
            self.said += (("User", text) for text in self.wanted)
            self.wanted = []

    def tale(self) -> str:
        """Return what was said before, for an agent that has lost it; of a long one the end."""
        told = "\n\n".join(f"{who}: {text}" for who, text in self.said)
        if len(told) > _LONGEST_TALE:
            told = f"…[the beginning is left out]…\n{told[-_LONGEST_TALE:]}"
        return told
