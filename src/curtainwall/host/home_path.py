"""Where our home directory is. It imports almost nothing, because completion needs it at each key press."""

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CURTAINWALL_HOME"


def home_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the home that the environment names, or `~/.curtainwall`, with links not resolved."""
    path = environ.get(VARIABLE) or "~/.curtainwall"
    if "\0" in path:
        from curtainwall.model import Broken  # late: it is slow to import, and needed only here

        raise Broken(f"{VARIABLE} holds a NUL")
    return Path(path).expanduser()
