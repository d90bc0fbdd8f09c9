"""A session runtime for untrusted AI agents: one log, one gate, and a human wherever that human is."""

TYPE_CHECKING = False  # the one of `typing`, which would take as long to load as Python itself
if TYPE_CHECKING:
    from curtainwall.compose.sessions import Parts
    from curtainwall.library.asks import AskAnswer
    from curtainwall.library.context import open_session
    from curtainwall.library.live_events import (
        LiveActivity,
        LiveAsk,
        LiveContext,
        LiveDiagnostic,
        LiveEvent,
        LiveSpeech,
        LiveTool,
        LiveTurn,
    )
    from curtainwall.library.session import Reply, Session
    from curtainwall.library.session_list import list_sessions
    from curtainwall.library.teams import TeamReply, Teams, open_teams
    from curtainwall.model import (
        BudgetFigure,
        BudgetKind,
        Closed,
        CommandRefused,
        ContextUse,
        CurtainwallError,
        Grant,
        GrantScope,
        Limits,
        Mode,
        NotFound,
        NotReady,
        OpeningFailed,
        PendingAsk,
        Role,
        SessionRow,
        SessionView,
        ToolEffect,
        TurnFailed,
        TurnStatus,
        Undecided,
    )
    from curtainwall.serve.service import Serving, serving
    from curtainwall.session import Diagnostic, TranscriptNote, TranscriptTurn
    from curtainwall.tools.own_tools import BadTool, Tool, tool

__version__ = "0.1.0"

__all__ = [
    "AskAnswer",
    "BadTool",
    "BudgetFigure",
    "BudgetKind",
    "Closed",
    "CommandRefused",
    "ContextUse",
    "CurtainwallError",
    "Diagnostic",
    "Grant",
    "GrantScope",
    "Limits",
    "LiveActivity",
    "LiveAsk",
    "LiveContext",
    "LiveDiagnostic",
    "LiveEvent",
    "LiveSpeech",
    "LiveTool",
    "LiveTurn",
    "Mode",
    "NotFound",
    "NotReady",
    "OpeningFailed",
    "Parts",
    "PendingAsk",
    "Reply",
    "Role",
    "Serving",
    "Session",
    "SessionRow",
    "SessionView",
    "TeamReply",
    "Teams",
    "Tool",
    "ToolEffect",
    "TranscriptNote",
    "TranscriptTurn",
    "TurnFailed",
    "TurnStatus",
    "Undecided",
    "__version__",
    "list_sessions",
    "open_session",
    "open_teams",
    "serving",
    "tool",
]

_HOMES = {
    "AskAnswer": "curtainwall.library.asks",
    "Parts": "curtainwall.compose.sessions",
    "list_sessions": "curtainwall.library.session_list",
    "open_session": "curtainwall.library.context",
    **dict.fromkeys(("BadTool", "Tool", "tool"), "curtainwall.tools.own_tools"),
    **dict.fromkeys((name for name in __all__ if name.startswith("Live")), "curtainwall.library.live_events"),
    **dict.fromkeys(("Reply", "Session"), "curtainwall.library.session"),
    **dict.fromkeys(("Diagnostic", "TranscriptNote", "TranscriptTurn"), "curtainwall.session"),
    **dict.fromkeys(("TeamReply", "Teams", "open_teams"), "curtainwall.library.teams"),
    **dict.fromkeys(("Serving", "serving"), "curtainwall.serve.service"),
}


def __getattr__(name: str) -> object:
    """Load the library when it is first used, so that the program itself starts at once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "curtainwall.model")), name)


def __dir__() -> list[str]:
    """List every public name, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})
