"""Who we are on a homeserver: the user, the one device that is ours, and the token that was given to it."""

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from curtainwall.channels.matrix.events import table, text_of
from curtainwall.model import Broken, TryLater

_LONGEST_TOKEN = 4_096


class NotLetIn(Broken):
    """What signs us in is wrong or missing. Asking again changes nothing, and might lock the account; somebody has to correct it."""


@dataclass(frozen=True, slots=True)
class Account:
    """How to reach a homeserver and what to say there; either a password or a token is known."""

    homeserver: str
    user: str
    device: str
    directory: Path
    seal: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def store(self) -> str:
        """The name of the file that holds the keys of our device."""
        return f"{_plain(self.user)}_{_plain(self.device)}.db"

    def kept_token(self) -> str | None:
        """Return the token that this device was given before; None where there is none, or it was for another."""
        try:
            told = table(json.loads(self._kept.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return None
        if (told.get("homeserver"), told.get("user"), told.get("device")) != (self.homeserver, self.user, self.device):
            return None
        return text_of(told.get("token"), _LONGEST_TOKEN)

    def keep_token(self, token: str) -> None:
        """Keep a token for the next start, readable by its owner alone."""
        told = {"homeserver": self.homeserver, "user": self.user, "device": self.device, "token": token}
        draft = self._kept.with_suffix(".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(told, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._kept)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Be the only one who speaks as this user from this home; raise `TryLater` where somebody does already."""
        path = self.directory / f"{_plain(self.user)}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise TryLater(f"another process speaks as `{self.user}` already; stop it, or wait until it ends") from None
        try:
            yield
        finally:
            os.close(descriptor)

    @property
    def _kept(self) -> Path:
        return self.directory / f"{_plain(self.user)}.json"


def _plain(name: str) -> str:
    """Return a name that can be one of a file."""
    if not name or len(name) > 200:
        raise Broken("a Matrix user and a device have names of at most 200 characters")
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
