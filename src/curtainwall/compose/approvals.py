"""Who answers asks, as the configuration says: the operators of each channel, and the automatic approver."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtainwall.channels.asks.answerers import Key, answerer_words, answerers
from curtainwall.config.schema import Config
from curtainwall.config.web_people import WEB, web_operators
from curtainwall.facts import is_beneath
from curtainwall.host.home import Home, user_homes

if TYPE_CHECKING:
    from curtainwall.model import Index
    from curtainwall.tools import ProgramApprover
    from curtainwall.tools.hooks import HookSurroundings

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_ELF: Final = b"\x7fELF"


def approver_files(config: Config) -> tuple[str, ...]:
    """Return the files that the approver's command names, except those of the system."""
    return tuple(word for word in _files_named(config) if word not in approver_programs(config))


def approver_programs(config: Config) -> tuple[str, ...]:
    """Return the interpreter or other binary that runs the approver: agents and tool servers may use it, but not change it."""
    first = config.approvals.approver[:1]
    return tuple(word for word in _files_named(config) if word in first and _is_binary(Path(word).expanduser()))


def _files_named(config: Config) -> Iterator[str]:
    words = (word for word in config.approvals.approver if word.startswith(("/", "~/")))
    return (word for word in words if not any(is_beneath(word, place) for place in _SYSTEM))


def _is_binary(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(_ELF)) == _ELF
    except OSError:
        return False
    finally:
        os.close(descriptor)


def approver_of(config: Callable[[], Config], surroundings: "HookSurroundings", home: Home) -> "ProgramApprover | None":
    """Return the approver, if there is one.

    INVARIANT: a new approver in the configuration is not used before the next start. Running agents' sandboxes do not protect its files,
    and an approver that agents could change would answer as they like. Until then, as after its removal, asks are left to humans.
    """
    initial = config()
    if not initial.approvals.approver:
        return None
    # Start-up time: a listing of asks names the operators, and runs no approver.
    from curtainwall.tools import ProgramApprover

    def command() -> tuple[str, ...]:
        return () if approver_needs_restart(initial, config()) else _command(config(), surroundings.environ)

    return ProgramApprover(command, surroundings, str(home.root))


def approver_needs_restart(initial: Config, now: Config) -> bool:
    """Tell whether the configuration names a different approver than at the start."""
    return now.approvals.approver not in ((), initial.approvals.approver)


def _command(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    user = user_homes(environ)[0]
    return tuple(user + word[1:] if word.startswith("~/") else word for word in config.approvals.approver)


_MATRIX = "matrix"


def operators_in(config: Config) -> dict[str, frozenset[str]]:
    """Return the operators of every channel that is enabled."""
    channels = {name: frozenset(channel.operators) for name, channel in config.channels.items() if channel.enabled}
    return {**channels, WEB: web_operators(config)}


def served_operators(config: Config) -> dict[str, frozenset[str]]:
    """Return the operators of the channels that are served; nobody sees asks on the others."""
    off = {*(() if config.web.enabled else (WEB,)), *(() if config.matrix.homeserver else (_MATRIX,))}
    return {channel: people for channel, people in operators_in(config).items() if channel not in off}


def who_may_answer(index: "Index", config: Config, own: str, here: str = "") -> Callable[[Key], str]:
    """Return a function that describes who may answer an open ask; the text is empty if readers on the channel `here` know."""
    answerers_of = answerers(index, served_operators(config))
    return lambda ask: answerer_words(answerers_of(ask), own, here)
