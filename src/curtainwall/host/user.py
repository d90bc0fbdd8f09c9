"""The user of this machine: their name, and how every channel shows them times."""

import getpass
import os
from datetime import UTC, datetime

from curtainwall.model import Millis, Who


def local_user() -> Who:
    """Return the user who runs this process, as the log names them."""
    try:
        return Who(name=getpass.getuser())
    except (KeyError, OSError):
        return Who(name=f"uid {os.geteuid()}")


def when(at: Millis) -> str:
    """Format a time in this machine's time zone."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def clock_time(at: Millis) -> str:
    """Format a time in UTC, for names and messages that people elsewhere read too."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
