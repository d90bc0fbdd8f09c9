"""A provider for real CLI agents: what it says follows from what it is asked, because they also ask things that no test scripts."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.upstream import (
    KEY,
    Asked,
    Fails,
    Hangs,
    Says,
    Turn,
    Upstream,
    _anthropic,
    _chat,
    _event,
    _responses,
    _send_fault,
    served,
    served_beside,
)

CALL = re.compile(r"CALL (\w+) (\{.*?\})")
STEPS = re.compile(r"^STEPS (\[.*\])$", re.MULTILINE)
HEARD = "HEARD: "

_ASIDE = {"system", "developer", "additional_tools", "configuration_update", "reasoning"}
# Codex offers its own models this one tool, whose scripts call all others.
_EXEC = "exec@functions"


@dataclass
class Prompted(Upstream):
    """Calls a tool on `CALL name {json}`, repeats the tool's result, says what follows `SAY`, and otherwise lists each `word=` so far.

    On `STEPS [[name, {json}], …]`, alone on a line, it calls one tool after the other.
    """

    accepted: set[str] = field(default_factory=lambda: {KEY})

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        keys = {asked.headers.get(name, "").removeprefix("Bearer ") for name in ("x-api-key", "authorization", "x-goog-api-key")}
        if self.accepted.isdisjoint(keys):
            return _send_fault(writer, Fails(401, "invalid key", "authentication_error", "invalid_api_key"))
        path = asked.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            return _send_json(writer, {"input_tokens": 42})
        speech = _speech_of(path)
        if speech is None:
            return _send_fault(writer, Fails(404, f"nothing at {path}", "not_found_error"))
        if ":" in path.rpartition("/")[2]:
            asked.body["model"] = path.rpartition("/")[2].partition(":")[0]
        turn = self.turns.pop(0) if self.turns else answer(asked.body)
        match turn:
            case Fails():
                return _send_fault(writer, turn)
            case Hangs():
                await self._until_gone(reader)
                return False
            case Says() if not _is_streamed(asked.body, path):
                return _send_json(writer, _whole(asked.body, path, turn))
            case Says():
                marked = replace(turn, mark=f"{len(self.asked)}_")
                return await self._stream(speech(asked.body.get("model", ""), marked), marked, reader, writer)


def answer(body: dict[str, Any]) -> Turn:
    """Return what a model that follows the instructions above says to a request of any of the formats."""
    messages = _messages(body)
    if (wanted := body.get("generationConfig", {}).get("responseJsonSchema")) is not None:
        return Says((json.dumps(_filled(wanted)),))
    result = _result(messages[-1])
    names = _tools(body)
    last = _last_words(messages[-1])
    if (step := _next_step(messages)) is not None:
        return Says(tool=_tool(names, step[0]) or step[0], arguments=(json.dumps(step[1]),))
    if result is not None:
        return Says((f"the tool says {result}",))
    call = CALL.search(last)
    if call is None and "make the same call again" in last:
        call = next((found for message in reversed(messages) if (found := CALL.search(_text(message)))), None)
    if call:
        found = _tool(names, call[1])
        if found is None and _EXEC in names:
            return Says(tool=_EXEC, arguments=(_script(call[1], call[2]),), is_text=True)
        if found is None:
            return Says((f"there is no tool {call[1]} among {', '.join(names)}",))
        return Says(tool=found, arguments=(call[2],))
    # Some agents are told where they are before what is said, and one that was not told a message yet is told it with the next.
    last = last.strip().rpartition("Your last turn ")[2].rpartition("\n\n")[2]
    if last.startswith("FAIL"):
        return Fails(400, "the test wants this to fail", "invalid_request_error")
    if last.startswith("SAY "):
        return Says((last.removeprefix("SAY ").replace("\\n", "\n"),))
    if last.startswith("LONG"):
        return Says(tuple(f"line {number} of a very long answer that goes on and on. " for number in range(2000)))
    if last.startswith("HANG"):
        return Says(("one moment, ", "and then more "), quiet=True)
    words = re.findall(r"word=(\w+)", "\n".join(_text(message) for message in messages))
    return Says((HEARD, ", ".join(dict.fromkeys(words)) or "no words"))


def _tool(names: list[str], wanted: str) -> str | None:
    able = [name for name in names if name.partition("@")[0].endswith(wanted)]
    # Agents have tools of their own that are called alike; the session's carry its name.
    return next((name for name in able if "curtainwall" in name), able[0] if able else None)


def _next_step(messages: list[dict[str, Any]]) -> tuple[str, Any] | None:
    """Return the next of several calls that a message asks for; each has a result after it once it was made."""
    for place in range(len(messages) - 1, -1, -1):
        if found := STEPS.search(_text(messages[place])):
            steps = json.loads(found[1])
            done = sum(_result(message) is not None for message in messages[place + 1 :])
            return steps[done] if done < len(steps) else None
    return None


def _filled(schema: dict[str, Any]) -> Any:
    """Return a value of a schema: Gemini has a small model choose the one that a message is for."""
    match schema.get("type", "").lower():
        case "object":
            return {name: _filled(each) for name, each in schema.get("properties", {}).items()}
        case "integer" | "number":
            return 50
        case _:
            return schema.get("enum", ["as the test wants it"])[0]


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was said, without what the client says of its surroundings."""
    found = body.get("messages") or body.get("contents") or body.get("input") or []
    said = [{"content": found}] if isinstance(found, str) else found
    return [message for message in said if message.get("role") not in _ASIDE and message.get("type") not in _ASIDE]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or message.get("parts") or ""
    if isinstance(content, str):
        return content
    told = "\n".join(part.get("text", "") for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return re.sub(r"<system-reminder>.*?</system-reminder>", "", told, flags=re.DOTALL)


def _last_words(message: dict[str, Any]) -> str:
    """Return what was said last: agents put a message whose turn broke off before what is said now, into the same message."""
    content = message.get("content") or message.get("parts") or ""
    if isinstance(content, str):
        return content
    said = (_text({"content": [part]}) for part in reversed(content))
    return next((text for text in said if text.strip()), "")


def _result(message: dict[str, Any]) -> str | None:
    if message.get("role") == "tool":
        return _text(message)
    if message.get("type") in {"function_call_output", "custom_tool_call_output"}:
        output = message["output"]
        return output if isinstance(output, str) else _text({"content": output})
    content = message.get("content") or message.get("parts") or ()
    for part in reversed([part for part in content if isinstance(part, dict)]):
        if part.get("type") == "tool_result":
            return _text(part)
        if "functionResponse" in part:
            return json.dumps(part["functionResponse"].get("response"))
        if _text({"content": [part]}).strip():
            # Somebody said something after the tool.
            return None
    return None


def _tools(body: dict[str, Any]) -> list[str]:
    names = []
    said = body.get("input") or ()
    later = [tool for item in said if isinstance(item, dict) and item.get("type") == "additional_tools" for tool in item["tools"]]
    for tool in (*(body.get("tools") or ()), *later):
        if tool.get("type") == "namespace":
            names += [f"{inner['name']}@{tool['name']}" for inner in tool.get("tools", ())]
        elif "functionDeclarations" in tool:
            names += [declared["name"] for declared in tool["functionDeclarations"]]
        elif isinstance(tool.get("function"), dict):
            names.append(tool["function"]["name"])
        elif tool.get("name"):
            names.append(tool["name"])
    return names


def _script(tool: str, arguments: str) -> str:
    """Return a script that calls the session's tool, or else the agent's own, and shows its result, however long an approval takes."""
    return f"""// @exec: {{"yield_time_ms": 600000}}
const able = ALL_TOOLS.filter((tool) => tool.name.endsWith({json.dumps(tool)}));
const found = able.find((tool) => tool.name.includes("curtainwall")) ?? able[0];
const result = await tools[found.name]({arguments});
text(result.content ? result.content.map((part) => part.text).join("") : JSON.stringify(result));
"""


def _is_streamed(body: dict[str, Any], path: str) -> bool:
    return bool(body.get("stream")) or path.endswith(":streamGenerateContent")


def _speech_of(path: str) -> Any:
    last = path.rpartition("/")[2]
    if last.endswith("enerateContent"):
        return _gemini
    return {"messages": _anthropic, "responses": _namespaced, "completions": _chat}.get(last)


def _namespaced(model: str, says: Says) -> Iterator[str]:
    """Speak as OpenAI does of tools that stand in a namespace, and of those that take plain text."""
    name, _, space = says.tool.partition("@")
    for event in _responses(model, says):
        if not space or "function_call" not in event:
            yield event
            continue
        kind, _, data = event.partition("\ndata: ")
        if says.is_text and "function_call_arguments" in kind:
            continue
        told = _within(json.loads(data), says.tool, name, space)
        if says.is_text:
            told = _as_text_call(told)
        del told["type"]
        yield _event(kind.removeprefix("event: "), **told)


def _within(value: Any, full: str, name: str, space: str) -> Any:
    if isinstance(value, list):
        return [_within(each, full, name, space) for each in value]
    if not isinstance(value, dict):
        return value
    told = {key: _within(each, full, name, space) for key, each in value.items()}
    return {**told, "name": name, "namespace": space} if told.get("name") == full else told


def _as_text_call(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text_call(each) for each in value]
    if not isinstance(value, dict):
        return value
    told = {key: _as_text_call(each) for key, each in value.items()}
    if told.get("type") == "function_call":
        told = {**told, "type": "custom_tool_call", "input": told.pop("arguments")}
    return told


def _gemini_object(model: str, says: Says) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": says.text}] if says.pieces else []
    parts += [{"functionCall": {"name": says.tool, "args": json.loads(arguments)}} for arguments in says.calls]
    used = {"promptTokenCount": says.read, "candidatesTokenCount": says.written, "totalTokenCount": says.read + says.written}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": used, "modelVersion": model}


def _gemini(model: str, says: Says) -> Iterator[str]:
    yield f"data: {json.dumps(_gemini_object(model, says))}\r\n\r\n"


def _whole(body: dict[str, Any], path: str, says: Says) -> dict[str, Any]:
    """Return a reply in one piece, for clients that want no stream."""
    if path.endswith("enerateContent"):
        return _gemini_object(body.get("model", ""), says)
    if path.endswith("/completions"):
        message = {"role": "assistant", "content": says.text}
        used = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": used}
    used = {"input_tokens": 1, "output_tokens": 1}
    content = [{"type": "text", "text": says.text}]
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", ""), "content": content}
    return {**told, "stop_reason": "end_turn", "stop_sequence": None, "usage": used}


def _send_json(writer: asyncio.StreamWriter, value: object) -> bool:
    content = json.dumps(value).encode()
    writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content)
    return True


def prompted() -> AbstractAsyncContextManager[Prompted]:
    """Run the provider as long as the test needs it."""
    return served(Prompted())


def prompted_beside() -> AbstractContextManager[Prompted]:
    """Run the provider in a thread, beside a test that waits for processes."""
    return served_beside(Prompted)
