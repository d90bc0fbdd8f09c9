"""The log and what stands beside it, on disk and in memory: entries, inboxes, leases, blobs, lists. It knows the model alone."""

from curtainwall.store.audit import AuditFault
from curtainwall.store.chain import Fault, Head, parse_head
from curtainwall.store.memory import MemoryDisk, MemoryStore
from curtainwall.store.rescue import RESCUE, Rescued, damage_in, rescue
from curtainwall.store.sqlite import SqliteStore

__all__ = [
    "RESCUE",
    "AuditFault",
    "Fault",
    "Head",
    "MemoryDisk",
    "MemoryStore",
    "Rescued",
    "SqliteStore",
    "damage_in",
    "parse_head",
    "rescue",
]
