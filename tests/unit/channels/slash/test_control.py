"""Slash words are carried out against the desk, and a refusal is one readable line."""

from collections.abc import Sequence

import pytest

from curtainwall.channels.slash import Control, SlashResult
from curtainwall.channels.slash.lines import grant_lines, limit_words
from curtainwall.model import (
    NO_LIMIT,
    SYSTEM,
    AnswerApproval,
    ApprovalId,
    AskCompaction,
    Basis,
    BudgetFigure,
    BudgetKind,
    BudgetRaised,
    ChangeMode,
    CompactionSet,
    ContextMeasured,
    Cover,
    Grant,
    GrantId,
    GrantRevoked,
    GrantScope,
    InterruptAsked,
    MessageAccepted,
    Mode,
    ModelChanged,
    Role,
    RuleDisabled,
    RuleEnabled,
    RuleId,
    SessionClosed,
    SessionId,
    SessionRenamed,
    Who,
)
from tests.support.covers import covers
from tests.support.desks import Hand, MemoryDesk
from tests.support.given import ANN, EVE, NOW, PROJECT, SESSION, fetch, fetch_with_key, ready, write
from tests.support.houses import run


def places(session: SessionId) -> Sequence[str]:
    return (f"the audit of {session} is somewhere",)


def told(desk: MemoryDesk, text: str, *, who: Who = ANN, bare: bool = True) -> SlashResult:
    before = next(iter(desk.state().approvals), None) if bare else None
    return run(Control(desk.line, who, places).take(SESSION, text, before))


def asking(*hosts: str) -> tuple[MemoryDesk, Hand, list[ApprovalId]]:
    """Return a desk with a turn that asks for these hosts, and the approvals."""
    desk = MemoryDesk(*ready(PROJECT))
    told(desk, "please")
    hand = Hand(desk)
    hand.start()
    for count, host in enumerate(hosts):
        hand.want(f"c{count}", fetch(host))
    return desk, hand, list(desk.state().approvals)


def test_a_message_goes_to_the_agent() -> None:
    desk = MemoryDesk()
    assert told(desk, "//hello") == SlashResult()
    assert desk.last(MessageAccepted).text == "/hello"
    assert desk.last(MessageAccepted).by == ANN


@covers("session.closed-can-be-reopened")
def test_a_session_is_closed_and_the_next_message_opens_it_again() -> None:
    desk = MemoryDesk()
    assert "--resume" in told(desk, "/close that was all").lines[0]
    assert desk.last(SessionClosed).reason == "that was all"
    assert told(desk, "one more thing") == SlashResult()
    assert desk.kinds()[-3:] == ["SessionClosed", "SessionReopened", "MessageAccepted"]


def test_a_session_with_open_asks_is_closed_only_by_force() -> None:
    desk, _, _ = asking("example.org")
    assert "waits for an answer" in told(desk, "/close").lines[0]
    assert not desk.has(SessionClosed)
    assert not told(desk, "/close --force").refused
    assert desk.has(SessionClosed)


def test_nothing_is_not_sent() -> None:
    desk = MemoryDesk()
    assert told(desk, "  ").refused
    assert not desk.has(MessageAccepted)


@covers("slash.every-word")
def test_help_has_a_line_for_every_word() -> None:
    lines = told(MemoryDesk(), "/help").lines
    for word in ("/approve", "/budget", "/why ID", "/skills", "/quit"):
        assert any(line.startswith(word) for line in lines)
    (column,) = {line.index(does) for line in lines[:-1] for does in (line.partition("  ")[2].lstrip(),)}
    assert column > 0, "what each does stands in one column"
    assert len(told(MemoryDesk(), "/help mode").lines) == 1


@pytest.mark.parametrize(
    ("text", "done"), [("/quit", SlashResult(quits=True)), ("/exit", SlashResult(quits=True)), ("/clear", SlashResult(clears=True))]
)
def test_some_words_are_for_the_channel(text: str, done: SlashResult) -> None:
    assert told(MemoryDesk(), text) == done


@covers("slash.bare-answer")
def test_the_id_may_be_left_out_where_exactly_one_ask_is_open() -> None:
    desk, _, [approval] = asking("a.example")
    assert told(desk, "/approve").answered == approval
    assert desk.state().approvals == {}


