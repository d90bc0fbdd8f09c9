"""Everything that is kept: what deciding needs of it, and what is beside that."""

from typing import Protocol

from curtainwall.model import Blobs, Inbox, Index, Leases, Log, Marks, Tallies


class Stores(Protocol):
    """What sessions are decided from and written to."""

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


class SideStores(Protocol):
    """What is kept beside the sessions, for channels and for whoever asks how the home is."""

    @property
    def tallies(self) -> Tallies:
        """Return the tallies."""
        ...

    @property
    def marks(self) -> Marks:
        """Return the marks."""
        ...


class HomeStores(Stores, SideStores, Protocol):
    """Everything that is kept in a home."""
