"""Slash words: what somebody wrote is what they mean, or they are told how to write it."""

import pytest

from curtainwall.channels.slash import WORDS, Approve, Deny, Message, Request, SlashUsageError, Why, parse
from curtainwall.channels.slash.requests import (
    Budget,
    Clear,
    Close,
    Compact,
    CompactAt,
    Context,
    Disable,
    Enable,
    Fork,
    Grants,
    Help,
    History,
    Interrupt,
    ListSessions,
    Logs,
    MoveSteps,
    New,
    Quit,
    Rename,
    Reset,
    Resume,
    Revoke,
    SetMode,
    SetModel,
    ShowChanges,
    ShowDifference,
    ShowMemory,
    ShowPending,
    ShowRules,
    ShowSession,
    ShowSkills,
)
from curtainwall.model import ApprovalId, BudgetKind, GrantId, GrantScope, Mode, RuleId, StepsAsked
from tests.support.covers import covers

ID = ApprovalId("abc123")

# The words that the design names; a word more or less is a decision.
DESIGN = """help quit exit logs history clear session sessions new reset resume fork rename rules enable disable mode approve deny pending
grants revoke budget context compact interrupt skills memory model why close changes diff undo redo""".split()


@covers("slash.every-word")
def test_there_are_exactly_the_words_of_the_design() -> None:
    assert WORDS.keys() ^ set(DESIGN) == set(), "a word more or less is a change of `DESIGN`"
    assert all(word.does and word.name == name for name, word in WORDS.items())


@covers("slash.every-word")
@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("/help", Help()),
        ("/help approve", Help("approve")),
        ("/help /approve", Help("approve")),
        ("/quit", Quit()),
        ("/exit", Quit()),
        ("/close", Close()),
        ("/close --force too late", Close("too late", force=True)),
        ("  /QUIT  ", Quit()),
        ("/clear", Clear()),
        ("/logs", Logs(15)),
        ("/logs 3", Logs(3)),
        ("/history", History(20)),
        ("/history 5", History(5)),
        ("/session", ShowSession()),
        ("/sessions", ListSessions("")),
        ("/sessions my project", ListSessions("my project")),
        ("/new", New()),
        ('/new "a name"', New("a name")),
        ("/reset again", Reset("again")),
        ("/fork", Fork()),
        ("/resume", Resume()),
        ("/resume 01j", Resume("01j")),
        ("/rename 'what it is'", Rename("what it is")),
        ("/rename what it's", Rename("what it's")),
        ("/rules", ShowRules()),
        ("/enable ask-fetch", Enable(RuleId("ask-fetch"))),
        ("/disable ask-fetch", Disable(RuleId("ask-fetch"))),
        ("/mode", SetMode(None)),
        ("/mode accept-edits", SetMode(Mode.ACCEPT_EDITS)),
        ("/mode Accept_Edits", SetMode(Mode.ACCEPT_EDITS)),
        ("/approve", Approve(None)),
        ("/approve abc123", Approve(ID)),
        ("/approve ABC123 session", Approve(ID, GrantScope.SESSION)),
        ("/approve abc123 for project", Approve(ID, GrantScope.PROJECT)),
        ("/approve once", Approve(None, GrantScope.ONCE)),
        ("/approve project", Approve(None, GrantScope.PROJECT)),
        ("/deny", Deny(None)),
        ("/deny abc123", Deny(ID)),
        ("/deny abc123 not in this repository", Deny(ID, "not in this repository")),
        ('/deny abc123 "not now"', Deny(ID, "not now")),
        ("/deny not in this repository", Deny(None, "not in this repository")),
        ("/pending", ShowPending()),
        ("/pending abc123", ShowPending(ID)),
        ("/pending after ABC123", ShowPending(after=ID)),
        ("/grants", Grants()),
        ("/revoke gabc123", Revoke(GrantId("gabc123"))),
        ("/budget", Budget(None, 0)),
        ("/budget tokens 2m", Budget(BudgetKind.TOKENS, 2_000_000)),
        ("/budget tokens 1,500k", Budget(BudgetKind.TOKENS, 1_500_000)),
        ("/budget steps 400", Budget(BudgetKind.STEPS, 400)),
        ("/budget time 90m", Budget(BudgetKind.SECONDS, 5_400)),
        ("/budget seconds 2h", Budget(BudgetKind.SECONDS, 7_200)),
        ("/budget money $7.50", Budget(BudgetKind.DOLLARS, 7.5)),
        ("/context", Context()),
        ("/compact", Compact()),
        ("/compact keep the list of files", Compact("keep the list of files")),
        ("/compact at 70%", CompactAt(0.7)),
        ("/compact at 0.7", CompactAt(0.7)),
        ("/compact at 70", CompactAt(0.7)),
        ("/compact off", CompactAt(None)),
        ("/compact at least keep names", Compact("at least keep names")),
        ("/interrupt", Interrupt()),
        ("/skills", ShowSkills()),
        ("/memory", ShowMemory()),
        ("/changes", ShowChanges()),
        ("/diff", ShowDifference()),
        ("/diff src/a b.py", ShowDifference("src/a b.py")),
        ("/undo", MoveSteps(StepsAsked())),
        ("/undo 2 force", MoveSteps(StepsAsked(count=2, force=True))),
        ("/undo 2 --force 12345678", MoveSteps(StepsAsked(count=2, force=True), "12345678")),
        ("/redo 0a1b2c3d", MoveSteps(StepsAsked(redo=True), "0a1b2c3d")),
        ("/mode ask", SetMode(Mode.DEFAULT)),
        ("/mode review", SetMode(Mode.REVIEW)),
        ("/model", SetModel()),
        ("/model anthropic:claude-sonnet-5", SetModel("anthropic:claude-sonnet-5")),
        ("/why abc123", Why("abc123")),
        ("/rename\na", Rename("a")),
    ],
)
def test_a_word_is_read(text: str, request_: Request) -> None:
    assert parse(text) == request_


