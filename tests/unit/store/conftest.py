"""A home on the real disk, closed at the end."""

from tests.support.stores import disk

__all__ = ["disk"]
