"""A session runtime for untrusted AI agents: one log, one gate, and a human wherever that human is."""

TYPE_CHECKING = False  # the one of `typing`, which would take as long to load as Python itself
if TYPE_CHECKING:
    from curtainwall.compose.sessions import Parts as Parts
    from curtainwall.library.asks import AskAnswer as AskAnswer
    from curtainwall.library.context import open_session as open_session
    from curtainwall.library.live_events import LiveActivity as LiveActivity
    from curtainwall.library.live_events import LiveAsk as LiveAsk
    from curtainwall.library.live_events import LiveContext as LiveContext
    from curtainwall.library.live_events import LiveDiagnostic as LiveDiagnostic
    from curtainwall.library.live_events import LiveEvent as LiveEvent
    from curtainwall.library.live_events import LiveSpeech as LiveSpeech
    from curtainwall.library.live_events import LiveTool as LiveTool
    from curtainwall.library.live_events import LiveTurn as LiveTurn
    from curtainwall.library.replies import Reply as Reply
    from curtainwall.library.session import Session as Session
    from curtainwall.library.session_list import list_sessions as list_sessions
    from curtainwall.library.teams import TeamReply as TeamReply
    from curtainwall.library.teams import Teams as Teams
    from curtainwall.library.teams import open_teams as open_teams
    from curtainwall.model import BudgetFigure as BudgetFigure
    from curtainwall.model import BudgetKind as BudgetKind
    from curtainwall.model import Closed as Closed
    from curtainwall.model import CommandRefused as CommandRefused
    from curtainwall.model import ContextUse as ContextUse
    from curtainwall.model import CurtainwallError as CurtainwallError
    from curtainwall.model import Grant as Grant
    from curtainwall.model import GrantScope as GrantScope
    from curtainwall.model import Limits as Limits
    from curtainwall.model import Mode as Mode
    from curtainwall.model import NotFound as NotFound
    from curtainwall.model import NotReady as NotReady
    from curtainwall.model import OpeningFailed as OpeningFailed
    from curtainwall.model import PendingAsk as PendingAsk
    from curtainwall.model import Role as Role
    from curtainwall.model import SessionRow as SessionRow
    from curtainwall.model import SessionView as SessionView
    from curtainwall.model import ToolEffect as ToolEffect
    from curtainwall.model import TurnFailed as TurnFailed
    from curtainwall.model import TurnStatus as TurnStatus
    from curtainwall.model import Undecided as Undecided
    from curtainwall.serve.service import Serving as Serving
    from curtainwall.serve.service import serving as serving
    from curtainwall.session import Diagnostic as Diagnostic
    from curtainwall.session import TranscriptNote as TranscriptNote
    from curtainwall.session import TranscriptTurn as TranscriptTurn
    from curtainwall.tools.own_tools import BadTool as BadTool
    from curtainwall.tools.own_tools import Tool as Tool
    from curtainwall.tools.own_tools import tool as tool

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load the library when it is first used, so that the program itself starts at once."""
    from curtainwall.model.lazy_names import exports_of, lazy_names

    if name == "__all__":
        return sorted((*exports_of(__name__), "__version__"))
    return lazy_names(__name__)(name)


def __dir__() -> list[str]:
    """List every public name, also those that are not loaded yet."""
    from curtainwall.model.lazy_names import exports_of

    return sorted({*globals(), *exports_of(__name__)})
