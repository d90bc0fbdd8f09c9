"""The version of the fold: snapshots of any other version are ignored."""

from typing import Final

FOLD_VERSION: Final = "998c0518c7e0edb6264c500bc030af9a"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails if it
differs, and prints the right one."""
