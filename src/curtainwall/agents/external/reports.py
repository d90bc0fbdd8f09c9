"""What is heard of a foreign agent while it works: the words for it, and the ears that take its lines. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from pydantic import JsonValue

from curtainwall.model import is_deeper

Event = Mapping[str, JsonValue]

SERVER: Final = "curtainwall"
"""How the session's tools are called as a tool server."""

MOST_WORDS: Final = 2_000
"""How many letters of what an agent says about a failure of its are kept."""

_DEEPEST: Final = 200


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the agent's text while it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class Spoke:
    """A whole message; it replaces the pieces that came before it."""

    text: str


@dataclass(frozen=True, slots=True)
class Does:
    """A word on what the agent is doing."""

    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """A tool of the agent's own that it says it uses; one of the session's is told by the gate."""

    tool: str
    arguments: JsonValue = None


@dataclass(frozen=True, slots=True)
class Named:
    """The agent's own name of the conversation that it is in."""

    conversation: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn has failed, whatever the exit code will be; `stop` says that there is no sense in waiting for the end."""

    why: str
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """The agent does not know the conversation that it was to go on with."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent says itself that its turn is over."""


Heard = Said | Spoke | Does | Used | Named | Failed | Lost | Finished


class Ear(Protocol):
    """Listens to one turn of an agent, line by line."""

    def hear(self, line: str) -> Sequence[Heard]:
        """Take a line of stdout."""
        ...

    def overhear(self, line: str) -> Sequence[Heard]:
        """Take a line of stderr."""
        ...


def is_ours(name: str) -> bool:
    """Tell whether a tool is one of the session's, under any of the spellings that agents have for it."""
    return SERVER in name


class JsonEar:
    """An ear for agents that tell each event as a JSON object on a line; anything else on stdout is passed over."""

    def hear(self, line: str) -> Sequence[Heard]:
        """Take a line of stdout."""
        event = read_event(line)
        return () if event is None else self.take(event)

    def overhear(self, line: str) -> Sequence[Heard]:
        """Take a line of stderr."""
        del line
        return ()

    def take(self, event: Event) -> Sequence[Heard]:
        """Take an event."""
        raise NotImplementedError


def read_event(line: str) -> Event | None:
    """Return the object that a line is; None for anything else, and for one that is nested too deeply to be told of."""
    try:
        event = cast("JsonValue", json.loads(line))
    except (ValueError, RecursionError):
        return None
    # What has so few brackets is not deep, and that is nearly every line.
    is_flat = line.count("{") + line.count("[") <= _DEEPEST
    return event if isinstance(event, dict) and (is_flat or not is_deeper(event, _DEEPEST)) else None


def below(value: JsonValue, *names: str) -> JsonValue:
    """Return what is found by these names inside objects, or None."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def text_below(value: JsonValue, *names: str) -> str:
    """Return the text that is found by these names inside objects, or nothing."""
    found = below(value, *names)
    return found if isinstance(found, str) else ""
