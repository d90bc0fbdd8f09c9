"""Reads the commits, directories and branches of a repository, loose or packed, and checks each object against its id. Runs no git.

The bytes are untrusted: the owner of the repository chose them. An object that does not hash to the requested id counts as missing.
"""

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import BinaryIO, Final, Self

from curtainwall.facts.git.config import Repository, open_no_link, read_bytes
from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model import on_disk, record

_MAX_COMMIT: Final = 1 << 18
_MAX_PACKS: Final = 256
_DEEPEST: Final = 50
_LONGEST_NUMBER: Final = 10
# About a second of work, counted in bytes of a delta; an index lookup, or an object, costs as much as several.
_ALLOWED: Final = 4_000_000
_A_LOOK, _AN_OBJECT = 4, 300
_INDEX_START: Final = b"\xfftOc\x00\x00\x00\x02"
_DELTA_BY_OFFSET, _DELTA_BY_ID = 6, 7
_KINDS: Final = {b"commit": 1, b"tree": 2}
_DIRECTORY: Final = b"40000"
_ID: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# By the length of an id: the two ways in which git names objects. One repository uses only one of them.
_HASHES: Final = {40: hashlib.sha1, 64: hashlib.sha256}


@record
class Commit:
    """A commit: its parents, its time, the first line of its message, and its tree."""

    parents: tuple[str, ...]
    when: int
    title: str
    tree: str


@record
class Listed:
    """One entry of a directory."""

    id: str
    is_directory: bool


class _TooMuchError(Exception):
    """The bytes take too much work; they may be crafted for that."""


class _Allowance:
    """The work that is left, for all objects together: many packs, each within its limits, could take as long as one without any.

    It depends only on the bytes and not on a clock, so that a push gets the same result each time.
    """

    def __init__(self) -> None:
        self._left = _ALLOWED

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise _TooMuchError


