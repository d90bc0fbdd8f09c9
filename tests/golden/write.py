"""Writes the log that this version of the program would write, and what it folds to.

Run once for a release: `python -m tests.golden.write`. A released version's log is never written again; it is there to be read for ever.
"""

import json
import sys
from pathlib import Path

from curtainwall import __version__
from curtainwall.model import (
    SYSTEM,
    AddLabels,
    AddRoute,
    AgentSpoke,
    AnyCommand,
    AnyEvent,
    AskCompaction,
    Basis,
    BlobRef,
    BudgetKind,
    CallId,
    ChangeMode,
    ChangeModel,
    CloseSession,
    CompactionSkipped,
    ContextMeasured,
    CountDenials,
    DeliverMessage,
    Digest,
    DisableRule,
    DropCall,
    EnableRule,
    EndTurn,
    ExpireApprovals,
    ExtensionNoted,
    FinishCall,
    GrantScope,
    HistoryCompacted,
    HookSays,
    InheritHistory,
    InstructionsPinned,
    InterruptTurn,
    Limits,
    MessageId,
    MessagePeer,
    Mode,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    OpenSession,
    Payload,
    Peer,
    PeerAnswer,
    PeerStatus,
    ProgramFinished,
    RaiseBudget,
    ReadySession,
    RecordProgress,
    RefuseCall,
    RemoveRoute,
    RenameSession,
    RepairSession,
    ResumeTurn,
    RevokeGrant,
    Route,
    RouteSet,
    RuleId,
    SavedProgram,
    SendMessage,
    SessionDeleted,
    SessionId,
    SetCompaction,
    StartTurn,
    TakePeerAnswer,
    TextStreamed,
    TurnId,
    TurnStatus,
    Usage,
    Who,
    WithdrawMessage,
    WorkTimed,
    denial,
    encode_event,
    event_types,
)
from curtainwall.session import BreakerLimits, fold, transcript
from tests.golden.summary import summary
from tests.support.given import (
    ANN,
    EVE,
    NOW,
    OLGA,
    POLICY,
    PROJECT,
    SESSION,
    Situation,
    answer,
    asked,
    fetch,
    finished,
    given,
    is_for_project,
    proceed,
    push,
    read,
    requested,
    run,
    source,
    wish,
    write,
)

HERE = Path(__file__).parent
BLOB = Payload(blob=BlobRef(digest="b" * 64, size=40_000))
ONE, TWO, THREE = TurnId("t1"), TurnId("t2"), TurnId("t3")
ROOM, BROWSER = Route(channel="matrix", reference="!room"), Route(channel="web", reference="ann")

LOOK = wish("c1", read("/srv/project/a"), ONE)
FETCH = wish("c2", fetch("example.org"), ONE)
PUSH = wish("c3", push("github.com/me/r"), ONE)
EDIT = wish("c4", write("/srv/project/a"), ONE)
GONE = wish("c5", push("github.com/me/gone"), ONE)
SLOW = wish("c6", push("github.com/me/slow"), ONE)
SHELL = wish("c7", run("git status"), ONE, HookSays(effect="ask", hook="guard", reason="look"))
LAST = wish("c8", push("github.com/me/last"), TWO)


def told(*events: object) -> RecordProgress:
    return RecordProgress(by=SYSTEM, events=events)


def asking_model(turn: TurnId, request: str, base: str | None) -> ModelRequested:
    return ModelRequested(at=NOW, turn=turn, request=request, base=base, added=Payload(inline=[{"role": "user"}]), model="demo")


