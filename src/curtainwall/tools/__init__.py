"""Everything an agent can call: the catalogue, the meaning of calls, and the tools that run in process."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.approver import ProgramApprover
    from curtainwall.tools.catalogue import Catalogue, CatalogueEntry
    from curtainwall.tools.fetch.tool import fetch_runners, scopes
    from curtainwall.tools.files.moves import move_refiners
    from curtainwall.tools.files.tool import filesystem_runners
    from curtainwall.tools.git.call import Denials, IsDenied, WithheldFiles
    from curtainwall.tools.git.refiners import git_refiners
    from curtainwall.tools.git.tool import git_runners
    from curtainwall.tools.host import INSIDE, NativeTools, ToolHub
    from curtainwall.tools.meaning import MAX_RESOURCES, Setting, prepare
    from curtainwall.tools.native import NATIVE_TOOLS
    from curtainwall.tools.own_tools import BadTool, Tool, require_distinct, tool
    from curtainwall.tools.runners import CannotDo, Refiner, Runner
    from curtainwall.tools.sandbox import CONFINED, OnHeld, Sandboxes
    from curtainwall.tools.schema_check import Check, compile_check
    from curtainwall.tools.shell import shell_runners
    from curtainwall.tools.team_specs import team_tools
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "CONFINED",
    "INSIDE",
    "MAX_RESOURCES",
    "NATIVE_TOOLS",
    "BadTool",
    "CannotDo",
    "Catalogue",
    "CatalogueEntry",
    "Check",
    "Denials",
    "IsDenied",
    "NativeTools",
    "OnHeld",
    "ProgramApprover",
    "Refiner",
    "Runner",
    "Sandboxes",
    "Setting",
    "Tool",
    "ToolHub",
    "WithheldFiles",
    "compile_check",
    "fetch_runners",
    "filesystem_runners",
    "git_refiners",
    "git_runners",
    "move_refiners",
    "prepare",
    "require_distinct",
    "scopes",
    "shell_runners",
    "team_tools",
    "tool",
]
