"""The user's hooks, made from the configuration: where they are written, what they run in, and where their notes go."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from curtainwall.config.loader import read_plain
from curtainwall.config.schema import Config
from curtainwall.host.home import Home, user_homes
from curtainwall.model import SYSTEM, Broken, CurtainwallError, ExtensionNoted, Place, RecordProgress, SessionId, Undecided
from curtainwall.runtime import SessionRegistry
from curtainwall.tools.hooks import Copies, FileClaims, HookSettings, HookSurroundings, Lifecycle, Pins, UserHooks, read_settings

_LOG = logging.getLogger(__name__)


def hook_file(config: Config, environ: Mapping[str, str]) -> Path | None:
    """Return the settings file that the configuration names, or None."""
    told = config.hooks.file
    return None if told is None else Path(user_homes(environ)[0] + told[1:] if told.startswith("~") else told)


def hook_settings(home: Home, config: Config, environ: Mapping[str, str]) -> HookSettings:
    """Return the hooks that the configuration names, here and in a file; raise `Broken`.

    Their programs start in our own directory. In a workspace, a `json.py` of the agent's would be what `python3 -c "import json"` runs.
    """
    directory = str(home.root)
    here = read_settings(cast("JsonValue", config.hooks.settings), directory=directory, strict=True)
    file = hook_file(config, environ)
    if file is None:
        return here
    try:
        there = read_settings(cast("JsonValue", json.loads(read_plain(file))), directory=directory)
    except OSError as fault:
        raise Broken(
            f"the hooks in `{file}` cannot be read: {(fault.strerror or '').lower()}; correct `hooks` in the configuration"
        ) from None
    except (ValueError, RecursionError):
        raise Broken(f"the hooks in `{file}` are no JSON; correct the file") from None
    except Broken as fault:
        raise Broken(f"the hooks in `{file}`: {fault}") from None
    return HookSettings((*here.hooks, *there.hooks), (*here.notes, *there.notes))


def pins_of(home: Home) -> Pins:
    """Return which workspaces' own hooks the user trusted."""
    return Pins(home.root / "pins.json")


def user_hooks(configured: HookSettings, around: HookSurroundings, home: Home, house: SessionRegistry) -> UserHooks:
    """Return the hooks of the house, whose notes are kept with their session."""

    async def note(session: SessionId, told: Mapping[str, JsonValue]) -> None:
        noted = ExtensionNoted(at=house.clock.now(), extension="hooks", data=told)
        # Whoever waits for the hook must not wait for ever for an owner that is stopped; the note is kept for it.
        with suppress(Undecided):
            await house.send(session, RecordProgress(by=SYSTEM, events=(noted,)))

    pins = pins_of(home)
    # Pins that cannot be read are told as soon as a hook would have to run; until then they keep everything.
    with suppress(Broken):
        Copies.of(pins).sweep(pins)
    return UserHooks(configured, around, pins, note)


class SessionHooks:
    """Tells hooks of the beginning and the end of the sessions whose agents work here, where any hook would hear of it."""

    def __init__(self, hooks: UserHooks, lifecycle: Lifecycle) -> None:
        self._hooks = hooks
        self._lifecycle = lifecycle

    async def begun(self, place: Place) -> None:
        """Tell of a beginning. Whoever hears only of ends needs to have had the beginning, too: that is how one is found after a crash."""
        if self._hooks.listens("SessionStart", place) or self._hooks.listens("SessionEnd", place):
            await self._tried(self._lifecycle.begin, place.session)

    async def ended(self, place: Place) -> None:
        """Tell of an end."""
        if self._hooks.listens("SessionEnd", place):
            await self._tried(self._lifecycle.end, place.session)

    async def _tried(self, tell: Callable[[SessionId], Awaitable[None]], session: SessionId) -> None:
        """Tell of it; where that cannot be done, the session goes on all the same."""
        try:
            await tell(session)
        except (CurtainwallError, OSError) as fault:
            _LOG.warning("hooks could not be told of session `%s`: %s", session, fault)


def lifecycle_of(hooks: UserHooks, home: Home, house: SessionRegistry) -> Lifecycle:
    """Return what tells hooks of the beginning and the end of sessions, once each, whichever process does."""
    return Lifecycle(hooks, house.feed, FileClaims(lambda session: home.session(session).root / "hooks"), house.send)
