"""The log and what stands beside it, on disk and in memory: entries, inboxes, leases, blobs, lists. It knows the model alone."""

from curtainwall.store.audit import AuditFault
from curtainwall.store.chain import Fault, Head, parse_head
from curtainwall.store.loss import RESCUE, Loss, loss_of_database
from curtainwall.store.memory import MemoryDisk, MemoryStore
from curtainwall.store.rescue import LOSS, Rescued, accept_loss, damage_in, rescue
from curtainwall.store.sqlite import SqliteStore

__all__ = [
    "LOSS",
    "RESCUE",
    "AuditFault",
    "Fault",
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
