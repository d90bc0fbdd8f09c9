"""A script plays its lines in order, wherever a session is taken up, and a bad line is named by file and number."""

import asyncio
import json
from pathlib import Path

import pytest
from pydantic_monty import AsyncMonty

from curtainwall.agents.builtin.language_model import Delta, ModelReply, Prompt, UserMessage
from curtainwall.agents.builtin.models.script import ScriptModel
from curtainwall.model import Basis, Broken
from tests.support.covers import covers
from tests.support.stand_in import whole


def script(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "play.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def reply(model: ScriptModel, replies: int, *, may_run: bool = True) -> ModelReply:
    items = (UserMessage(text="we talked of cheese"), UserMessage(text="go on"))
    return asyncio.run(whole(model, Prompt("s", items, replies, may_run)))


@covers("script.position-is-the-number-of-replies")
def test_lines_are_played_by_the_number_of_replies_alone(tmp_path: Path) -> None:
    model = ScriptModel.read(script(tmp_path, '{"text": "one"}', "", '{"code": "1 + 1"}', '{"text": "both", "code": "2"}'))
    assert [reply(model, at).message.text for at in (2, 0, 1, 0)] == ["both", "one", "", "one"]
    assert reply(model, 1).message.programs[0].code == "1 + 1"
    assert reply(model, 2).message.programs[0].code == "2"
    assert reply(model, 1).stop_reason == "tool_use"


@covers("script.position-is-the-number-of-replies")
def test_past_the_end_it_says_so(tmp_path: Path) -> None:
    model = ScriptModel.read(script(tmp_path, '{"text": "one"}'))
    said = reply(model, 7).message
    assert "is over" in said.text
    assert said.programs == ()


def test_text_comes_in_pieces(tmp_path: Path) -> None:
    text = "a long text with many words " * 20
    model = ScriptModel.read(script(tmp_path, json.dumps({"text": text})))

    async def pieces() -> list[str]:
        return [piece.text async for piece in model.reply(Prompt("s", ())) if isinstance(piece, Delta)]

    found = asyncio.run(pieces())
    assert len(found) > 5
    assert "".join(found) == text


ARGUMENTS = {"path": 'it\'s "odd" \\ ü 😀\n', "edits": [{"oldText": "a", "newText": None}], "dryRun": True, "class": 1, "x-y": 2.5}


@covers("script.tool-lines-are-programs")
def test_a_tool_line_is_a_program_whose_value_is_the_result(tmp_path: Path) -> None:
    model = ScriptModel.read(script(tmp_path, json.dumps({"tool": "filesystem.edit_file", "arguments": ARGUMENTS})))
    code = reply(model, 0).message.programs[0].code
    prelude = """
class Files:
    async def edit_file(self, **given):
        return await call('filesystem.edit_file', given)

filesystem = Files()
"""

    async def call(tool: str, given: object) -> object:
        return [tool, given]

    async def run() -> object:
        async with AsyncMonty() as pool, pool.checkout() as worker:
            await worker.feed_run(prelude, external_lookup={"call": call})
            return await worker.feed_run(code, external_lookup={"call": call})

    assert asyncio.run(run()) == ["filesystem.edit_file", ARGUMENTS]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "no JSON object"),
        ("[1]", "a line is an object"),
        ("{}", "says nothing"),
        ('{"words": "x"}', "no key `words`"),
        ('{"text": 3}', "`text` must be a string"),
        ('{"code": "1", "tool": "a.b"}', "not both"),
        ('{"tool": "nodot"}', "`server.tool`"),
        ('{"tool": "a.b; import os"}', "`server.tool`"),
        ('{"tool": "a.b", "arguments": [1]}', "must be an object"),
        ('{"text": "x", "arguments": {}}', "belong to a `tool`"),
        ('{"tool": "a.b", "arguments": {"x": NaN}}', "`NaN` is no number"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
@covers("script.bad-lines-are-named")
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, line: str, complaint: str) -> None:
    file = script(tmp_path, '{"text": "fine"}', line)
    with pytest.raises(Broken) as refused:
        ScriptModel.read(file)
    assert f"`{file}`, line 2" in str(refused.value)
    assert complaint in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="no such file"):
        ScriptModel.read(tmp_path / "none.jsonl")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Broken, match="UTF-8"):
        ScriptModel.read(tmp_path / "bytes")


@covers("models.a-summary-without-a-model")
def test_a_summary_takes_no_line(tmp_path: Path) -> None:
    model = ScriptModel.read(script(tmp_path, '{"code": "1"}'))
    summary = reply(model, 0, may_run=False).message
    assert "cheese" in summary.text
    assert summary.programs == ()


def test_it_costs_nothing_for_sure(tmp_path: Path) -> None:
    usage = reply(ScriptModel.read(script(tmp_path, '{"text": "one two three"}')), 0).usage
    assert (usage.output_tokens, usage.tokens_basis, usage.dollars_basis) == (4, Basis.ESTIMATED, Basis.MEASURED)
