"""What everything that happened has in common."""

from typing import ClassVar, Generic, TypeGuard, TypeVar, get_args

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import Millis


class Event(Frozen):
    """The common part of everything that happened."""

    VERSION: ClassVar[int] = 1
    at: Millis


E = TypeVar("E", bound=Event)


class Group(Generic[E]):
    """Events that belong together. Looking a type up takes less time than asking each class of a union, which counts in long logs."""

    def __init__(self, union: object) -> None:
        self._kinds = frozenset(get_args(union))

    def holds(self, event: Event) -> TypeGuard[E]:
        """Tell whether an event is one of the group."""
        return type(event) in self._kinds
