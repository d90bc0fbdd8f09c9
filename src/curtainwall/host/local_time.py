"""Moments for people, the same on every channel, and never without their zone."""

from datetime import UTC, datetime

from curtainwall.model import Millis


def when(at: Millis) -> str:
    """Return a moment as people on this machine read it."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def clock_time(at: Millis) -> str:
    """Return a moment in UTC, for names and messages that are read elsewhere, too."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
