"""MCP in: one session's tools behind a Unix socket, for any MCP client of either era. What a call may do is the gate's to say."""

from curtainwall.tools.mcp_in.bounds import McpBounds
from curtainwall.tools.mcp_in.handshake import ToolNames
from curtainwall.tools.mcp_in.server import McpServer

__all__ = ["McpBounds", "McpServer", "ToolNames"]
