"""The name of each session's agent, which its log has from the beginning and which never changes."""

from curtainwall.model import Log, NotFound, SessionId, SessionOpened, session_stream
from curtainwall.session import lift


class AgentNames:
    """Asks the log once for each session."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[SessionId, str] = {}

    def of(self, session: SessionId) -> str:
        """Return the name of a session's agent; raise `NotFound`."""
        if session not in self._known:
            first = self._log.read(session_stream(session), limit=1)
            opened = lift(first[0]) if first else None
            if not isinstance(opened, SessionOpened):
                raise NotFound(f"there is no session `{session}`")
            self._known[session] = opened.agent
        return self._known[session]
