"""The automatic approver that the configuration names: its program, what of it is protected, and where it runs."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from curtainwall.config.schema import Config
from curtainwall.facts import is_beneath
from curtainwall.host.home import Home, user_homes
from curtainwall.tools import ProgramApprover
from curtainwall.tools.hooks import Surroundings

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_ELF: Final = b"\x7fELF"


def approver_files(config: Config) -> tuple[str, ...]:
    """Return the files that the user's approver is made of, as far as its command names them; what the system brings is none of them."""
    return tuple(word for word in _files_named(config) if word not in approver_programs(config))


def approver_programs(config: Config) -> tuple[str, ...]:
    """Return the interpreter, or other binary, that runs the user's approver: agents and tool servers may use the same one, unchanged."""
    begins = config.approvals.approver[:1]
    return tuple(word for word in _files_named(config) if word in begins and _is_binary(Path(word).expanduser()))


def _files_named(config: Config) -> Iterator[str]:
    named = (word for word in config.approvals.approver if word.startswith(("/", "~/")))
    return (word for word in named if not any(is_beneath(word, place) for place in _SYSTEM))


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


def approver_of(config: Callable[[], Config], around: Surroundings, home: Home) -> ProgramApprover | None:
    """Return the approver, where there is one.

    INVARIANT: one that the configuration names later waits for the next start. What agents work in by then was made without protecting its
    files, and one that they could change would answer as they like. Until then asks are left to humans, as they are where it is taken away.
    """
    begun = config()
    if not begun.approvals.approver:
        return None

    def command() -> tuple[str, ...]:
        return () if approver_waits(begun, config()) else _command(config(), around.environ)

    return ProgramApprover(command, around, str(home.root))


def approver_waits(begun: Config, now: Config) -> bool:
    """Tell whether the configuration names another approver than it did at the start."""
    return now.approvals.approver not in ((), begun.approvals.approver)


def _command(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    user = user_homes(environ)[0]
    return tuple(user + word[1:] if word.startswith("~/") else word for word in config.approvals.approver)
