"""Which fold this is: a snapshot that another one made is never used."""

from typing import Final

FOLD_VERSION: Final = "4f27c1a9a3c58242808e47f59f2a04df"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails where it is
another, and says which one belongs here."""
