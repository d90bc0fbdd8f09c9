"""Memory: what agents note for later sessions, in markdown files that the user may edit. Never a source of commands or permissions."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.memory.notebook import MOST_BYTES as MOST_BYTES
    from curtainwall.tools.memory.notebook import ForgottenNote as ForgottenNote
    from curtainwall.tools.memory.notebook import MemoryPage as MemoryPage
    from curtainwall.tools.memory.notebook import Notebook as Notebook
    from curtainwall.tools.memory.notebook import NoteMatch as NoteMatch
    from curtainwall.tools.memory.notebook import NoteRemoval as NoteRemoval
    from curtainwall.tools.memory.notes import DamagedNote as DamagedNote
    from curtainwall.tools.memory.notes import Note as Note
    from curtainwall.tools.memory.notes import read_notes as read_notes
    from curtainwall.tools.memory.notes import render_note as render_note
    from curtainwall.tools.memory.runners import memory_refiners as memory_refiners
    from curtainwall.tools.memory.runners import memory_runners as memory_runners
else:
    __getattr__ = lazy_names(__name__)
