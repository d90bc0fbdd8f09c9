"""A conversation keeps its shape on the way to a provider, and what was converted once is not converted again."""

import time
import weakref
from typing import cast

import pytest
from pydantic import JsonValue
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from curtainwall.agents.builtin.language_model import AgentMessage, ConversationItem, Program, ProgramOutcome, UserMessage
from curtainwall.agents.builtin.models.messages import MessageConverter, dump_reply, with_valid_calls
from tests.support.covers import covers


def shape(items: tuple[ConversationItem, ...]) -> list[list[str]]:
    """Return the messages, each as its parts in short."""
    found: list[list[str]] = []
    for message in MessageConverter().messages_of(items):
        parts: list[str] = []
        for part in message.parts:
            match part:
                case UserPromptPart(content=text):
                    parts.append(f"user {text}")
                case ToolReturnPart(content=text, tool_call_id=call):
                    parts.append(f"return {call} {text}")
                case TextPart(content=text):
                    parts.append(f"text {text}")
                case ToolCallPart(tool_call_id=call):
                    parts.append(f"call {call}")
                case _:
                    parts.append(type(part).__name__)
        found.append(parts)
    return found


RAN_TWO = AgentMessage(text="look", programs=(Program(id="a", code="1"), Program(id="b", code="2")))


def test_results_come_before_words_and_belong_to_their_programs() -> None:
    items = (
        UserMessage(text="hi"),
        RAN_TWO,
        UserMessage(text="wait"),
        ProgramOutcome(id="b", text="two"),
        ProgramOutcome(id="a", text="one"),
    )
    assert shape(items) == [["user hi"], ["text look", "call a", "call b"], ["return a one", "return b two", "user wait"]]


def test_a_prompt_may_end_in_several_messages() -> None:
    assert shape((UserMessage(text="one"), UserMessage(text="two"))) == [["user one", "user two"]]


@covers("models.every-call-has-its-result")
def test_a_program_without_a_result_gets_one_that_says_so() -> None:
    items = (UserMessage(text="hi"), RAN_TWO, ProgramOutcome(id="a", text="one"), AgentMessage(text="so"), UserMessage(text="go"))
    assert shape(items)[2] == ["return a one", "return b This program did not run."]


@covers("models.every-call-has-its-result")
def test_a_result_whose_program_was_summarised_stays_as_words() -> None:
    assert shape((UserMessage(text="summary"), ProgramOutcome(id="x", text="42"))) == [
        ["user summary", "user What an earlier program gave:\n42"]
    ]


def test_no_conversation_begins_or_ends_with_a_reply_or_holds_an_empty_text() -> None:
    assert shape((AgentMessage(text=""), AgentMessage(text="b"))) == [["user (go on)"], ["text (nothing)"], ["text b"], ["user (go on)"]]
    assert shape((UserMessage(text=" "),)) == [["user (nothing)"]]
    assert shape(()) == [["user (nothing)"]]


@covers("models.replies-are-sent-back-exactly")
def test_what_the_library_gave_is_restored_exactly() -> None:
    response = ModelResponse(
        parts=[
            ThinkingPart(content="hm", signature="signed", provider_name="anthropic"),
            TextPart(content="look"),
            ToolCallPart(tool_name="execute_code", args='{"code": "1"}', tool_call_id="a"),
        ],
        provider_name="anthropic",
        model_name="claude",
    )
    said = AgentMessage(text="look", programs=(Program(id="a", code="1"),), kept=dump_reply(response))
    assert MessageConverter().messages_of((UserMessage(text="hi"), said))[1] == response


@pytest.mark.parametrize("kept", [None, "text", {"kind": "response"}, {"kind": "response", "parts": 3}, {"kind": "request", "parts": []}])
def test_what_is_not_the_librarys_is_built_from_what_was_said(kept: JsonValue) -> None:
    said = AgentMessage(text="look", programs=(Program(id="a", code="1"),), kept=kept)
    assert shape((UserMessage(text="hi"), said, ProgramOutcome(id="a", text="x")))[1] == ["text look", "call a"]


@pytest.mark.parametrize("arguments", ["{bad", '{"code": 3}', "[]", "", None, {"program": "1"}])
@covers("models.unreadable-calls-become-programs-that-say-so")
def test_a_call_that_is_no_program_becomes_one_that_says_why(arguments: str | dict[str, object] | None) -> None:
    call = ToolCallPart(tool_name="execute_code", args=arguments, tool_call_id="a")
    response, programs = with_valid_calls(ModelResponse(parts=[call]))
    with pytest.raises(ValueError, match="could not be read, and nothing was run"):
        exec(programs[0].code)  # the program is one line of ours
    [part] = response.parts
    assert isinstance(part, ToolCallPart)
    assert isinstance(part.args_as_dict()["code"], str)


@covers("models.unreadable-calls-become-programs-that-say-so")
def test_a_call_of_another_tool_says_which_there_is() -> None:
    call = ToolCallPart(tool_name="web_search", args={"query": "x"}, tool_call_id="a")
    _, programs = with_valid_calls(ModelResponse(parts=[call]))
    with pytest.raises(ValueError, match="no tool `web_search`"):
        exec(programs[0].code)  # the program is one line of ours


@covers("models.conversion-is-incremental")
def test_a_long_conversation_is_converted_once() -> None:
    items: list[ConversationItem] = []
    for number in range(2_500):
        items += [
            UserMessage(text=f"question {number}"),
            AgentMessage(text=f"answer {number}", kept=dump_reply(ModelResponse(parts=[TextPart("x")]))),
        ]
    conversations = MessageConverter()
    first = conversations.messages_of(tuple(items))
    items.append(UserMessage(text="and now?"))
    seconds: list[float] = []
    for _ in range(5):
        started = time.process_time()
        second = conversations.messages_of(tuple(items))
        seconds.append(time.process_time() - started)
    # Garbage of others may be collected meanwhile; how quick it can be is what counts.
    assert min(seconds) < 0.05
    assert all(old is new for old, new in zip(first[:-1], second[: len(first) - 1], strict=True))
    assert cast("ModelRequest", second[-1]).parts[0].content == "and now?"


def test_only_so_many_bytes_of_conversations_are_remembered() -> None:
    conversations, asked, replies = MessageConverter(most=1_000_000), list[UserMessage](), list[weakref.ref[AgentMessage]]()
    for number in range(10):
        first, reply = UserMessage(text=f"question {number}"), AgentMessage(text=str(number) * 300_000)
        conversations.messages_of((first, reply, UserMessage(text="and now?")))
        # Conversations are known by their first item.
        asked.append(first)
        replies.append(weakref.ref(reply))
        del reply
    assert [ref() is not None for ref in replies] == [False] * 7 + [True] * 3


def test_a_conversation_that_is_longer_than_that_is_converted_once_all_the_same() -> None:
    conversations = MessageConverter(most=1_000)
    items = (UserMessage(text="question"), AgentMessage(text="x" * 300_000), UserMessage(text="and now?"))
    first, second = conversations.messages_of(items), conversations.messages_of(items)
    assert all(old is new for old, new in zip(first[:-1], second[:-1], strict=True))


def test_a_conversation_that_was_compacted_begins_anew() -> None:
    conversations, first = MessageConverter(), UserMessage(text="hi")
    conversations.messages_of((first, AgentMessage(text="old"), UserMessage(text="x")))
    assert [part.content for message in conversations.messages_of((first, UserMessage(text="y"))) for part in message.parts] == ["hi", "y"]
