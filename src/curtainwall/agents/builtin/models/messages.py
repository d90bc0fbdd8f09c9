"""Converts conversations into the provider library's messages, each part only once."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from pydantic import JsonValue, ValidationError
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from curtainwall.agents.builtin.held_items import weight_of
from curtainwall.agents.builtin.language_model import AgentMessage, ConversationItem, Program, ProgramOutcome, UserMessage

TOOL: Final = "execute_code"
_MOST_KEPT: Final = 16 * 1024 * 1024
_NEVER_RAN: Final = "This program did not run."
_NOTHING: Final = "(nothing)"


@dataclass(slots=True)
class _Converted:
    """The beginning of a conversation, up to and including its last reply, and its messages."""

    items: list[ConversationItem] = field(default_factory=list[ConversationItem])
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    weight: int = 0
    """About how many bytes of memory the items take; the messages share their text."""

    def is_beginning_of(self, items: Sequence[ConversationItem]) -> bool:
        return len(self.items) <= len(items) and all(mine is theirs for mine, theirs in zip(self.items, items, strict=False))


class MessageConverter:
    """Converts conversations and caches the most recent ones, which only grow: up to a number of bytes, and always the last one."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._known: OrderedDict[int, _Converted] = OrderedDict()

    def messages_of(self, items: Sequence[ConversationItem]) -> list[ModelMessage]:
        """Return the messages of a conversation; the work is proportional to what is new in it."""
        if not items:
            return [ModelRequest(parts=[UserPromptPart(content=_NOTHING)])]
        key = id(items[0])
        known = self._known.pop(key, None)
        if known is None or not known.is_beginning_of(items):
            known = _Converted()
        self._known[key] = known
        at = len(known.items)
        for end in range(at, len(items)):
            item = items[end]
            if isinstance(item, AgentMessage):
                known.messages += _request(known.items[-1:], items[at:end], is_last=False)
                known.messages += _response(item)
                known.items += items[at : end + 1]
                known.weight += sum(map(weight_of, items[at : end + 1]))
                at = end + 1
        self._make_room()
        return [*known.messages, *_request(known.items[-1:], items[at:], is_last=True)]

    def _make_room(self) -> None:
        too_much = sum(known.weight for known in self._known.values()) - self._most
        while too_much > 0 and len(self._known) > 1:
            too_much -= self._known.popitem(last=False)[1].weight


def _request(before: Sequence[ConversationItem], items: Sequence[ConversationItem], *, is_last: bool) -> list[ModelMessage]:
    """Return the messages between two replies: first the result of each program, then what people said."""
    asked = before[0].programs if before and isinstance(before[0], AgentMessage) else ()
    ended = {item.id: item.text for item in items if isinstance(item, ProgramOutcome)}
    returns = [
        ToolReturnPart(tool_name=TOOL, content=ended.pop(program.id, _NEVER_RAN) or _NOTHING, tool_call_id=program.id) for program in asked
    ]
    prompts: list[UserPromptPart] = []
    for item in items:
        match item:
            case UserMessage(text=text):
                prompts.append(UserPromptPart(content=text if text.strip() else _NOTHING))
            case ProgramOutcome(id=program, text=text):
                if program in ended:  # the reply that asked for it was summarised
                    prompts.append(UserPromptPart(content=f"What an earlier program gave:\n{text}"))
            case AgentMessage():
                raise AssertionError("replies divide the items")
            case _:
                assert_never(item)
    if not returns and not prompts:
        # No provider accepts a conversation that begins or ends with a reply.
        return [ModelRequest(parts=[UserPromptPart(content="(go on)")])] if is_last or not before else []
    return [ModelRequest(parts=[*returns, *prompts])]


def _response(message: AgentMessage) -> list[ModelMessage]:
    restored = _restored(message)
    if restored is not None:
        return [restored]
    parts: list[ModelResponsePart] = [TextPart(content=message.text)] if message.text.strip() else []
    parts += [ToolCallPart(tool_name=TOOL, args={"code": program.code}, tool_call_id=program.id) for program in message.programs]
    return [ModelResponse(parts=parts or [TextPart(content=_NOTHING)])]


def _restored(reply: AgentMessage) -> ModelResponse | None:
    """Return a reply exactly as the library gave it, if it came from the library and asks for the same programs."""
    if not isinstance(reply.kept, dict) or reply.kept.get("kind") != "response":
        return None
    try:
        [message] = ModelMessagesTypeAdapter.validate_python([reply.kept])
    except ValidationError:
        return None
    if not isinstance(message, ModelResponse) or not message.parts:
        return None
    calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
    return message if calls == [program.id for program in reply.programs] else None


def dump_reply(response: ModelResponse) -> JsonValue:
    """Return a reply in the library's own form, to be restored exactly."""
    [kept] = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    return kept


def reply_text(response: ModelResponse) -> str:
    """Return the text of a reply; separate pieces of text become separate paragraphs."""
    return "\n\n".join(part.content for part in response.parts if isinstance(part, TextPart) and part.content)


def with_valid_calls(response: ModelResponse) -> tuple[ModelResponse, tuple[Program, ...]]:
    """Return a reply whose calls can be sent back, and its programs; an invalid call becomes a program that raises the reason."""
    programs: list[Program] = []
    parts: list[ModelResponsePart] = []
    for part in response.parts:
        if not isinstance(part, ToolCallPart):
            parts.append(part)
            continue
        code = _code_of(part)
        if code is None:
            code = _complaint(part, was_cut=response.finish_reason == "length")
            meant = part.args if isinstance(part.args, str) else json.dumps(part.args)
            parts.append(ToolCallPart(tool_name=TOOL, args={"code": meant}, tool_call_id=part.tool_call_id))
        else:
            parts.append(part)
        programs.append(Program(id=part.tool_call_id, code=code))
    return replace(response, parts=parts), tuple(programs)


def _code_of(part: ToolCallPart) -> str | None:
    if part.tool_name != TOOL:
        return None
    try:
        arguments = part.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError, UnexpectedModelBehavior):
        return None
    code = arguments.get("code")
    return code if isinstance(code, str) else None


def _complaint(part: ToolCallPart, *, was_cut: bool) -> str:
    if part.tool_name != TOOL:
        why = f"there is no tool `{part.tool_name}`; the only one is `{TOOL}`, and everything else is a function in its programs"
    elif was_cut:
        why = "the reply reached its longest length in the middle of this program, which was not run; write a shorter one"
    else:
        why = f'the arguments of `{TOOL}` could not be read, and nothing was run; write {{"code": "…"}}'
    return f"raise ValueError({why!r})"