class Commits:
    """Reads the objects of one repository; once that takes too much work, the rest counts as missing."""

    def __init__(self, directory: str) -> None:
        self._objects = os.path.join(directory, "objects")
        self._allowance = _Allowance()
        self._packs: list[_Pack] | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def find(self, id_: str) -> Commit | None:
        """Return a commit, or None if it is missing or damaged."""
        data = self._verified(id_, b"commit")
        return None if data is None else _read_commit(data)

    def directory(self, id_: str) -> Mapping[str, Listed] | None:
        """Return the entries of a directory, or None if it is missing or damaged, or the allowance is used up."""
        data = self._verified(id_, b"tree")
        return None if data is None else _read_tree(data, len(id_) // 2)

    def _verified(self, id_: str, kind: bytes) -> bytes | None:
        hashed = _HASHES.get(len(id_))
        if hashed is None:
            return None
        with suppress(_TooMuchError):
            if kind == b"tree":
                # Callers limit the number of commits, but a single commit can have any number of directories.
                self._allowance.spend(_AN_OBJECT)
            for data in self._candidates(id_, _KINDS[kind]):
                if hashed(b"%b %d\x00%b" % (kind, len(data), data), usedforsecurity=False).hexdigest() == id_:
                    return data
        return None

    def _candidates(self, id_: str, kind: int) -> Iterator[bytes]:
        with suppress(OSError, Unclear, zlib.error):
            loose = _inflated(read_bytes(os.path.join(self._objects, id_[:2], id_[2:]), _MAX_COMMIT))
            yield loose.partition(b"\x00")[2]
        for pack in self._all_packs():
            # A forged offset can be too big a number for the kernel.
            with suppress(OSError, OverflowError, IndexError, struct.error, zlib.error):
                yield from pack.find(bytes.fromhex(id_), kind)

    def _all_packs(self) -> "list[_Pack]":
        if self._packs is None:
            self._packs = []
            with suppress(OSError):
                folder = os.path.join(self._objects, "pack")
                names = [name.removesuffix(".idx") for name in sorted(os.listdir(on_disk(folder))) if name.endswith(".idx")]
                for name in names[:_MAX_PACKS]:
                    with suppress(OSError):
                        index, pack = (self._opened(os.path.join(folder, name + kind)) for kind in (".idx", ".pack"))
                        self._packs.append(_Pack(index, pack, self._allowance))
        return self._packs

    def _opened(self, path: str) -> BinaryIO:
        return self._open.enter_context(open(on_disk(path), "rb", opener=open_no_link, buffering=0))


class _Pack:
    """One pack and its index, in git's second version, the default since 2008."""

    def __init__(self, index: BinaryIO, pack: BinaryIO, allowance: _Allowance) -> None:
        self._index, self._pack = index.fileno(), pack.fileno()
        self._allowance = allowance

    def find(self, id_: bytes, kind: int, depth: int = 0) -> Iterator[bytes]:
        self._allowance.spend(_A_LOOK)
        if os.pread(self._index, 8, 0) != _INDEX_START:
            return
        low = self._number(8 + 4 * (id_[0] - 1)) if id_[0] else 0
        high, every = self._number(8 + 4 * id_[0]), self._number(8 + 4 * 255)
        ids, width = 8 + 4 * 256, len(id_)
        while low < high:
            self._allowance.spend(_A_LOOK)
            middle = (low + high) // 2
            here = os.pread(self._index, width, ids + width * middle)
            if here == id_:
                offset = self._number(ids + (width + 4) * every + 4 * middle)
                if offset >> 31:
                    far = ids + (width + 8) * every + 8 * (offset & 0x7FFFFFFF)
                    (offset,) = struct.unpack(">Q", os.pread(self._index, 8, far))
                yield self._object(offset, kind, depth, width)
                return
            low, high = (middle + 1, high) if here < id_ else (low, middle)

    def _number(self, at: int) -> int:
        (number,) = struct.unpack(">I", os.pread(self._index, 4, at))
        return number

    def _object(self, at: int, wanted: int, depth: int, width: int) -> bytes:
        """Return the object at an offset in the pack; raise if there is none of that kind. Ids in the pack have this many bytes."""
        self._allowance.spend(_AN_OBJECT)
        data = os.pread(self._pack, _MAX_COMMIT, at)
        kind, used = data[0] >> 4 & 7, 1
        while data[used - 1] & 0x80 and used < _LONGEST_NUMBER:
            used += 1
        if kind == wanted:
            return self._inflated(data[used:])
        if kind not in (_DELTA_BY_OFFSET, _DELTA_BY_ID) or depth == _DEEPEST:
            raise IndexError
        if kind == _DELTA_BY_OFFSET:
            back = data[used] & 0x7F
            while data[used] & 0x80 and back <= at:
                used += 1
                back = (back + 1) << 7 | data[used] & 0x7F
            used += 1
            if not 0 < back <= at:
                raise IndexError
            base = self._object(at - back, wanted, depth + 1, width)
        else:
            base = next(self.find(data[used : used + width], wanted, depth + 1), b"")
            used += width
        delta = self._inflated(data[used:])
        self._allowance.spend(len(delta))
        return _apply_delta(base, delta)

    def _inflated(self, data: bytes) -> bytes:
        out = _inflated(data)
        self._allowance.spend(len(out) // 100)
        return out


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    out = inflater.decompress(data, _MAX_COMMIT)
    if not inflater.eof:
        raise zlib.error
    return out


def _apply_delta(base: bytes, delta: bytes) -> bytes:
    """Apply a git delta."""
    at = 0
    for _ in range(2):
        while delta[at] & 0x80:
            at += 1
        at += 1
    out = bytearray()
    while at < len(delta):
        word, at = delta[at], at + 1
        if not word & 0x80:
            out += delta[at : at + word]
            at += word
            continue
        numbers = [0, 0]
        for bit in range(7):
            if word >> bit & 1:
                numbers[bit // 4] |= delta[at] << 8 * (bit % 4)
                at += 1
        out += base[numbers[0] : numbers[0] + (numbers[1] or 0x10000)]
        if len(out) > _MAX_COMMIT:
            raise IndexError
    return bytes(out)


def _read_commit(data: bytes) -> Commit | None:
    head, _, message = data.partition(b"\n\n")
    parents: list[str] = []
    when, tree = 0, ""
    for line in head.split(b"\n"):
        word, _, rest = line.partition(b" ")
        if word == b"parent":
            if not _ID.fullmatch(rest):
                return None
            parents.append(rest.decode())
        elif word == b"tree":
            tree = rest.decode(errors="replace")
        elif word == b"committer":
            stamp = rest.rsplit(b" ", 2)[-2:-1]
            when = int(stamp[0]) if stamp and stamp[0].isdigit() and len(stamp[0]) < 19 else 0
    return Commit(tuple(parents), when, message.lstrip(b"\n").partition(b"\n")[0].decode(errors="replace").strip(), tree)


def _read_tree(data: bytes, width: int) -> Mapping[str, Listed] | None:
    listed: dict[str, Listed] = {}
    at = 0
    while at < len(data):
        end = data.find(b"\x00", at)
        mode, _, name = data[at:end].partition(b" ")
        at = end + 1 + width
        if end < 0 or at > len(data):
            return None
        listed[name.decode(errors="backslashreplace")] = Listed(data[end + 1 : at].hex(), mode == _DIRECTORY)
    return listed


HEADS: Final = "refs/heads/"

_MAX_REF = 4_096
# Reading it blocks all other work; 32 MiB are half a million refs.
_MAX_PACKED = 1 << 25
_MOST_LINKS = 5
# Git's rules: no empty part, none that starts with a dot or ends in `.lock`, nothing with a meaning in a revision.
_NAME = re.compile(r"refs(?:/(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f/:?*~^\[\\])+(?<!\.lock)(?<!\.))+")


def current_branch(repository: Repository) -> str | None:
    """Return the checked-out branch, even if it has no commit yet; None if HEAD is detached; raise `Unclear` if that is unknown."""
    _require_files(repository)
    content = _loose(repository.own, "HEAD")
    name = _target_of(content) if content is not None else None
    return name.removeprefix(HEADS) if name is not None and name.startswith(HEADS) and _NAME.fullmatch(name) else None


def commit_at(repository: Repository, ref: str) -> str | None:
    """Return the commit id of a full ref, or None if there is no such ref; raise `Unclear` if that is unknown."""
    _require_files(repository)
    for _ in range(_MOST_LINKS):
        if not _NAME.fullmatch(ref):
            return None
        content = _loose(repository.directory, ref)
        if content is None:
            return _packed(repository.directory, ref)
        target = _target_of(content)
        if target is None:
            match = _ID.fullmatch(content.strip())
            if match is None:
                raise Unclear(f"the file of {quoted(ref)} holds no commit's id")
            return match[0].decode()
        ref = target
    raise Unclear(f"{quoted(ref)} leads from one name to the next without end")


def _require_files(repository: Repository) -> None:
    """Raise if branches are kept elsewhere than in files: what is in the files then, HEAD included, means nothing."""
    if any((entry.section, entry.key) == ("extensions", "refstorage") and entry.value != "files" for entry in repository.entries):
        raise Unclear(
            "the repository keeps its branches in a table, which is not read here; `git refs migrate --ref-format=files` changes it"
        )


def _loose(directory: str, ref: str) -> bytes | None:
    try:
        return read_bytes(os.path.join(directory, ref), _MAX_REF)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise Unclear(f"{quoted(ref)} cannot be read: {(error.strerror or 'unknown').lower()}") from None


def _target_of(content: bytes) -> str | None:
    return content[4:].strip().decode(errors="replace") if content.startswith(b"ref:") else None


def _packed(directory: str, ref: str) -> str | None:
    try:
        lines = b"\n" + read_bytes(os.path.join(directory, "packed-refs"), _MAX_PACKED)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unclear(f"the packed refs cannot be read: {(error.strerror or 'unknown').lower()}") from None
    end = lines.find(b" " + ref.encode() + b"\n")
    if end < 0:
        return None
    match = _ID.fullmatch(lines, lines.rfind(b"\n", 0, end) + 1, end)
    if match is None:
        raise Unclear("the packed refs are not as git writes them")
    return match[0].decode()