@covers("slash.bare-answer")
@pytest.mark.parametrize("word", ["/approve", "/deny", "/deny because I say so"])
def test_the_id_may_not_be_left_out_elsewhere_or_with_several(word: str) -> None:
    desk, _, [approval] = asking("a.example")
    outcome = told(desk, word, bare=False)
    assert outcome.refused
    assert approval in outcome.lines[0]
    desk, _, approvals = asking("a.example", "b.example")
    outcome = told(desk, word)
    assert outcome.refused
    assert all(approval in outcome.lines[0] for approval in approvals)
    assert not any(isinstance(command, AnswerApproval) for command in desk.sent)


def test_with_nothing_open_there_is_nothing_to_answer() -> None:
    assert told(MemoryDesk(), "/approve").lines == ("nothing waits for an answer here",)


@pytest.mark.parametrize(("scope", "expected"), [("", GrantScope.ONCE), ("session", GrantScope.SESSION), ("project", GrantScope.PROJECT)])
def test_an_answer_has_its_scope(scope: str, expected: GrantScope) -> None:
    desk, _, [approval] = asking("a.example")
    assert not told(desk, f"/approve {approval} {scope}").refused
    [sent] = [command for command in desk.sent if isinstance(command, AnswerApproval)]
    assert (sent.granted, sent.scope, sent.by) == (True, expected, ANN)


def test_a_denial_has_its_reason() -> None:
    desk, _, [approval] = asking("a.example")
    assert told(desk, f"/deny {approval} not this one").answered == approval
    [sent] = [command for command in desk.sent if isinstance(command, AnswerApproval)]
    assert (sent.granted, sent.reason) == (False, "not this one")


def test_a_late_answer_is_told_who_was_first() -> None:
    desk, _, [approval] = asking("a.example")
    told(desk, f"/deny {approval}")
    outcome = told(desk, f"/approve {approval}")
    assert outcome.refused
    assert "already answered by `ann`" in outcome.lines[0]


def test_whoever_is_no_operator_is_refused_by_the_desk() -> None:
    desk, _, [approval] = asking("a.example")
    assert "not an operator" in told(desk, f"/approve {approval}", who=EVE).lines[0]
    assert "not an operator" in told(desk, "/mode bypass", who=EVE).lines[0]
    assert desk.state().mode is Mode.DEFAULT


def test_pending_lists_the_asks_and_shows_one_as_it_is_logged() -> None:
    desk, _, approvals = asking("a.example", "b.example")
    lines = told(desk, "/pending").lines
    assert [line.split()[0] for line in lines] == approvals
    whole = told(desk, f"/pending {approvals[0]}").lines
    assert "\n".join(whole) == desk.view(SESSION).pending[0].shown
    assert told(desk, "/pending zzzzzz").refused
    assert told(MemoryDesk(), "/pending").lines == ("nothing waits for an answer",)


@covers("approvals.old-tool-grants-lapse")
def test_a_grant_that_no_longer_answers_says_why() -> None:
    cover = Cover(role=Role.USE_TOOL, value="pay.send", rules=(RuleId("unjudged-tool"),))
    grant = Grant(id=GrantId("g"), scope=GrantScope.SESSION, covers=(cover,), by=SYSTEM, at=0)
    assert [*grant_lines([grant])][-1] == "  no longer answers: it was given for a tool without its arguments; approve the call again"
    (head, _) = grant_lines([grant.model_copy(update={"digest": "d" * 64})])
    assert "for one exact call" in head


def test_grants_are_listed_and_taken_back() -> None:
    desk, _, [approval] = asking("a.example")
    assert told(desk, "/grants").lines == ("no answer stands in this session",)
    told(desk, f"/approve {approval} session")
    first, second = told(desk, "/grants").lines
    assert "for the session, by ann" in first
    assert "https://a.example" in second
    grant = first.split()[0]
    assert not told(desk, f"/revoke {grant}").refused
    assert desk.has(GrantRevoked)
    assert told(desk, f"/revoke {grant}").refused


def test_why_and_rules_are_told_from_what_the_session_can_explain() -> None:
    desk = MemoryDesk()
    assert told(desk, "/why c1").lines == ("s1, call c1", "  now it would be: ask")
    assert "active   structural unknown-tool: " in "\n".join(told(desk, "/rules").lines)
    assert desk.explained == [("why", "c1"), ("rules", "")]


