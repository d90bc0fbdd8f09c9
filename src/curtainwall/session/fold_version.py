"""The version of the fold: snapshots of any other version are ignored."""

from typing import Final

FOLD_VERSION: Final = "6a14fc2014411e0a5960ad1d60147010"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails where it is
another, and says which one belongs here."""
