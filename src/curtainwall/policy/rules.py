"""Rules as people see them: their files, a card for each, and how each uses `context.approved`."""

import re
from collections.abc import Iterator
from pkgutil import get_data
from typing import Final, Literal, cast

from curtainwall.model import Broken, Label, Role, RuleId, record
from curtainwall.policy.cedar import Expr, WrittenRule
from curtainwall.policy.coverage import misspelt, needs


@record
class RuleSource:
    """One rule file: its name as people know it, its text, whether a user wrote it, and whether it may only forbid."""

    name: str
    text: str
    user: bool
    narrows: bool = False


def _read_packaged(name: str) -> str:
    # The only I/O in this package: package data belongs to the code and is read once, on import.
    content = get_data("curtainwall.policy", f"shipped/{name}")
    assert content is not None, f"`{name}` is missing from the installation"
    return content.decode()


SCHEMA = _read_packaged("schema.cedarschema")
SHIPPED = ("default.cedar", "labels.cedar")
"""The names of the rule files that ship with Curtainwall."""

_SOURCES = tuple(RuleSource(name, _read_packaged(name), user=False) for name in SHIPPED)


def shipped() -> tuple[RuleSource, ...]:
    """Return the rule files that ship with Curtainwall."""
    return _SOURCES


_CONTEXT = {"Var": "context"}


def is_monotonic(rule: Expr) -> bool:
    """Tell whether approval can only move this rule towards allowing: a permit may start to apply, a forbid may stop."""
    permits = rule["effect"] == "permit"
    return all(_changes_only(body, upwards=permits is wanted) for wanted, body in _conditions(rule))


def needs_approval(rule: Expr) -> bool:
    """Tell whether a rule reads `context.approved` at all."""
    return any(_mentions(body) for _, body in _conditions(rule))


def kind_of(rule: Expr) -> Literal["allow", "ask", "deny"]:
    """Return what a rule does: a forbid that approval does not always lift denies, a permit that needs approval asks."""
    bodies = list(_conditions(rule))
    if not needs_approval(rule):
        return "allow" if rule["effect"] == "permit" else "deny"
    if rule["effect"] == "permit":
        return "ask"
    lifted = any(_value_when_approved(body) is not wanted and _value_when_approved(body) is not None for wanted, body in bodies)
    return "ask" if lifted else "deny"


def _conditions(rule: Expr) -> Iterator[tuple[bool, Expr]]:
    """Yield each condition with the value it must have for the rule to apply."""
    for condition in cast("list[Expr]", rule["conditions"]):
        yield condition["kind"] == "when", cast("Expr", condition["body"])


def _changes_only(expr: Expr, *, upwards: bool) -> bool:
    """Tell whether approval can change this expression only in the given direction."""
    if not _mentions(expr):
        return True
    if _is_approved(expr):
        return upwards
    ((op, args),) = expr.items()
    inner = cast("dict[str, Expr]", args)
    match op:
        case "&&" | "||":
            return _changes_only(inner["left"], upwards=upwards) and _changes_only(inner["right"], upwards=upwards)
        case "!":
            return _changes_only(inner["arg"], upwards=not upwards)
        case "if-then-else":
            branches = _changes_only(inner["then"], upwards=upwards) and _changes_only(inner["else"], upwards=upwards)
            return branches and not _mentions(inner["if"])
        case _:
            return False


def _value_when_approved(expr: Expr) -> bool | None:
    """Return the value of an expression once approved, or None if it depends on something else."""
    if _is_approved(expr):
        return True
    ((op, args),) = expr.items()
    if op == "Value":
        return args if isinstance(args, bool) else None
    inner = cast("dict[str, Expr]", args)
    match op:
        case "&&" | "||":
            deciding = op == "||"
            sides = (_value_when_approved(inner["left"]), _value_when_approved(inner["right"]))
            if deciding in sides:
                return deciding
            return None if None in sides else not deciding
        case "!":
            value = _value_when_approved(inner["arg"])
            return None if value is None else not value
        case _:
            return None


