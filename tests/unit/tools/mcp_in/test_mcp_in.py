"""The parts of MCP in by themselves: frames, names, eras, results, each compared with what the SDK says."""

from itertools import pairwise
from typing import Any, get_args

import mcp_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types.methods import CLIENT_REQUESTS, validate_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError
from pydantic_core import from_json, to_json

from curtainwall.model import (
    Answer,
    Broken,
    CallId,
    Closed,
    CurtainwallError,
    Effect,
    NotReady,
    RuleId,
    ToolResult,
    TryLater,
    Verdict,
    denial,
)
from curtainwall.tools import NATIVE_TOOLS, Catalogue
from curtainwall.tools.mcp_in.bounds import McpBounds, SocketLoad
from curtainwall.tools.mcp_in.calls import failure_of, refusal, result_of
from curtainwall.tools.mcp_in.frames import FrameFault, LineBuffer, McpNotification, McpRequest, count_values, parse_frame
from curtainwall.tools.mcp_in.handshake import ProtocolEra, ServerDescription, ToolNames, envelope_version
from curtainwall.tools.mcp_in.progress import ProgressReporter
from tests.support.covers import covers
from tests.support.mcp import ENVELOPE

ALLOWED = Verdict(effect=Effect.ALLOW, because=(RuleId("workspace-free"),))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


# Frames


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.sampled_from(["2.0", "1.0"]) | json_values,
            "id": json_values,
            "method": st.sampled_from(["ping", "tools/call"]) | json_values,
            "params": json_values,
            "result": json_values,
            "error": json_values,
        },
    )
)
@settings(max_examples=300, deadline=None)
def test_what_we_take_for_a_request_the_sdk_does_too(frame: dict[str, Any]) -> None:
    line = to_json(frame)
    try:
        ours = parse_frame(line, McpBounds())
    except FrameFault:
        return
    if isinstance(ours, McpRequest):
        theirs = mcp_types.JSONRPCRequest.model_validate_json(line)
        assert (theirs.id, theirs.method, theirs.params or {}) == (ours.id, ours.method, ours.params)
    elif isinstance(ours, McpNotification) and isinstance(frame.get("params", {}), dict):
        assert mcp_types.JSONRPCNotification.model_validate_json(line).method == ours.method


@pytest.mark.parametrize("id_", [0, -7, 2**62, "", "x", "7"])
def test_every_sane_id_is_taken(id_: int | str) -> None:
    assert parse_frame(to_json({"jsonrpc": "2.0", "id": id_, "method": "ping"}), McpBounds()) == McpRequest(id_, "ping", {})


def test_replies_are_passed_over_because_we_ask_nothing() -> None:
    assert parse_frame(b'{"jsonrpc":"2.0","id":1,"result":{}}', McpBounds()) is None
    assert parse_frame(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', McpBounds()) is None


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_lines_are_the_same_however_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    lines, taken = LineBuffer(1_000), []
    places = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    for start, end in pairwise(places):
        lines.feed(data[start:end])
        while (line := lines.next()) is not None:
            taken.append(line)
    assert taken == data.split(b"\n")[:-1]
    assert not lines.is_fresh or not len(lines)
    assert lines.clear() == len(data) - sum(len(line) + 1 for line in taken)


def test_a_line_is_too_long_whether_it_ends_or_not() -> None:
    for data in (b"x" * 11, b"x" * 11 + b"\n"):
        lines = LineBuffer(10)
        lines.feed(data)
        with pytest.raises(FrameFault, match="longer than 10 bytes") as told:
            lines.next()
        assert told.value.fatal


@given(json_values)
def test_parts_are_never_counted_too_low(value: JsonValue) -> None:
    def values(part: JsonValue) -> int:
        if isinstance(part, dict):
            return 1 + sum(values(inner) for inner in part.values())
        return 1 + sum(values(inner) for inner in part) if isinstance(part, list) else 1

    assert values(value) <= 2 * count_values(to_json(value)) + 1


def test_what_stands_inside_strings_is_no_part() -> None:
    text = to_json({"a": '[{,\\"' * 5_000, "b": [1, 2]})
    assert count_values(text) == 4


def test_rest_is_asked_for_only_after_long_parsing() -> None:
    load = SocketLoad(McpBounds(held=10))
    load.spent(0.001)
    assert load.rests_for() == 0
    load.spent(0.5)
    assert 1 < load.rests_for() <= 2
    assert load.take(10)
    assert not load.take(1)
    load.give_back(10)
    assert load.take(1)


# Names


@covers("mcp-in.names-fit-clients")
@given(st.lists(st.tuples(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=90)), max_size=20, unique=True))
def test_names_on_the_wire_fit_clients_and_lead_back(pairs: list[tuple[str, str]]) -> None:
    full_names = list(dict.fromkeys(f"{server.replace('.', '')}.{tool}" for server, tool in pairs))
    names = ToolNames(full_names)
    for full in full_names:
        wire = names.wire(full)
        assert len(wire) <= 64
        assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in wire)
        assert names.full(full) == full
        assert names.full(wire) == full or wire in full_names
    assert len({names.wire(full) for full in full_names}) == len(full_names)


