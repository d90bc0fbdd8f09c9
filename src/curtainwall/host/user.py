"""The user of this machine: their name, and moments in their time zone, the same on every channel."""

import getpass
import os
from datetime import UTC, datetime

from curtainwall.model import Millis, Who


def local_user() -> Who:
    """Return who sits at this machine, as the log names them."""
    try:
        return Who(name=getpass.getuser())
    except (KeyError, OSError):
        return Who(name=f"uid {os.geteuid()}")


def when(at: Millis) -> str:
    """Return a moment as people on this machine read it."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def clock_time(at: Millis) -> str:
    """Return a moment in UTC, for names and messages that are read elsewhere, too."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
