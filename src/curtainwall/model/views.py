"""A session as channels show it: built from the log on each request, and never read by a decision."""

from typing import Final, Literal

from curtainwall.model.approvals import Grant, LabelSource
from curtainwall.model.budgets import Basis, BudgetKind
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import ApprovalId, CallId, MessageId, Millis, RuleId, SessionId
from curtainwall.model.listings import SessionStatus
from curtainwall.model.records import record
from curtainwall.model.subjects import Subject
from curtainwall.model.verdicts import Effect, Mode
from curtainwall.model.workspaces import Workspace

BUILTIN_AGENT: Final = "builtin"
"""Our own agent. It parks while a human is asked; every other agent holds its call open."""


class QueuedMessage(Frozen):
    """A message that waits for the agent's next turn and can still be withdrawn."""

    message: MessageId
    text: str
    by: str


class PendingAsk(Frozen):
    """An open approval with everything that a human needs to answer it; `shown` is the exact text that the answer is about."""

    approval: ApprovalId
    call: CallId
    subject: Subject
    because: tuple[RuleId, ...]
    shown: str
    asked: Millis
    deadline: Millis | None
    shared_by: int


class BudgetFigure(Frozen):
    """How much of one budget is used, and how certain that is."""

    kind: BudgetKind
    used: float
    limit: float
    basis: Basis


class ContextUse(Frozen):
    """How full the model's context is; at `threshold`, if set, it is compacted automatically."""

    used: int
    size: int
    measured: bool
    threshold: float | None


class SessionView(Frozen):
    """Everything that a channel shows of a session besides its conversation."""

    session: SessionId
    name: str
    agent: str
    model: str
    mode: Mode
    status: SessionStatus
    workspace: Workspace
    created: Millis
    turns: int
    parent: SessionId | None
    labels: tuple[LabelSource, ...]
    disabled: tuple[RuleId, ...]
    queue: tuple[QueuedMessage, ...]
    pending: tuple[PendingAsk, ...]
    grants: tuple[Grant, ...]
    budget: tuple[BudgetFigure, ...]
    exhausted: tuple[BudgetKind, ...]
    context: ContextUse


class RuleStatus(Frozen):
    """A rule in one session: whether and why it is in force there now, and how often it asked."""

    rule: RuleId
    title: str
    reason: str
    kind: Literal["allow", "ask", "deny", "label", "structural"]
    source: str
    text: str
    status: Literal["active", "inactive", "disabled"]
    why: str
    asked: int
    labels: tuple[LabelSource, ...]


class DecidingRule(Frozen):
    """A rule that decided, its place in a file, and its purpose."""

    rule: RuleId
    source: str
    reason: str


class VerdictReport(Frozen):
    """Why a call was judged as it was: the decision then, the verdict of the current rules, and what would change it."""

    call: CallId
    tool: str
    then: tuple[str, ...]
    now: Effect
    rules: tuple[DecidingRule, ...]
    facts: tuple[str, ...]
    labels: tuple[str, ...]
    changes: tuple[str, ...]


class Opening(Frozen):
    """A request for a session: a new one, a fork, or a fresh start in the workspace of another."""

    how: Literal["new", "fork", "reset"]
    of: SessionId | None = None
    name: str = ""


class Opened(Frozen):
    """The session that was opened, and what the user should know about it."""

    session: SessionId
    notes: tuple[str, ...] = ()


@record
class StepsAsked:
    """Which accepted changes somebody wants to take back or, with `redo`, to apply again; `force` overwrites what was changed since."""

    redo: bool = False
    count: int = 1
    force: bool = False
