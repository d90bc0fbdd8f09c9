"""The user's hooks, made from the configuration: where they are defined, where they run, and where their notes are recorded."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from curtainwall.config.loader import read_plain
from curtainwall.config.schema import Config
from curtainwall.host.home import Home, user_homes
from curtainwall.model import SYSTEM, Broken, CurtainwallError, ExtensionNoted, Place, SessionId, Undecided
from curtainwall.tools.hooks import HookSettings, read_settings

if TYPE_CHECKING:
    # Start-up time: most commands run no hook.
    from curtainwall.runtime import SessionRegistry
    from curtainwall.tools.hooks import HookSurroundings, Lifecycle, Pins, UserHooks

_LOG = logging.getLogger(__name__)


def hook_file(config: Config, environ: Mapping[str, str]) -> Path | None:
    """Return the settings file that the configuration names, or None."""
    path = config.hooks.file
    return None if path is None else Path(user_homes(environ)[0] + path[1:] if path.startswith("~") else path)


def hook_settings(home: Home, config: Config, environ: Mapping[str, str]) -> HookSettings:
    """Return the hooks from the configuration and from the file that it names; raise `Broken`.

    Their programs start in our own directory. In a workspace, `python3 -c "import json"` would run the agent's `json.py`.
    """
    directory = str(home.root)
    configured = read_settings(cast("JsonValue", config.hooks.settings), directory=directory, strict=True)
    file = hook_file(config, environ)
    if file is None:
        return configured
    try:
        from_file = read_settings(cast("JsonValue", json.loads(read_plain(file))), directory=directory)
    except OSError as fault:
        raise Broken(
            f"the hooks in `{file}` cannot be read: {(fault.strerror or '').lower()}; correct `hooks` in the configuration"
        ) from None
    except (ValueError, RecursionError):
        raise Broken(f"the hooks in `{file}` are no JSON; correct the file") from None
    except Broken as fault:
        raise Broken(f"the hooks in `{file}`: {fault}") from None
    return HookSettings((*configured.hooks, *from_file.hooks), (*configured.notes, *from_file.notes))


def pins_of(home: Home) -> "Pins":
    """Return the workspaces whose hooks the user has trusted."""
    # Start-up time: reading the configuration looks at no workspace.
    from curtainwall.tools.hooks import Pins

    return Pins(home.root / "pins.json")


def user_hooks(configured: HookSettings, surroundings: "HookSurroundings", home: Home, registry: "SessionRegistry") -> "UserHooks":
    """Return the user's hooks, whose notes are recorded with their session."""
    # Start-up time: as above.
    from curtainwall.model import RecordProgress
    from curtainwall.tools.hooks import Copies, UserHooks

    async def note(session: SessionId, data: Mapping[str, JsonValue]) -> None:
        event = ExtensionNoted(at=registry.clock.now(), extension="hooks", data=data)
        # The hook's caller must not wait forever for a session owner that is stopped; the note is kept for the owner.
        with suppress(Undecided):
            await registry.send(session, RecordProgress(by=SYSTEM, events=(event,)))

    pins = pins_of(home)
    # Unreadable pins are reported as soon as a hook would have to run; until then nothing is swept.
    with suppress(Broken):
        Copies.of(pins).sweep(pins)
    return UserHooks(configured, surroundings, pins, note)


class SessionHooks:
    """Notifies hooks when sessions with agents in this process begin and end, if any hook listens."""

    def __init__(self, hooks: "UserHooks", lifecycle: "Lifecycle", idle_after: float) -> None:
        self.idle_after = idle_after
        self._hooks = hooks
        self._lifecycle = lifecycle

    async def begun(self, place: Place, reopened: int) -> None:
        """Notify hooks of a beginning. Hooks that listen only for ends need it, too: after a crash, it shows which ends are missing."""
        if self._hooks.listens("SessionStart", place) or self._hooks.listens("SessionEnd", place):
            await self._tried(self._lifecycle.begin, place.session, reopened)

    async def ended(self, place: Place, reopened: int) -> None:
        """Notify hooks of an end."""
        if self._hooks.listens("SessionEnd", place):
            await self._tried(self._lifecycle.end, place.session, reopened)

    async def _tried(self, notify: Callable[[SessionId, int], Awaitable[None]], session: SessionId, reopened: int) -> None:
        """Notify hooks; if that fails, log it and let the session go on."""
        try:
            await notify(session, reopened)
        except (CurtainwallError, OSError) as fault:
            _LOG.warning("hooks could not be told of session `%s`: %s", session, fault)


def lifecycle_of(hooks: "UserHooks", home: Home, registry: "SessionRegistry") -> "Lifecycle":
    """Return what notifies hooks of the beginning and end of sessions, once each across all processes."""
    # Start-up time: as above.
    from curtainwall.tools.hooks import FileClaims, Lifecycle

    return Lifecycle(hooks, registry.feed, FileClaims(lambda session: home.session(session).root / "hooks"), registry.send)
