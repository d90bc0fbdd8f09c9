"""A conversation is what the log tells: hand-made events in, the model's view out."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from curtainwall.agents.builtin.history import ConversationHistory
from curtainwall.agents.builtin.language_model import AgentMessage, Program, UserMessage
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    BlobRef,
    Broken,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallRequested,
    CompactionSet,
    Digest,
    HistoryCompacted,
    HistoryInherited,
    InstructionsPinned,
    MessageAccepted,
    MessageId,
    MessageWithdrawn,
    ModelChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Payload,
    PermitId,
    ProgramFinished,
    ProgramSaved,
    SavedProgram,
    SessionId,
    TextStreamed,
    TurnEnded,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Usage,
    encode_event,
)
from curtainwall.model.verdicts import denial
from tests.support.covers import covers
from tests.support.given import ANN, NOW, opened, read
from tests.support.talking import words

TURN = TurnId("t1")
BLOBS: dict[str, JsonValue] = {}


def load(payload: Payload) -> JsonValue:
    return payload.inline if payload.blob is None else BLOBS[payload.blob.digest]


def told(*events: AnyEvent | tuple[AnyEvent, ...]) -> ConversationHistory:
    """Return the conversation after these events."""
    talk = ConversationHistory(load)
    for each in events:
        for event in each if isinstance(each, tuple) else (each,):
            talk.take(event)
    return talk


def said(text: str, message: str = "m1", role: Any = "human") -> MessageAccepted:
    return MessageAccepted(at=NOW, message=MessageId(message), text=text, by=ANN, role=role)


def started(*messages: str, turn: TurnId = TURN) -> TurnStarted:
    return TurnStarted(at=NOW, turn=turn, messages=tuple(map(MessageId, messages or ("m1",))))


def requested(
    request: str = "r1", base: str | None = None, purpose: Any = "turn", system: str | None = "be good", **told_: Any
) -> ModelRequested:
    added = {"items": [{"kind": "human", "text": text} for text in told_.pop("humans", ())], **told_}
    added |= {} if system is None else {"system": system}
    return ModelRequested(at=NOW, turn=TURN, request=request, base=base, added=Payload(inline=added), model="m", purpose=purpose)


def replied(text: str, *programs: str, request: str = "r1", tokens: int = 10) -> tuple[AnyEvent, ...]:
    reply = AgentMessage(text=text, programs=tuple(Program(id=it, code=f"run({it})") for it in programs))
    payload = Payload(inline=reply.model_dump(mode="json"))
    usage = Usage(input_tokens=tokens, output_tokens=1)
    responded = ModelResponded(at=NOW, turn=TURN, request=request, raw=Payload(inline=None), normalised=payload, usage=usage)
    return (responded, AgentSpoke(at=NOW, turn=TURN, text=text)) if text else (responded,)


def ended(status: TurnStatus = TurnStatus.DONE, turn: TurnId = TURN) -> TurnEnded:
    return TurnEnded(at=NOW, turn=turn, status=status)


def finished(program: str, shown: str) -> ProgramFinished:
    return ProgramFinished(at=NOW, turn=TURN, program=program, ok=True, shown=Payload(inline=shown))


def saved(program: str, step: int) -> ProgramSaved:
    state = SavedProgram(program=program, step=step, state=Payload(inline=f"at {step}"))
    return ProgramSaved(at=NOW, turn=TURN, call=CallId(f"c{step}"), program=state)


def exchange(human: str, agent: str) -> tuple[AnyEvent, ...]:
    return (said(human), started(), requested(humans=[human]), *replied(agent), ended())


def inherited(*events: AnyEvent) -> HistoryInherited:
    rows = [{"type": kind, "event": json.loads(content)} for kind, _, content in map(encode_event, events)]
    BLOBS["history"] = rows
    ref = BlobRef(digest=Digest("history"), size=1)
    return HistoryInherited(at=NOW, parent=SessionId("s0"), upto=9, history=ref, how="fork")


@covers("agents.the-log-makes-the-conversation")
def test_a_request_is_the_one_before_plus_what_was_added() -> None:
    talk = told(opened(), *exchange("hello", "hi"), said("more", "m2"), started("m2", turn=TurnId("t2")))
    assert words(talk.items) == ["human: hello", "agent: hi"]
    assert words(talk.new) == ["human: more"]
    talk.take(requested("r2", base="r1", system=None, humans=["more"]))
    assert words(talk.items) == ["human: hello", "agent: hi", "human: more"]
    assert (talk.new, talk.request, talk.system, talk.replies) == ([], "r2", "be good", 1)


def test_a_request_without_a_base_starts_over() -> None:
    talk = told(opened(), *exchange("hello", "hi"), requested("r2", humans=["all anew"]))
    assert words(talk.items) == ["human: all anew"]


def test_a_changed_system_prompt_takes_the_place_of_the_one_before() -> None:
    assert told(opened(), requested(), requested("r2", base="r1", system="be better")).system == "be better"


def test_a_request_for_a_summary_leaves_the_conversation_alone() -> None:
    aside = requested("r2", purpose="summary", system="summarise", humans=["everything"])
    before = told(opened(), *exchange("hello", "hi"))
    for answer in (replied("in short: hi", request="r2")[0], ModelFailed(at=NOW, turn=TURN, request="r2", failure="no")):
        talk = told(opened(), *exchange("hello", "hi"), aside, answer)
        assert (talk.items, talk.system, talk.replies, talk.request) == (before.items, before.system, 1, "r1")


def test_a_failed_request_keeps_what_was_sent() -> None:
    failed = ModelFailed(at=NOW, turn=TURN, request="r1", failure="busy")
    talk = told(opened(), said("hello"), started(), requested(humans=["hello"]), failed, ended(TurnStatus.FAILED))
    assert words(talk.items) == ["human: hello"]
    assert talk.new == []


def test_programs_wait_in_order_and_their_results_come_in_that_order() -> None:
    talk = told(opened(), said("go"), started(), requested(humans=["go"]), replied("", "p1", "p2"))
    assert [program.id for program in talk.programs] == ["p1", "p2"]
    talk.take(finished("p1", "one"))
    assert [program.id for program in talk.programs] == ["p2"]
    talk.take(said("by the way", "m2", role="context"))
    talk.take(finished("p2", "two"))
    assert words(talk.new) == ["result: one", "result: two", "human: by the way"]


@pytest.mark.parametrize("status", [TurnStatus.INTERRUPTED, TurnStatus.FAILED, TurnStatus.DONE])
@covers("agents.every-program-has-a-result")
def test_a_program_that_the_turn_left_unfinished_has_a_result_all_the_same(status: TurnStatus) -> None:
    talk = told(opened(), said("go"), started(), requested(humans=["go"]), replied("", "p1", "p2"), finished("p1", "one"), ended(status))
    assert talk.programs == []
    assert words(talk.new)[0] == "result: one"
    assert words(talk.new)[1].startswith("result: The program was stopped")


def test_a_turn_that_waits_keeps_its_program() -> None:
    events = (opened(), said("go"), started(), requested(humans=["go"]), replied("", "p1"), saved("p1", 1), ended(TurnStatus.WAITING))
    talk = told(*events, TurnResumed(at=NOW, turn=TURN))
    assert [program.id for program in talk.programs] == ["p1"]
    assert talk.saved is not None
    assert talk.turn == TURN


@pytest.mark.parametrize("steps", [(1, 2, 3), (3, 2, 1), (2, 3, 1), (3, 1, 2)])
@covers("agents.the-furthest-place-counts")
def test_the_furthest_place_of_a_program_counts_whichever_was_logged_last(steps: tuple[int, ...]) -> None:
    talk = told(opened(), said("go"), started(), requested(humans=["go"]), replied("", "p1"), tuple(saved("p1", step) for step in steps))
    assert talk.saved is not None
    assert talk.saved.step == 3


def test_a_place_in_another_program_takes_over_and_an_ended_program_has_none() -> None:
    events = (opened(), said("go"), started(), requested(humans=["go"]), replied("", "p1", "p2"), saved("p1", 5))
    assert told(*events, finished("p1", "x")).saved is None
    after = told(*events, finished("p1", "x"), saved("p2", 1)).saved
    assert after is not None
    assert (after.program, after.step) == ("p2", 1)
    assert told(*events, replied("next", request="r2")).saved is None


@covers("agents.partial-text-is-seen-by-the-model")
def test_text_that_was_cut_off_is_known_to_the_model_afterwards() -> None:
    events = (opened(), said("tell me"), started(), requested(humans=["tell me"]), TextStreamed(at=NOW, turn=TURN, text="Once upon "))
    talk = told(*events, TextStreamed(at=NOW, turn=TURN, text="a time"), ended(TurnStatus.INTERRUPTED), said("go on", "m2"), started("m2"))
    assert words(talk.new) == ["agent: Once upon a time[cut off here]", "human: go on"]


def test_streamed_text_that_became_whole_is_not_told_twice() -> None:
    talk = told(
        opened(), said("hi"), started(), requested(humans=["hi"]), TextStreamed(at=NOW, turn=TURN, text="hel"), replied("hello"), ended()
    )
    assert words(talk.items) == ["human: hi", "agent: hello"]
    assert talk.new == []
    assert talk.last_words == "hello"


def test_a_withdrawn_message_never_reaches_the_model() -> None:
    withdrawn = MessageWithdrawn(at=NOW, message=MessageId("m1"), by=ANN)
    talk = told(opened(), said("one"), said("two", "m2"), withdrawn, started("m2"))
    assert words(talk.new) == ["human: two"]


def test_context_is_told_without_a_turn() -> None:
    assert words(told(opened(), said("the port is 80", role="context")).new) == ["human: the port is 80"]


def test_after_compaction_the_summary_and_the_tail_are_all_there_is() -> None:
    items = [{"kind": "human", "text": "in short"}, {"kind": "agent", "text": "yes"}]
    event = HistoryCompacted(at=NOW, trigger="asked", before=100, after=7, upto=3, summary=Payload(inline={"items": items}))
    talk = told(opened(), *exchange("hello", "hi"), said("ctx", "m2", role="context"), event)
    assert words(talk.items) == ["human: in short", "agent: yes"]
    assert words(talk.new) == ["human: ctx"]
    assert (talk.request, talk.used, talk.replies) == (None, 7, 1)


@covers("agents.a-fork-knows-and-goes-its-own-way")
def test_a_fork_knows_what_its_parent_knew_and_continues_nothing_of_it() -> None:
    parent = (*exchange("hello", "hi"), said("go", "m2"), started("m2"), requested("r2", base="r1", system=None, humans=["go"]))
    parent += (*replied("", "p1", request="r2"), saved("p1", 4), said("queued there", "m3"))
    talk = told(opened(), inherited(*parent))
    assert words(talk.items) == ["human: hello", "agent: hi", "human: go", "agent:  + program"]
    assert words(talk.new)[0].startswith("result: The program was stopped")
    assert (talk.programs, talk.saved, talk.turn, talk.calls) == ([], None, None, {})
    talk.take(said("mine", "m9"))
    talk.take(started("m9", "m3"))
    assert words(talk.new)[1:] == ["human: mine"]


def test_a_fork_of_a_fork_knows_both() -> None:
    first = inherited(*exchange("first", "one"))
    BLOBS["older"] = BLOBS["history"]
    older = first.model_copy(update={"history": BlobRef(digest=Digest("older"), size=1)})
    second = inherited(
        older, said("second", "m2"), started("m2"), requested("r2", base="r1", humans=["second"]), *replied("two", request="r2")
    )
    assert words(told(opened(), second).items) == ["human: first", "agent: one", "human: second", "agent: two"]


def test_a_reset_knows_nothing() -> None:
    talk = told(opened(), HistoryInherited(at=NOW, parent=SessionId("s0"), upto=9, history=None, how="reset"))
    assert (talk.items, talk.new) == ([], [])


@pytest.mark.parametrize("rows", ["x", [1], [{"type": 1, "event": {}}], [{"event": {}}]])
def test_an_inherited_history_of_another_form_is_broken(rows: JsonValue) -> None:
    BLOBS["odd"] = rows
    ref = BlobRef(digest=Digest("odd"), size=1)
    with pytest.raises(Broken, match="unknown form"):
        told(opened(), HistoryInherited(at=NOW, parent=SessionId("s0"), upto=9, history=ref, how="fork"))


def test_the_calls_of_the_turn_are_known_with_what_came_of_them() -> None:
    calls = [CallId(f"c{n}") for n in range(5)]
    asked = [CallRequested(at=NOW, call=call, subject=read("/a"), turn=TURN) for call in calls]
    elsewhere = CallRequested(at=NOW, call=CallId("other"), subject=read("/a"), turn=None)
    ends = (
        CallFinished(at=NOW, call=calls[0], permit=PermitId("p"), ok=True, result=Payload(inline=1)),
        CallDenied(at=NOW, call=calls[1], verdict=denial("no", "no")),
        CallLost(at=NOW, call=calls[2]),
        CallDropped(at=NOW, call=calls[3], why="gone"),
        CallLost(at=NOW, call=CallId("other")),
    )
    talk = told(opened(), said("go"), started(), *asked, elsewhere, *ends)
    assert [type(talk.calls[call].end) for call in calls] == [CallFinished, CallDenied, CallLost, CallDropped, type(None)]
    assert "other" not in talk.calls
    talk.take(ended(TurnStatus.WAITING))
    assert len(talk.calls) == 5
    talk.take(ended())
    assert talk.calls == {}


def test_what_came_of_the_calls_of_a_program_that_is_over_is_not_kept() -> None:
    """A turn may have many programs, and each of them thousands of calls."""
    calls = [CallId(f"c{n}") for n in range(3)]
    asked = [CallRequested(at=NOW, call=call, subject=read("/a"), turn=TURN) for call in calls]
    end = CallFinished(at=NOW, call=calls[0], permit=PermitId("p"), ok=True, result=Payload(inline="x" * 30_000))
    talk = told(opened(), said("go"), started(), *asked, end, finished("p1", "seen"))
    assert list(talk.calls) == calls[1:]


def test_settings_and_pinned_instructions_are_known() -> None:
    pinned = InstructionsPinned(at=NOW, path="AGENTS.md", digest=Digest("d"), text=Payload(inline="be kind"))
    changed = (ModelChanged(at=NOW, model="other", by=ANN), CompactionSet(at=NOW, threshold=None, by=ANN))
    talk = told(opened(), pinned, *changed)
    assert (talk.model, talk.threshold, talk.threshold_set, talk.pinned) == ("other", None, True, {"AGENTS.md": ("d", "be kind")})


@covers("agents.the-log-makes-the-conversation")
def test_the_same_events_make_the_same_conversation_wherever_one_begins_to_read() -> None:
    events = [opened(), *exchange("hello", "hi"), said("go", "m2"), started("m2"), requested("r2", base="r1", humans=["go"])]
    events += [*replied("look", "p1", request="r2"), saved("p1", 1), finished("p1", "seen"), ended(TurnStatus.INTERRUPTED)]
    for cut in range(len(events) + 1):
        first = told(*events[:cut])
        for event in events[cut:]:
            first.take(event)
        assert first == told(*events)


def test_new_words_come_after_what_was_said_before() -> None:
    talk = told(opened(), said("a"), said("b", "m2"), started("m1", "m2"))
    assert talk.new == [UserMessage(text="a"), UserMessage(text="b")]
