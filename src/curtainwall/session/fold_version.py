"""Which fold this is: a snapshot that another one made is never used."""

from typing import Final

FOLD_VERSION: Final = "b121835d5c91b80b9b34ef75638790be"
"""The digest of everything that the fold of a log depends on. `tests/unit/session/test_fold_version.py` computes it, fails where it is
another, and says which one belongs here."""
