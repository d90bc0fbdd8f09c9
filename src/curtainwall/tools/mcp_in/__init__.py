"""MCP in: one session's tools behind a Unix socket, for MCP clients of either era. The gate decides what a call may do."""

from curtainwall.tools.mcp_in.bounds import McpBounds as McpBounds
from curtainwall.tools.mcp_in.handshake import ToolNames as ToolNames
from curtainwall.tools.mcp_in.server import McpServer as McpServer
