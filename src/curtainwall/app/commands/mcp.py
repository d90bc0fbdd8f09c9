"""`curtainwall mcp`, where the program looks for its commands."""

from curtainwall.app.team_server import mcp

__all__ = ["mcp"]
