"""Exports a session's log as JSON lines, and replays a log from the store or an export, reporting every violation."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from curtainwall.model import CHAIN_START, BlobRef, Blobs, Broken, Entry, NotFound, StreamId, entry_hash, record, session_stream
from curtainwall.operations.lookup import find_session
from curtainwall.runtime import Stores
from curtainwall.session import Violation, blobs_of, fold, lift, replay

_EVENT_KEY = ',"event":'


def export_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield one line per entry; after `"event":` comes the logged payload, byte for byte."""
    for entry in entries:
        header = {"stream": entry.stream, "seq": entry.seq, "type": entry.kind, "version": entry.version, "hash": entry.hash.hex()}
        prefix = json.dumps(header, separators=(",", ":"), ensure_ascii=True)
        yield f"{prefix[:-1]}{_EVENT_KEY}{entry.payload.decode()}}}"


@record
class ReadExport:
    """The entries of an export, and whether its last line was torn and left out."""

    entries: Sequence[Entry]
    torn: bool


def read_export(text: str) -> ReadExport:
    """Parse an export; a torn last line is left out, any other fault raises `Broken`."""
    *lines, rest = text.split("\n")
    entries = [_parse_entry(number, line) for number, line in enumerate(lines, start=1) if line]
    if not rest:
        return ReadExport(entries, torn=False)
    try:
        return ReadExport([*entries, _parse_entry(len(lines) + 1, rest)], torn=False)
    except Broken:
        return ReadExport(entries, torn=True)


def _parse_entry(number: int, line: str) -> Entry:
    prefix, mark, payload = line.partition(_EVENT_KEY)
    try:
        header = json.loads(f"{prefix}}}")
        if not mark or not payload.endswith("}"):
            raise ValueError("its event is missing")
        json.loads(payload[:-1])
        digest = bytes.fromhex(header["hash"])
        return Entry(
            StreamId(header["stream"]), int(header["seq"]), str(header["type"]), int(header["version"]), payload[:-1].encode(), digest
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Broken(f"line {number} is no entry that `curtainwall sessions export` wrote: {error}") from None


# Every entry that names a blob contains this, so most entries need not be parsed.
_REFERENCE: Final = b'"digest"'


@record
class ReplayReport:
    """The result of a replay."""

    entries: int
    status: str
    violations: tuple[Violation, ...]
    torn: bool = False


def replay_session(store: Stores, text: str) -> ReplayReport:
    """Replay a session, given its id or the beginning of it."""
    row = find_session(store.index, text)
    return _replay(store.log.read(session_stream(row.session)), store.blobs)


def replay_file(path: Path, blobs: Blobs) -> ReplayReport:
    """Replay an export, with the contents that it refers to in these blobs."""
    try:
        export = read_export(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Broken(f"`{path}` is not UTF-8 and so no export of ours") from None
    except Broken as error:
        raise Broken(f"`{path}`: {error}") from None
    if not export.entries:
        raise Broken(f"`{path}` holds no whole entry; give a file that `curtainwall sessions export` wrote to its end")
    report = _replay(export.entries, blobs)
    return ReplayReport(report.entries, report.status, report.violations, export.torn)


def _replay(entries: Sequence[Entry], blobs: Blobs) -> ReplayReport:
    # An event of an unknown type makes `lift` raise, which rejects the whole log.
    events = [lift(entry) for entry in entries]
    gaps = [
        Violation(entry.seq, f"entry {entry.seq} stands where entry {position} should")
        for position, entry in enumerate(entries, start=1)
        if entry.seq != position
    ]
    violations = (*gaps[:1], *_broken_links(entries), *replay(events, lambda ref: _fault_of(ref, blobs)))
    status = fold(events).phase.value if events and not violations else "unclear"
    return ReplayReport(len(entries), status, tuple(sorted(violations, key=lambda violation: violation.seq)))


def _broken_links(entries: Sequence[Entry]) -> list[Violation]:
    """Return a violation for the first entry whose hash does not follow from the entries before it."""
    expected = CHAIN_START
    for entry in entries:
        expected = entry_hash(expected, entry.stream.encode(), entry.seq, entry.kind, entry.version, entry.payload)
        if expected != entry.hash:
            return [Violation(entry.seq, "the entry does not fit its hash: it, or one before it, was changed or removed")]
    return []


def blob_fault(entries: Iterable[Entry], blobs: Blobs, seen: set[str]) -> str | None:
    """Return a message about the first entry whose blob is missing or altered; skip the blobs in `seen`, and add the intact ones."""
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
