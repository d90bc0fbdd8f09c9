"""Memory: what agents note for later sessions, in markdown files that the user may edit. Never a source of commands or permissions."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.memory.entries import Damaged, Note, read_notes, written
    from curtainwall.tools.memory.notebook import Match, Notebook
    from curtainwall.tools.memory.pages import MOST_BYTES, Page
    from curtainwall.tools.memory.removal import Forgetting, Forgotten
    from curtainwall.tools.memory.runners import memory_closers, memory_runners
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "MOST_BYTES",
    "Damaged",
    "Forgetting",
    "Forgotten",
    "Match",
    "Note",
    "Notebook",
    "Page",
    "memory_closers",
    "memory_runners",
    "read_notes",
    "written",
]
