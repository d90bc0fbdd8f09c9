"""`curtainwall mcp-proxy`, where the program looks for its commands."""

from curtainwall.app.mcp_proxy import mcp_proxy

__all__ = ["mcp_proxy"]
