"""The slash words: the list of them, and how each is parsed. Knows nothing of sessions."""

import difflib
import re
from collections.abc import Callable
from typing import Final

from curtainwall.channels.slash import requests as want
from curtainwall.channels.slash.requests import Request, SlashUsageError
from curtainwall.model import ApprovalId, BudgetKind, GrantId, GrantScope, Mode, RuleId, StepsAsked, record

_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{6}")
_AMOUNT = re.compile(r"\$?\s*([0-9][0-9,_]*(?:\.[0-9]+)?)\s*([a-z%]*)")
_CODE = re.compile(r"[0-9a-f]{8}")
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_KINDS = {
    **{kind.value: kind for kind in BudgetKind},
    "time": BudgetKind.SECONDS,
    "money": BudgetKind.DOLLARS,
    "usd": BudgetKind.DOLLARS,
}
_MOST = 1_000


@record
class SlashWord:
    """One slash word: its syntax, what it does, and how its arguments are parsed."""

    name: str
    takes: str
    does: str
    read: Callable[[str], Request]

    @property
    def usage(self) -> str:
        """The word with its arguments."""
        return f"/{self.name} {self.takes}".rstrip()


def parse(text: str) -> Request:
    """Parse a line into a message or a slash word with its arguments; raise `SlashUsageError`."""
    stripped = text.strip()
    if not stripped.startswith("/"):
        return want.Message(text)
    if stripped.startswith("//"):
        return want.Message(stripped[1:])
    name, rest = (*stripped[1:].split(maxsplit=1), "", "")[:2]
    word = WORDS.get(name.casefold())
    if word is None:
        raise SlashUsageError(_unknown(name))
    try:
        return word.read(rest)
    except SlashUsageError as error:
        raise SlashUsageError(f"{error}; write `{word.usage}`") from None


def looks_like_an_id(text: str) -> bool:
    """Tell whether a word has the form of an approval id."""
    return _ID.fullmatch(text.casefold()) is not None


def nearest(name: str, cutoff: float = 0.6) -> str | None:
    """Return the slash word most similar to this name."""
    close = difflib.get_close_matches(name.casefold(), WORDS, n=1, cutoff=cutoff)
    return close[0] if close else None


def _unknown(name: str) -> str:
    if "/" in name:
        return f"`/{name}` is no slash word; start with `//` to send it as a message"
    close = nearest(name)
    hint = f"did you mean `/{close}`?" if close else "`/help` lists them; start with `//` to send it as a message"
    return f"there is no `/{name}`; {hint}"


# Parsers for the arguments of a word


def _no_arguments(request: Request) -> Callable[[str], Request]:
    def read(rest: str) -> Request:
        if rest:
            raise SlashUsageError("this word stands alone")
        return request

    return read


def _one(rest: str, what: str) -> str:
    words = rest.split()
    if len(words) != 1:
        raise SlashUsageError(f"name one {what}")
    return words[0]


def _name(rest: str) -> str:
    for quote in "\"'":
        if len(rest) >= 2 and rest[0] == rest[-1] == quote:
            return rest[1:-1].strip()
    return rest


def _count(rest: str, default: int) -> int:
    if not rest:
        return default
    if not rest.isdecimal() or not 0 < int(rest) <= _MOST:
        raise SlashUsageError(f"say how many, up to {_MOST}")
    return int(rest)


def _rename(rest: str) -> Request:
    if not _name(rest):
        raise SlashUsageError("say the new name")
    return want.Rename(_name(rest))


def _mode(rest: str) -> Request:
    if not rest:
        return want.SetMode(None)
    try:
        return want.SetMode(Mode(rest.casefold().replace("_", "-").replace(" ", "-")))
    except ValueError:
        raise SlashUsageError(f"there is no mode `{rest}`") from None


def _approve(rest: str) -> Request:
    words = [word for word in rest.split() if word.casefold() != "for"]
    scopes = {scope.value: scope for scope in GrantScope}
    scope = GrantScope.ONCE
    if words and words[-1].casefold() in scopes:
        scope = scopes[words.pop().casefold()]
    if len(words) > 1:
        raise SlashUsageError(f"`{' '.join(words)}` is no id")
    return want.Approve(ApprovalId(words[0].casefold()) if words else None, scope)


def _deny(rest: str) -> Request:
    first, _, reason = rest.partition(" ")
    if looks_like_an_id(first):
        return want.Deny(ApprovalId(first.casefold()), _name(reason.strip()))
    return want.Deny(None, _name(rest))


def _pending(rest: str) -> Request:
    first, _, last = rest.partition(" ")
    if first.casefold() == "after" and last:
        return want.ShowPending(after=ApprovalId(_one(last.strip(), "id").casefold()))
    return want.ShowPending(ApprovalId(_one(rest, "id").casefold()) if rest else None)


def read_budget(rest: str) -> want.Budget:
    """Parse a kind and an amount, such as `tokens 2m` or `seconds 4h`; an empty text asks for the figures."""
    if not rest:
        return want.Budget(None, 0)
    name, _, amount = rest.partition(" ")
    kind = _KINDS.get(name.casefold())
    if kind is None:
        raise SlashUsageError(f"there is no budget of `{name}`; there are tokens, steps, seconds and dollars")
    return want.Budget(kind, _amount(kind, amount.strip()))


def _amount(kind: BudgetKind, text: str) -> float:
    match = _AMOUNT.fullmatch(text.casefold())
    units = _TIMES if kind is BudgetKind.SECONDS else _COUNTS
    if match is None or match[2] not in units:
        raise SlashUsageError(f"`{text}` is no amount" if text else "say how much in all")
    return float(match[1].replace(",", "").replace("_", "")) * units[match[2]]