@pytest.mark.parametrize("text", ["hello", "  two\nlines ", "a /approve inside", "", "approve abc123", "yes"])
def test_anything_else_is_a_message_as_it_was_written(text: str) -> None:
    assert parse(text) == Message(text)


@covers("slash.double-slash")
@pytest.mark.parametrize(("text", "sent"), [("//etc/hosts please", "/etc/hosts please"), ("//approve", "/approve"), ("//", "/")])
def test_two_slashes_are_a_message_that_starts_with_one(text: str, sent: str) -> None:
    assert parse(text) == Message(sent)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/aprove abc123", "did you mean `/approve`?"),
        ("/zzzzzz", "`/help` lists them"),
        ("/", "`/help` lists them"),
        ("/etc/hosts what is in it", "start with `//`"),
        ("/quit now", "write `/quit`"),
        ("/mode fast", "there is no mode `fast`"),
        ("/approve abc123 def456", "is no id"),
        ("/approve yes please", "is no id"),
        ("/budget coffee 3", "there is no budget of `coffee`"),
        ("/budget tokens", "say how much in all"),
        ("/budget tokens lots", "`lots` is no amount"),
        ("/budget tokens 2h", "`2h` is no amount"),
        ("/budget tokens -5", "`-5` is no amount"),
        ("/compact at 170%", "is no share"),
        ("/compact at noon", "is no share"),
        ("/history many", "say how many"),
        ("/history 0", "say how many"),
        ("/logs 99999999999999999999", "say how many"),
        ("/rename", "say the new name"),
        ("/rename ''", "say the new name"),
        ("/why", "name one"),
        ("/enable", "name one"),
        ("/disable a b", "name one"),
        ("/revoke", "name one"),
        ("/pending a b", "name one"),
        ("/help zzz", "there is no `/zzz`"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(SlashUsageError) as caught:
        parse(text)
    assert words in str(caught.value)