def test_names_of_native_tools_read_as_one_expects() -> None:
    names = ToolNames(spec.full_name for spec in NATIVE_TOOLS)
    assert names.wire("filesystem.read_file") == "filesystem__read_file"
    assert names.full("git__set_working_dir") == "git.set_working_dir"
    assert names.full("nobody__knows__it") == "nobody.knows__it"


# Eras


@pytest.mark.parametrize(
    "meta",
    [
        None,
        [],
        {},
        dict(ENVELOPE),
        {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2025-11-25"},
        {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"},
        {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": 7},
        {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
        {"io.modelcontextprotocol/clientCapabilities": {}},
    ],
)
def test_envelopes_are_judged_as_the_sdk_judges_them(meta: JsonValue) -> None:
    theirs = classify_inbound_request({"method": "tools/list", "params": {"_meta": meta}})
    try:
        ours: str | int = envelope_version({"_meta": meta})
    except FrameFault as fault:
        ours = fault.code
    assert ours == (theirs.protocol_version if isinstance(theirs, InboundModernRoute) else theirs.code)


def initialize(version: str = "2025-06-18") -> McpRequest:
    return McpRequest(1, "initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "n", "version": "0"}})


def enveloped(method: str) -> McpRequest:
    return McpRequest(1, method, {"_meta": dict(ENVELOPE)})


def code_of(era: ProtocolEra, request: McpRequest) -> int:
    with pytest.raises(FrameFault) as told:
        era.admit(request)
    return told.value.code


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_the_handshake_settles_on_the_clients_version_where_we_speak_it(version: str) -> None:
    era = ProtocolEra()
    era.admit(initialize(version))
    assert era.agree(version) == version
    assert era.admit(McpRequest(2, "tools/list", {})) == version
    assert code_of(era, enveloped("tools/list")) == -32600


def test_an_unknown_version_is_answered_with_our_newest_handshake() -> None:
    assert [ProtocolEra().agree(version) for version in ("2030-01-01", "2026-07-28", None)] == ["2025-11-25"] * 3


def test_before_the_handshake_there_is_ping_and_nothing_else() -> None:
    era = ProtocolEra()
    assert era.admit(McpRequest(1, "ping", {})) == "2025-11-25"
    assert code_of(era, McpRequest(1, "tools/list", {})) == -32600
    assert code_of(era, McpRequest(1, "no/such", {})) == -32601
    assert code_of(era, McpRequest(1, "server/discover", {})) == -32602


def test_the_newer_era_has_no_handshake_no_ping_and_an_envelope_each_time() -> None:
    era = ProtocolEra()
    assert era.admit(enveloped("server/discover")) == "2026-07-28"
    assert era.is_modern
    assert code_of(era, initialize()) == -32022
    assert code_of(era, enveloped("ping")) == -32601
    assert code_of(era, McpRequest(1, "tools/list", {})) == -32602


def test_a_client_from_the_future_may_go_on_with_the_handshake() -> None:
    era = ProtocolEra()
    request = McpRequest(1, "server/discover", {"_meta": {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}})
    with pytest.raises(FrameFault) as told:
        era.admit(request)
    assert told.value.data == {"supported": ["2026-07-28"], "requested": "2099-01-01"}
    assert era.admit(initialize()) == "2025-11-25"


def test_params_are_checked_against_the_version_and_not_repeated() -> None:
    era = ProtocolEra()
    era.agree("2025-11-25")
    with pytest.raises(FrameFault, match=r"invalid params: `params\.name`") as told:
        era.admit(McpRequest(1, "tools/call", {"name": {"secret": "hunter2"}}))
    assert "hunter2" not in str(told.value)


# What we say


def shape_of(method: str, version: str, result: bytes) -> dict[str, Any]:
    told = from_json(result)
    validate_server_result(method, version, told)
    return told


@pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS)
def test_greetings_have_each_versions_shape(version: str) -> None:
    greetings = ServerDescription(Catalogue(NATIVE_TOOLS).listing)
    tools = shape_of("tools/list", version, greetings.tools(version, {}))["tools"]
    assert len(tools) == len(NATIVE_TOOLS)
    assert greetings.tools(version, {}) is greetings.tools(version, {})
    if version in HANDSHAKE_PROTOCOL_VERSIONS:
        assert shape_of("initialize", version, greetings.initialize(version))["protocolVersion"] == version
    else:
        assert shape_of("server/discover", version, greetings.discover(version))["supportedVersions"] == ["2026-07-28"]
    with pytest.raises(FrameFault, match="one page"):
        greetings.tools(version, {"cursor": "x"})


def test_a_tool_that_comes_later_is_known_at_once() -> None:
    specs = list(NATIVE_TOOLS[:1])
    greetings = ServerDescription(lambda: tuple(specs))
    first = greetings.tools("2025-11-25", {})
    specs.append(NATIVE_TOOLS[1])
    assert greetings.full_name(NATIVE_TOOLS[1].full_name.replace(".", "__")) == NATIVE_TOOLS[1].full_name
    assert greetings.tools("2025-11-25", {}) != first


def answer(value: JsonValue, *, ok: bool = True) -> Answer:
    return Answer(call=CallId("c"), verdict=ALLOWED, result=ToolResult(ok=ok, value=value))


@pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS)
@given(value=json_values, ok=st.booleans())
@settings(deadline=None)
def test_results_have_each_versions_shape(version: str, value: JsonValue, ok: bool) -> None:
    told = shape_of("tools/call", version, result_of(answer(value, ok=ok), version))
    assert told["isError"] is not ok
    assert told["content"][0]["text"] == (value if isinstance(value, str) else told["content"][0]["text"])
    assert ("structuredContent" in told) == (isinstance(value, dict) and version >= "2025-06-18")


def test_half_characters_from_file_names_do_not_break_a_reply() -> None:
    told = shape_of("tools/call", "2025-11-25", result_of(answer({"name": "a\udcff", "b\udcff": ["\udcff"]}), "2025-11-25"))
    assert told["structuredContent"] == {"name": "a?", "b?": ["?"]}


@covers("mcp-in.refusals-say-why")
def test_a_refusal_never_tells_an_approval() -> None:
    for reason in ("a human is asked (approval abc123)", "approval `abc123` expired"):
        assert "abc123" not in refusal(Verdict(effect=Effect.DENY, because=(RuleId("r"),), reason=reason))
    waiting = Answer(call=CallId("c"), verdict=Verdict(effect=Effect.ASK, because=(), reason="approval abc123"), waiting=True)
    assert b"abc123" not in result_of(waiting, "2025-11-25")
    assert refusal(denial("unknown-tool", "there is no tool `x`")) == (
        "Refused by `unknown-tool`: there is no tool `x`. Instead: call one of the tools in the list."
    )


@pytest.mark.parametrize("error", [Closed("x"), NotReady("x"), TryLater("in use by process 7"), Broken("/root/secret")])
def test_what_the_gate_could_not_take_is_told_without_our_insides(error: CurtainwallError) -> None:
    told = shape_of("tools/call", "2026-07-28", failure_of(error, "2026-07-28"))
    assert told["isError"]
    assert "process 7" not in str(told)
    assert "/root" not in str(told)


def test_the_sdk_still_says_what_we_rely_on() -> None:
    for method in ("initialize", "ping", "tools/call", "tools/list"):
        assert all((method, version) in CLIENT_REQUESTS for version in HANDSHAKE_PROTOCOL_VERSIONS)
    with pytest.raises(ValidationError):
        mcp_types.JSONRPCRequest.model_validate({"jsonrpc": "2.0", "id": 1.5, "method": "x"})
    assert int in {get_args(part)[0] if get_args(part) else part for part in get_args(mcp_types.RequestId)}


# Progress


def test_progress_only_grows_and_keeps_the_tools_words_back() -> None:
    sent: list[bytes] = []
    teller = ProgressReporter("t", sent.append)
    teller.wait()
    teller.wait()
    for step in (0, 1, 1, float("nan"), float("inf"), 3):
        teller.report(step, float("inf"), "sk-not-masked")
    told = [from_json(line)["params"] for line in sent]
    assert [each["progress"] for each in told] == [0.001, 0.002, 1, 3]
    assert {each["progressToken"] for each in told} == {"t"}
    assert b"sk-not-masked" not in b"".join(sent)


def test_a_tool_that_tells_of_every_byte_is_not_passed_on_for_ever() -> None:
    sent: list[bytes] = []
    teller = ProgressReporter(1, sent.append)
    for step in range(5_000):
        teller.report(step, None, None)
    assert len(sent) == 1_000