def test_skills_and_memory_are_each_shown_line_by_line_and_visibly() -> None:
    desk = MemoryDesk()
    assert told(desk, "/skills").lines == ("skills of s1", "  and a bell \\x07")
    assert told(desk, "/memory").lines == ("memory of s1",)
    assert told(desk, "/changes").lines == ("changes of s1",)
    assert told(desk, "/diff a.py").lines == ("difference of a.py in s1",)
    assert told(desk, "/undo 2").lines == ("undo 2 shown",)
    assert told(desk, "/redo force 0a1b2c3d").lines == ("redo 1 force 0a1b2c3d",)


def test_rules_are_disabled_with_a_warning_and_enabled_again() -> None:
    desk, _, _ = asking("a.example")
    rule = desk.view(SESSION).pending[0].because[0]
    assert told(desk, f"/disable {rule}").lines[0].startswith("warning: ")
    assert desk.last(RuleDisabled).rule == rule
    assert not told(desk, f"/enable {rule}").refused
    assert desk.last(RuleEnabled).rule == rule
    assert told(desk, "/disable no-such-rule").refused


def test_the_mode_is_shown_and_changed() -> None:
    desk = MemoryDesk()
    assert told(desk, "/mode").lines[0].startswith("mode default: ")
    assert told(desk, "/mode accept-edits").lines[0].startswith("mode accept-edits: ")
    assert desk.state().mode is Mode.ACCEPT_EDITS
    assert isinstance(desk.sent[-1], ChangeMode)


def test_the_model_is_shown_and_changed() -> None:
    desk = MemoryDesk()
    assert told(desk, "/model").lines == ("model demo",)
    told(desk, "/model script:a.jsonl")
    assert desk.last(ModelChanged).model == "script:a.jsonl"


def test_the_name_changes() -> None:
    desk = MemoryDesk()
    told(desk, '/rename "night shift"')
    assert desk.last(SessionRenamed).name == "night shift"


@covers("slash.budget-figures")
def test_each_figure_of_the_budget_says_how_sure_it_is() -> None:
    desk = MemoryDesk()
    told(desk, "go")
    hand = Hand(desk)
    hand.start()
    tokens, steps, seconds, dollars = told(desk, "/budget").lines
    assert steps == "steps    0 of 200 (measured)"
    assert seconds == "seconds  0s of 2h (measured)"
    assert limit_words(BudgetFigure(kind=BudgetKind.TOKENS, used=7, limit=NO_LIMIT, basis=Basis.MEASURED)) == "without a limit"
    hand.use(1_234, 0.0125, Basis.ESTIMATED)
    tokens, _, _, dollars = told(desk, "/budget").lines
    assert tokens == "tokens   ~1,234 of 1,000,000 (estimated)"
    assert dollars == "dollars  ~$0.0125 of $5.00 (estimated)"
    hand.use(5, 0, Basis.UNKNOWN)
    assert "(unknown)" in told(desk, "/budget").lines[0]


def test_a_budget_is_raised_and_never_lowered() -> None:
    desk = MemoryDesk()
    assert told(desk, "/budget tokens 2m").lines[0].startswith("tokens ")
    assert desk.last(BudgetRaised).limit == 2_000_000
    assert told(desk, "/budget tokens 5").refused


def test_the_context_is_shown() -> None:
    desk = MemoryDesk()
    assert told(desk, "/context").lines == ("nothing is known of the model's context yet", "it is compacted at 83.5 %")
    desk.happen(ContextMeasured(at=NOW, used=50_000, size=200_000, measured=False))
    assert told(desk, "/context").lines[0] == "50,000 of 200,000 tokens, 25% (estimated)"


def test_compaction_is_asked_for_and_set() -> None:
    desk = MemoryDesk()
    told(desk, "/compact keep the names")
    assert isinstance(desk.sent[-1], AskCompaction)
    assert desk.sent[-1].instructions == "keep the names"
    assert told(desk, "/compact at 70%").lines == ("the context is compacted at 70 % from now on",)
    assert desk.last(CompactionSet).threshold == 0.7
    told(desk, "/compact off")
    assert desk.last(CompactionSet).threshold is None
    assert told(desk, "/context").lines[1] == "it is never compacted by itself"


