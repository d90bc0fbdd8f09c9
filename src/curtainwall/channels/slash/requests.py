"""The requests of slash words, as values; everything else is a `Message`."""

from curtainwall.model import ApprovalId, BudgetKind, CurtainwallError, GrantId, GrantScope, Mode, RuleId, StepsAsked, record


class SlashUsageError(CurtainwallError):
    """An unknown or malformed slash word; the message says how to write it."""


@record
class Message:
    """Text for the agent."""

    text: str


@record
class Help:
    """List all words, or explain one."""

    word: str = ""


@record
class Quit:
    """Leave."""


@record
class Clear:
    """Clear the screen."""


@record
class Logs:
    """Show where the log is, and its last events."""

    count: int


@record
class History:
    """Show the last messages."""

    count: int


@record
class ShowSession:
    """Describe this session."""


@record
class ListSessions:
    """List sessions, optionally only those with a text in their name or workspace."""

    text: str = ""


@record
class New:
    """Open another session."""

    name: str = ""


@record
class Reset:
    """Start afresh in the same workspace."""

    name: str = ""


@record
class Fork:
    """Continue in a copy with the same history."""

    name: str = ""


@record
class Resume:
    """Go to another session, by a prefix of its id or by its name; without either, list them."""

    session: str = ""


@record
class Rename:
    """Rename this session."""

    name: str


@record
class Close:
    """End this session, also with open work if `force` is set."""

    reason: str = ""
    force: bool = False


@record
class ShowRules:
    """List the rules in force."""


@record
class Enable:
    """Let a disabled rule ask again."""

    rule: RuleId


@record
class Disable:
    """Let a rule's asks count as answered."""

    rule: RuleId


@record
class SetMode:
    """Change the mode, or show it."""

    mode: Mode | None


@record
class SetModel:
    """Change the model, or show it."""

    name: str = ""


@record
class Approve:
    """Approve this ask, or the only one."""

    approval: ApprovalId | None
    scope: GrantScope = GrantScope.ONCE


@record
class Deny:
    """Deny this ask, or the only one."""

    approval: ApprovalId | None
    reason: str = ""


@record
class ShowPending:
    """List the open asks, all or those after one of them, or show one in full."""

    approval: ApprovalId | None = None
    after: ApprovalId | None = None


@record
class Grants:
    """List the standing approvals."""


@record
class Revoke:
    """Revoke a standing approval."""

    grant: GrantId


@record
class Budget:
    """Raise a budget to a total, or show the figures."""

    kind: BudgetKind | None
    limit: float


@record
class Context:
    """Show how full the model's context is."""


@record
class Compact:
    """Summarise older messages now."""

    instructions: str = ""


@record
class CompactAt:
    """Set when to summarise automatically, or never."""

    threshold: float | None


@record
class Interrupt:
    """Stop the running turn."""


@record
class ShowSkills:
    """List the skills of this session."""


@record
class ShowMemory:
    """Show what is remembered beyond this session."""


@record
class ShowChanges:
    """List what was last presented as changes of the project."""


@record
class ShowDifference:
    """Show the differences of what was last presented, or of one file."""

    path: str = ""


@record
class MoveSteps:
    """Show what taking accepted changes back, or applying them again, would write; with its code, do it."""

    steps: StepsAsked
    code: str = ""


@record
class Why:
    """Explain why an ask or a call was judged as it was."""

    about: str


Talk = Message | Interrupt | Compact | CompactAt
"""Requests for the agent, or about its work."""

Reply = Approve | Deny | Revoke
"""Requests that answer an ask or revoke an answer."""

Setting = Rename | Close | Enable | Disable | SetMode | SetModel | Budget
"""Requests that change the session, or show what could be changed."""

Move = New | Reset | Fork | Resume
"""Requests that lead to another session."""

Look = (
    Help
    | Logs
    | History
    | ShowSession
    | ListSessions
    | ShowRules
    | ShowPending
    | Grants
    | Context
    | ShowSkills
    | ShowMemory
    | ShowChanges
    | ShowDifference
    | Why
)
"""Requests that show something and change nothing."""

Request = Talk | Reply | Setting | Move | MoveSteps | Look | Quit | Clear