def story() -> tuple[AnyEvent, ...]:
    """Return a session in which everything happens that can."""
    sure, unsure = Basis.MEASURED, Basis.ESTIMATED
    usage = Usage(input_tokens=70, output_tokens=20, cached_tokens=5, dollars=0.25, tokens_basis=sure, dollars_basis=unsure)
    hello = Payload(inline={"text": "hello"})
    opening: list[AnyCommand] = [
        OpenSession(
            by=OLGA,
            session=SESSION,
            name="first",
            agent="builtin",
            model="demo",
            workspace=PROJECT,
            mode=Mode.DEFAULT,
            limits=Limits(tokens=100),
            team="backend",
            policy=POLICY.version,
            parent=SessionId("s0"),
            labels=(source("inherited", "session s0"),),
            routes=(ROOM,),
        ),
        InheritHistory(by=SYSTEM, parent=SessionId("s0"), upto=12, history=BlobRef(digest="a" * 64, size=99), how="fork"),
        ReadySession(by=SYSTEM),
        AddRoute(by=ANN, route=BROWSER),
        RemoveRoute(by=ANN, route=BROWSER),
        RenameSession(by=ANN, name="better"),
        ChangeModel(by=ANN, model="other"),
        DisableRule(by=ANN, rule=RuleId("unlisted-remote")),
        EnableRule(by=ANN, rule=RuleId("unlisted-remote")),
        DisableRule(by=ANN, rule=RuleId("peer-asks")),
        SetCompaction(by=ANN, threshold=0.7),
        AskCompaction(by=ANN, instructions="keep the names"),
        told(CompactionSkipped(at=NOW, why="there is nothing to replace")),
        SendMessage(by=EVE, message=MessageId("m0"), text="never mind"),
        WithdrawMessage(by=EVE, message=MessageId("m0")),
        SendMessage(by=EVE, message=MessageId("m1"), text="hello · 世界"),
        SendMessage(by=SYSTEM, message=MessageId("m2"), text="by the way", role="context"),
        StartTurn(by=SYSTEM, turn=ONE),
        told(InstructionsPinned(at=NOW, path="AGENTS.md", digest=Digest("d" * 64), text=Payload(inline="be kind"))),
        told(asking_model(ONE, "r1", None), TextStreamed(at=NOW, turn=ONE, text="hel")),
        told(ModelResponded(at=NOW, turn=ONE, request="r1", raw=BLOB, normalised=hello, usage=usage, stop_reason="end")),
        told(asking_model(ONE, "r2", "r1"), ModelFailed(at=NOW, turn=ONE, request="r2", failure="503")),
        told(AgentSpoke(at=NOW, turn=ONE, text="hello"), ContextMeasured(at=NOW, used=90, size=1_000, measured=True)),
        told(HistoryCompacted(at=NOW, trigger="threshold", before=900, after=90, upto=3, summary=Payload(inline="short"))),
        told(WorkTimed(at=NOW, seconds=1.5), ExtensionNoted(at=NOW, extension="plugin", data={"any": [1, None, "x"]})),
        told(asking_model(ONE, "r3", "r1"), ModelResponded(at=NOW, turn=ONE, request="r3", raw=BLOB, normalised=BLOB, usage=usage)),
        RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=1_000),
    ]
    gate: list[AnyCommand] = [
        requested(LOOK),
        FinishCall(by=SYSTEM, call=LOOK.call, permit=LOOK.permit, ok=True, result=BLOB, shown=Payload(inline="head … tail")),
        requested(wish("d1", read("/home/ann/.ssh/id_rsa"), ONE)),
        RefuseCall(by=SYSTEM, call=CallId("d2"), subject=LOOK.subject, verdict=denial("unknown-tool", "no"), turn=ONE),
        asked(FETCH).model_copy(update={"program": SavedProgram(program="p1", step=2, state=BLOB)}),
        told(ProgramFinished(at=NOW, turn=ONE, program="p1", ok=True, shown=hello)),
        answer(FETCH, by=OLGA, scope=GrantScope.SESSION),
        proceed(FETCH),
        finished(FETCH),
        RevokeGrant(by=ANN, grant=FETCH.grant),
        asked(PUSH),
        asked(PUSH.again("j1")),
        EndTurn(by=SYSTEM, turn=ONE, status=TurnStatus.WAITING),
        answer(PUSH, by=ANN),
        ResumeTurn(by=SYSTEM, turn=ONE),
        proceed(PUSH),
        finished(PUSH),
        asked(EDIT),
        answer(EDIT, granted=False, reason="not now"),
        asked(GONE),
        DropCall(by=SYSTEM, call=GONE.call, why="the agent went away"),
        asked(GONE.again("g2")),
        answer(GONE.again("g2")),
        DropCall(by=SYSTEM, call=CallId("g2"), why="the agent went away"),
        asked(GONE.again("g3")),
        asked(SHELL),
        answer(SHELL, scope=GrantScope.SESSION),
        ChangeMode(by=ANN, mode=Mode.ACCEPT_EDITS),
        asked(EDIT.again("e2")),
        AddLabels(by=SYSTEM, labels=(source("sensitive", "a mounted file"),)),
        CountDenials(by=SYSTEM, count=100),
    ]
    storm = [asked(wish("s1", push("github.com/me/storm"), ONE))]
    here = given(*opening, *gate).under(breaker=BreakerLimits(asks=1)).happened(*storm).under(breaker=BreakerLimits())
    here = here.under(deadline=1_000).happened(asked(SLOW)).under(deadline=None).later(1_000).happened(ExpireApprovals(by=SYSTEM))
    return _ended(here)


