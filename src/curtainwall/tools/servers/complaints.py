"""What a server says on stderr: masked, kept in a file that never grows beyond its bound, and its last words at hand for a message."""

import asyncio
import codecs
import contextlib
import os
from pathlib import Path
from typing import Final

from curtainwall.facts import Masker, StreamMasker
from curtainwall.tools.servers.words import cleaned

LARGEST_FILE: Final = 1024 * 1024
MOST_OF_ONE: Final = 4 * 1024 * 1024
"""Bytes taken from one process; what comes after is read and dropped."""

_CHUNK: Final = 16_384
_TAIL: Final = 2_000


class Complaints:
    """The stderr of one process of a server. The file is shared with the processes before it; the one before last is let go."""

    def __init__(self, file: Path, masker: Masker, about: str) -> None:
        self._file = file
        self._masker = StreamMasker(masker)
        self._about = about
        self._tail = ""
        self._taken = 0

    @property
    def last_words(self) -> str:
        """Return the end of what it said, fit for a message."""
        return cleaned(self._tail[-600:], 600)

    async def take(self, stderr: asyncio.StreamReader) -> None:
        """Read to the end."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._keep(f"--- {self._about}\n")
        while chunk := await stderr.read(_CHUNK):
            if self._taken <= MOST_OF_ONE:
                self._taken += len(chunk)
                self._keep(self._masker.feed(decoder.decode(chunk)))
                if self._taken > MOST_OF_ONE:
                    self._keep(self._masker.finish() + "\n--- it says too much; the rest is not kept\n")
            await asyncio.sleep(0)
        self._keep(self._masker.finish())

    def note(self, text: str) -> None:
        """Add words of ours."""
        self._keep(f"--- {text}\n")

    def _keep(self, text: str) -> None:
        if not text:
            return
        if not text.startswith("---"):
            self._tail = (self._tail + text)[-_TAIL:]
        # A full disk must not stop the server: this is only for people who look for a cause.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "ab") as file:
                file.write(text.encode("utf-8", "replace"))
                if file.tell() > LARGEST_FILE:
                    self._file.replace(self._file.with_name(f"{self._file.name}.1"))
