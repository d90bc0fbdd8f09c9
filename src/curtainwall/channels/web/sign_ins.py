"""Who is signed in: one-time codes and sign-ins in one file of ours, only ever as hashes, shared by every process."""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from curtainwall.model import Broken, Frozen, Millis

CODE_LIFE: Millis = 10 * 60 * 1000
"""How long a one-time code can be used."""

_MOST_CODES = 50
_MOST_SIGN_INS = 200
"""How many each person has at most: their own oldest make room for new ones, and never those of others."""
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


class _Kept(Frozen):
    codes: tuple[_Code, ...] = ()
    sign_ins: tuple[_SignIn, ...] = ()


_KEPT = TypeAdapter(_Kept)
_K = TypeVar("_K", _Code, _SignIn)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A browser whose person we know. `csrf` comes from the cookie itself, so only whoever holds that can know it."""

    user: str
    csrf: str
    since: Millis


class SignIns:
    """The sign-ins of one house. INVARIANT: the file holds hashes alone; nobody can sign in with what is in it.

    `run` names the run of the server that a code is for. A code that was handed to whoever took the port after the server ended is
    worth nothing at the next one.
    """

    def __init__(self, path: Path, now: Callable[[], Millis], life: Millis, run: str = "") -> None:
        self._path = path
        self._now = now
        self._life = life
        self._run = run
        self._read: tuple[tuple[int, int, int], _Kept] | None = None

    def new_code(self, user: str) -> str:
        """Return a code that signs a person in once, within ten minutes."""
        code = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._changing() as (kept, put):
            made = _Code(hash=_hash(code), user=user, until=self._now() + CODE_LIFE, run=self._run)
            put(kept.model_copy(update={"codes": (*kept.codes, made)}))
        return code

    def spend(self, code: str) -> str | None:
        """Return whose code this is, once; None for one that is wrong, too old or used."""
        wanted = _hash(code)
        with self._changing() as (kept, put):
            found = _find(kept.codes, wanted)
            if found is None or found.run != self._run:
                return None
            put(kept.model_copy(update={"codes": tuple(it for it in kept.codes if it.hash != found.hash)}))
        return found.user

    def sign_in(self, user: str) -> str:
        """Return the cookie of a new sign-in."""
        token, now = secrets.token_urlsafe(_TOKEN_BYTES), self._now()
        made = _SignIn(hash=_hash(token), user=user, since=now, until=now + self._life)
        with self._changing() as (kept, put):
            put(kept.model_copy(update={"sign_ins": (*kept.sign_ins, made)}))
        return token

    def find(self, token: str) -> SignedIn | None:
        """Return who a cookie belongs to, None for one that is forged or over."""
        if not token or len(token) > _LONGEST_TOKEN:
            return None
        found = _find(self._kept().sign_ins, _hash(token))
        if found is None or found.until <= self._now():
            return None
        return SignedIn(found.user, csrf_of(token), found.since)

    def sign_out(self, token: str, *, everywhere: bool = False) -> None:
        """End a sign-in, or every one of that person."""
        wanted = _hash(token)
        with self._changing() as (kept, put):
            found = _find(kept.sign_ins, wanted)
            if found is not None:
                left = (it for it in kept.sign_ins if it.hash != found.hash and not (everywhere and it.user == found.user))
                put(kept.model_copy(update={"sign_ins": tuple(left)}))

    def end_all(self, user: str | None) -> int:
        """End every sign-in and every code, of one person or of all, and return how many sign-ins that were."""
        with self._changing() as (kept, put):
            codes = tuple(it for it in kept.codes if user is not None and it.user != user)
            left = tuple(it for it in kept.sign_ins if user is not None and it.user != user)
            put(_Kept(codes=codes, sign_ins=left))
            return len(kept.sign_ins) - len(left)

    def _kept(self) -> _Kept:
        """Return what the file says, read again only where it changed."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return _Kept()
        mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if self._read is None or self._read[0] != mark:
            self._read = (mark, self._parsed())
        return self._read[1]

    def _parsed(self) -> _Kept:
        try:
            return _KEPT.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Kept()
        except (ValidationError, ValueError):
            raise Broken(f"`{self._path}` is damaged; remove it, and everybody signs in again") from None

    @contextmanager
    def _changing(self) -> Generator[tuple[_Kept, Callable[[_Kept], None]]]:
        """Give what is kept to one process at a time, and put back what it makes of it; what is over goes."""
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._fresh(self._parsed()), self._put
        finally:
            os.close(lock)

    def _fresh(self, kept: _Kept) -> _Kept:
        now = self._now()
        codes = _newest([it for it in kept.codes if it.until > now], _MOST_CODES)
        sign_ins = _newest([it for it in kept.sign_ins if it.until > now], _MOST_SIGN_INS)
        return _Kept(codes=codes, sign_ins=sign_ins)

    def _put(self, kept: _Kept) -> None:
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(kept.model_dump()).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, self._path)


def csrf_of(token: str) -> str:
    """Return what forms of this sign-in carry."""
    return hmac.new(token.encode(), b"curtainwall forms", hashlib.sha256).hexdigest()


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _newest(kept: Sequence[_K], most: int) -> tuple[_K, ...]:
    """Return so many of each person, the last that were made."""
    counted: Counter[str] = Counter()
    left: list[_K] = []
    for it in reversed(kept):
        counted[it.user] += 1
        if counted[it.user] <= most:
            left.append(it)
    return tuple(reversed(left))


def _find(kept: Sequence[_K], wanted: str) -> _K | None:
    """Return the entry with this hash; every entry is compared, each in constant time."""
    found: _K | None = None
    for it in kept:
        if hmac.compare_digest(it.hash, wanted):
            found = it
    return found
