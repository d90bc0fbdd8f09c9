"""The items of one conversation in memory: as objects, or as compressed text until they are needed."""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from curtainwall.agents.builtin.language_model import ITEMS, AgentMessage, ConversationItem

_FAST: Final = 1
_WEIGHT_OF_ITEM: Final = 1_500
_SMALL: Final = 16_384
"""Text is added to the last piece while that is smaller than this: small pieces compress badly, and big ones are slow to rewrite."""


class HeldItems:  # noqa: PLW1641 - it changes
    """An append-only list of items that can be cleared. Packing is invisible to the caller."""

    __slots__ = ("_in_pieces", "_is_packed", "_items", "_last_size", "_pieces", "weight")

    def __init__(self) -> None:
        # While the items are packed, this holds only those added since.
        self._items: list[ConversationItem] = []
        self._pieces: list[bytes] = []
        self._in_pieces = self._last_size = 0
        self._is_packed = False
        self.weight = 0
        """About how many bytes of memory the unpacked items take."""

    @property
    def items(self) -> Sequence[ConversationItem]:
        """All items, oldest first."""
        if self._is_packed:
            since, self._items, self.weight = self._items, [], 0
            for piece in self._pieces:
                self.add(_unpacked(piece))
            self.add(since)
            self._is_packed = False
        return self._items

    @property
    def last(self) -> ConversationItem | None:
        """The last item."""
        items = self._items or (_unpacked(self._pieces[-1]) if self._is_packed else ())
        return items[-1] if items else None

    @property
    def packed_size(self) -> int:
        """How many bytes the compressed text takes."""
        return sum(map(len, self._pieces))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldItems) and self.items == other.items

    def add(self, items: Iterable[ConversationItem]) -> None:
        """Append items."""
        for item in items:
            self._items.append(item)
            self.weight += weight_of(item)

    def clear(self) -> None:
        """Remove all items."""
        self._items, self._pieces, self._in_pieces, self._is_packed, self.weight = [], [], 0, False, 0

    def pack(self) -> int:
        """Compress the items, and return how many bytes of memory that frees."""
        new = self._items if self._is_packed else self._items[self._in_pieces :]
        if new:
            self._append(new)
            self._in_pieces += len(new)
        freed = self.weight
        self._items, self.weight, self._is_packed = [], 0, bool(self._pieces)
        return freed

    def _append(self, items: Sequence[ConversationItem]) -> None:
        # Encode with `json`: an agent's text may contain half a surrogate pair, which pydantic does not encode.
        text = json.dumps(ITEMS.dump_python(tuple(items), mode="json"), separators=(",", ":")).encode("ascii")
        if self._pieces and self._last_size < _SMALL:
            text = zlib.decompress(self._pieces.pop())[:-1] + b"," + text[1:]
        self._pieces.append(zlib.compress(text, _FAST))
        self._last_size = len(text)


def _unpacked(piece: bytes) -> tuple[ConversationItem, ...]:
    return ITEMS.validate_python(json.loads(zlib.decompress(piece)))


def weight_of(item: ConversationItem) -> int:
    """Return about how many bytes of memory an item takes: its text, the provider's form of it, and the objects themselves."""
    if not isinstance(item, AgentMessage):
        return _WEIGHT_OF_ITEM + len(item.text)
    size = len(item.text) + sum(_WEIGHT_OF_ITEM + len(program.code) for program in item.programs)
    return _WEIGHT_OF_ITEM + (size if item.kept is None else 2 * size)
