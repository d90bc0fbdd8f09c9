"""The version of the fold: snapshots of any other version are ignored."""

from typing import Final

FOLD_VERSION: Final = "2a7e2c1232921316e250b879274a9bc1"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails if it
differs, and prints the right one."""
