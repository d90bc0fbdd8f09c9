"""MCP in: one session's tools behind a Unix socket, for MCP clients of either era. The gate decides what a call may do."""

from curtainwall.tools.mcp_in.bounds import McpBounds
from curtainwall.tools.mcp_in.handshake import ToolNames
from curtainwall.tools.mcp_in.server import McpServer

__all__ = ["McpBounds", "McpServer", "ToolNames"]
