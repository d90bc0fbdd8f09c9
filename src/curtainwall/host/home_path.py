"""Where our home directory is. It imports almost nothing, because completion needs it at each key press."""

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CURTAINWALL_HOME"
XDG_VARIABLE = "XDG_DATA_HOME"
_USUAL = "~/.curtainwall"


def home_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the home that the environment names, with links not resolved.

    Without `CURTAINWALL_HOME` it is `~/.curtainwall` if that exists, then `curtainwall` in `XDG_DATA_HOME` if that is set.
    """
    path = environ.get(VARIABLE) or _default(environ)
    if "\0" in path:
        raise _broken(f"{VARIABLE} holds a NUL")
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        # Neither HOME nor the account says where `~` is, as for a user id without an account in a container.
        raise _broken(f"`{path}` cannot be found, because HOME is not set; set {VARIABLE} to a directory of your own")
    return Path(expanded)


def default_homes(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return where the home may be without `CURTAINWALL_HOME`; a relative `XDG_DATA_HOME` counts as unset, as its specification says."""
    data = environ.get(XDG_VARIABLE, "")
    return (_USUAL, os.path.join(data, "curtainwall")) if os.path.isabs(data) else (_USUAL,)


def stronger_homes(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the homes that would win over the one in use if they existed, so agents must not make them."""
    return () if environ.get(VARIABLE) or _default(environ) == _USUAL else (_USUAL,)


def _default(environ: Mapping[str, str]) -> str:
    usual, *xdg = default_homes(environ)
    # The program itself may be installed there, and uninstalling it must not delete the home.
    free = [path for path in xdg if not os.path.exists(os.path.join(path, "pyvenv.cfg"))]
    return usual if not free or os.path.lexists(os.path.expanduser(usual)) else free[0]


def _broken(message: str) -> Exception:
    from curtainwall.model import Broken  # late: it is slow to import, and needed only here

    return Broken(message)
