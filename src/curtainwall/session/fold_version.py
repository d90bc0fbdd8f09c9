"""Which fold this is: a snapshot that another one made is never used."""

from typing import Final

FOLD_VERSION: Final = "a4e15e9d69361578e7633b52b0dea596"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails where it is
another, and says which one belongs here."""
