"""The version of the fold: snapshots of any other version are ignored."""

from typing import Final

FOLD_VERSION: Final = "564323a6a1c447084250d1bd0ba7d462"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails if it
differs, and prints the right one."""
