"""What one task came to: status, text, usage and open asks as the one document, and the exit code that goes with it."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from curtainwall.model import Basis, ModelFailed, ModelResponded, Recorded, SessionView, TurnStatus, Usage, encode_event


class Status(StrEnum):
    """How a task ended."""

    DONE = "done"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


EXIT_CODES: Final = {Status.DONE: 0, Status.FAILED: 1, Status.WAITING: 3, Status.INTERRUPTED: 130}

_SURENESS = (Basis.MEASURED, Basis.ESTIMATED, Basis.UNKNOWN)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a task; a failure says why."""

    status: Status
    failure: str = ""

    @staticmethod
    def of(status: TurnStatus, failure: str) -> "End":
        """Return the end that a turn's end is."""
        return End(Status(status.value), failure if status is TurnStatus.FAILED else "")


class UsageSum:
    """What the model requests of a task used together; a sum is as sure as its least sure part."""

    def __init__(self) -> None:
        self._parts: list[Usage] = []

    def add(self, event: ModelResponded | ModelFailed) -> None:
        """Count one more request; one that broke off may have used something as well."""
        if isinstance(event, ModelResponded) or event.usage.input_tokens or event.usage.output_tokens:
            self._parts.append(event.usage)

    def total(self) -> Usage:
        """Return the sum."""
        parts = self._parts
        return Usage(
            input_tokens=sum(it.input_tokens for it in parts),
            output_tokens=sum(it.output_tokens for it in parts),
            cached_tokens=sum(it.cached_tokens for it in parts),
            dollars=sum(it.dollars for it in parts),
            tokens_basis=max((it.tokens_basis for it in parts), key=_SURENESS.index, default=Basis.MEASURED),
            dollars_basis=max((it.dollars_basis for it in parts), key=_SURENESS.index, default=Basis.MEASURED),
        )


def document(end: End, text: str, usage: Usage, view: SessionView) -> dict[str, object]:
    """Return the one document of a task."""
    told: dict[str, object] = {
        "session": view.session,
        "status": end.status.value,
        "text": text,
        "turns": view.turns,
        "usage": usage.model_dump(mode="json"),
        "pending": [{"id": ask.approval, "tool": ask.subject.tool, "because": list(ask.because)} for ask in view.pending],
    }
    return {**told, "failure": end.failure} if end.failure else told


def event_json(recorded: Recorded) -> str:
    """Return an event as one line of JSON."""
    kind, version, payload = encode_event(recorded.event)
    return json.dumps({"seq": recorded.seq, "event": kind, "version": version, **json.loads(payload)}, ensure_ascii=True)
