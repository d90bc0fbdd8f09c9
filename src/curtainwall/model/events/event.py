"""What everything that happened has in common."""

from typing import ClassVar

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import Millis


class Event(Frozen):
    """The common part of everything that happened."""

    VERSION: ClassVar[int] = 1
    at: Millis
