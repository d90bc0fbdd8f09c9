"""The automatic approver that the configuration names: its program, what of it is protected, and where it runs."""

from collections.abc import Callable, Mapping

from curtainwall.app.config import Config
from curtainwall.app.home import Home, user_homes
from curtainwall.facts import is_beneath
from curtainwall.tools import ProgramApprover
from curtainwall.tools.hooks import Surroundings

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")


def approver_files(config: Config) -> tuple[str, ...]:
    """Return the files that the user's approver is made of, as far as its command names them; what the system brings is none of them."""
    named = (word for word in config.approvals.approver if word.startswith(("/", "~/")))
    return tuple(word for word in named if not any(is_beneath(word, place) for place in _SYSTEM))


def approver_of(config: Callable[[], Config], around: Surroundings, home: Home) -> ProgramApprover | None:
    """Return the approver, where there is one; what the configuration says of it later counts from then on."""
    if not config().approvals.approver:
        return None
    return ProgramApprover(lambda: _command(config(), around.environ), around, str(home.root))


def _command(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    user = user_homes(environ)[0]
    return tuple(user + word[1:] if word.startswith("~/") else word for word in config.approvals.approver)
