"""The skills and memory in the home directory, and text that describes them."""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from curtainwall.channels.plain import plain, short
from curtainwall.facts import Masker
from curtainwall.host.home import Home
from curtainwall.model import SessionId, Workspace
from curtainwall.operations.sessions import Sessions
from curtainwall.tools.memory import Notebook
from curtainwall.tools.skills import Skill, SkillIndex, SkillTrust

if TYPE_CHECKING:
    # Start-up time: few sessions have changes to show.
    from curtainwall.model import ViewContents
    from curtainwall.operations.presented import PresentedChanges

_TRUST_TEXTS = {
    SkillTrust.OWN: "yours",
    SkillTrust.PINNED: "of the workspace, pinned",
    SkillTrust.CHANGED: "of the workspace, changed since it was pinned: asked about before it is loaded",
    SkillTrust.UNSEEN: "of the workspace, not pinned: asked about before it is loaded",
}
_LONGEST_PROMPTED = 300
_ROOM = 8_000


class HouseKnowledge:
    """The skills and the memory of every session, from the home directory."""

    def __init__(self, sessions: Sessions, masker: Masker, contents: "ViewContents") -> None:
        self._sessions = sessions
        self._masker = masker
        self._contents = contents

    def skills(self, session: SessionId) -> str:
        """Describe the skills of a session, and which of them need approval; raise `NotFound`."""
        workspace = self._sessions.state(session).workspace
        return self._masker.mask_text("\n".join(skill_lines(skill_index(self._sessions.home), workspace)))

    def memory(self, session: SessionId) -> str:
        """Describe what a session can recall, and where it is kept; raise `NotFound`."""
        workspace = self._sessions.state(session).workspace
        return self._masker.mask_text("\n".join(memory_lines(open_notebook(self._sessions.home), workspace)))

    def changes(self, session: SessionId) -> str:
        """Return the list of what a session last presented as changes of its project, and its steps; raise `NotFound`."""
        # Start-up time: as above.
        from curtainwall.operations.history import step_lines, steps_of
        from curtainwall.operations.presented import change_lines

        return "\n".join((*change_lines(self._presented(session)), *step_lines(steps_of(self._sessions, session))))

    def difference(self, session: SessionId, path: str = "") -> str:
        """Return the differences of what a session last presented, or of one file of it; raise `NotFound`."""
        # Start-up time: as above.
        from curtainwall.operations.presented import difference_lines

        paths = (path,) if path else ()
        return "\n".join(difference_lines(self._presented(session, paths), paths))

    def _presented(self, session: SessionId, whole: Collection[str] = ()) -> "PresentedChanges":
        # Start-up time: as above.
        from curtainwall.operations.presented import presented_changes

        return presented_changes(self._sessions.state(session), self._sessions.store.blobs, self._contents, self._masker, whole)


def skill_index(home: Home) -> SkillIndex:
    """Return the skills of this machine's user."""
    return SkillIndex(home.skills, home.root / "skills.json")


def open_notebook(home: Home) -> Notebook:
    """Return the memory of this machine's user."""
    return Notebook(home.memory)


def trust_text(skill: Skill) -> str:
    """Describe where a skill is from and whether it needs approval."""
    return _TRUST_TEXTS[skill.trust]


def skill_lines(shelf: SkillIndex, workspace: Workspace) -> Iterator[str]:
    """Yield lines for every skill of a session, and for each unusable file with the reason."""
    skills, skipped = shelf.look(workspace)
    for skill in skills:
        yield f"{skill.name}  ({trust_text(skill)})  {short(skill.description, 200)}".rstrip()
        yield f"  {short(skill.path, 300)}  {skill.digest[:12]}"
    for item in skipped:
        yield f"not usable: {short(item.path, 300)}: {short(item.why, 200)}"
    if not skills and not skipped:
        yield "there are no skills; docs/skills.md says where they are looked for"


def memory_lines(notebook: Notebook, workspace: Workspace) -> Iterator[str]:
    """Yield lines for everything that a session can recall, with its origin."""
    pages = notebook.pages(workspace)
    for page in pages:
        yield f"{page.name}: {short(page.path, 300)}"
        for note in page.notes:
            labels = f", labels {', '.join(note.labels)}" if note.labels else ""
            by = "by hand" if note.is_by_hand else f"by {note.agent} in session {note.session}{labels}"
            yield f"- {short(by, 200)}"
            yield from (f"  {line}" for line in plain(note.text).split("\n"))
        yield from (short(words, 300) for words in page.skipped)
        if not page.notes and not page.skipped:
            yield "  nothing yet"


def prompted_skills(shelf: SkillIndex, workspace: Workspace, *, mask: Callable[[str], str]) -> tuple[tuple[str, str], ...]:
    """Return the names and descriptions of a session's skills for the prompt; the description of an untrusted skill is left out."""
    entries: list[tuple[str, str]] = []
    room = _ROOM
    skills, _ = shelf.look(workspace)
    for index, skill in enumerate(skills):
        description = short(mask(skill.description), _LONGEST_PROMPTED)
        about = description if skill.trust.is_known else "(it came with the workspace; a person is asked before you get it)"
        room -= len(skill.name) + len(about)
        if room < 0:
            return (*entries, ("…", f"{len(skills) - index} more are not listed here"))
        entries.append((skill.name, about))
    return tuple(entries)
