"""Skills: instructions for particular tasks in SKILL.md folders, the user's own and those in a workspace."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.skills.folders import MAIN as MAIN
    from curtainwall.tools.skills.folders import SkillFolder as SkillFolder
    from curtainwall.tools.skills.folders import Unusable as Unusable
    from curtainwall.tools.skills.folders import read_folder as read_folder
    from curtainwall.tools.skills.front_matter import split_front_matter as split_front_matter
    from curtainwall.tools.skills.index import WORKSPACE_ROOTS as WORKSPACE_ROOTS
    from curtainwall.tools.skills.index import Skill as Skill
    from curtainwall.tools.skills.index import SkillIndex as SkillIndex
    from curtainwall.tools.skills.index import SkillTrust as SkillTrust
    from curtainwall.tools.skills.index import SkippedFolder as SkippedFolder
    from curtainwall.tools.skills.index import own_folders as own_folders
    from curtainwall.tools.skills.runners import skill_refiners as skill_refiners
    from curtainwall.tools.skills.runners import skill_runners as skill_runners
else:
    __getattr__ = lazy_names(__name__)
