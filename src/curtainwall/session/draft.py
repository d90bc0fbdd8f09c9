"""Decides commands one after the other, on a private draft of the state."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from curtainwall.model import AnyCommand, AnyEvent, CommandRefused, GrantGiven, GrantScope, Moment, Post, RequestCall, SavedProgram, record
from curtainwall.session.calls import needs_program, with_program
from curtainwall.session.decide import decide, decide_by_log, is_decided_by_log
from curtainwall.session.evolve import apply
from curtainwall.session.peers import posts_of, rejection_posts
from curtainwall.session.rules import SessionRules
from curtainwall.session.state import SessionState


@record
class Decided:
    """The result of one command: events or a refusal, and the posts to other sessions."""

    events: tuple[AnyEvent, ...] = ()
    own: tuple[AnyEvent, ...] = ()
    """The events for the session's own log."""
    for_project: tuple[AnyEvent, ...] = ()
    """The events for the log of the session's project."""
    posts: tuple[Post, ...] = ()
    needs_program: bool = False
    """Whether the calling program must be saved first and written together with the events."""
    refusal: CommandRefused | None = None

    def with_program(self, command: RequestCall, program: SavedProgram) -> "Decided":
        """Return a copy with the saved program."""
        return replace(_sorted(with_program(command, self.events, program)), posts=self.posts)


def decide_on(draft: SessionState, command: AnyCommand, rules: SessionRules, moment: Moment, *, can_save: bool) -> Decided:
    """Decide a command and apply its events to the draft.

    Rules are loaded only if the command needs them. If they do not load, raise the error and decide nothing.
    """
    deciding = partial(decide_by_log, draft, command) if is_decided_by_log(command) else partial(decide, draft, command, rules.now)
    try:
        events = deciding(moment)
    except CommandRefused as refusal:
        return _refused(command, refusal)
    except Exception as error:  # noqa: BLE001 - fail closed: what we cannot decide is refused, and the others go on
        return _refused(command, CommandRefused(f"this cannot be decided: {type(error).__name__}: {error}"))
    is_needed = needs_program(command, events)
    if is_needed and not can_save:
        # INVARIANT: a program is saved in the same commit as each of its asks, and each permit for more than reading.
        return _refused(command, CommandRefused("the program that makes this call has to be saved along with it"))
    decided = replace(_sorted(events), needs_program=is_needed)
    _go_on(draft, decided.own)
    return replace(decided, posts=posts_of(decided.own)) if decided.own else decided


def draft_after(state: SessionState, decided: Iterable[Decided]) -> SessionState:
    """Return the draft that results from decisions made on an earlier state."""
    draft = state.copy()
    for each in decided:
        _go_on(draft, each.own)
    return draft


def _go_on(draft: SessionState, events: Iterable[AnyEvent]) -> None:
    for event in events:
        apply(draft, event)


def _sorted(events: tuple[AnyEvent, ...]) -> Decided:
    for_project = tuple(filter(_is_for_project, events))
    return Decided(events, tuple(event for event in events if not _is_for_project(event)), for_project)


def _is_for_project(event: AnyEvent) -> bool:
    return isinstance(event, GrantGiven) and event.grant.scope is GrantScope.PROJECT


def _refused(command: AnyCommand, refusal: CommandRefused) -> Decided:
    return Decided(refusal=refusal, posts=rejection_posts(command, str(refusal)))
