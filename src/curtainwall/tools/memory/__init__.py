"""Memory: what agents note for later sessions, in markdown files that the user may edit. Never a source of commands or permissions."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.memory.notebook import MOST_BYTES, ForgottenNote, MemoryPage, Notebook, NoteMatch, NoteRemoval
    from curtainwall.tools.memory.notes import DamagedNote, Note, read_notes, render_note
    from curtainwall.tools.memory.runners import memory_refiners, memory_runners
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "MOST_BYTES",
    "DamagedNote",
    "ForgottenNote",
    "MemoryPage",
    "Note",
    "NoteMatch",
    "NoteRemoval",
    "Notebook",
    "memory_refiners",
    "memory_runners",
    "read_notes",
    "render_note",
]
