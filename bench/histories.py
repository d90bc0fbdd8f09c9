"""The peer that many agents use: the whole conversation as one JSON file, written anew with every turn."""

import json
import os
from pathlib import Path

from bench.sample import answered, said


class JsonHistory:
    """A conversation in one file, rewritten durably: a draft, synced, put in place."""

    def __init__(self, path: Path, messages: int) -> None:
        self.path = path
        self._messages: list[dict[str, str]] = []
        for number in range(messages // 2):
            self._take(number)
        self._write()

    def persist_turn(self, number: int) -> None:
        """Add one turn and write everything."""
        self._take(number)
        self._write()

    def load(self) -> int:
        """Read everything and return how many messages there are."""
        return len(json.loads(self.path.read_bytes()))

    def _take(self, number: int) -> None:
        self._messages += ({"role": "user", "content": said(number)}, {"role": "assistant", "content": answered(number)})

    def _write(self) -> None:
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(json.dumps(self._messages).encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
