"""MCP in: one session's tools behind a Unix socket, for any MCP client of either era. What a call may do is the gate's to say."""

from curtainwall.tools.mcp_in.bounds import Bounds
from curtainwall.tools.mcp_in.door import Door
from curtainwall.tools.mcp_in.names import Names

__all__ = ["Bounds", "Door", "Names"]
