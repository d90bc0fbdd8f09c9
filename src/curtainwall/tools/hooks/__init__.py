"""The user's own programs around calls and sessions, in Claude Code's format. They can only make a verdict stricter."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.hooks.alone import standing_alone
    from curtainwall.tools.hooks.copies import Copies, copied_programs, within_reach
    from curtainwall.tools.hooks.lifecycle import FileClaims, Lifecycle
    from curtainwall.tools.hooks.pins import FILES, Found, Pins, Trust, workspace_hooks
    from curtainwall.tools.hooks.presence import not_found
    from curtainwall.tools.hooks.settings import EVENTS, Endpoint, Hook, Program, Settings, read_settings
    from curtainwall.tools.hooks.user_hooks import Surroundings, UserHooks
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "EVENTS",
    "FILES",
    "Copies",
    "Endpoint",
    "FileClaims",
    "Found",
    "Hook",
    "Lifecycle",
    "Pins",
    "Program",
    "Settings",
    "Surroundings",
    "Trust",
    "UserHooks",
    "copied_programs",
    "not_found",
    "read_settings",
    "standing_alone",
    "within_reach",
    "workspace_hooks",
]
