"""A session runtime for untrusted AI agents: one log, one gate, and a human wherever that human is."""

TYPE_CHECKING = False  # the one of `typing`, which would take as long to load as Python itself
if TYPE_CHECKING:
    from curtainwall.app.library import Reply, Session, open_session
    from curtainwall.app.serving import Serving, serving
    from curtainwall.app.teams import TeamReply, Teams, open_teams

__version__ = "0.1.0"

__all__ = ["Reply", "Serving", "Session", "TeamReply", "Teams", "__version__", "open_session", "open_teams", "serving"]


def __getattr__(name: str) -> object:
    """Load the library when it is first used, so that the program itself starts at once."""
    if name in ("Reply", "Session", "open_session"):
        from curtainwall.app import library

        return getattr(library, name)
    if name in ("TeamReply", "Teams", "open_teams"):
        from curtainwall.app import teams

        return getattr(teams, name)
    if name in ("Serving", "serving"):
        from curtainwall.app import serving as served

        return getattr(served, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
