"""Sessions, asks, grants, figures and events as lines of text, with everything that others wrote in them escaped."""

from collections.abc import Iterable, Iterator, Sequence

from curtainwall.channels.asks.cards import ask_in_a_line, call_in_words
from curtainwall.channels.conversation import Utterance
from curtainwall.channels.plain import plain, plain_line, short
from curtainwall.channels.slash.words import WORDS
from curtainwall.host.user import when
from curtainwall.model import (
    NO_LIMIT,
    AgentSpoke,
    AnyEvent,
    ApprovalAsked,
    Basis,
    BudgetFigure,
    BudgetKind,
    CallDenied,
    CallRequested,
    ContextUse,
    Grant,
    GrantScope,
    MessageAccepted,
    Mode,
    PendingAsk,
    Recorded,
    Role,
    RuleStatus,
    SessionRow,
    SessionView,
    TextStreamed,
    TurnEnded,
    VerdictReport,
    in_order,
)

MODES = {
    Mode.PLAN: "looks and proposes; changes nothing",
    Mode.REVIEW: "works on a view of the project; you are asked once, about all changes",
    Mode.DEFAULT: "its own workspace is free; in a project, edits ask",
    Mode.ACCEPT_EDITS: "edits in the project are answered with yes",
    Mode.BYPASS: "asks are answered with yes, except for credentials and budgets; denials stand",
}
_LONGEST_TEXT = 4_000


def help_lines(word: str) -> Iterator[str]:
    """Yield one line for each slash word, or the explanation of one."""
    if word:
        yield f"{WORDS[word].usage}: {WORDS[word].does}"
        return
    width = max(len(entry.usage) for entry in WORDS.values())
    for entry in WORDS.values():
        yield f"{entry.usage:<{width}}  {entry.does}"
    yield "a message that starts with a slash is written with two: //"


def session_lines(view: SessionView) -> Iterator[str]:
    """Yield a description of a session."""
    labels = ", ".join(f"{source.label} ({source.origin or f'call {source.call}'})" for source in view.labels)
    fields = (
        ("session", view.session),
        ("name", view.name),
        ("status", view.status),
        ("agent", f"{view.agent}, model {view.model}"),
        ("mode", f"{view.mode}: {MODES[view.mode]}"),
        ("workspace", f"{view.workspace.path} ({'its own' if view.workspace.own else 'a project'})"),
        ("created", when(view.created)),
        ("turns", str(view.turns)),
        ("parent", view.parent or "-"),
        ("labels", labels or "-"),
        ("disabled", ", ".join(view.disabled) or "-"),
        ("grants", _standing(view.grants) or "-"),
        ("open asks", str(len(view.pending))),
        ("queued", str(len(view.queue))),
    )
    yield from (f"{name:<10} {plain_line(value)}" for name, value in fields)


def _standing(grants: Sequence[Grant]) -> str:
    """Return how many standing approvals there are, and which credentials they cover."""
    secrets = dict.fromkeys(cover.value for grant in grants for cover in grant.covers if cover.role is Role.USE_CREDENTIAL)
    credentials = f", with {'credential' if len(secrets) == 1 else 'credentials'} {', '.join(secrets)}" if secrets else ""
    return f"{len(grants)}{credentials} (`/grants` lists them)" if grants else ""


def row_lines(rows: Sequence[SessionRow], current: str) -> Iterator[str]:
    """Yield a list of sessions, with the current one marked."""
    for row in rows:
        mark = "*" if row.session == current else " "
        asks = f", {row.pending} open {'ask' if row.pending == 1 else 'asks'}" if row.pending else ""
        yield f"{mark} {row.session}  {row.stands}{asks}  {when(row.changed)}  {short(row.name, 60)}"


def rule_lines(rules: Sequence[RuleStatus]) -> Iterator[str]:
    """Yield the rules of a session, with more detail for those that asked or are not active."""
    for rule in rules:
        asked = f", asked {rule.asked} times" if rule.asked > 1 else ", asked once" if rule.asked else ""
        why = f" ({rule.why})" if rule.why else ""
        yield plain_line(f"{rule.status:<8} {rule.kind:<10} {rule.rule}: {rule.title}{asked}{why}")


def why_lines(report: VerdictReport) -> Iterator[str]:
    """Yield why a call was judged as it was."""
    lines = [f"{report.tool}, call {report.call}"]
    lines += (f"  {line}" for line in report.then)
    lines += [f"  now it would be: {report.now}"]
    lines += (f"  because of {rule.rule} ({rule.source}): {rule.reason}" for rule in report.rules)
    lines += (f"  {fact}" for fact in report.facts)
    lines += (f"  label {label}" for label in report.labels)
    lines += (f"  to change it: {change}" for change in report.changes)
    yield from map(plain_line, lines)