def _is_approved(expr: object) -> bool:
    return expr == {".": {"left": _CONTEXT, "attr": "approved"}}


def _mentions(expr: object) -> bool:
    """Tell whether an expression reads `context.approved`, by name or as part of the whole context."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if _is_approved(node) or node == _CONTEXT:
            return True
        if isinstance(node, dict):
            inner = cast("dict[str, object]", node)
            pending.extend(inner.values() if not _reads_other_attribute(inner) else ())
        elif isinstance(node, list):
            pending.extend(cast("list[object]", node))
    return False


def _reads_other_attribute(node: dict[str, object]) -> bool:
    """Tell whether a node reads an attribute of the context other than `approved`, which the caller has excluded, or tests for one."""
    for op in (".", "has"):
        args = node.get(op)
        if isinstance(args, dict) and cast("dict[str, object]", args).get("left") == _CONTEXT:
            return True
    return False


Kind = Literal["allow", "ask", "deny", "label", "structural"]

_ID = re.compile(r"[a-z][a-z0-9]*(?:[-.][a-z0-9]+)*")
_LONGEST_ID = 64
_LABEL_ACTION = {"type": "Action", "id": "label"}


@record
class RuleCard:
    """A rule for display: its id, title, reason, kind, file and text."""

    id: RuleId
    title: str
    reason: str
    kind: Kind
    source: str
    text: str
    labels: tuple[str, ...] = ()
    """The labels without which it does not apply."""
    modes: tuple[str, ...] = ()
    """The modes in which it applies; empty for all."""


@record
class Rule:
    """A rule from a file: its card, its text and expression, and the label it sets, if any."""

    card: RuleCard
    written: WrittenRule
    label: Label | None

    @property
    def expr(self) -> Expr:
        """Return the rule as Cedar reads it."""
        return self.written.expr


def _structural(name: str, title: str, reason: str) -> RuleCard:
    return RuleCard(RuleId(name), title, reason, "structural", "built in", "")


PROTECTED_PATH = RuleId("protected-path")
UNKNOWN_TOOL = RuleId("unknown-tool")
NO_RESOURCES = RuleId("no-resources")
NO_RULE = RuleId("no-rule")
POLICY_ERROR = RuleId("policy-error")

PROJECT_EDIT: Final = RuleId("project-edit")
"""The one shipped rule whose asks the mode `accept-edits` answers."""

NEVER_BYPASSED: Final = (Role.USE_CREDENTIAL, Role.RAISE_BUDGET)
"""Roles that the mode `bypass` does not answer for."""

STRUCTURAL = (
    _structural(UNKNOWN_TOOL, "Tools that are not in the catalogue do not exist", "nobody said what their arguments mean"),
    _structural("invalid-arguments", "Arguments must fit the tool's schema exactly", "what cannot be read in one way is not run"),
    _structural("masked-arguments", "Masked secrets are not written", "the mask would take the place of the real one"),
    _structural("known-credential", "Credentials of the house are not part of calls", "whoever needs one names it instead"),
    _structural("tool-changed", "A tool that describes itself anew is suspended", "a human reviewed something else"),
    _structural(NO_RESOURCES, "A call that says nothing to judge is refused", "no rule could see what it does"),
    _structural("too-many-resources", "One call touches a bounded number of things", "nobody can judge a flood"),
    _structural(PROTECTED_PATH, "Protected paths are closed", "they hold keys, or what this house itself runs on"),
    _structural(NO_RULE, "What no rule knows is refused", "there is no rule that allows it or asks for it"),
    _structural(POLICY_ERROR, "A rule that cannot be evaluated refuses", "a rule that is skipped would not forbid"),
    _structural("repeated-call", "The same call over and over is stopped", "a loop is not a plan"),
    _structural("call-budget", "A session makes a bounded number of calls", "its log would grow for ever"),
    _structural("plan-too-long", "A plan that cannot be shown whole is not asked about", "nobody can approve what they do not see"),
    _structural("ask-storm", "A storm of asks is stopped", "no human can judge that many"),
    _structural("team-askers", "A team is asked only by those who may", "its `askers` say who that is"),
    _structural("job-gone", "Sessions of a job that is gone do nothing", "its rules went with it; put it back, or begin a new session"),
    _structural("team-gone", "Sessions of a team that is gone do nothing", "its rules went with it; put it back, or begin a new session"),
    _structural(
        "webhook-gone", "Sessions of a webhook that is gone do nothing", "its rules went with it; put it back, or begin a new session"
    ),
    _structural("no-route", "Without anyone to ask, nothing is asked", "nobody can be reached from this session"),
)
"""Rules that apply before any rule file and cannot be switched off; other packages refuse with these ids too."""

# The last four are outcomes of single calls: a verdict that names one must not seem to come from a rule.
_RESERVED = frozenset((*(card.id for card in STRUCTURAL), "denied-by-human", "approval-expired", "call-dropped", "wrong-permit"))


def read_rule(source: RuleSource, written: WrittenRule, number: int) -> Rule:
    """Return a rule of a file; if it could not apply as written, raise `Broken` with the file, the rule and what to do."""
    expr = written.expr
    annotations = cast("dict[str, str | None]", expr.get("annotations", {}))
    name = annotations.get("id") or ""
    where = (
        f"`{source.name}`, line {written.line}, rule `{name}`" if name else f"`{source.name}`, line {written.line}, rule number {number}"
    )
    if not name:
        raise Broken(f'{where} has no id; write `@id("my-rule")` before it')
    if not _ID.fullmatch(name) or len(name) > _LONGEST_ID:
        raise Broken(f"{where}: an id has at most {_LONGEST_ID} lower-case letters and digits, joined by `-` or `.`; rename it")
    if name in _RESERVED:
        raise Broken(f"{where}: this id belongs to a structural rule; choose another")
    for fault in misspelt(expr):
        raise Broken(f"{where}: {fault}")
    label = _label_of(where, expr, annotations)
    if label is None and not is_monotonic(expr):
        raise Broken(
            f"{where}: a yes would make this stricter; use `context.approved` plainly, in `when` of a permit or `unless` of a forbid"
        )
    if label is None and source.narrows and expr["effect"] == "permit":
        raise Broken(
            f"{where}: the file of one team, job or webhook only narrows what holds for all; "
            "write a `forbid`, or put the rule into `policy/`"
        )
    kind = "label" if label is not None else kind_of(expr)
    title = annotations.get("title") or name.replace("-", " ")
    labels, modes = needs(expr)
    card = RuleCard(RuleId(name), title, annotations.get("reason") or "", kind, source.name, written.text, labels, modes)
    return Rule(card, written, label)


def is_free_for_all(rule: Rule) -> bool:
    """Tell whether a rule allows everything that no other rule forbids."""
    heads = (rule.expr["principal"], rule.expr["action"], rule.expr["resource"])
    return rule.expr["effect"] == "permit" and not rule.expr["conditions"] and all(head == {"op": "All"} for head in heads)


def _label_of(where: str, expr: Expr, annotations: dict[str, str | None]) -> Label | None:
    action = cast("dict[str, object]", expr["action"])
    actions = [action["entity"]] if "entity" in action else cast("list[object]", action.get("entities", []))
    if _LABEL_ACTION not in actions:
        if "label" in annotations:
            raise Broken(f'{where}: a rule that sets a label has `action == Action::"label"` in its head')
        return None
    if actions != [_LABEL_ACTION]:
        raise Broken(f"{where}: a rule that sets a label does nothing else; make two rules of it")
    if expr["effect"] != "permit":
        raise Broken(f"{where}: a label is never taken back; a rule that sets one is a `permit`, narrow that one with `unless`")
    if needs_approval(expr):
        raise Broken(f"{where}: a label does not wait for a yes; take `context.approved` out")
    label = annotations.get("label") or ""
    if not _ID.fullmatch(label):
        raise Broken(f'{where}: say which label it sets, as in `@label("sensitive")`, in lower-case letters, digits and `-`')
    return Label(label)
