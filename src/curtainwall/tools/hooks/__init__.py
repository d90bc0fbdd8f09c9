"""The user's own programs around calls and sessions, in Claude Code's format. They can only make a verdict stricter."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.hooks.copies import Copies, copied_programs, exchange_warnings
    from curtainwall.tools.hooks.lifecycle import FileClaims, Lifecycle
    from curtainwall.tools.hooks.pins import FILES, HookTrust, Pins, WorkspaceHooks, workspace_hooks
    from curtainwall.tools.hooks.problems import missing_beside_copies, missing_programs
    from curtainwall.tools.hooks.settings import EVENTS, CommandHook, Hook, HookSettings, HttpHook, read_settings
    from curtainwall.tools.hooks.user_hooks import HookSurroundings, UserHooks
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "EVENTS",
    "FILES",
    "CommandHook",
    "Copies",
    "FileClaims",
    "Hook",
    "HookSettings",
    "HookSurroundings",
    "HookTrust",
    "HttpHook",
    "Lifecycle",
    "Pins",
    "UserHooks",
    "WorkspaceHooks",
    "copied_programs",
    "exchange_warnings",
    "missing_beside_copies",
    "missing_programs",
    "read_settings",
    "workspace_hooks",
]
