"""MCP out: third-party servers, each in its own sandbox, with tools judged like ours and texts treated as data."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.servers.calls import Servers
    from curtainwall.tools.servers.launch import CannotStart, LaunchMachine, OpenNetwork, ServerNetwork
    from curtainwall.tools.servers.offered import OfferedTool, StatementLine, comparison, statement, tools_by_name, why_unusable
    from curtainwall.tools.servers.proposals import Proposal, propose_roles
    from curtainwall.tools.servers.reviews import Review, Reviews, ServerCatalogue, ToolStatus
    from curtainwall.tools.servers.spec import WORKSPACE, ServerSpec, ToolRoles, allowed_environment
    from curtainwall.tools.servers.supervisor import ServerSupervisor, SupervisorGrounds, is_running
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "WORKSPACE",
    "CannotStart",
    "LaunchMachine",
    "OfferedTool",
    "OpenNetwork",
    "Proposal",
    "Review",
    "Reviews",
    "ServerCatalogue",
    "ServerNetwork",
    "ServerSpec",
    "ServerSupervisor",
    "Servers",
    "StatementLine",
    "SupervisorGrounds",
    "ToolRoles",
    "ToolStatus",
    "allowed_environment",
    "comparison",
    "is_running",
    "propose_roles",
    "statement",
    "tools_by_name",
    "why_unusable",
]
