"""`curtainwall mcp-proxy`, where the program looks for its commands."""

from curtainwall.cli.mcp_proxy import mcp_proxy

__all__ = ["mcp_proxy"]
