"""What hooks say: exit codes, text, JSON, and the one reply that several make together."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.model import HookReply, HookSays
from curtainwall.tools.hooks.process import HookRun
from curtainwall.tools.hooks.replies import LONGEST, HookAnswer, merge, read_reply
from tests.support.covers import covers

BEFORE = "PreToolUse"


def printed(**fields: Any) -> HookRun:
    return HookRun(out=json.dumps(fields).encode())


def specific(**fields: Any) -> HookRun:
    return printed(hookSpecificOutput={"hookEventName": BEFORE, **fields})


def reply(event: str, *runs: HookRun) -> HookReply:
    return merge(event, [(f"h{number}", read_reply(event, ran)) for number, ran in enumerate(runs)])


def test_silence_means_nothing() -> None:
    assert reply(BEFORE, HookRun()) == reply(BEFORE, HookRun(out=b"  \n")) == reply("Stop", HookRun()) == HookReply()


@covers("hooks.exit-2-blocks")
def test_exit_2_blocks_with_stderr_as_reason() -> None:
    assert reply(BEFORE, HookRun(2, b"", b"not on sundays\n")).says == HookSays(effect="deny", hook="h0", reason="not on sundays")
    assert reply(BEFORE, HookRun(2, b"ignored", b"")).says == HookSays(effect="deny", hook="h0", reason="it gave no reason")
    for event in ("UserPromptSubmit", "Stop", "PreCompact"):
        assert reply(event, HookRun(2, b"", b"no")).blocked == "no"


def test_an_allow_cannot_undo_exit_2_and_a_reason_in_json_is_used() -> None:
    allowed = specific(permissionDecision="allow", permissionDecisionReason="fine").out
    denied = specific(permissionDecision="deny", permissionDecisionReason="because").out
    assert reply(BEFORE, HookRun(2, allowed, b"no")).says == HookSays(effect="deny", hook="h0", reason="no")
    assert reply(BEFORE, HookRun(2, denied, b"no")).says == HookSays(effect="deny", hook="h0", reason="because")
    assert reply(BEFORE, HookRun(2, b"{", b"no")).says == HookSays(effect="deny", hook="h0", reason="no")


@covers("hooks.a-crash-denies")
@pytest.mark.parametrize(
    "ran",
    [
        HookRun(1, b"", b"Traceback"),
        HookRun(1, b'{"decision": "approve"}'),
        HookRun(127),
        HookRun(failure="it was ended by signal 9"),
        HookRun(0, b"{"),
        HookRun(0, b'{"a": 1'),
        HookRun(0, b'{"a": 1} trailing'),
        HookRun(0, b'{"continue": "no"}'),
        HookRun(0, b'{"decision": "maybe"}'),
        HookRun(0, b'{"decision": 1}'),
        HookRun(0, b'{"hookSpecificOutput": []}'),
        HookRun(0, b'{"hookSpecificOutput": {"permissionDecision": "defer"}}'),
        HookRun(0, b'{"hookSpecificOutput": {"updatedInput": "x"}}'),
        HookRun(0, b'{"hookSpecificOutput": {"updatedInput": {"a": NaN}}}'),
        HookRun(0, b'{"hookSpecificOutput": {"updatedInput": {"a": 1e999}}}'),
        HookRun(0, b'{"hookSpecificOutput": {"hookEventName": "Stop", "permissionDecision": "allow"}}'),
        HookRun(0, b'{"a":' * 100_000),
        HookRun(0, b'{"a":' * 400 + b"1" + b"}" * 400 + b","),
        HookRun(0, b"\xff\xfe garbage"),
        HookRun(0, b'{"n": ' + b"9" * 10_000 + b"}"),
    ],
)
def test_whatever_is_wrong_with_a_hook_before_a_call_denies_it(ran: HookRun) -> None:
    says = reply(BEFORE, ran).says
    assert says is not None
    assert (says.effect, says.hook) == ("deny", "h0")
    assert says.reason.startswith("the hook `h0` failed: ")


@pytest.mark.parametrize("ran", [HookRun(1, b"", b"x"), HookRun(failure="late"), HookRun(0, b"{")])
@pytest.mark.parametrize("event", ["PostToolUse", "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop", "PreCompact", "Notification"])
def test_elsewhere_a_failure_blocks_nothing(event: str, ran: HookRun) -> None:
    assert reply(event, ran) == HookReply()
    assert read_reply(event, ran).failure


@covers("hooks.allow-never-widens")
def test_allow_says_nothing_ask_and_deny_tighten() -> None:
    assert reply(BEFORE, specific(permissionDecision="allow", permissionDecisionReason="fine")) == HookReply()
    assert reply(BEFORE, printed(decision="approve", reason="fine")) == HookReply()
    assert reply(BEFORE, specific(permissionDecision="ask", permissionDecisionReason="look")).says == HookSays(
        effect="ask", hook="h0", reason="look"
    )
    assert reply(BEFORE, specific(permissionDecision="deny", permissionDecisionReason="no")).says == HookSays(
        effect="deny", hook="h0", reason="no"
    )
    assert reply(BEFORE, printed(decision="block", reason="old")).says == HookSays(effect="deny", hook="h0", reason="old")


def test_nulls_and_fields_without_a_meaning_here_are_as_if_they_were_not_there() -> None:
    told = printed(decision=None, reason=None, hookSpecificOutput=None, suppressOutput=True, terminalSequence="\x07")
    assert reply(BEFORE, told) == HookReply()
    assert reply("Stop", printed(somethingNew=1)) == HookReply()


@covers("hooks.a-guard-answers-clearly")
@pytest.mark.parametrize(
    ("out", "why"),
    [
        (b'checking\n{"decision": "block", "reason": "no"}', "its output is not a JSON object"),
        (b'checking {"decision": "block"}', "its output is not a JSON object"),
        (b"ok", "its output is not a JSON object"),
        (b"all is well\nreally\n", "its output is not a JSON object"),
        (b'\xef\xbb\xbf{"decision": "block"}', "its output is not a JSON object"),
        (b'\x00{"decision": "block"}', "its output is not a JSON object"),
        (b'[{"decision": "block"}]', "its output is not a JSON object"),
        (b'"deny"', "its output is not a JSON object"),
        (b"null", "its output is not a JSON object"),
        (b"true", "its output is not a JSON object"),
        (b"0", "its output is not a JSON object"),
        (b'{"decision": "approve"}\n{"decision": "block"}', "Extra data"),
        (b'{"decision": "approve"}\ndone', "Extra data"),
        (b'{"decision": "block"', "Expecting"),
        (b'{"decision": "block", "decision": "approve"}', 'the key "decision" is given twice'),
        (
            b'{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecision": "allow"}}',
            'the key "permissionDecision" is given twice',
        ),
        (
            b'{"hookSpecificOutput": {"permissionDecision": "deny"}, "hookSpecificOutput": {}}',
            'the key "hookSpecificOutput" is given twice',
        ),
        (b'{"decision": "deny"}', "`decision`"),
        (b'{"decision": "Block"}', "`decision`"),
        (b'{"decision": ["block"]}', "`decision`"),
        (b'{"hookSpecificOutput": {"permissionDecision": "DENY"}}', "`hookSpecificOutput.permissionDecision`"),
        (b'{"hookSpecificOutput": "deny"}', "`hookSpecificOutput`"),
        (b'{"continue": 0}', "`continue`"),
        (b'{"permissionDecision": "deny"}', "`permissionDecision` must be inside `hookSpecificOutput`"),
        (b'{"hookSpecificOutput": {"decision": "block"}}', "`decision` must be outside `hookSpecificOutput`"),
        (b'{"permision": "deny"}', "`permision` is not a field of an answer"),
        (b'{"Decision": "block"}', "`Decision` is not a field of an answer"),
        (b'{"goes_on": false}', "`goes_on` is not a field of an answer"),
        (b'{"hookSpecificOutput": {"permissionDecison": "deny"}}', "`permissionDecison` is not a field of an answer"),
        (b'{"async": true}', "`async` is not a field of an answer"),
        (b'{"systemMessage": "x", "n": 1e999}', "a number is too big"),
        (b'{"decision": NaN}', "`NaN` is not a JSON number"),
        ('{"decision": "block"}'.encode("utf-16"), "no UTF-8"),
    ],
)
def test_a_guard_that_prints_anything_but_one_clear_answer_denies_and_says_what_to_print(out: bytes, why: str) -> None:
    says = reply(BEFORE, HookRun(out=out)).says
    assert says is not None
    assert (says.effect, why in says.reason) == ("deny", True), says.reason
    assert "UTF-8" in says.reason or says.reason.endswith("print nothing or one JSON object on stdout, and log lines on stderr")


@pytest.mark.parametrize("event", ["UserPromptSubmit", "SessionStart", "Stop", "PreCompact", "PostToolUse"])
@pytest.mark.parametrize(
    "out",
    [
        b'checking\n{"decision": "block", "reason": "no"}',
        b'checking\n\n  {\n "continue": false\n}\ndone',
        b'\xef\xbb\xbf{"decision": "block"}',
        b'not json}\n{"hookSpecificOutput": {"additionalContext": "x"}}',
    ],
)
def test_an_answer_among_other_text_is_a_failure_that_is_noted(event: str, out: bytes) -> None:
    assert "an answer among other text" in read_reply(event, HookRun(out=out)).failure
    assert reply(event, HookRun(out=out)) == HookReply()


@pytest.mark.parametrize(
    "out", [b'The schema:\n{"type": "object", "reason": "x"}', b"Use {decision} as\n{\nthe name", b"{ x\n" * 50 + b"a"]
)
def test_braces_in_plain_text_are_no_answer(out: bytes) -> None:
    assert read_reply("UserPromptSubmit", HookRun(out=b"- " + out)).context == f"- {out.decode()}"


def test_a_stop_denies_the_call_and_says_that_the_agent_must_not_go_on() -> None:
    told = {"continue": False, "stopReason": "enough"}
    stopped = reply(BEFORE, printed(**told))
    assert stopped.says == HookSays(effect="deny", hook="h0", reason="enough")
    assert stopped.stopped == "enough"
    assert reply("PostToolUse", printed(**told)) == HookReply(stopped="enough")
    assert reply("Stop", printed(**{"continue": True})) == HookReply()


@covers("hooks.plain-text-is-context")
def test_plain_text_is_context_where_a_prompt_or_a_session_begins() -> None:
    for event in ("UserPromptSubmit", "SessionStart"):
        assert reply(event, HookRun(out=b"the branch is main\n")).context == "the branch is main"
    for event in ("PostToolUse", "Stop", "Notification"):
        assert reply(event, HookRun(out=b"the branch is main\n")) == HookReply()


def test_additional_context_and_messages_are_passed_on() -> None:
    told = printed(systemMessage="look out", hookSpecificOutput={"additionalContext": "by the way"})
    for event in (BEFORE, "PostToolUse", "UserPromptSubmit", "SessionStart"):
        assert reply(event, told, told) == HookReply(context="by the way\nby the way", warnings=("look out", "look out"))


def test_a_refusal_after_a_call_is_told_to_the_agent() -> None:
    assert reply("PostToolUse", printed(decision="block", reason="lint failed")) == HookReply(context="lint failed")
    assert reply("PostToolUse", HookRun(2, b"", b"lint failed")) == HookReply(context="lint failed")
    assert reply("Notification", HookRun(2, b"", b"no")) == HookReply()


@covers("hooks.the-strictest-wins")
def test_the_strictest_of_several_wins_whatever_their_order() -> None:
    allow, ask, deny = (specific(permissionDecision=each, permissionDecisionReason=each) for each in ("allow", "ask", "deny"))
    for runs in ((allow, ask, deny), (deny, ask, allow), (ask, deny, allow)):
        says = reply(BEFORE, *runs).says
        assert says is not None
        assert (says.effect, says.reason) == ("deny", "deny")
    assert reply(BEFORE, allow, ask).says == HookSays(effect="ask", hook="h1", reason="ask")
    assert reply(BEFORE, ask, HookRun(1)).says == HookSays(
        effect="deny", hook="h1", reason="the hook `h1` failed: it ended with exit code 1"
    )


def test_two_that_ask_are_another_question_than_one_of_them() -> None:
    ask = specific(permissionDecision="ask", permissionDecisionReason="look")
    assert reply(BEFORE, ask, ask).says == HookSays(effect="ask", hook="h0+h1", reason="look; look")


@covers("hooks.rewrites-must-agree")
def test_rewritten_arguments_must_agree() -> None:
    one, same, other = specific(updatedInput={"a": 1, "b": 2}), specific(updatedInput={"b": 2, "a": 1}), specific(updatedInput={"a": 2})
    assert reply(BEFORE, one).arguments == {"a": 1, "b": 2}
    assert reply(BEFORE, one, same, HookRun()).arguments == {"a": 1, "b": 2}
    ambiguous = reply(BEFORE, one, other)
    assert ambiguous.arguments is None
    assert ambiguous.says is not None
    assert (ambiguous.says.effect, ambiguous.says.hook) == ("deny", "ambiguous")
    assert reply("PostToolUse", one) == HookReply()


def test_a_rewrite_can_come_with_an_ask_and_is_nothing_beside_a_denial() -> None:
    asked = reply(BEFORE, specific(updatedInput={"a": 1}, permissionDecision="ask", permissionDecisionReason="look"))
    assert (asked.arguments, asked.says) == ({"a": 1}, HookSays(effect="ask", hook="h0", reason="look"))
    assert reply(BEFORE, specific(updatedInput={"a": 1}), HookRun(2)).arguments is None


def test_long_texts_are_cut_and_half_characters_replaced() -> None:
    context = reply("SessionStart", HookRun(out=b"x" * 50_000)).context
    assert len(context) < LONGEST + 50
    assert context.endswith("…[40000 characters cut]")
    assert reply(BEFORE, HookRun(out=b'{"systemMessage": "\\ud800"}')).warnings == ("?",)


@covers("hooks.output-is-hostile")
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["continue", "decision", "reason", "hookSpecificOutput", "permissionDecision", "updatedInput", "x"]), inner
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_a_hook_prints_is_nothing_a_tightening_or_a_failure(out: bytes) -> None:
    said = read_reply(BEFORE, HookRun(out=out))
    assert isinstance(said, HookAnswer)
    says = merge(BEFORE, [("h", said)]).says
    assert says is None or says.effect in {"ask", "deny"}
