"""The user's own programs around calls and sessions, in Claude Code's format. They can only make a verdict stricter."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.hooks.copies import Copies as Copies
    from curtainwall.tools.hooks.copies import copied_programs as copied_programs
    from curtainwall.tools.hooks.copies import exchange_warnings as exchange_warnings
    from curtainwall.tools.hooks.lifecycle import FileClaims as FileClaims
    from curtainwall.tools.hooks.lifecycle import Lifecycle as Lifecycle
    from curtainwall.tools.hooks.pins import FILES as FILES
    from curtainwall.tools.hooks.pins import HookTrust as HookTrust
    from curtainwall.tools.hooks.pins import Pins as Pins
    from curtainwall.tools.hooks.pins import WorkspaceHooks as WorkspaceHooks
    from curtainwall.tools.hooks.pins import workspace_hooks as workspace_hooks
    from curtainwall.tools.hooks.problems import missing_beside_copies as missing_beside_copies
    from curtainwall.tools.hooks.problems import missing_programs as missing_programs
    from curtainwall.tools.hooks.settings import EVENTS as EVENTS
    from curtainwall.tools.hooks.settings import CommandHook as CommandHook
    from curtainwall.tools.hooks.settings import Hook as Hook
    from curtainwall.tools.hooks.settings import HookSettings as HookSettings
    from curtainwall.tools.hooks.settings import HttpHook as HttpHook
    from curtainwall.tools.hooks.settings import read_settings as read_settings
    from curtainwall.tools.hooks.user_hooks import HookSurroundings as HookSurroundings
    from curtainwall.tools.hooks.user_hooks import UserHooks as UserHooks
else:
    __getattr__ = lazy_names(__name__)
