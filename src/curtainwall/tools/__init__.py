"""What an agent can ask for: the catalogue, what a call means, and the tools that run in process."""

from curtainwall.tools.approving import ProgramApprover
from curtainwall.tools.catalogue import Catalogue, Entry
from curtainwall.tools.closer import Closer
from curtainwall.tools.fetch import fetch_runners, scopes
from curtainwall.tools.filesystem import filesystem_runners
from curtainwall.tools.git import git_closers, git_runners
from curtainwall.tools.git_call import Denials, IsDenied, Withheld
from curtainwall.tools.host import Mounts, NativeTools, WorkingDirectories
from curtainwall.tools.hub import Hub
from curtainwall.tools.meaning import MAX_RESOURCES, Setting, prepare
from curtainwall.tools.moves import move_closers
from curtainwall.tools.native import NATIVE_TOOLS
from curtainwall.tools.running import CannotDo, Runner
from curtainwall.tools.sandbox import CONFINED, OnHeld, Sandboxes
from curtainwall.tools.schema_check import Check, compile_check
from curtainwall.tools.shell import shell_runners
from curtainwall.tools.teams import team_tools

__all__ = [
    "CONFINED",
    "MAX_RESOURCES",
    "NATIVE_TOOLS",
    "CannotDo",
    "Catalogue",
    "Check",
    "Closer",
    "Denials",
    "Entry",
    "Hub",
    "IsDenied",
    "Mounts",
    "NativeTools",
    "OnHeld",
    "ProgramApprover",
    "Runner",
    "Sandboxes",
    "Setting",
    "Withheld",
    "WorkingDirectories",
    "compile_check",
    "fetch_runners",
    "filesystem_runners",
    "git_closers",
    "git_runners",
    "move_closers",
    "prepare",
    "scopes",
    "shell_runners",
    "team_tools",
]
