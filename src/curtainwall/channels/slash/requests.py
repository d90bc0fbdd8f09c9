"""What somebody can want with a slash word, as values; `Message` is everything that is none."""

from dataclasses import dataclass

from curtainwall.model import ApprovalId, BudgetKind, CurtainwallError, GrantId, GrantScope, Mode, RuleId


class SlashUsageError(CurtainwallError):
    """A slash word that does not exist or was not written as it should be; the message says how."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something for the agent."""

    text: str


@dataclass(frozen=True, slots=True)
class Help:
    """All words, or what one does."""

    word: str = ""


@dataclass(frozen=True, slots=True)
class Quit:
    """To leave."""


@dataclass(frozen=True, slots=True)
class Clear:
    """An empty screen."""


@dataclass(frozen=True, slots=True)
class Logs:
    """The place of the log, and its last events."""

    count: int


@dataclass(frozen=True, slots=True)
class History:
    """What was said last."""

    count: int


@dataclass(frozen=True, slots=True)
class ShowSession:
    """What this session is."""


@dataclass(frozen=True, slots=True)
class ListSessions:
    """A list of sessions, perhaps only those with a text in name or workspace."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class New:
    """Another session."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """A fresh start in the same workspace."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Fork:
    """A copy that knows what this session knows."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """To go to another session, by the beginning of its id or by its name; without one, a list."""

    session: str = ""


@dataclass(frozen=True, slots=True)
class Rename:
    """Another name for this session."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowRules:
    """The rules in force."""


@dataclass(frozen=True, slots=True)
class Enable:
    """A disabled rule that should ask again."""

    rule: RuleId


@dataclass(frozen=True, slots=True)
class Disable:
    """A rule whose asks should count as answered."""

    rule: RuleId


@dataclass(frozen=True, slots=True)
class SetMode:
    """Another mode, or only to see which it is."""

    mode: Mode | None


@dataclass(frozen=True, slots=True)
class SetModel:
    """Another model, or only to see which it is."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Approve:
    """A yes, to this ask or to the only one."""

    approval: ApprovalId | None
    scope: GrantScope = GrantScope.ONCE


@dataclass(frozen=True, slots=True)
class Deny:
    """A no, to this ask or to the only one."""

    approval: ApprovalId | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ShowPending:
    """The open asks, all or those behind one of them, or a single one in full."""

    approval: ApprovalId | None = None
    after: ApprovalId | None = None


@dataclass(frozen=True, slots=True)
class Grants:
    """The answers that stand."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """A standing answer to take back."""

    grant: GrantId


@dataclass(frozen=True, slots=True)
class Budget:
    """So much of something in all, or only to see the figures."""

    kind: BudgetKind | None
    limit: float


@dataclass(frozen=True, slots=True)
class Context:
    """How full the model's context is."""


@dataclass(frozen=True, slots=True)
class Compact:
    """A summary in place of older messages, now."""

    instructions: str = ""


@dataclass(frozen=True, slots=True)
class CompactAt:
    """When to summarise without being asked, or never."""

    threshold: float | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The end of the running turn."""


@dataclass(frozen=True, slots=True)
class SkillsWanted:
    """The skills of this session."""


@dataclass(frozen=True, slots=True)
class MemoryWanted:
    """What is remembered beyond this session."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why an ask or a call was judged as it was."""

    about: str


Talk = Message | Interrupt | Compact | CompactAt
"""What goes to the agent, or to its work."""

Reply = Approve | Deny | Revoke
"""What answers an ask, or takes an answer back."""

Setting = Rename | Enable | Disable | SetMode | SetModel | Budget
"""What changes the session, or shows what could be changed."""

Move = New | Reset | Fork | Resume
"""What leads to another session."""

Look = Help | Logs | History | ShowSession | ListSessions | ShowRules | ShowPending | Grants | Context | SkillsWanted | MemoryWanted | Why
"""What shows something and changes nothing."""

Request = Talk | Reply | Setting | Move | Look | Quit | Clear
