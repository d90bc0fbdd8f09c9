"""Sign-ins: one-time codes and sessions of browsers in one file, stored only as hashes, shared by every process."""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from curtainwall.model import Broken, Frozen, Millis, record

CODE_LIFE: Millis = 10 * 60 * 1000
"""How long a one-time code can be used."""

_MOST_CODES = 50
_MOST_SIGN_INS = 200
"""The limit per person: their own oldest entries make room for new ones, never those of others."""
_TOKEN_BYTES = 32
_LONGEST_TOKEN = 200


class _Code(Frozen):
    hash: str
    user: str
    until: Millis
    run: str = ""


class _SignIn(Frozen):
    hash: str
    user: str
    since: Millis
    until: Millis


class _Stored(Frozen):
    codes: tuple[_Code, ...] = ()
    sign_ins: tuple[_SignIn, ...] = ()


_STORED = TypeAdapter(_Stored)
_K = TypeVar("_K", _Code, _SignIn)


@record
class SignedIn:
    """A signed-in browser. `csrf` is derived from the cookie, so only the holder of the cookie can know it."""

    user: str
    csrf: str
    since: Millis


class SignIns:
    """All sign-ins. INVARIANT: the file holds only hashes; nobody can sign in with its content.

    `run` identifies the run of the server that a code is for. A code given to a program that took the port after the server ended is
    worthless at the next run.
    """

    def __init__(self, path: Path, now: Callable[[], Millis], life: Millis, run: str = "") -> None:
        self._path = path
        self._now = now
        self._life = life
        self._run = run
        self._cached: tuple[tuple[int, int, int], _Stored] | None = None

    def new_code(self, user: str) -> str:
        """Return a code that signs a person in once, within ten minutes."""
        code = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._update() as (stored, save):
            entry = _Code(hash=_hash(code), user=user, until=self._now() + CODE_LIFE, run=self._run)
            save(stored.model_copy(update={"codes": (*stored.codes, entry)}))
        return code

    def spend(self, code: str) -> str | None:
        """Use up a code and return its user; None if it is wrong, expired or used."""
        digest = _hash(code)
        with self._update() as (stored, save):
            entry = _find(stored.codes, digest)
            if entry is None or entry.run != self._run:
                return None
            save(stored.model_copy(update={"codes": tuple(other for other in stored.codes if other.hash != entry.hash)}))
        return entry.user

    def sign_in(self, user: str) -> str:
        """Return the cookie of a new sign-in."""
        token, now = secrets.token_urlsafe(_TOKEN_BYTES), self._now()
        entry = _SignIn(hash=_hash(token), user=user, since=now, until=now + self._life)
        with self._update() as (stored, save):
            save(stored.model_copy(update={"sign_ins": (*stored.sign_ins, entry)}))
        return token

    def find(self, token: str) -> SignedIn | None:
        """Return the sign-in of a cookie; None if it is forged or expired."""
        if not token or len(token) > _LONGEST_TOKEN:
            return None
        entry = _find(self._load().sign_ins, _hash(token))
        if entry is None or entry.until <= self._now():
            return None
        return SignedIn(entry.user, csrf_of(token), entry.since)

    def sign_out(self, token: str, *, everywhere: bool = False) -> None:
        """End a sign-in, or all of that person."""
        digest = _hash(token)
        with self._update() as (stored, save):
            entry = _find(stored.sign_ins, digest)
            if entry is not None:
                remaining = (
                    sign_in for sign_in in stored.sign_ins if sign_in.hash != entry.hash and not (everywhere and sign_in.user == entry.user)
                )
                save(stored.model_copy(update={"sign_ins": tuple(remaining)}))

    def end_all(self, user: str | None) -> int:
        """End all sign-ins and codes, of one person or of everyone, and return how many sign-ins ended."""
        with self._update() as (stored, save):
            codes = tuple(entry for entry in stored.codes if user is not None and entry.user != user)
            remaining = tuple(entry for entry in stored.sign_ins if user is not None and entry.user != user)
            save(_Stored(codes=codes, sign_ins=remaining))
            return len(stored.sign_ins) - len(remaining)

    def _load(self) -> _Stored:
        """Return the file's content, read again only if it changed."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return _Stored()
        mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if self._cached is None or self._cached[0] != mark:
            self._cached = (mark, self._parse())
        return self._cached[1]

    def _parse(self) -> _Stored:
        try:
            return _STORED.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Stored()
        except (ValidationError, ValueError):
            raise Broken(f"`{self._path}` is damaged; remove it, and everybody signs in again") from None

    @contextmanager
    def _update(self) -> Generator[tuple[_Stored, Callable[[_Stored], None]]]:
        """Yield the stored content under a lock, without expired entries, and a function that saves a new version."""
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._without_expired(self._parse()), self._save
        finally:
            os.close(lock)

    def _without_expired(self, stored: _Stored) -> _Stored:
        now = self._now()
        codes = _newest([entry for entry in stored.codes if entry.until > now], _MOST_CODES)
        sign_ins = _newest([entry for entry in stored.sign_ins if entry.until > now], _MOST_SIGN_INS)
        return _Stored(codes=codes, sign_ins=sign_ins)

    def _save(self, stored: _Stored) -> None:
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(stored.model_dump()).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, self._path)


def csrf_of(token: str) -> str:
    """Return the token that forms of this sign-in carry."""
    return hmac.new(token.encode(), b"curtainwall forms", hashlib.sha256).hexdigest()


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _newest(entries: Sequence[_K], most: int) -> tuple[_K, ...]:
    """Return at most so many entries per person, the newest."""
    counted: Counter[str] = Counter()
    newest: list[_K] = []
    for entry in reversed(entries):
        counted[entry.user] += 1
        if counted[entry.user] <= most:
            newest.append(entry)
    return tuple(reversed(newest))


def _find(entries: Sequence[_K], digest: str) -> _K | None:
    """Return the entry with this hash; every entry is compared, each in constant time."""
    match: _K | None = None
    for entry in entries:
        if hmac.compare_digest(entry.hash, digest):
            match = entry
    return match
