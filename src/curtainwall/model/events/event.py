"""The base class of all events, and groups of them."""

from typing import ClassVar, Generic, TypeGuard, TypeVar, get_args

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import Millis


class Event(Frozen):
    """The part that all events have in common."""

    VERSION: ClassVar[int] = 1
    at: Millis


E = TypeVar("E", bound=Event)


class Group(Generic[E]):
    """Events that belong together. Looking up a type is faster than `isinstance` with a union, which matters in long logs."""

    def __init__(self, union: object) -> None:
        self._kinds = frozenset(get_args(union))

    def holds(self, event: Event) -> TypeGuard[E]:
        """Tell whether an event is one of the group."""
        return type(event) in self._kinds
