"""A project's own small stream: the grants that stand for every session that works there."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from curtainwall.model import AnyEvent, Grant, GrantGiven, GrantId, GrantRevoked, Moment, NotFound, RevokeGrant
from curtainwall.session.rules import Rules


@dataclass(frozen=True, slots=True)
class ProjectState:
    """The fold of a project's log, and where it ends."""

    seq: int = 0
    grants: dict[GrantId, Grant] = field(default_factory=dict[GrantId, Grant])


def fold_project(events: Iterable[AnyEvent], state: ProjectState | None = None) -> ProjectState:
    """Return the state after the events; what a project does not know is none of its business."""
    before = state or ProjectState()
    grants, seq = dict(before.grants), before.seq
    for event in events:
        seq += 1
        if isinstance(event, GrantGiven):
            grants[event.grant.id] = event.grant
        elif isinstance(event, GrantRevoked):
            grants.pop(event.grant, None)
    return ProjectState(seq, grants)


def decide_project(state: ProjectState, command: RevokeGrant, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Take back a grant of the project."""
    rules.see_operator(command.by, "revoke")
    if command.grant not in state.grants:
        raise NotFound(f"there is no grant `{command.grant}` in this project")
    return (GrantRevoked(at=moment.at, grant=command.grant, by=command.by),)
