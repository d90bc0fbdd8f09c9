"""A session's log as a file of JSON lines that holds the very bytes that were logged, and reading one back."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from curtainwall.model import Broken, Entry, StreamId

_MARK = ',"event":'


def export_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Return one line per entry; what stands after `"event":` is the logged payload, byte for byte."""
    for entry in entries:
        told = {"stream": entry.stream, "seq": entry.seq, "type": entry.kind, "version": entry.version, "hash": entry.hash.hex()}
        lead = json.dumps(told, separators=(",", ":"), ensure_ascii=True)
        yield f"{lead[:-1]}{_MARK}{entry.payload.decode()}}}"


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The entries of an export, and whether its last line was torn and left out."""

    entries: Sequence[Entry]
    torn: bool


def read_export(text: str) -> ReadBack:
    """Return the entries of an export; a torn last line is left out, any other fault is `Broken`."""
    *lines, rest = text.split("\n")
    entries = [_entry(number, line) for number, line in enumerate(lines, start=1) if line]
    if not rest:
        return ReadBack(entries, torn=False)
    try:
        return ReadBack([*entries, _entry(len(lines) + 1, rest)], torn=False)
    except Broken:
        return ReadBack(entries, torn=True)


def _entry(number: int, line: str) -> Entry:
    lead, mark, payload = line.partition(_MARK)
    try:
        told = json.loads(f"{lead}}}")
        if not mark or not payload.endswith("}"):
            raise ValueError("its event is missing")
        json.loads(payload[:-1])
        digest = bytes.fromhex(told["hash"])
        return Entry(StreamId(told["stream"]), int(told["seq"]), str(told["type"]), int(told["version"]), payload[:-1].encode(), digest)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Broken(f"line {number} is no entry that `curtainwall sessions export` wrote: {error}") from None
