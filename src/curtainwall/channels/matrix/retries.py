"""That a room's model is asked again: one notice for each request, changed with every try, and in the end what came of it."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from curtainwall.channels.matrix.events import table
from curtainwall.channels.matrix.homeserver import Refused
from curtainwall.channels.matrix.markdown import with_code
from curtainwall.channels.matrix.memory import Memory, transaction
from curtainwall.channels.matrix.outbox import Speaking, Words
from curtainwall.channels.text.plain import plain_line
from curtainwall.model import TryLater

ANSWERS: Final = "the model answers again"
GIVEN_UP: Final = "the model is not tried any more"

_LONGEST: Final = 500

Insist = Callable[[Callable[[], Awaitable[str]]], Awaitable[str | None]]
"""Does something until it works, or never will."""


@dataclass(slots=True)
class Retrying:
    """The notice of one room.

    INVARIANT: a notice that says that something is tried is remembered until it says what came of it, also over a crash.
    """

    speaking: Speaking
    memory: Memory
    room: str
    patience: float
    """How many seconds pass before it is worth a word: most of what fails works a moment later."""
    _words: str = ""
    _since: float = 0.0
    _rests_until: float = 0.0

    def hear(self, words: str, now: float) -> None:
        """Take in that it is tried again."""
        self._since = self._since if self._words else now
        self._words = plain_line(words, _LONGEST)

    async def show(self, name: str, now: float) -> None:
        """Say it, or change what was said, where it is time; the name is the request's own."""
        told = table(json.loads(self.memory.get(self._name) or "{}"))
        is_due = now >= self._rests_until and (bool(told) or now - self._since >= self.patience)
        if not self._words or self._words == told.get("text") or not is_due:
            return
        first, words = str(told.get("name") or name), self._words
        if not told:
            # Remembered before it is said: where we die in between, whoever comes next knows that there may be a notice to end.
            await self.memory.set({self._name: json.dumps({"name": first, "text": ""})})
        try:
            event = await self.speaking.say(self.room, first, _notice(words))
            if told:
                await self._change(f"{first} {transaction(words)}", event, words)
            await self.memory.set({self._name: json.dumps({"name": first, "text": words})})
        except (TryLater, Refused):
            # Whoever looks later says what is true by then.
            self._rests_until = now + self.patience

    async def end(self, how: str, insist: Insist) -> None:
        """Forget what was heard, and say what came of it, where anything was said."""
        self._words = ""
        await self.settle(how, insist)

    async def settle(self, how: str, insist: Insist) -> None:
        """Say what came of what was said before, where anything was."""
        told = table(json.loads(self.memory.get(self._name) or "{}"))
        if told:
            name, before = str(told["name"]), told["text"]
            text = f"{how}; before: {before}" if before else how
            # Said again under its name, a notice that is there stays as it is and tells its event.
            event = await insist(lambda: self.speaking.say(self.room, name, _notice(text)))
            if event is not None:
                await insist(lambda: self._change(f"{name} ended", event, text))
            await self.memory.set({self._name: None})

    async def _change(self, name: str, event: str, text: str) -> str:
        await self.speaking.change(self.room, name, event, _notice(text))
        return event

    @property
    def _name(self) -> str:
        return f"retrying {self.room}"


def _notice(text: str) -> Words:
    return Words(text, html=with_code(text), notice=True)
