"""The requests of slash words, as values; everything else is a `Message`."""

from dataclasses import dataclass

from curtainwall.model import ApprovalId, BudgetKind, CurtainwallError, GrantId, GrantScope, Mode, RuleId


class SlashUsageError(CurtainwallError):
    """An unknown or malformed slash word; the message says how to write it."""


@dataclass(frozen=True, slots=True)
class Message:
    """Text for the agent."""

    text: str


@dataclass(frozen=True, slots=True)
class Help:
    """List all words, or explain one."""

    word: str = ""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Clear the screen."""


@dataclass(frozen=True, slots=True)
class Logs:
    """Show where the log is, and its last events."""

    count: int


@dataclass(frozen=True, slots=True)
class History:
    """Show the last messages."""

    count: int


@dataclass(frozen=True, slots=True)
class ShowSession:
    """Describe this session."""


@dataclass(frozen=True, slots=True)
class ListSessions:
    """List sessions, optionally only those with a text in their name or workspace."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class New:
    """Open another session."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """Start afresh in the same workspace."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Fork:
    """Continue in a copy with the same history."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go to another session, by a prefix of its id or by its name; without either, list them."""

    session: str = ""


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename this session."""

    name: str


@dataclass(frozen=True, slots=True)
class Close:
    """End this session, also with open work if `force` is set."""

    reason: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class ShowRules:
    """List the rules in force."""


@dataclass(frozen=True, slots=True)
class Enable:
    """Let a disabled rule ask again."""

    rule: RuleId


@dataclass(frozen=True, slots=True)
class Disable:
    """Let a rule's asks count as answered."""

    rule: RuleId


@dataclass(frozen=True, slots=True)
class SetMode:
    """Change the mode, or show it."""

    mode: Mode | None


@dataclass(frozen=True, slots=True)
class SetModel:
    """Change the model, or show it."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve this ask, or the only one."""

    approval: ApprovalId | None
    scope: GrantScope = GrantScope.ONCE


@dataclass(frozen=True, slots=True)
class Deny:
    """Deny this ask, or the only one."""

    approval: ApprovalId | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ShowPending:
    """List the open asks, all or those after one of them, or show one in full."""

    approval: ApprovalId | None = None
    after: ApprovalId | None = None


@dataclass(frozen=True, slots=True)
class Grants:
    """List the standing approvals."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Revoke a standing approval."""

    grant: GrantId


@dataclass(frozen=True, slots=True)
class Budget:
    """Raise a budget to a total, or show the figures."""

    kind: BudgetKind | None
    limit: float


@dataclass(frozen=True, slots=True)
class Context:
    """Show how full the model's context is."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Summarise older messages now."""

    instructions: str = ""


@dataclass(frozen=True, slots=True)
class CompactAt:
    """Set when to summarise automatically, or never."""

    threshold: float | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the running turn."""


@dataclass(frozen=True, slots=True)
class ShowSkills:
    """List the skills of this session."""


@dataclass(frozen=True, slots=True)
class ShowMemory:
    """Show what is remembered beyond this session."""


@dataclass(frozen=True, slots=True)
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

Look = Help | Logs | History | ShowSession | ListSessions | ShowRules | ShowPending | Grants | Context | ShowSkills | ShowMemory | Why
"""Requests that show something and change nothing."""

Request = Talk | Reply | Setting | Move | Look | Quit | Clear