def _among_teams() -> list[AnyCommand]:
    """Ask a team and hear from it; be asked, answer at once, and hold an answer for a yes."""
    peer = Peer(session=SessionId("s7"), team="mobile", path=("mobile",))
    said = PeerAnswer(message=MessageId("q1"), status=PeerStatus.DONE, text="42", labels=(source("untrusted-content", "a page"),))
    by = Who(name="mobile", channel="teams")
    return [
        MessagePeer(by=SYSTEM, message=MessageId("q1"), to=SessionId("s8"), team="data", text="how many?", expires=NOW + 9_000_000),
        TakePeerAnswer(by=SYSTEM, answer=said),
        DeliverMessage(by=by, message=MessageId("q2"), text="what is it?", peer=peer, expires=NOW + 9_000_000),
        DeliverMessage(by=by, message=MessageId("q3"), text="too late", peer=peer, expires=NOW),
        EndTurn(by=SYSTEM, turn=TWO, status=TurnStatus.INTERRUPTED, failure="interrupted"),
        WithdrawMessage(by=ANN, message=MessageId("m4")),
        StartTurn(by=SYSTEM, turn=THREE),
        told(AgentSpoke(at=NOW, turn=THREE, text="a curtain wall")),
        EndTurn(by=SYSTEM, turn=THREE, status=TurnStatus.DONE),
    ]


def _ended(here: Situation) -> tuple[AnyEvent, ...]:
    """Crash, repair, a second turn that is left open."""
    here = here.later(1_000).happened(
        RepairSession(by=SYSTEM),
        EndTurn(by=SYSTEM, turn=ONE, status=TurnStatus.DONE) if here.state.turn else ReadySession(by=SYSTEM),
        SendMessage(by=ANN, message=MessageId("m3"), text="and now?"),
        StartTurn(by=SYSTEM, turn=TWO),
        told(asking_model(TWO, "r4", "r3"), TextStreamed(at=NOW, turn=TWO, text="let me")),
        asked(LAST),
        SendMessage(by=ANN, message=MessageId("m4"), text="wait"),
        InterruptTurn(by=ANN),
        *_among_teams(),
    )
    # The house keeps these two in a stream of its own; a session's fold lets them pass.
    deleted = SessionDeleted(at=here.at, session=SessionId("s0"), name="parent", entries=12, head="ab", by=ANN)
    led = RouteSet(at=here.at, route=Route(channel="web", reference="ann"), session=SessionId("s1"), by=ANN)
    return (*here.log, deleted, led)


def closed(log: tuple[AnyEvent, ...]) -> tuple[AnyEvent, ...]:
    """Return how the session ends after that."""
    return Situation(state=fold(log), at=NOW + 5_000).when(CloseSession(by=ANN, reason="that was all")).events


def main() -> None:
    log = story()
    log = (*log, *closed(log))
    assert not [event for event in log if is_for_project(event)]
    missing = event_types() - {type(event).__name__ for event in log}
    assert not missing, f"the story leaves out {sorted(missing)}"
    place = HERE / f"{__version__}.jsonl"
    if place.exists() and "--again" not in sys.argv:
        sys.exit(f"{place.name} is there already; `--again` replaces it, which is only right before a release")
    stored = [encode_event(event) for event in log]
    lines = [{"kind": kind, "version": version, "payload": json.loads(payload)} for kind, version, payload in stored]
    place.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    before_the_end = len(log) - len(closed(story()))
    pinned = [{"entries": count, **summary(fold(log[:count]), transcript(log[:count]))} for count in (before_the_end, len(log))]
    place.with_suffix(".json").write_text(json.dumps(pinned, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{place.name}: {len(log)} entries")


if __name__ == "__main__":
    main()
