"""Everything that is kept, as the house needs it."""

from typing import Protocol

from curtainwall.model import Blobs, Inbox, Index, Leases, Log, Marks, Tallies


class Stores(Protocol):
    """Everything that is kept."""

    @property
    def log(self) -> Log:
        """Return the log."""
        ...

    @property
    def inbox(self) -> Inbox:
        """Return the inbox."""
        ...

    @property
    def leases(self) -> Leases:
        """Return the leases."""
        ...

    @property
    def blobs(self) -> Blobs:
        """Return the blobs."""
        ...

    @property
    def index(self) -> Index:
        """Return the index."""
        ...

    @property
    def tallies(self) -> Tallies:
        """Return the tallies."""
        ...

    @property
    def marks(self) -> Marks:
        """Return the marks."""
        ...
