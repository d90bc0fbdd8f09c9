"""Who uses this machine right now."""

import getpass
import os

from curtainwall.model import Who


def local_user() -> Who:
    """Return who sits at this machine, as the log names them."""
    try:
        return Who(name=getpass.getuser())
    except (KeyError, OSError):
        return Who(name=f"uid {os.geteuid()}")
