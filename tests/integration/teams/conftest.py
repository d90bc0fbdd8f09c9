"""What every test of teams uses."""

from tests.support.teams import fake, short_home, team_home

__all__ = ["fake", "short_home", "team_home"]
