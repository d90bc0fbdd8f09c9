"""Skills: instructions for particular tasks in SKILL.md folders, the user's own and those that a workspace brings along."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.skills.folders import MAIN, Folder, Unusable, read_folder
    from curtainwall.tools.skills.front_matter import NoHead, split_head
    from curtainwall.tools.skills.runners import skill_closers, skill_runners
    from curtainwall.tools.skills.shelf import WORKSPACE_ROOTS, Passed, Shelf, Skill, Trust, own_folders
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "MAIN",
    "WORKSPACE_ROOTS",
    "Folder",
    "NoHead",
    "Passed",
    "Shelf",
    "Skill",
    "Trust",
    "Unusable",
    "own_folders",
    "read_folder",
    "skill_closers",
    "skill_runners",
    "split_head",
]
