"""The log and everything stored with it, on disk or in memory: entries, inboxes, leases, blobs, lists. Depends only on the model."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.store.audit.chain import ChainFault as ChainFault
    from curtainwall.store.audit.chain import Head as Head
    from curtainwall.store.audit.chain import parse_head as parse_head
    from curtainwall.store.audit.lines import AuditFault as AuditFault
    from curtainwall.store.disk.store import SqliteStore as SqliteStore
    from curtainwall.store.loss import RESCUE as RESCUE
    from curtainwall.store.loss import Loss as Loss
    from curtainwall.store.loss import loss_of_database as loss_of_database
    from curtainwall.store.memory import MemoryDisk as MemoryDisk
    from curtainwall.store.memory import MemoryStore as MemoryStore
    from curtainwall.store.salvage import LOSS as LOSS
    from curtainwall.store.salvage import Rescued as Rescued
    from curtainwall.store.salvage import accept_loss as accept_loss
    from curtainwall.store.salvage import damage_in as damage_in
    from curtainwall.store.salvage import rescue as rescue
else:
    __getattr__ = lazy_names(__name__)
