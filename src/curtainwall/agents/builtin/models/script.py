"""A model that plays replies from a file, one JSON object per line; the number of replies so far selects the line."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.agents.builtin.language_model import AgentMessage, Delta, ModelReply, Program, Prompt
from curtainwall.agents.builtin.models.usage import free_usage, plain_account, text_pieces
from curtainwall.agents.builtin.stubs import call_expression, is_tool_name
from curtainwall.model import Broken, record

BIGGEST: Final = 16 * 1024 * 1024
CONTEXT_SIZE: Final = 1_000_000

_FORMS: Final = '`{"text": "…"}`, `{"code": "…"}` or `{"tool": "server.tool", "arguments": {…}}`'
_KEYS: Final = frozenset({"text", "code", "tool", "arguments"})
_BLANK = re.compile(r"\s*")


@record
class ScriptLine:
    """One reply of a script: text, a program, or both."""

    text: str = ""
    code: str | None = None


class ScriptModel:
    """Plays a script. It costs nothing and needs no network."""

    def __init__(self, name: str, lines: tuple[ScriptLine, ...], context_size: int | None = None) -> None:
        self._name = name
        self._lines = lines
        self._context_size = context_size or CONTEXT_SIZE

    def __repr__(self) -> str:
        return f"ScriptModel({self._name!r}, {len(self._lines)} lines)"

    @classmethod
    def read(cls, file: Path, context_size: int | None = None) -> "ScriptModel":
        """Return the model that plays a file; raise `Broken` with the line that cannot be played."""
        return cls(f"script:{file}", read_lines(file), context_size)

    @property
    def name(self) -> str:
        """Return the user's name for the model."""
        return self._name

    @property
    def context_size(self) -> int:
        """Return the size of the context in tokens."""
        return self._context_size

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        """Yield the next line; a request for a summary uses none."""
        line = self._line_for(prompt)
        for piece in text_pieces(line.text):
            yield Delta(piece)
        programs = () if line.code is None else (Program(id=f"script-{prompt.replies + 1}", code=line.code),)
        message = AgentMessage(text=line.text, programs=programs)
        raw: JsonValue = {"line": prompt.replies + 1, "text": line.text, "code": line.code}
        yield ModelReply(message=message, raw=raw, usage=free_usage(prompt, message), stop_reason="tool_use" if programs else "end_turn")

    def _line_for(self, prompt: Prompt) -> ScriptLine:
        if not prompt.may_run:
            return ScriptLine(plain_account(prompt.items[:-1] or prompt.items))
        if prompt.replies < len(self._lines):
            return self._lines[prompt.replies]
        return ScriptLine(
            f"The script `{self._name.removeprefix('script:')}` is over: all of its {len(self._lines)} replies have been played."
        )


def read_lines(file: Path) -> tuple[ScriptLine, ...]:
    """Return the replies of a script; blank lines are skipped."""
    try:
        with file.open("rb") as opened:
            content = opened.read(BIGGEST + 1)
    except OSError as fault:
        raise Broken(f"the script `{file}` cannot be read: {(fault.strerror or 'it failed').lower()}") from None
    if len(content) > BIGGEST:
        raise Broken(f"the script `{file}` is longer than {BIGGEST} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Broken(f"the script `{file}` is not UTF-8 text") from None
    # Only a line feed ends a line: JSON text may contain other separators.
    return tuple(_parsed(line, f"`{file}`, line {number}") for number, line in enumerate(text.split("\n"), 1) if not _BLANK.fullmatch(line))


def _parsed(text: str, where: str) -> ScriptLine:
    try:
        line = cast("JsonValue", json.loads(text, parse_constant=_no_number))
    except (ValueError, RecursionError) as fault:
        raise Broken(f"{where}: this is no JSON object; write {_FORMS} ({_why(fault)})") from None
    if not isinstance(line, dict):
        raise Broken(f"{where}: a line is an object; write {_FORMS}")
    unknown = sorted(line.keys() - _KEYS)
    if unknown:
        raise Broken(f"{where}: there is no key `{unknown[0]}`; write {_FORMS}")
    if not line.keys() & {"text", "code", "tool"}:
        raise Broken(f"{where}: the line says nothing; write {_FORMS}")
    if "code" in line and "tool" in line:
        raise Broken(f"{where}: write `code` or `tool`, not both")
    for key in ("text", "code", "tool"):
        if key in line and not isinstance(line[key], str):
            raise Broken(f"{where}: `{key}` must be a string")
    reply = cast("str", line.get("text", ""))
    if "tool" in line:
        return ScriptLine(reply, _tool_program(line, where))
    if "arguments" in line:
        raise Broken(f"{where}: `arguments` belong to a `tool`, and there is none")
    return ScriptLine(reply, cast("str | None", line.get("code")))


def _tool_program(line: dict[str, JsonValue], where: str) -> str:
    tool, arguments = cast("str", line["tool"]), line.get("arguments", {})
    if not is_tool_name(tool):
        raise Broken(f"{where}: `{tool}` is no tool; write `server.tool`")
    if not isinstance(arguments, dict):
        raise Broken(f"{where}: `arguments` must be an object")
    return f"await {call_expression(tool, arguments)}"


def _no_number(name: str) -> float:
    raise ValueError(f"`{name}` is no number of JSON")


def _why(fault: Exception) -> str:
    if isinstance(fault, json.JSONDecodeError):
        return f"{fault.msg.lower()}, column {fault.colno}"
    return "nested too deeply" if isinstance(fault, RecursionError) else str(fault)
