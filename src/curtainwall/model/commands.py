"""The commands that a session takes, named in the imperative; each of them may be refused."""

from typing import Annotated, Literal, cast, get_args

from pydantic import JsonValue, SerializerFunctionWrapHandler, ValidatorFunctionWrapHandler, WrapSerializer, WrapValidator

from curtainwall.model.approvals import GrantScope, LabelSource
from curtainwall.model.blobs import BlobRef, Payload
from curtainwall.model.budgets import BudgetKind, Limits, Usage
from curtainwall.model.events import Progress
from curtainwall.model.events.turns import TurnStatus
from curtainwall.model.events.work import SavedProgram
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import ApprovalId, CallId, Digest, GrantId, MessageId, Millis, PermitId, RuleId, SessionId, TurnId
from curtainwall.model.peers import Peer, PeerAnswer
from curtainwall.model.people import Route, Who
from curtainwall.model.subjects import Subject
from curtainwall.model.verdicts import Mode, Verdict
from curtainwall.model.workspaces import Workspace


class Command(Frozen):
    """The part that all commands have in common: who gave it."""

    by: Who


class OpenSession(Command):
    """Begin a session."""

    session: SessionId
    name: str
    agent: str
    model: str
    workspace: Workspace
    mode: Mode
    limits: Limits
    policy: Digest
    parent: SessionId | None = None
    labels: tuple[LabelSource, ...] = ()
    routes: tuple[Route, ...] = ()
    team: str = ""
    job: str = ""
    hook: str = ""
    channel: str = ""
    """The channel where its people talk; by default, the one that opens it."""


class InheritHistory(Command):
    """Inherit the parent's history."""

    parent: SessionId
    upto: int
    history: BlobRef | None
    how: Literal["fork", "reset"]
    git_directory: str = ""


class ReadySession(Command):
    """Confirm that the agent and the tools are ready."""


class RenameSession(Command):
    """Rename the session."""

    name: str


class CloseSession(Command):
    """End the session; its log and workspace remain."""

    reason: str
    at_rest: bool = False
    """Only if nothing is open in the session: no turn, no queued message, no ask."""


class ReopenSession(Command):
    """Reopen a closed session; does nothing if the session is open."""


class ChangeMode(Command):
    """Run in another mode."""

    mode: Mode


class ChangeModel(Command):
    """Use another model."""

    model: str


class DisableRule(Command):
    """Treat the asks of one rule as answered in this session."""

    rule: RuleId


class EnableRule(Command):
    """Let the rule ask again."""

    rule: RuleId


class AddLabels(Command):
    """Record that the session touched something."""

    labels: tuple[LabelSource, ...]


class AddRoute(Command):
    """Also show this session's asks at another place."""

    route: Route


class RemoveRoute(Command):
    """Stop showing this session's asks at a place."""

    route: Route


class SendMessage(Command):
    """Say something to the agent."""

    message: MessageId
    text: str
    role: Literal["human", "context"] = "human"
    proven: bool = True
    """Whether the channel itself verified the author, or relies on a third party such as a homeserver."""
    once: bool = False
    """This is a single task: the session ends when the task is done and nothing else is open."""


class WithdrawMessage(Command):
    """Withdraw a message that is still queued."""

    message: MessageId


class MessagePeer(Command):
    """Send a message to another team's session."""

    message: MessageId
    to: SessionId
    team: str
    text: str
    expires: Millis | None = None


class DeliverMessage(Command):
    """Accept a message from another team's session."""

    message: MessageId
    text: str
    peer: Peer
    labels: tuple[LabelSource, ...] = ()
    expires: Millis | None = None


class SendHeldAnswer(Command):
    """Send an answer that was waiting for approval."""

    message: MessageId


class WithholdAnswer(Command):
    """Send a notice of ours instead of an answer that may not leave."""

    message: MessageId
    why: str


class TakePeerAnswer(Command):
    """Accept the answer to a message that this session sent."""

    answer: PeerAnswer


class ExpireMessages(Command):
    """Settle the teams' messages that have waited too long."""


class StartTurn(Command):
    """Have the agent work on the queued messages."""

    turn: TurnId


class ResumeTurn(Command):
    """Continue a turn that was waiting."""

    turn: TurnId


_PROGRESS: dict[str, type[Progress]] = {kind.__name__: kind for kind in get_args(Progress)}
_KINDS = frozenset(_PROGRESS.values())


