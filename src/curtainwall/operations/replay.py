"""A session's log as a file of JSON lines, and a log replayed from the store or from such a file, with every broken promise named."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.model import BlobRef, Blobs, Broken, Entry, NotFound, StreamId, session_stream
from curtainwall.operations.lookup import find_session
from curtainwall.runtime import Stores
from curtainwall.session import Violation, blobs_of, fold, lift, replay
from curtainwall.store.audit.chain import START, link

_MARK = ',"event":'


def export_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Return one line per entry; what stands after `"event":` is the logged payload, byte for byte."""
    for entry in entries:
        told = {"stream": entry.stream, "seq": entry.seq, "type": entry.kind, "version": entry.version, "hash": entry.hash.hex()}
        lead = json.dumps(told, separators=(",", ":"), ensure_ascii=True)
        yield f"{lead[:-1]}{_MARK}{entry.payload.decode()}}}"


@dataclass(frozen=True, slots=True)
class ReadExport:
    """The entries of an export, and whether its last line was torn and left out."""

    entries: Sequence[Entry]
    torn: bool


def read_export(text: str) -> ReadExport:
    """Return the entries of an export; a torn last line is left out, any other fault is `Broken`."""
    *lines, rest = text.split("\n")
    entries = [_entry(number, line) for number, line in enumerate(lines, start=1) if line]
    if not rest:
        return ReadExport(entries, torn=False)
    try:
        return ReadExport([*entries, _entry(len(lines) + 1, rest)], torn=False)
    except Broken:
        return ReadExport(entries, torn=True)


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


# No entry names a blob without this; most need not be read.
_REFERENCE: Final = b'"digest"'


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How a replay went."""

    entries: int
    status: str
    violations: tuple[Violation, ...]
    torn: bool = False


def replay_session(store: Stores, text: str) -> ReplayReport:
    """Replay a session, by its id or the beginning of it."""
    row = find_session(store.index, text)
    return _replay(store.log.read(session_stream(row.session)), store.blobs)


def replay_file(path: Path, blobs: Blobs) -> ReplayReport:
    """Replay an export; what it keeps elsewhere is looked up among these blobs."""
    try:
        told = read_export(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Broken(f"`{path}` is not UTF-8 and so no export of ours") from None
    except Broken as error:
        raise Broken(f"`{path}`: {error}") from None
    if not told.entries:
        raise Broken(f"`{path}` holds no whole entry; give a file that `curtainwall sessions export` wrote to its end")
    found = _replay(told.entries, blobs)
    return ReplayReport(found.entries, found.status, found.violations, told.torn)


def _replay(entries: Sequence[Entry], blobs: Blobs) -> ReplayReport:
    # An event of an unknown type refuses the whole log: `lift` raises.
    events = [lift(entry) for entry in entries]
    gaps = [
        Violation(entry.seq, f"entry {entry.seq} stands where entry {place} should")
        for place, entry in enumerate(entries, start=1)
        if entry.seq != place
    ]
    violations = (*gaps[:1], *_unlinked(entries), *replay(events, lambda ref: _fault_of(ref, blobs)))
    status = fold(events).phase.value if events and not violations else "unclear"
    return ReplayReport(len(entries), status, tuple(sorted(violations, key=lambda it: it.seq)))


def _unlinked(entries: Sequence[Entry]) -> list[Violation]:
    """Return the first entry that does not carry the hash that follows from those before it."""
    before = START
    for entry in entries:
        before = link(before, entry.stream.encode(), entry.seq, entry.kind, entry.version, entry.payload)
        if before != entry.hash:
            return [Violation(entry.seq, "the entry does not fit its hash: it, or one before it, was changed or removed")]
    return []


def blob_fault(entries: Iterable[Entry], blobs: Blobs, seen: set[str]) -> str | None:
    """Return the first entry whose words are in a blob that is missing or altered; blobs that were seen to be whole are passed over."""
    for entry in entries:
        if _REFERENCE not in entry.payload:
            continue
        for ref in blobs_of(lift(entry)):
            if ref.digest not in seen and (fault := _fault_of(ref, blobs)) is not None:
                return f"entry {entry.seq}: {fault}"
            seen.add(ref.digest)
    return None


def _fault_of(ref: BlobRef, blobs: Blobs) -> str | None:
    try:
        content = blobs.get(ref.digest)
    except (NotFound, Broken) as fault:
        return str(fault)
    return None if len(content) == ref.size else f"blob `{ref.digest}` has another size than the log says"
