"""Skills: instructions for particular tasks in SKILL.md folders, the user's own and those that a workspace brings along."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.skills.folders import MAIN, SkillFolder, Unusable, read_folder
    from curtainwall.tools.skills.front_matter import split_front_matter
    from curtainwall.tools.skills.index import WORKSPACE_ROOTS, Skill, SkillIndex, SkillTrust, SkippedFolder, own_folders
    from curtainwall.tools.skills.runners import skill_refiners, skill_runners
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "MAIN",
    "WORKSPACE_ROOTS",
    "Skill",
    "SkillFolder",
    "SkillIndex",
    "SkillTrust",
    "SkippedFolder",
    "Unusable",
    "own_folders",
    "read_folder",
    "skill_refiners",
    "skill_runners",
    "split_front_matter",
]
