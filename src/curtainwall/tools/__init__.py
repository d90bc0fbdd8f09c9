"""Everything an agent can call: the catalogue, the meaning of calls, and the tools that run in process."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.approver import ProgramApprover as ProgramApprover
    from curtainwall.tools.catalogue import Catalogue as Catalogue
    from curtainwall.tools.catalogue import CatalogueEntry as CatalogueEntry
    from curtainwall.tools.fetch.tool import fetch_runners as fetch_runners
    from curtainwall.tools.fetch.tool import scopes as scopes
    from curtainwall.tools.files.moves import move_refiners as move_refiners
    from curtainwall.tools.files.tool import filesystem_runners as filesystem_runners
    from curtainwall.tools.git.call import Denials as Denials
    from curtainwall.tools.git.call import IsDenied as IsDenied
    from curtainwall.tools.git.call import WithheldFiles as WithheldFiles
    from curtainwall.tools.git.refiners import git_refiners as git_refiners
    from curtainwall.tools.git.tool import git_runners as git_runners
    from curtainwall.tools.host import INSIDE as INSIDE
    from curtainwall.tools.host import NativeTools as NativeTools
    from curtainwall.tools.host import ToolHub as ToolHub
    from curtainwall.tools.meaning import MAX_RESOURCES as MAX_RESOURCES
    from curtainwall.tools.meaning import Setting as Setting
    from curtainwall.tools.meaning import prepare as prepare
    from curtainwall.tools.native import NATIVE_TOOLS as NATIVE_TOOLS
    from curtainwall.tools.own_tools import BadTool as BadTool
    from curtainwall.tools.own_tools import Tool as Tool
    from curtainwall.tools.own_tools import require_distinct as require_distinct
    from curtainwall.tools.own_tools import tool as tool
    from curtainwall.tools.runners import CannotDo as CannotDo
    from curtainwall.tools.runners import Refiner as Refiner
    from curtainwall.tools.runners import Runner as Runner
    from curtainwall.tools.sandbox import CONFINED as CONFINED
    from curtainwall.tools.sandbox import OnHeld as OnHeld
    from curtainwall.tools.sandbox import Sandboxes as Sandboxes
    from curtainwall.tools.schema_check import Check as Check
    from curtainwall.tools.schema_check import compile_check as compile_check
    from curtainwall.tools.shell import shell_runners as shell_runners
    from curtainwall.tools.team_specs import team_tools as team_tools
else:
    __getattr__ = lazy_names(__name__)
