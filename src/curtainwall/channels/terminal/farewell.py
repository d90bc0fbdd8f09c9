"""What to know when a session is left: what stays open, and how to go on."""

from collections.abc import Iterator

from curtainwall.channels.asks.cards import call_in_words
from curtainwall.channels.asks.event_lines import twice
from curtainwall.model import PendingAsk, SessionId, SessionView


def parting_words(view: SessionView) -> Iterator[str]:
    """Yield how to go on with a session; an ask that is open stays so."""
    yield from open_words(view.pending)
    yield from budget_words(view)
    if view.status != "closed":
        yield f"{resume_words(view.session)} goes on with this session"


def open_words(asks: tuple[PendingAsk, ...]) -> Iterator[str]:
    """Yield how each open ask can be answered from elsewhere."""
    for ask in asks:
        id_ = ask.approval
        yield f"{call_in_words(ask.subject)} waits for an answer: `curtainwall approve {id_}` or `curtainwall deny {id_}`"


def budget_words(view: SessionView) -> Iterator[str]:
    """Yield how more can be allowed of each budget that is used up; the amount is twice what there was."""
    for figure in view.budget:
        if figure.kind in view.exhausted:
            amount = twice(figure.kind, figure.used, figure.limit)
            yield f"the budget of {figure.kind} is used up: `curtainwall sessions budget {view.session} {figure.kind} {amount}` allows more"


def silence_words(session: SessionId, owner: int, seconds: float, *, is_kept: bool) -> Iterator[str]:
    """Yield what to know where the process that works on a session says nothing, and how to get away from it."""
    kept = "; what you sent is kept and has its turn as soon as it goes on" if is_kept else ""
    yield f"process {owner or 'of somebody else'} works on this session and has said nothing for {seconds:.0f} seconds{kept}"
    leaving = f"Ctrl-C, twice during a turn, leaves, and {resume_words(session)} comes back"
    yield f"if it was stopped, `kill -CONT {owner or 'PID'}` lets it go on; {leaving}"


def resume_words(session: SessionId, task: str = "") -> str:
    """Return the command that goes on with a session."""
    return f"`curtainwall start --resume {session}{f' {task}' if task else ''}`"
