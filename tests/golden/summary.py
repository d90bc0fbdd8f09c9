"""A folded state as plain JSON, so that it can be pinned beside the log it came from."""

import dataclasses
from typing import Any

from pydantic import BaseModel

from curtainwall.session import SessionState, Transcript


def summary(state: SessionState, told: Transcript) -> dict[str, Any]:
    """Return everything that a log folds to, and the conversation that it tells."""
    return {"phase": state.phase.value, "state": _plain(state), "transcript": _plain(told)}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(each) for each in value)
    return [_plain(each) for each in value] if not isinstance(value, (str, int, float, type(None))) else value
