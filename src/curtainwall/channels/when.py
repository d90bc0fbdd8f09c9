"""Moments for people, the same on every channel."""

from datetime import UTC, datetime

from curtainwall.model import Millis


def clock_time(at: Millis) -> str:
    """Return a moment as a time of day with its date, in UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
