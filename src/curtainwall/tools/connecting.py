"""Connections of programs that are not ours, as calls at the gate: what is permitted here is opened by egress right after."""

from collections.abc import Mapping

from curtainwall.model import CONNECT, CallPermitted, Place, Prepared, ToolResult
from curtainwall.tools.running import Runner


async def _connect(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
    """Say yes. Whoever asked waits for this, and then opens the tunnel to the host that was judged."""
    del permit, place
    return ToolResult(ok=True, value=f"`{prepared.arguments['by']}` may open a tunnel to `{prepared.arguments['url']}` now")


def connect_runners() -> Mapping[str, Runner]:
    """Return the runner of the one tool that only egress asks for."""
    return {CONNECT: _connect}
