"""What a human has reviewed of each server: its tools as they were then, and which of them have changed since."""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from curtainwall.model import Broken
from curtainwall.tools.servers.offered import Offered, offered

_VERSION = 1
_BIGGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Review:
    """One server's tools as they were reviewed, and the names of those that were seen changed."""

    about: str = ""
    tools: Mapping[str, Offered] = field(default_factory=dict[str, Offered])
    changed: frozenset[str] = frozenset()

    def compared(self, now: Mapping[str, Offered]) -> "Review":
        """Return the review with what has changed noted; what was changed once stays so until a human looks."""
        differing = {name for name, then in self.tools.items() if name in now and now[name].fingerprint != then.fingerprint}
        return replace(self, changed=self.changed | differing)


class Reviews:
    """The reviews, one file for each server in a directory of ours."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def stamp(self, server: str) -> tuple[int, int] | None:
        """Return what tells whether a review was written anew, or None where there is none."""
        try:
            found = self._path(server).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def read(self, server: str) -> Review | None:
        """Return the review of a server, or None where there is none yet; raise `Broken` for a damaged one."""
        path = self._path(server)
        try:
            with path.open("rb") as file:
                content = file.read(_BIGGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Broken(f"the review `{path}` cannot be read: {error.strerror}") from None
        try:
            told = json.loads(content)
            assert told["version"] == _VERSION
            tools = [offered(cast("dict[str, JsonValue]", one["told"])) for one in told["tools"]]
            prints = [str(one["fingerprint"]) for one in told["tools"]]
            found = {one.name: replace(one, fingerprint=print_) for one, print_ in zip(tools, prints, strict=True) if one is not None}
            return Review(str(told["about"]), found, frozenset(map(str, told["changed"])))
        except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
            raise Broken(f"the review `{path}` is damaged; make it anew with `curtainwall servers annotate {server} --write`") from None

    def write(self, server: str, review: Review) -> None:
        """Keep a review, for us alone."""
        told = {
            "version": _VERSION,
            "about": review.about,
            "changed": sorted(review.changed),
            "tools": [{"fingerprint": one.fingerprint, "told": one.told} for _, one in sorted(review.tools.items())],
        }
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(server)
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(told, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    def forget(self, server: str) -> None:
        """Let go of a review; a server of the same name has to be reviewed anew."""
        self._path(server).unlink(missing_ok=True)

    def _path(self, server: str) -> Path:
        return self._directory / f"{server}.json"
