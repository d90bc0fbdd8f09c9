"""Which skills a session has: the user's own, and those of its workspace, which count only as a human has seen them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Final

from curtainwall.model import Digest, NotFound, Workspace, record
from curtainwall.tools.hooks import Pins
from curtainwall.tools.skills.folders import MAIN, MOST_BYTES, SkillFolder, Unusable, folders_in, read_folder

WORKSPACE_ROOTS: Final = (".curtainwall/skills", ".claude/skills", ".agents/skills")
"""Where a workspace keeps skills; the first of a name counts."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_MOST: Final = 64
_MOST_TOGETHER: Final = 32 * 1024 * 1024
"""The maximum size of all skills of a workspace together: they are read before each turn and at each loading, while others wait."""
_LONGEST_DESCRIPTION: Final = 1_024


class SkillTrust(StrEnum):
    """The trust in a skill: it is the user's own, a human saw it as it is, saw an earlier version, or never saw it."""

    OWN = "yours"
    PINNED = "pinned"
    CHANGED = "changed"
    UNSEEN = "unseen"

    @property
    def is_known(self) -> bool:
        """Tell whether no one has to be asked."""
        return self in (SkillTrust.OWN, SkillTrust.PINNED)


@record
class Skill:
    """One skill as it was at one look. What it says of itself are its writer's words."""

    name: str
    description: str
    body: str
    path: str
    folder: SkillFolder
    trust: SkillTrust
    others: Mapping[str, SkillTrust] = field(default_factory=dict[str, SkillTrust])
    """The trust in every file but SKILL.md."""

    def trust_in(self, file: str) -> SkillTrust:
        """Return the trust in one file: approval covers the file that was shown, as long as nothing in the folder changes."""
        return self.trust if file == MAIN else self.others[file]

    @property
    def digest(self) -> Digest:
        """Return the digest of the whole folder."""
        return self.folder.digest

    @property
    def is_of_workspace(self) -> bool:
        """Tell whether it came with the workspace."""
        return self.trust is not SkillTrust.OWN


@record
class SkippedFolder:
    """A folder that was skipped, and why."""

    path: str
    why: str


class SkillIndex:
    """The skills of one home, and the pins of skills in workspaces."""

    def __init__(self, own: Path, pins: Path) -> None:
        self._own = str(own)
        self._pins = Pins(pins)

    def look(self, workspace: Workspace) -> tuple[Sequence[Skill], Sequence[SkippedFolder]]:
        """Return the skills of a session, the user's first, and the folders that are none, with why."""
        skills: dict[str, Skill] = {}
        passed: list[SkippedFolder] = []
        pins, room = self._pins.all(), _MOST_TOGETHER
        for path, is_own in self._folders(workspace):
            read = 0
            try:
                folder = read_folder(path, MOST_BYTES if is_own else room)
                read = folder.size
                skill = _skill(path, folder, is_own=is_own, pins=pins)
            except Unusable as fault:
                room -= 0 if is_own else max(read, fault.read)
                passed.append(SkippedFolder(path, str(fault)))
                continue
            room -= 0 if is_own else read
            if skill.name in skills:
                passed.append(SkippedFolder(path, f"`{skills[skill.name].path}` has the same name and comes first"))
            else:
                skills[skill.name] = skill
        return tuple(skills.values()), tuple(passed)

    def get(self, name: str, workspace: Workspace) -> Skill:
        """Return the skill of that name as it is now; raise `NotFound` with the names there are."""
        skills, _ = self.look(workspace)
        for skill in skills:
            if skill.name == name:
                return skill
        known = ", ".join(f"`{skill.name}`" for skill in skills)
        raise NotFound(f"there is no skill `{name}`; {f'there are {known}' if known else 'there are none here'}")

    def pin(self, skill: Skill, file: str = MAIN) -> None:
        """Keep that a human has seen a file of this skill exactly as it is; several processes may do so at once."""
        self._pins.set(_pinned_as(skill.path, file), skill.digest)

    def _folders(self, workspace: Workspace) -> Iterator[tuple[str, bool]]:
        yield from ((path, True) for path in folders_in(self._own, _MOST))
        roots = (f"{workspace.path}/{root}" for root in WORKSPACE_ROOTS)
        # In the directory above our home, what looks like a workspace's are the user's own once more.
        for root in (root for root in roots if root != self._own):
            yield from ((path, False) for path in folders_in(root, _MOST))


def own_folders(shelf: SkillIndex, workspace: Workspace) -> Mapping[str, str]:
    """Return the folders that an agent in a container is shown read-only, by the skill's name.

    These are the user's own. What a workspace brings along is mounted with the workspace, and found there by the agent itself.
    """
    return {skill.name: skill.path for skill in shelf.look(workspace)[0] if not skill.is_of_workspace}


def _skill(path: str, folder: SkillFolder, *, is_own: bool, pins: Mapping[str, str]) -> Skill:
    # Start-up time: only where there are skills is YAML needed.
    from curtainwall.tools.skills.front_matter import split_front_matter

    head, body = split_front_matter(folder.main)
    name = head.get("name") or path.rpartition("/")[2]
    if not _NAME.fullmatch(name):
        raise Unusable("its name must have letters, digits, `_`, `.` and `-` alone, at most 64")
    digest = folder.digest
    trusts = {file: SkillTrust.OWN if is_own else _trust(pins.get(_pinned_as(path, file)), digest) for file in folder.files}
    description = head.get("description", "")[:_LONGEST_DESCRIPTION]
    return Skill(name, description, body, path, folder, trusts.pop(MAIN), trusts)


def _pinned_as(path: str, file: str) -> str:
    return path if file == MAIN else f"{path}/{file}"


def _trust(pinned: str | None, digest: Digest) -> SkillTrust:
    return SkillTrust.UNSEEN if pinned is None else SkillTrust.PINNED if pinned == digest else SkillTrust.CHANGED
