"""What someone wants of a session, in the imperative; any of them may be refused."""

from typing import Annotated, Literal, cast, get_args

from pydantic import JsonValue, SerializerFunctionWrapHandler, ValidatorFunctionWrapHandler, WrapSerializer, WrapValidator

from curtainwall.model.approvals import GrantScope, LabelSource
from curtainwall.model.blobs import BlobRef, Payload
from curtainwall.model.budgets import BudgetKind, Limits, Usage
from curtainwall.model.events import Progress
from curtainwall.model.events.life import Workspace
from curtainwall.model.events.turns import TurnStatus
from curtainwall.model.events.work import SavedProgram
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import ApprovalId, CallId, Digest, GrantId, MessageId, Millis, PermitId, RuleId, SessionId, TurnId
from curtainwall.model.peers import Peer, PeerAnswer
from curtainwall.model.people import Route, Who
from curtainwall.model.subjects import Subject
from curtainwall.model.verdicts import Mode, Verdict


class Command(Frozen):
    """The common part of every wish: who has it."""

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
    """Where its people talk; left out, where whoever opens it does."""


class InheritHistory(Command):
    """Take over what the parent knew."""

    parent: SessionId
    upto: int
    history: BlobRef | None
    how: Literal["fork", "reset"]
    git_directory: str = ""


class ReadySession(Command):
    """Say that agent and tools are there."""


class RenameSession(Command):
    """Give the session another name."""

    name: str


class CloseSession(Command):
    """End the session; log and workspace stay."""

    reason: str
    at_rest: bool = False
    """Only if nothing is open in it: no turn, no queued message, no ask."""


class ReopenSession(Command):
    """Open a closed session again; does nothing to one that is open."""


class ChangeMode(Command):
    """Run in another mode."""

    mode: Mode


class ChangeModel(Command):
    """Use another model."""

    model: str


class DisableRule(Command):
    """Let the asks of one rule count as answered in this session."""

    rule: RuleId


class EnableRule(Command):
    """Let the rule ask again."""

    rule: RuleId


class AddLabels(Command):
    """Record that the session touched something."""

    labels: tuple[LabelSource, ...]


class AddRoute(Command):
    """Show this session's asks at another place too."""

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
    """Whether the channel knows who wrote it, or only has somebody else's word for that, as a homeserver's."""
    once: bool = False
    """It is a single task: the session ends when the task is done and nothing else is open."""


class WithdrawMessage(Command):
    """Take back a message that still waits in the queue."""

    message: MessageId


class MessagePeer(Command):
    """Send a message to another team's session."""

    message: MessageId
    to: SessionId
    team: str
    text: str
    expires: Millis | None = None


class DeliverMessage(Command):
    """Take in a message that another team's session sent."""

    message: MessageId
    text: str
    peer: Peer
    labels: tuple[LabelSource, ...] = ()
    expires: Millis | None = None


class SendHeldAnswer(Command):
    """Let an answer go that waited for a yes."""

    message: MessageId


class WithholdAnswer(Command):
    """Send words of ours in place of an answer that may not leave."""

    message: MessageId
    why: str


class TakePeerAnswer(Command):
    """Take in the answer to a message of this session."""

    answer: PeerAnswer


class ExpireMessages(Command):
    """Settle the waiting messages of teams whose time is over."""


class StartTurn(Command):
    """Let the agent take up what is queued."""

    turn: TurnId


class ResumeTurn(Command):
    """Let a waiting turn go on."""

    turn: TurnId


_PROGRESS: dict[str, type[Progress]] = {kind.__name__: kind for kind in get_args(Progress)}
_KINDS = frozenset(_PROGRESS.values())


def _tag(event: Progress, tell: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
    # Some events have the same keys as others (a piece of text and a whole message), so in a command each says which it is.
    return {"event": type(event).__name__, **tell(event)}


def _untag(value: object, read: ValidatorFunctionWrapHandler) -> Progress:
    if type(value) in _KINDS:
        # It was read when it was made, and cannot have changed since.
        return cast("Progress", value)
    if isinstance(value, dict) and "event" in value:
        fields = dict(cast("dict[str, object]", value))
        kind = _PROGRESS.get(str(fields.pop("event")))
        return kind.model_validate(fields) if kind else read(value)
    return read(value)


TaggedProgress = Annotated[Progress, WrapSerializer(_tag), WrapValidator(_untag)]
"""Something that an agent told of its work, inside a command."""


class RecordProgress(Command):
    """Keep what the agent told of its work."""

    events: tuple[TaggedProgress, ...]


class EndTurn(Command):
    """Say how the turn ended, and keep what the agent told last along with it."""

    turn: TurnId
    status: TurnStatus
    failure: str = ""
    fault: str = ""
    waits_for: tuple[CallId, ...] = ()
    last: tuple[TaggedProgress, ...] = ()


class InterruptTurn(Command):
    """Stop the turn: one that waits ends at once, one that works is asked to. Where a turn is named, no other is stopped."""

    turn: TurnId | None = None


class AskCompaction(Command):
    """Replace older messages by a summary, with an eye on these instructions."""

    instructions: str = ""


class SetCompaction(Command):
    """Compact when this share of the context is used, or never by itself."""

    threshold: float | None


class HookSays(Frozen):
    """What a hook wants for a call: it can only make a verdict stricter."""

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
    """A program makes the call, and can be saved where that has to be written along with the decision."""
    program: SavedProgram | None = None
    along: MessagePeer | None = None
    """The message that the call is about: where the call is permitted at once, it leaves together with the permit."""


class RefuseCall(Command):
    """Record a call that never became a subject: an unknown tool, arguments that mean nothing."""

    call: CallId
    subject: Subject
    verdict: Verdict
    turn: TurnId | None = None


class ProceedCall(Command):
    """Look again at a call whose approval was granted, with facts made anew."""

    call: CallId
    subject: Subject


class FinishCall(Command):
    """Record what came of a permitted call."""

    call: CallId
    permit: PermitId
    ok: bool
    result: Payload
    shown: Payload | None = None


class DropCall(Command):
    """Say that nobody waits for this call any more; without `keep_answer`, a yes that it had goes with it."""

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


class ExpireApprovals(Command):
    """Settle the approvals whose deadline has passed."""

    overdue: tuple[ApprovalId, ...] = ()
    """Those whose time is over by a clock that nobody sets, whatever the time of day is now."""


class RevokeGrant(Command):
    """Take a standing answer back."""

    grant: GrantId


class RaiseBudget(Command):
    """Allow more of something."""

    kind: BudgetKind
    limit: float


class CountSpending(Command):
    """Count what the sessions that share this one's budget have used."""

    usage: Usage


class RepairSession(Command):
    """Close what a crash left open; given by whoever takes over a session that had no owner."""


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