def ask_lines(asks: Iterable[PendingAsk]) -> Iterator[str]:
    """Yield a list of open asks."""
    for ask in asks:
        yield ask_in_a_line(ask, 200) + (f"  until {when(ask.deadline)}" if ask.deadline else "")


def grant_lines(grants: Iterable[Grant]) -> Iterator[str]:
    """Yield the standing approvals, with who gave them and when."""
    for grant in grants:
        yield f"{grant.id}  {reach_in_words(grant)}, by {plain_line(str(grant.by))}, {when(grant.at)}"
        yield from (f"  {cover.role} {plain_line(in_order(cover.value))}  ({plain_line(', '.join(cover.rules))})" for cover in grant.covers)
        if grant.lapsed:
            yield f"  no longer answers: {grant.lapsed}"


def reach_in_words(grant: Grant) -> str:
    """Return the scope of an approval, in words."""
    if grant.plan is not None:
        return f"once, a step of plan {grant.plan}"
    if grant.scope is GrantScope.ONCE:
        return "once, for one exact call"
    return f"for the {grant.scope}{', for one exact call' if grant.digest is not None else ''}"


def budget_lines(figures: Iterable[BudgetFigure], exhausted: Sequence[BudgetKind]) -> Iterator[str]:
    """Yield every budget, and how certain each figure is."""
    for figure in figures:
        over = "  used up" if figure.kind in exhausted else ""
        yield f"{figure.kind:<8} {used_words(figure)} {limit_words(figure)} ({figure.basis}){over}"


def limit_words(figure: BudgetFigure) -> str:
    """Return the limit as it follows the amount used."""
    return "without a limit" if figure.limit >= NO_LIMIT else f"of {_amount(figure.kind, figure.limit)}"


def used_words(figure: BudgetFigure) -> str:
    """Return the amount used, or say that it is unknown."""
    if figure.basis is Basis.UNKNOWN:
        return f"at least {_amount(figure.kind, figure.used)}" if figure.used else "unknown"
    return f"{'~' if figure.basis is Basis.ESTIMATED else ''}{_amount(figure.kind, figure.used)}"


def context_lines(context: ContextUse) -> Iterator[str]:
    """Yield how full the context is and when it is compacted."""
    if context.size <= 0:
        yield "nothing is known of the model's context yet"
    else:
        how = "measured" if context.measured else "estimated"
        yield f"{context.used:,} of {context.size:,} tokens, {context.used / context.size:.0%} ({how})"
    if context.threshold is None:
        yield "it is never compacted by itself"
    else:
        yield f"it is compacted at {context.threshold * 100:.4g} %"


def history_lines(messages: Sequence[Utterance], count: int) -> Iterator[str]:
    """Yield the last messages, each with its author."""
    if len(messages) > count:
        yield f"… {len(messages) - count} before"
    for message in messages[-count:]:
        head = plain_line(message.by) if message.by else "agent"
        end = f" [{plain_line(message.end)}]" if message.end else ""
        lines = plain(message.text).split("\n") if len(message.text) <= _LONGEST_TEXT else [plain_line(message.text, _LONGEST_TEXT)]
        yield f"{head}: {lines[0]}{end if len(lines) == 1 else ''}"
        yield from (f"  {line}" for line in lines[1:])
        if len(lines) > 1 and end:
            yield f" {end}"


def event_line(recorded: Recorded) -> str:
    """Return an event as a row of the log."""
    event = recorded.event
    about = _about(event)
    return f"{recorded.seq:>6}  {when(event.at)}  {type(event).__name__}{f'  {short(about, 80)}' if about else ''}"


def _about(event: AnyEvent) -> str:
    match event:
        case MessageAccepted() | TextStreamed() | AgentSpoke():
            return event.text
        case CallRequested():
            return f"{event.call} {call_in_words(event.subject)}"
        case CallDenied():
            return f"{event.call} {', '.join(event.verdict.because)}"
        case ApprovalAsked():
            return f"{event.approval} {', '.join(f'{cover.role} {in_order(cover.value)}' for cover in event.covers)}"
        case TurnEnded():
            return f"{event.status} {event.failure}"
        case _:
            fields = event.model_dump(mode="json", exclude={"at"})
            return ", ".join(f"{name} {value}" for name, value in fields.items() if isinstance(value, str) and value)


def _amount(kind: BudgetKind, value: float) -> str:
    match kind:
        case BudgetKind.DOLLARS:
            return f"${value:,.4f}".rstrip("0").rstrip(".") if 0 < value < 1 else f"${value:,.2f}"
        case BudgetKind.SECONDS:
            return duration(value)
        case BudgetKind.TOKENS | BudgetKind.STEPS:
            return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return a duration in at most two units."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3_600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    if minutes:
        return f"{minutes}m {left}s" if left else f"{minutes}m"
    return f"{left}s"
