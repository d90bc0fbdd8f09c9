"""The version of the fold: snapshots of any other version are ignored."""

from typing import Final

FOLD_VERSION: Final = "d65eb437d7ece7a3fa1acde430c6b602"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails if it
differs, and prints the right one."""
