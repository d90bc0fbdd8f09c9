"""MCP out: third-party servers, each in its own sandbox, with tools judged like ours and texts treated as data."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.servers.calls import Servers as Servers
    from curtainwall.tools.servers.launch import CannotStart as CannotStart
    from curtainwall.tools.servers.launch import LaunchMachine as LaunchMachine
    from curtainwall.tools.servers.launch import OpenNetwork as OpenNetwork
    from curtainwall.tools.servers.launch import ServerNetwork as ServerNetwork
    from curtainwall.tools.servers.offered import OfferedTool as OfferedTool
    from curtainwall.tools.servers.offered import StatementLine as StatementLine
    from curtainwall.tools.servers.offered import comparison as comparison
    from curtainwall.tools.servers.offered import statement as statement
    from curtainwall.tools.servers.offered import tools_by_name as tools_by_name
    from curtainwall.tools.servers.offered import why_unusable as why_unusable
    from curtainwall.tools.servers.proposals import Proposal as Proposal
    from curtainwall.tools.servers.proposals import propose_roles as propose_roles
    from curtainwall.tools.servers.reviews import Review as Review
    from curtainwall.tools.servers.reviews import Reviews as Reviews
    from curtainwall.tools.servers.reviews import ServerCatalogue as ServerCatalogue
    from curtainwall.tools.servers.reviews import ToolStatus as ToolStatus
    from curtainwall.tools.servers.spec import WORKSPACE as WORKSPACE
    from curtainwall.tools.servers.spec import ServerSpec as ServerSpec
    from curtainwall.tools.servers.spec import ToolRoles as ToolRoles
    from curtainwall.tools.servers.spec import allowed_environment as allowed_environment
    from curtainwall.tools.servers.supervisor import ServerSupervisor as ServerSupervisor
    from curtainwall.tools.servers.supervisor import SupervisorGrounds as SupervisorGrounds
    from curtainwall.tools.servers.supervisor import is_running as is_running
else:
    __getattr__ = lazy_names(__name__)