def test_a_turn_is_interrupted_and_without_one_that_is_said() -> None:
    desk = MemoryDesk()
    assert told(desk, "/interrupt").lines == ("nothing runs here",)
    told(desk, "go")
    Hand(desk).start()
    told(desk, "/interrupt")
    assert desk.has(InterruptAsked)


@pytest.mark.parametrize(("how", "notes"), [("new", ()), ("reset", ("grants and credentials stay behind",)), ("fork", ())])
def test_another_session_is_opened_and_gone_to(how: str, notes: tuple[str, ...]) -> None:
    desk = MemoryDesk()
    outcome = told(desk, f"/{how} elsewhere")
    assert outcome.go_to == "s2"
    assert outcome.lines == ("session s2", *notes)
    assert desk.view(SessionId("s2")).name == "elsewhere"
    assert desk.view(SessionId("s2")).parent == (None if how == "new" else SESSION)


def test_a_session_is_resumed_by_the_beginning_of_its_id_or_by_its_name() -> None:
    desk = MemoryDesk()
    told(desk, "/new elsewhere")
    assert told(desk, "/resume s2").go_to == "s2"
    assert told(desk, "/resume elsewhere").go_to == "s2"
    assert told(desk, "/resume s").refused
    assert told(desk, "/resume nowhere").lines == ("there is no session `nowhere`; `/sessions` lists them",)
    assert "s2" in told(desk, "/resume").lines[0]


def test_sessions_are_listed_and_the_current_one_is_marked() -> None:
    desk = MemoryDesk()
    told(desk, "/new elsewhere")
    first, second = told(desk, "/sessions").lines
    assert first.startswith("  s2  ready")
    assert second.startswith("* s1  ready")
    assert told(desk, "/sessions nothing like it").lines == ("there is no such session",)


def test_a_session_is_shown_with_what_it_is() -> None:
    lines = told(MemoryDesk(*ready(PROJECT)), "/session").lines
    assert "workspace  /srv/project (a project)" in lines
    assert "grants     -" in lines


@covers("slash.a-session-with-its-answers")
def test_a_session_is_shown_with_the_answers_and_credentials_that_stand_in_it() -> None:
    desk, hand, [approval] = asking("a.example")
    told(desk, f"/approve {approval} session")
    assert "grants     1 (`/grants` lists them)" in told(desk, "/session").lines
    hand.want("key", fetch_with_key("b.example", "github"))
    (second,) = desk.state().approvals
    told(desk, f"/approve {second} session")
    assert "grants     2, with credential github (`/grants` lists them)" in told(desk, "/session").lines


def test_history_is_what_was_said() -> None:
    desk = MemoryDesk()
    assert told(desk, "/history").lines == ("nothing was said yet",)
    told(desk, "hello\nyou")
    Hand(desk).reply("hi\x1b[2J")
    assert told(desk, "/history").lines == ("ann: hello", "  you", "agent: hi\\x1b[2J")
    assert told(desk, "/history 1").lines == ("… 1 before", "agent: hi\\x1b[2J")


def test_the_logs_say_where_they_are_and_end_with_the_last_events() -> None:
    desk = MemoryDesk()
    told(desk, "hello")
    lines = told(desk, "/logs 2").lines
    assert lines[0] == "the audit of s1 is somewhere"
    assert "SessionReady" in lines[1]
    assert "MessageAccepted  hello" in lines[2]


@covers("terminal.inert")
def test_what_others_wrote_is_inert_in_every_list() -> None:
    desk = MemoryDesk(*ready(PROJECT))
    told(desk, "go \x1b[2J")
    hand = Hand(desk)
    hand.start()
    hand.want("c1", write("/srv/project/\x1b[2Jx\nforged", "content \x1b]0;x\x07"))
    hand.speak("said \x1b[2J")
    told(desk, "/rename \x1b[31mred")
    for word in (
        "/pending",
        "/history",
        "/logs",
        "/session",
        "/sessions",
        f"/pending {next(iter(desk.state().approvals))}",
        "/nonsense\x1b[2J",
    ):
        outcome = told(desk, word)
        assert all(line.isprintable() for line in outcome.lines), (word, outcome.lines)
