"""Lines to and from a process: what is sent, what is heard, and that no line at all breaks anything."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.agents.external import ConversationUnknown, ReportedEnd, WholeText
from curtainwall.agents.external.process.wire import (
    ClaudeStreamParser,
    CompactionDone,
    CompactionSummary,
    ControlReply,
    ControlRequest,
    LoggedOut,
    MeasuredContext,
    Noise,
    interrupt_line,
    message_line,
    message_mark,
    ping_line,
)
from tests.support.covers import covers


def heard(*events: Any) -> list[Any]:
    listener = ClaudeStreamParser()
    return [signal for event in events for signal in listener.parse_stdout(json.dumps(event).encode())]


def test_a_message_has_the_same_mark_however_often_it_is_made_and_another_in_another_turn() -> None:
    assert message_mark("t1", "hello") == message_mark("t1", "hello")
    assert len({message_mark("t1", "hello"), message_mark("t2", "hello"), message_mark("t1", "hell")}) == 3


def test_lines_are_one_line_each_whatever_is_in_them() -> None:
    for line in (message_line('a\nb"\ud800', "m"), interrupt_line("i"), ping_line("p")):
        assert line.count(b"\n") == 1
        json.loads(line)


@covers("process.only-our-tools")
@pytest.mark.parametrize(("tool", "behaviour"), [("mcp__curtainwall__shell__run", "allow"), ("Bash", "deny"), ("mcp__other__x", "deny")])
def test_only_the_sessions_tools_are_let_through_to_the_gate(tool: str, behaviour: str) -> None:
    wish = {"subtype": "can_use_tool", "tool_name": tool, "input": {"a": 1}}
    (wished,) = heard({"type": "control_request", "request_id": "r", "request": wish})
    assert isinstance(wished, ControlRequest)
    assert json.loads(wished.reply)["response"]["response"]["behavior"] == behaviour


def test_any_other_wish_is_answered_with_an_error_so_that_nobody_waits() -> None:
    (wished,) = heard({"type": "control_request", "request_id": "r", "request": {"subtype": "elicitation"}})
    assert isinstance(wished, ControlRequest)
    assert json.loads(wished.reply)["response"]["subtype"] == "error"


def test_a_turn_is_measured_by_its_last_message_and_the_models_window() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}
    said = {"type": "assistant", "parent_tool_use_id": None, "message": {"usage": usage, "content": [{"type": "text", "text": "hi"}]}}
    end = {"type": "result", "subtype": "success", "is_error": False, "usage": {"input_tokens": 30}, "total_cost_usd": 0.5}
    models = {"modelUsage": {"big": {"contextWindow": 1000}, "small": {"contextWindow": 200}}}
    assert heard(said, {**end, **models}) == [
        WholeText("hi"),
        MeasuredContext(16, 1000, {"input_tokens": 30, "cost_usd": 0.5}),
        ReportedEnd(),
    ]


def test_a_compaction_tells_its_figures_and_its_summary() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9, "post_tokens": 4}}
    summary = {"type": "user", "message": {"role": "user", "content": "what was said"}}
    assert heard(boundary, summary, summary) == [CompactionDone(9, 4), CompactionSummary("what was said")]


@pytest.mark.parametrize(
    ("result", "signal"),
    [
        ({"result": "Not logged in · Please run /login"}, LoggedOut("Not logged in · Please run /login")),
        ({"errors": ["No conversation found with session ID: x"]}, ConversationUnknown()),
        ({"errors": ["Failed to resume session: EACCES"]}, ConversationUnknown()),
    ],
)
def test_an_error_with_a_remedy_of_its_own_is_told_apart(result: Any, signal: Any) -> None:
    assert heard({"type": "result", "subtype": "error_during_execution", "is_error": True, **result})[-1] == signal


def test_what_an_interrupt_cut_off_is_no_whole_message() -> None:
    assert heard({"type": "assistant", "parent_tool_use_id": None, "aborted": True, "message": {"content": []}}) == []
    assert heard({"type": "control_response", "response": {"request_id": "p"}}) == [ControlReply("p")]


_ODD = st.sampled_from(
    [None, True, -1, 1.5, "", "init", "success", [], [1, "x", {}], {}, {"content": [None, {"type": "text"}]}, {"usage": 3}]
)
_KINDS = st.sampled_from(["system", "assistant", "user", "result", "control_request", "control_response", "stream_event", "x"])
_NAMES = st.sampled_from(
    "subtype message usage modelUsage request response compact_metadata event parent_tool_use_id errors mcp_servers".split()
)


@given(
    st.binary(max_size=50)
    | st.builds(lambda kind, more: json.dumps({**more, "type": kind}).encode(), _KINDS, st.dictionaries(_NAMES, _ODD, max_size=5))
)
def test_no_line_breaks_the_listener(line: bytes) -> None:
    listener = ClaudeStreamParser()
    for signal in listener.parse_stdout(line):
        assert not isinstance(signal, Noise) or signal.line == line[:200]
