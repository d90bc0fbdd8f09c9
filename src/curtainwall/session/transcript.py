"""The conversation as people read it: turns with what was said, what was called, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    Group,
    InterruptAsked,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    Millis,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SpeechEvent,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Usage,
)

TranscriptEvent = MessageEvent | TurnEvent | SpeechEvent | CallEvent | ModelEvent

_TOLD = Group[TranscriptEvent](TranscriptEvent)


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a human, or context that came without one."""

    message: MessageId
    text: str
    by: str
    at: Millis
    role: str


@dataclass(slots=True)
class Turn:
    """One turn: whole messages, and as much of the next one as was shown before it was cut off."""

    turn: TurnId
    asked: tuple[Said, ...]
    started: Millis
    messages: list[str] = field(default_factory=list[str])
    partial: str = ""
    ended: Millis | None = None
    status: TurnStatus | None = None
    failure: str = ""
    calls: int = 0
    usage: list[Usage] = field(default_factory=list[Usage])

    @property
    def text(self) -> str:
        """Return what the agent said, up to where it was cut off."""
        return "\n\n".join((*self.messages, self.partial) if self.partial else self.messages)


@dataclass(slots=True)
class Transcript:
    """The turns so far, and the messages that still wait for one."""

    turns: list[Turn] = field(default_factory=list[Turn])
    queued: list[Said] = field(default_factory=list[Said])
    context: list[Said] = field(default_factory=list[Said])


def transcript(events: Iterable[AnyEvent]) -> Transcript:
    """Return the conversation that a log tells."""
    told = Transcript()
    running: dict[TurnId, Turn] = {}
    for event in events:
        if not _TOLD.holds(event):
            continue
        match event:
            case MessageAccepted():
                said = Said(event.message, event.text, str(event.by), event.at, event.role)
                (told.queued if event.role == "human" else told.context).append(said)
            case MessageWithdrawn():
                told.queued = [said for said in told.queued if said.message != event.message]
            case TurnStarted():
                turn = Turn(event.turn, tuple(said for said in told.queued if said.message in event.messages), event.at)
                told.queued = [said for said in told.queued if said.message not in event.messages]
                running[event.turn] = turn
                told.turns.append(turn)
            case TurnResumed() if event.turn in running:
                turn = running[event.turn]
                turn.ended, turn.status, turn.failure = None, None, ""
            case TextStreamed() if event.turn in running:
                running[event.turn].partial += event.text
            case AgentSpoke() if event.turn in running:
                turn = running[event.turn]
                turn.messages.append(event.text)
                turn.partial = ""
            case CallRequested() if event.turn is not None and event.turn in running:
                running[event.turn].calls += 1
            case ModelResponded() if event.turn in running:
                running[event.turn].usage.append(event.usage)
            case TurnEnded() if event.turn in running:
                turn = running[event.turn]
                turn.ended, turn.status, turn.failure = event.at, event.status, event.failure
            case TurnResumed() | TextStreamed() | AgentSpoke() | TurnEnded() | CallRequested() | ModelResponded():
                pass  # of a turn that is not here
            case InterruptAsked() | ModelRequested() | ModelFailed():
                pass
            case CallDenied() | CallPermitted() | CallFinished() | CallLost() | CallDropped():
                pass
            case _:
                assert_never(event)
    return told
