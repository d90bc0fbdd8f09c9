"""The log and everything stored with it, on disk or in memory: entries, inboxes, leases, blobs, lists. Depends only on the model."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.store.audit.chain import ChainFault, Head, parse_head
    from curtainwall.store.audit.lines import AuditFault
    from curtainwall.store.disk.store import SqliteStore
    from curtainwall.store.loss import RESCUE, Loss, loss_of_database
    from curtainwall.store.memory import MemoryDisk, MemoryStore
    from curtainwall.store.salvage import LOSS, Rescued, accept_loss, damage_in, rescue
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "LOSS",
    "RESCUE",
    "AuditFault",
    "ChainFault",
    "Head",
    "Loss",
    "MemoryDisk",
    "MemoryStore",
    "Rescued",
    "SqliteStore",
    "accept_loss",
    "damage_in",
    "loss_of_database",
    "parse_head",
    "rescue",
]