def _tag(event: Progress, tell: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
    # Some events have the same keys as others (a piece of text and a whole message), so in a command each names its type.
    return {"event": type(event).__name__, **tell(event)}


def _untag(value: object, read: ValidatorFunctionWrapHandler) -> Progress:
    if type(value) in _KINDS:
        # It was validated when it was created, and it is immutable.
        return cast("Progress", value)
    if isinstance(value, dict) and "event" in value:
        fields = dict(cast("dict[str, object]", value))
        kind = _PROGRESS.get(str(fields.pop("event")))
        return kind.model_validate(fields) if kind else read(value)
    return read(value)


TaggedProgress = Annotated[Progress, WrapSerializer(_tag), WrapValidator(_untag)]
"""An event of the agent's work, inside a command."""


class RecordProgress(Command):
    """Record events of the agent's work."""

    events: tuple[TaggedProgress, ...]


class EndTurn(Command):
    """Record how the turn ended, together with the agent's last events."""

    turn: TurnId
    status: TurnStatus
    failure: str = ""
    fault: str = ""
    waits_for: tuple[CallId, ...] = ()
    last: tuple[TaggedProgress, ...] = ()


class InterruptTurn(Command):
    """Stop the turn: a waiting one ends at once, a running one is asked to stop. With `turn`, only that turn."""

    turn: TurnId | None = None


class AskCompaction(Command):
    """Replace older messages by a summary that follows these instructions."""

    instructions: str = ""


class SetCompaction(Command):
    """Compact automatically when this share of the context is used; without a share, never."""

    threshold: float | None


class HookSays(Frozen):
    """A hook's demand on a call; it can only make the verdict stricter."""

    effect: Literal["ask", "deny"]
    hook: str
    reason: str


class RequestCall(Command):
    """Judge this subject: permit it, ask for it, or deny it."""

    call: CallId
    subject: Subject
    turn: TurnId | None = None
    hook: HookSays | None = None
    of_program: bool = False
    """A program makes the call and can be saved, if that has to be written together with the decision."""
    program: SavedProgram | None = None
    along: MessagePeer | None = None
    """The message that the call sends; if the call is permitted at once, it leaves together with the permit."""


class RefuseCall(Command):
    """Record a call that never became a subject, because of an unknown tool or meaningless arguments."""

    call: CallId
    subject: Subject
    verdict: Verdict
    turn: TurnId | None = None


class ProceedCall(Command):
    """Judge a call again, with fresh facts, after its approval was granted."""

    call: CallId
    subject: Subject


class FinishCall(Command):
    """Record the outcome of a permitted call."""

    call: CallId
    permit: PermitId
    ok: bool
    result: Payload
    shown: Payload | None = None


class DropCall(Command):
    """Drop a call that is no longer awaited; without `keep_answer`, its approval is dropped too."""

    call: CallId
    why: str
    keep_answer: bool = True


class CountDenials(Command):
    """Record how many calls were denied since the budget of logged calls ran out."""

    count: int


class AnswerApproval(Command):
    """Answer an open ask."""

    approval: ApprovalId
    granted: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str = ""
    only: tuple[str, ...] | None = None
    """The paths of a change set, relative to the project, that are accepted; None for all."""
    discard: bool = False
    """With a denial: forget the change set."""


class ExpireApprovals(Command):
    """Settle the approvals whose deadline has passed."""

    overdue: tuple[ApprovalId, ...] = ()
    """The approvals that are overdue by a monotonic clock, whatever the time of day is."""


class RevokeGrant(Command):
    """Revoke a standing answer."""

    grant: GrantId


class RaiseBudget(Command):
    """Raise a budget."""

    kind: BudgetKind
    limit: float


class CountSpending(Command):
    """Count the usage of the sessions that share this one's budget."""

    usage: Usage


class RepairSession(Command):
    """Close what a crash left open; the new owner of an orphaned session gives this command."""


AnyCommand = (
    OpenSession
    | InheritHistory
    | ReadySession
    | RenameSession
    | CloseSession
    | ReopenSession
    | ChangeMode
    | ChangeModel
    | DisableRule
    | EnableRule
    | AddLabels
    | AddRoute
    | RemoveRoute
    | SendMessage
    | WithdrawMessage
    | MessagePeer
    | DeliverMessage
    | SendHeldAnswer
    | WithholdAnswer
    | TakePeerAnswer
    | ExpireMessages
    | StartTurn
    | ResumeTurn
    | RecordProgress
    | EndTurn
    | InterruptTurn
    | AskCompaction
    | SetCompaction
    | RequestCall
    | RefuseCall
    | ProceedCall
    | FinishCall
    | DropCall
    | CountDenials
    | AnswerApproval
    | ExpireApprovals
    | RevokeGrant
    | RaiseBudget
    | CountSpending
    | RepairSession
)
