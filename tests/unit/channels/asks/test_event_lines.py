"""Events in a line: what is told, to whom, and that nothing else is."""

from typing import get_args

import pytest

from curtainwall.channels.asks.event_lines import describe_change, describe_event
from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalId,
    ApprovalWithdrawn,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    CompactionSkipped,
    DenialsCounted,
    Digest,
    Effect,
    ExtensionNoted,
    GrantId,
    GrantRevoked,
    GrantScope,
    HeldFile,
    HistoryCompacted,
    LoopDetected,
    Mode,
    ModeChanged,
    ModelChanged,
    ModelFailed,
    Payload,
    PermitId,
    ProgramFinished,
    RefusedRequest,
    ReportedUse,
    RequestsRefused,
    RuleDisabled,
    RuleEnabled,
    RuleId,
    SessionClosed,
    SessionRenamed,
    TextStreamed,
    ToolUsesReported,
    TurnEnded,
    TurnId,
    TurnStatus,
    Verdict,
    changes_noted,
    held_noted,
)
from curtainwall.operations.activity import SessionActivity
from tests.support.covers import covers
from tests.support.given import ANN, BOB, NOW, fetch, source

CALL, PERMIT, TURN, ASK = CallId("c1"), PermitId("p1"), TurnId("t1"), ApprovalId("abc123")
EVIL = "x\x1b[2J\ny"


def tale() -> SessionActivity:
    made = SessionActivity()
    made.take(CallRequested(at=NOW, call=CALL, subject=fetch("a.example"), turn=TURN))
    return made


def permitted(*labels: str) -> CallPermitted:
    verdict = Verdict(effect=Effect.ALLOW, because=())
    return CallPermitted(
        at=NOW, call=CALL, permit=PERMIT, digest=Digest(""), verdict=verdict, labels=tuple(source(label) for label in labels)
    )


def test_a_label_is_told_once_with_what_set_it() -> None:
    told = tale()
    first = describe_event(permitted("sensitive"), told)
    assert first is not None
    assert first.text == f"from here on the session counts as sensitive ({source('sensitive').origin})"
    told.take(permitted("sensitive"))
    assert describe_event(permitted("sensitive"), told) is None
    assert "untrusted" in str(describe_event(permitted("sensitive", "untrusted"), told))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (CallFinished(at=NOW, call=CALL, permit=PERMIT, ok=True, result=Payload()), "✓ fetch.get https://a.example/"),
        (
            CallFinished(at=NOW, call=CALL, permit=PERMIT, ok=True, result=Payload(inline={"exit_code": 3, "stdout": ""})),
            "✗ fetch.get https://a.example/: exit code 3",
        ),
        (
            CallFinished(at=NOW, call=CALL, permit=PERMIT, ok=True, result=Payload(inline={"exit_code": 0, "stdout": ""})),
            "✓ fetch.get https://a.example/",
        ),
        (CallFinished(at=NOW, call=CALL, permit=PERMIT, ok=False, result=Payload()), "✗ fetch.get https://a.example/ failed"),
        (permitted("sensitive"), "from here on the session counts as sensitive"),
        (permitted(), None),
        (CallDenied(at=NOW, call=CALL, verdict=Verdict(effect=Effect.DENY, because=(RuleId("r1"),), reason=EVIL)), "(r1); `/why c1`"),
        (CallDenied(at=NOW, call=CALL, verdict=Verdict(effect=Effect.DENY, because=(RuleId("denied-by-human"),))), None),
        (CallLost(at=NOW, call=CALL), "it is unknown whether this ran: fetch.get"),
        (CallDropped(at=NOW, call=CALL, why=EVIL), "let go of a call"),
        (TurnEnded(at=NOW, turn=TURN, status=TurnStatus.FAILED, failure=EVIL), "the turn failed: x\\x1b[2J\\ny"),
        (TurnEnded(at=NOW, turn=TURN, status=TurnStatus.INTERRUPTED), "interrupted; what was said so far is kept"),
        (TurnEnded(at=NOW, turn=TURN, status=TurnStatus.DONE), None),
        (ModelFailed(at=NOW, turn=TURN, request="r", failure=EVIL), None),
        (ApprovalAnswered(at=NOW, approval=ASK, granted=True, by=BOB, scope=GrantScope.PROJECT), "approved for the project by bob: abc123"),
        (ApprovalAnswered(at=NOW, approval=ASK, granted=False, by=BOB, reason=EVIL), "denied by bob: abc123 (x\\x1b[2J\\ny)"),
        (ApprovalExpired(at=NOW, approval=ASK), "nobody answered abc123 in time"),
        (ApprovalWithdrawn(at=NOW, approval=ASK, why=EVIL), "ask abc123 no longer stands: x"),
        (BudgetWarned(at=NOW, kind=BudgetKind.TOKENS, used=81, limit=100), "81% of the budget of tokens is used"),
        (BudgetExhausted(at=NOW, kind=BudgetKind.SECONDS, used=100, limit=100), "`/budget seconds 200` allows more"),
        (LoopDetected(at=NOW, call=CALL, what="repeat", count=21), "the same call, 21 times"),
        (DenialsCounted(at=NOW, count=7), "7 more calls were denied"),
        (
            RequestsRefused(at=NOW, requests=(RefusedRequest(kind="key", host=EVIL, method="POST", path="/p", reason=EVIL, key="[m]"),)),
            "✗ the network proxy refused POST x\\x1b[2J y/p with key [m]: x",
        ),
        (
            RequestsRefused(at=NOW, requests=(RefusedRequest(kind="host", host="h", reason="no", count=2),), more=1),
            "refused h, 2 times: no; 1 more request",
        ),
        (RequestsRefused(at=NOW, more=1_000), "the network proxy refused 1,000 requests"),
        (
            ToolUsesReported(at=NOW, turn=TURN, uses=(ReportedUse(tool="Bash", arguments=EVIL),)),
            "· the agent says it used its own tools: Bash x\\x1b[2J y",
        ),
        (ToolUsesReported(at=NOW, turn=TURN, more=7), "the agent says it used its own tools: 7 times"),
        (HistoryCompacted(at=NOW, trigger="asked", before=9_000, after=900, upto=3, summary=Payload()), "9,000 tokens became 900"),
        (CompactionSkipped(at=NOW, why=EVIL), "nothing was summarised: x"),
        (SessionClosed(at=NOW, reason=EVIL, by=ANN), "the session is closed: x"),
        (TextStreamed(at=NOW, turn=TURN, text=EVIL), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, get_args(AnyEvent)) else "",
)
def test_an_event_is_told_in_one_inert_line_or_not_at_all(event: AnyEvent, words: str | None) -> None:
    told = describe_event(event, tale())
    if words is None:
        assert told is None
        return
    assert told is not None
    assert words in told.text
    assert told.text.isprintable()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ModeChanged(at=NOW, mode=Mode.BYPASS, by=BOB), "bob set the mode to `bypass`"),
        (ModelChanged(at=NOW, model=EVIL, by=BOB), "bob set the model to `x"),
        (SessionRenamed(at=NOW, name=EVIL, by=BOB), "bob named the session `x"),
        (RuleDisabled(at=NOW, rule=RuleId("r1"), by=BOB), "bob disabled rule `r1`"),
        (RuleEnabled(at=NOW, rule=RuleId("r1"), by=BOB), "bob enabled rule `r1`"),
        (GrantRevoked(at=NOW, grant=GrantId("g1"), by=BOB), "bob took grant `g1` back"),
        (BudgetRaised(at=NOW, kind=BudgetKind.STEPS, limit=400, by=BOB), "bob raised the budget of steps to 400"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, get_args(AnyEvent)) else "",
)
def test_what_somebody_else_changed_is_told_and_ones_own_change_is_not(event: AnyEvent, words: str) -> None:
    told = describe_change(event, ANN)
    assert told is not None
    assert words in told.text
    assert told.text.isprintable()
    assert describe_change(event, BOB) is None


