"""The conversation for people: turns with their messages, their calls, and how they ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from pydantic import JsonValue

from curtainwall.model import (
    PROGRAM_NOTES,
    AgentSpoke,
    AnyEvent,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    ExtensionNoted,
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
    record,
)

TranscriptEvent = MessageEvent | TurnEvent | SpeechEvent | CallEvent | ModelEvent

_SHOWN = Group[TranscriptEvent](TranscriptEvent)


@record
class TranscriptMessage:
    """A human's message, or context that was added without one."""

    message: MessageId
    text: str
    by: str
    at: Millis
    role: str


@dataclass(slots=True)
class TranscriptTurn:
    """One turn: whole messages, and the shown part of one that was cut off."""

    turn: TurnId
    asked: tuple[TranscriptMessage, ...]
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
        """Return the agent's text, up to where it was cut off."""
        return "\n\n".join((*self.messages, self.partial) if self.partial else self.messages)


@record
class TranscriptNote:
    """A note that a program wrote into the history; the agent does not see it."""

    at: Millis
    text: str
    details: Mapping[str, JsonValue]


def note_of(event: AnyEvent) -> TranscriptNote | None:
    """Return the note in an event, or None."""
    if not isinstance(event, ExtensionNoted) or event.extension != PROGRAM_NOTES:
        return None
    details = event.data.get("details")
    return TranscriptNote(event.at, str(event.data.get("text", "")), details if isinstance(details, dict) else {})


@dataclass(slots=True)
class Transcript:
    """The turns so far, and the messages that still wait for one."""

    turns: list[TranscriptTurn] = field(default_factory=list[TranscriptTurn])
    queued: list[TranscriptMessage] = field(default_factory=list[TranscriptMessage])
    context: list[TranscriptMessage] = field(default_factory=list[TranscriptMessage])


def transcript(events: Iterable[AnyEvent]) -> Transcript:
    """Return the conversation in a log."""
    result = Transcript()
    running: dict[TurnId, TranscriptTurn] = {}
    for event in events:
        if not _SHOWN.holds(event):
            continue
        match event:
            case MessageAccepted():
                message = TranscriptMessage(event.message, event.text, str(event.by), event.at, event.role)
                (result.queued if event.role == "human" else result.context).append(message)
            case MessageWithdrawn():
                result.queued = [message for message in result.queued if message.message != event.message]
            case TurnStarted():
                turn = TranscriptTurn(
                    event.turn, tuple(message for message in result.queued if message.message in event.messages), event.at
                )
                result.queued = [message for message in result.queued if message.message not in event.messages]
                running[event.turn] = turn
                result.turns.append(turn)
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
    return result
