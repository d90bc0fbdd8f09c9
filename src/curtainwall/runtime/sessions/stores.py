"""The stores that sessions need, as protocols. Read-only users of a home import nothing else from the runtime."""

from typing import Protocol

from curtainwall.model.ports.store import Blobs, FoldSnapshots, Inbox, Index, Leases, Log, Marks, Tallies


class Stores(Protocol):
    """The stores that sessions read from and write to."""

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
    """Stores beside the sessions, for channels and for status reports."""

    @property
    def tallies(self) -> Tallies:
        """Return the tallies."""
        ...

    @property
    def marks(self) -> Marks:
        """Return the marks."""
        ...

    @property
    def snapshots(self) -> FoldSnapshots | None:
        """Return the snapshots of folds, if any are kept."""
        ...


class HomeStores(Stores, SideStores, Protocol):
    """All stores of a home."""
