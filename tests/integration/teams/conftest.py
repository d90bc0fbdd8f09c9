"""What every test of teams uses."""

from tests.support.teams import team_home

__all__ = ["team_home"]
