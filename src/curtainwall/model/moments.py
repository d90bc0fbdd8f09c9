"""When something is decided, and the ids that come of it: the clock and the dice of a pure decision."""

import hashlib
from dataclasses import dataclass

from curtainwall.model.ids import ApprovalId, GrantId, Millis, PermitId, ordered_id, short_id


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of the clock and one seed, and how many bytes the log holds; the same moment always mints the same ids."""

    at: Millis
    seed: bytes
    logged: int = 0

    def approval_id(self, name: str) -> ApprovalId:
        """Return a short id for what `name` asks."""
        return ApprovalId(short_id(self._chance("approval", name)))

    def grant_id(self, name: str) -> GrantId:
        """Return a short id, told from approvals by its first letter."""
        return GrantId("g" + short_id(self._chance("grant", name)))

    def permit_id(self, name: str) -> PermitId:
        """Return a time-ordered id that nobody outside can guess."""
        return PermitId(ordered_id(self.at, self._chance("permit", name)))

    def _chance(self, kind: str, name: str) -> bytes:
        return hashlib.sha256(b"\0".join((self.seed, kind.encode(), name.encode()))).digest()
