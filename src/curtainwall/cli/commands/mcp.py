"""`curtainwall mcp`, where the program looks for its commands."""

from curtainwall.cli.team_server import mcp

__all__ = ["mcp"]