def _compact(rest: str) -> Request:
    words = rest.casefold().split()
    if words in (["off"], ["at", "off"], ["at", "never"]):
        return want.CompactAt(None)
    if len(words) == 2 and words[0] == "at":
        try:
            share = float(words[1].removesuffix("%")) / (100 if words[1].endswith("%") or "." not in words[1] else 1)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            raise SlashUsageError(f"`{words[1]}` is no share of the context")
        return want.CompactAt(share)
    return want.Compact(rest)


def _steps(rest: str, *, redo: bool) -> Request:
    count, force, code = 1, False, ""
    for word in rest.casefold().split():
        if word in ("force", "--force"):
            force = True
        elif _CODE.fullmatch(word):
            code = word
        else:
            count = _count(word, 1)
    return want.MoveSteps(StepsAsked(redo=redo, count=count, force=force), code)


def _close(rest: str) -> Request:
    first, _, last = rest.partition(" ")
    return want.Close(_name(last.strip()), force=True) if first == "--force" else want.Close(_name(rest))


def _help(rest: str) -> Request:
    name = rest.removeprefix("/").casefold()
    if name and name not in WORDS:
        raise SlashUsageError(_unknown(name))
    return want.Help(name)


WORDS: Final[dict[str, SlashWord]] = {
    word.name: word
    for word in (
        SlashWord("help", "[WORD]", "list the slash words, or say what one does", _help),
        SlashWord("approve", "[ID] [once|session|project]", "approve an ask: once, for the session or for the project", _approve),
        SlashWord("deny", "[ID] [REASON]", "deny an ask, with a reason for the agent", _deny),
        SlashWord("pending", "[ID | after ID]", "list the open asks, or those after one; or show one exactly as it is logged", _pending),
        SlashWord("why", "ID", "explain why an ask or a call was judged as it was", lambda rest: want.Why(_one(rest, "approval or call"))),
        SlashWord("interrupt", "", "stop the running turn and keep what was said", _no_arguments(want.Interrupt())),
        SlashWord("mode", "[plan|review|ask|accept-edits|bypass]", "show or change how much is done without asking", _mode),
        SlashWord("model", "[NAME]", "show or change the model", lambda rest: want.SetModel(_name(rest))),
        SlashWord("rules", "", "list the rules in force", _no_arguments(want.ShowRules())),
        SlashWord(
            "disable", "RULE", "let the asks of one rule count as answered here", lambda rest: want.Disable(RuleId(_one(rest, "rule")))
        ),
        SlashWord("enable", "RULE", "let a disabled rule ask again", lambda rest: want.Enable(RuleId(_one(rest, "rule")))),
        SlashWord("grants", "", "list the answers that stand in this session", _no_arguments(want.Grants())),
        SlashWord(
            "revoke",
            "GRANT|all",
            "take a standing answer back, or all those of this session",
            lambda rest: want.Revoke(GrantId(_one(rest, "grant").casefold())),
        ),
        SlashWord("budget", "[tokens|steps|seconds|dollars AMOUNT]", "show what is used up, or allow so much in all", read_budget),
        SlashWord("context", "", "show how full the model's context is", _no_arguments(want.Context())),
        SlashWord("compact", "[INSTRUCTIONS | at 70% | off]", "summarise older messages now, or say when that happens by itself", _compact),
        SlashWord("history", "[COUNT]", "show what was said", lambda rest: want.History(_count(rest, 20))),
        SlashWord("logs", "[COUNT]", "say where the log is and show its last events", lambda rest: want.Logs(_count(rest, 15))),
        SlashWord("session", "", "show what this session is", _no_arguments(want.ShowSession())),
        SlashWord("sessions", "[TEXT]", "list sessions, the most recently active first", want.ListSessions),
        SlashWord("new", "[NAME]", "open another session and go there", lambda rest: want.New(_name(rest))),
        SlashWord(
            "reset",
            "[NAME]",
            "start afresh in the same workspace, without history and grants; labels remain",
            lambda rest: want.Reset(_name(rest)),
        ),
        SlashWord(
            "resume", "[ID]", "go to another session, by the beginning of its id or by its name", lambda rest: want.Resume(_name(rest))
        ),
        SlashWord("fork", "[NAME]", "go on in a copy that knows what this session knows", lambda rest: want.Fork(_name(rest))),
        SlashWord("rename", "NAME", "give this session another name", _rename),
        SlashWord("skills", "", "list the skills of this session, and which of them ask", _no_arguments(want.ShowSkills())),
        SlashWord("memory", "", "show what sessions here can recall, and where it is kept", _no_arguments(want.ShowMemory())),
        SlashWord("changes", "", "list what was last presented as changes of the project", _no_arguments(want.ShowChanges())),
        SlashWord("diff", "[FILE]", "show those changes line by line, or those of one file", lambda rest: want.ShowDifference(_name(rest))),
        SlashWord(
            "undo",
            "[STEPS] [force] [CODE]",
            "show what would take back what was accepted last; with its code, do it",
            lambda rest: _steps(rest, redo=False),
        ),
        SlashWord(
            "redo",
            "[STEPS] [force] [CODE]",
            "show what would apply again what was taken back; with its code, do it",
            lambda rest: _steps(rest, redo=True),
        ),
        SlashWord("clear", "", "clear the screen; nothing is forgotten", _no_arguments(want.Clear())),
        SlashWord("close", "[--force] [REASON]", "end this session; its log and workspace stay, and it can be resumed", _close),
        SlashWord("quit", "", "leave; the session stays open, and so do its asks", _no_arguments(want.Quit())),
        SlashWord("exit", "", "the same as /quit", _no_arguments(want.Quit())),
    )
}
"""Every slash word, in the order in which `/help` lists them."""
