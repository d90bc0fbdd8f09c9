"""MCP out: the servers of others, each in a sandbox of its own, their tools judged like our own and their words taken as data."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.tools.servers.annotate import Proposal, propose
    from curtainwall.tools.servers.launch import CannotStart, Machine
    from curtainwall.tools.servers.offered import Offered, by_name, why_unusable
    from curtainwall.tools.servers.reviews import Review, Reviews
    from curtainwall.tools.servers.servers import Servers
    from curtainwall.tools.servers.shelf import Shelf, Standing
    from curtainwall.tools.servers.spec import WORKSPACE, ServerSpec, ToolRoles, allowed_environment
    from curtainwall.tools.servers.statements import StatementLine, comparison, statement
    from curtainwall.tools.servers.supervisor import Grounds, Supervisor, is_running
    from curtainwall.tools.servers.ways import Way, Ways
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "WORKSPACE",
    "CannotStart",
    "Grounds",
    "Machine",
    "Offered",
    "Proposal",
    "Review",
    "Reviews",
    "ServerSpec",
    "Servers",
    "Shelf",
    "Standing",
    "StatementLine",
    "Supervisor",
    "ToolRoles",
    "Way",
    "Ways",
    "allowed_environment",
    "by_name",
    "comparison",
    "is_running",
    "propose",
    "statement",
    "why_unusable",
]
