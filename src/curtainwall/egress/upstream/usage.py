"""Reads the usage of a reply while it passes: the provider's own counts once they come, an estimate from the text until then.

Only events with counts are parsed; in the others, only the start and end of the text are located.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue

from curtainwall.egress.ports import MIB, CountedUsage
from curtainwall.egress.refusals import Dialect

_BYTES_PER_TOKEN: Final = 4
_LONGEST_EVENT: Final = 4 * MIB
_END = re.compile(rb"\r?\n\r?\n")
_BACKSLASH: Final = 0x5C

# Group 1 marks the start of a piece of the reply's text; any other match makes its event worth parsing.
_NOTABLE: Final = {
    Dialect.ANTHROPIC: re.compile(rb'"(?:((?:text|thinking|partial_json)"\s*:\s*")|(?:usage"\s*:\s*\{|stop_reason"\s*:\s*"))'),
    Dialect.RESPONSES: re.compile(rb'"(?:(delta"\s*:\s*")|usage"\s*:\s*\{)'),
    Dialect.CHAT: re.compile(
        rb'"(?:((?:content|reasoning|reasoning_content|arguments)"\s*:\s*")|(?:usage"\s*:\s*\{|finish_reason"\s*:\s*"))'
    ),
    Dialect.GEMINI: re.compile(rb'"(?:(text"\s*:\s*")|(?:usageMetadata"\s*:\s*\{|finishReason"\s*:\s*"))'),
}

OnCount = Callable[[CountedUsage], str | None]
"""Called on every change; returns why the reply must stop, or None."""


def request_usage(size: int) -> CountedUsage:
    """Return the estimated usage of a request of this many bytes, before there is a reply."""
    return CountedUsage(_tokens(size))


def _tokens(size: int) -> int:
    return -(-size // _BYTES_PER_TOKEN)


class StreamUsage:
    """The usage of one reply that comes as server-sent events."""

    def __init__(self, dialect: Dialect, size: int, on_count: OnCount) -> None:
        self._notable = _NOTABLE[dialect]
        self._dialect = dialect
        self._on_count = on_count
        self._size = 0
        self._estimated = -1
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._tail = b""
        self.counted = request_usage(size)
        self.stopped: str | None = None

    @property
    def is_between_events(self) -> bool:
        """Tell whether the reply so far ends with a complete event."""
        return not self._waiting

    def feed(self, data: bytes) -> int:
        """Read the next bytes and return how many of them may pass; fewer than all if `stopped` is set."""
        end = _last_end(data, self._tail)
        if end < 0:
            self._wait(data)
            return len(data)
        before, block = sum(map(len, self._pieces)), b"".join((*self._pieces, data[:end]))
        self._pieces, self._waiting, self._tail = [], 0, b""
        stop = self._read(block)
        if stop is not None:
            return max(0, stop - before)
        if end < len(data):
            self._wait(data[end:])
        return len(data)

    def _wait(self, data: bytes) -> None:
        self._waiting += len(data)
        self._tail = (self._tail + data[-3:])[-3:]
        if self._waiting <= _LONGEST_EVENT:
            self._pieces.append(data)
        else:
            # Nobody sends such events; its counts are unknown, and the estimate remains.
            self._pieces = []

    def _read(self, block: bytes) -> int | None:
        """Read complete events; return the end of the event at which the reply must stop."""
        at = 0
        while (match := self._notable.search(block, at)) is not None:
            if match[1] is not None:
                at = _end_of_text(block, match.end())
                self._size += at - match.end()
                changed = self._estimate()
            else:
                start, at = block.rfind(b"\n", 0, match.start()) + 1, block.find(b"\n", match.end())
                changed = self._parse(block[start:at])
            if changed and (why := self._on_count(self.counted)) is not None:
                self.stopped = why
                ends = _END.search(block, at)
                return ends.end() if ends else len(block)
        return None

    def _estimate(self) -> bool:
        guess = _tokens(self._size)
        if guess <= max(self._estimated, self.counted.output_tokens):
            return False
        self._estimated = guess
        counted = self.counted
        self.counted = CountedUsage(
            counted.input_tokens, guess, counted.cached_tokens, measured=False, model=counted.model, stop_reason=counted.stop_reason
        )
        return True

    def _parse(self, line: bytes) -> bool:
        if not line.startswith(b"data:"):
            return False
        try:
            document: JsonValue = json.loads(line[5:])
        except (ValueError, RecursionError):
            return False
        if not isinstance(document, dict):
            return False
        before = self.counted
        self.counted = _READERS[self._dialect](before, document)
        return self.counted != before


class WholeUsage:
    """The usage of one reply that comes as one JSON document."""

    def __init__(self, dialect: Dialect, size: int, on_count: OnCount) -> None:
        self._dialect = dialect
        self._on_count = on_count
        self._pieces: list[bytes] = []
        self._asked = size
        self._size = 0
        self._complete: CountedUsage | None = None

    @property
    def counted(self) -> CountedUsage:
        """Return the counts of the complete reply; until then, an estimate from its length."""
        return self._complete or CountedUsage(_tokens(self._asked), _tokens(self._size))

    def feed(self, data: bytes) -> None:
        """Keep a piece, as long as the whole is small enough to parse."""
        self._size += len(data)
        if self._size <= _LONGEST_EVENT:
            self._pieces.append(data)

    def finish(self) -> None:
        """Count the complete reply; it has already been sent, so it cannot be stopped any more."""
        try:
            document: JsonValue = json.loads(b"".join(self._pieces)) if self._size <= _LONGEST_EVENT else None
        except (ValueError, RecursionError):
            document = None
        counted = self.counted
        # Without `alt=sse`, a Gemini stream is a list of the same objects.
        for each in document if isinstance(document, list) else [document]:
            if isinstance(each, dict):
                counted = _READERS[self._dialect](counted, each)
        self._complete = counted
        self._on_count(counted)


def _last_end(data: bytes, before: bytes) -> int:
    """Return where the last complete event ends, or -1; its two line ends may be split over two pieces."""
    end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\n\r\n") + 3)
    if end > 2 or (end == 2 and data[:2] == b"\n\n"):
        return end
    match = _END.search(before + data[:3])
    end_of_event = match.end() - len(before) if match else 0
    return end_of_event if end_of_event > 0 else -1


def _end_of_text(block: bytes, start: int) -> int:
    """Return where a string ends: at the next quote that is not escaped."""
    at = block.find(b'"', start)
    while at > start and block[at - 1] == _BACKSLASH:
        slashes = at - 1
        while slashes > start and block[slashes - 1] == _BACKSLASH:
            slashes -= 1
        if (at - slashes) % 2 == 0:
            break
        at = block.find(b'"', at + 1)
    return at if at >= 0 else len(block)


def _count(values: Mapping[str, JsonValue], key: str) -> int | None:
    value = values.get(key)
    # A bool is an int as well, but not a count.
    return value if type(value) is int and value >= 0 else None


def _text(values: Mapping[str, JsonValue], key: str) -> str:
    value = values.get(key)
    return value[:200] if isinstance(value, str) else ""


def _inner(values: Mapping[str, JsonValue], key: str) -> dict[str, JsonValue]:
    value = values.get(key)
    return value if isinstance(value, dict) else {}


def _anthropic(so_far: CountedUsage, document: dict[str, JsonValue]) -> CountedUsage:
    """Read `message_start` (input, first output), `message_delta` (the whole output) or a whole message."""
    message = _inner(document, "message") or document
    usage = _inner(message, "usage")
    stop = _text(_inner(document, "delta"), "stop_reason") or _text(message, "stop_reason") or so_far.stop_reason
    fresh, output = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    read, stored = _count(usage, "cache_read_input_tokens") or 0, _count(usage, "cache_creation_input_tokens") or 0
    is_last = document.get("type") != "message_start"
    return CountedUsage(
        input_tokens=so_far.input_tokens if not fresh and not read and not stored else (fresh or 0) + read + stored,
        output_tokens=so_far.output_tokens if output is None else output,
        cached_tokens=read or so_far.cached_tokens,
        measured=so_far.measured or (is_last and output is not None),
        model=_text(message, "model") or so_far.model,
        stop_reason=stop,
    )


def _responses(so_far: CountedUsage, document: dict[str, JsonValue]) -> CountedUsage:
    """Read the response inside `response.completed` and its siblings, or a whole one."""
    response = _inner(document, "response") or document
    usage = _inner(response, "usage")
    output = _count(usage, "output_tokens")
    stop = _text(_inner(response, "incomplete_details"), "reason") or _text(response, "status")
    return CountedUsage(
        input_tokens=_or(_count(usage, "input_tokens"), so_far.input_tokens),
        output_tokens=_or(output, so_far.output_tokens),
        cached_tokens=_or(_count(_inner(usage, "input_tokens_details"), "cached_tokens"), so_far.cached_tokens),
        measured=so_far.measured or output is not None,
        model=_text(response, "model") or so_far.model,
        stop_reason=stop or so_far.stop_reason,
    )


def _chat(so_far: CountedUsage, document: dict[str, JsonValue]) -> CountedUsage:
    """Read a chunk's or a whole completion's usage and finish reason."""
    usage = _inner(document, "usage")
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    output = _count(usage, "completion_tokens")
    return CountedUsage(
        input_tokens=_or(_count(usage, "prompt_tokens"), so_far.input_tokens),
        output_tokens=_or(output, so_far.output_tokens),
        cached_tokens=_or(_count(_inner(usage, "prompt_tokens_details"), "cached_tokens"), so_far.cached_tokens),
        measured=so_far.measured or output is not None,
        model=_text(document, "model") or so_far.model,
        stop_reason=(_text(first, "finish_reason") if isinstance(first, dict) else "") or so_far.stop_reason,
    )


def _gemini(so_far: CountedUsage, document: dict[str, JsonValue]) -> CountedUsage:
    """Read one object of the stream; its counts are cumulative."""
    usage = _inner(document, "usageMetadata")
    candidates = document.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    stop = _text(first, "finishReason") if isinstance(first, dict) else ""
    output = _count(usage, "candidatesTokenCount")
    thought = _count(usage, "thoughtsTokenCount")
    counts = None if output is None and thought is None else (output or 0) + (thought or 0)
    return CountedUsage(
        input_tokens=_or(_count(usage, "promptTokenCount"), so_far.input_tokens),
        output_tokens=_or(counts, so_far.output_tokens),
        cached_tokens=_or(_count(usage, "cachedContentTokenCount"), so_far.cached_tokens),
        measured=so_far.measured or counts is not None,
        model=_text(document, "modelVersion") or so_far.model,
        stop_reason=stop or so_far.stop_reason,
    )


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


_READERS: Final[Mapping[Dialect, Callable[[CountedUsage, dict[str, JsonValue]], CountedUsage]]] = {
    Dialect.ANTHROPIC: _anthropic,
    Dialect.RESPONSES: _responses,
    Dialect.CHAT: _chat,
    Dialect.GEMINI: _gemini,
}