def test_what_was_set_aside_is_told_once_and_inert() -> None:
    files = [HeldFile(path=f"/p/{number}/.env\x1brc", aside=f"/p/{number}/.envrc.held") for number in range(6)]
    stuck = HeldFile(path="/p/.envrc", aside=None)
    told = describe_event(held_noted([stuck, *files], 1), SessionActivity())
    assert told is not None
    assert "`/p/.envrc`, which could not be taken away: look at it" in told.text
    assert "\x1b" not in told.text
    assert ", 2 more; if that was you" in told.text
    assert describe_event(held_noted(files, 1, is_reported=True), SessionActivity()) is None
    assert describe_event(ExtensionNoted(at=1, extension="held", data={"files": [{"path": 1}]}), SessionActivity()) is None


@covers("programs.failures-are-reported")
def test_a_program_that_failed_is_reported_with_its_error_and_a_refusal_only_once() -> None:
    def finished(shown: str, *, ok: bool = False) -> ProgramFinished:
        return ProgramFinished(at=NOW, turn=TurnId("t"), program="p", ok=ok, shown=Payload(inline=shown))

    unknown = describe_event(finished("Traceback:\n  line 1\nValueError: there is no tool `bash`\x1b[2J"), SessionActivity())
    assert unknown is not None
    assert unknown.text.startswith("✗ a program of the agent failed: ValueError: there is no tool `bash`")
    assert unknown.text.isprintable()
    assert describe_event(finished("3", ok=True), SessionActivity()) is None
    assert describe_event(finished("PermissionError: denied"), SessionActivity()) is None, "the denied call has its own line"
    long = describe_event(finished("ValueError: " + "x" * 500), SessionActivity())
    assert long is not None
    assert len(long.text) == 200


@covers("oneshot.changed-files")
def test_the_files_that_an_external_agent_changed_are_listed_beside_those_of_its_calls() -> None:
    activity = SessionActivity(workspace="/w")
    activity.take(changes_noted(TurnId("t"), ["a.py", "sub/b.py"], 1, more=3))
    assert activity.change_words() == "changed a.py, changed sub/b.py, 3 more"
    assert [change.as_json("/w") for change in activity.changes] == [
        {"change": "changed", "path": "a.py"},
        {"change": "changed", "path": "sub/b.py"},
    ]
    activity.take(ExtensionNoted(at=1, extension="changed-files", data={"paths": [1, "c"], "more": -4}))
    assert [change.path for change in activity.changes] == ["/w/a.py", "/w/sub/b.py", "/w/c"]
