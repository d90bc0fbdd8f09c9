"""A session runtime for untrusted AI agents: one log, one gate, and a human wherever that human is."""

TYPE_CHECKING = False  # the one of `typing`, which would take as long to load as Python itself
if TYPE_CHECKING:
    from curtainwall.compose.sessions import Parts
    from curtainwall.library.session import Reply, Session, open_session
    from curtainwall.library.teams import TeamReply, Teams, open_teams
    from curtainwall.serve.service import Serving, serving

__version__ = "0.1.0"

__all__ = ["Parts", "Reply", "Serving", "Session", "TeamReply", "Teams", "__version__", "open_session", "open_teams", "serving"]


_HOMES = {
    "Parts": "curtainwall.compose.sessions",
    **dict.fromkeys(("Reply", "Session", "open_session"), "curtainwall.library.session"),
    **dict.fromkeys(("TeamReply", "Teams", "open_teams"), "curtainwall.library.teams"),
    **dict.fromkeys(("Serving", "serving"), "curtainwall.serve.service"),
}


def __getattr__(name: str) -> object:
    """Load the library when it is first used, so that the program itself starts at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
