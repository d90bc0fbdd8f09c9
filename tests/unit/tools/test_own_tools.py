"""Functions of a program as tools: what a declaration must say, and what becomes of arguments and results."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from curtainwall.facts import Masker
from curtainwall.model import (
    BadCall,
    CallId,
    CallPermitted,
    Effect,
    Millis,
    PermitId,
    Place,
    Prepared,
    Role,
    SessionId,
    ToolEffect,
    ToolResult,
    Verdict,
    Workspace,
)
from curtainwall.tools import BadTool, Catalogue, NativeTools, Tool, require_distinct, tool
from tests.support.covers import covers
from tests.support.waiting import run

ME = SessionId("me")
ALLOWED = Verdict(effect=Effect.ALLOW, because=(), reason="")


class Size(StrEnum):
    BIG = "big"


class Order(BaseModel):
    item: str
    count: int = 1


@tool(effect="inspect", roles={"path": "read-path"})
def count(path: Path, size: Size = Size.BIG, note: Annotated[str, Field(description="why")] = "") -> int:
    """Count the lines.

    More about it.
    """
    return len(path.read_text().splitlines())


@tool
async def order(what: Order) -> dict[str, Any]:
    """Order something."""
    return {"ordered": what.item, "by": {ME}, "at": Path("/x"), "sum": float("nan")}


def hub(*tools: Tool[..., object]) -> NativeTools:
    masker = Masker(b"k")
    ours = NativeTools(Catalogue(()), home="/home", masker=masker)
    return ours.beside(Catalogue(each.spec for each in tools), {each.spec.full_name: each.run for each in tools})


def called(each: Tool[..., object], arguments: dict[str, Any], workspace: Path) -> tuple[Prepared, ToolResult]:
    tools, place = hub(each), Place(session=ME, workspace=Workspace(path=str(workspace), own=True))
    prepared = tools.prepare(each.spec.full_name, arguments, place)
    permit = CallPermitted(at=Millis(1), call=CallId("c"), permit=PermitId("p"), digest=prepared.subject.digest, verdict=ALLOWED)
    return prepared, run(tools.run(prepared, permit, place))


@covers("library.own-tools-are-judged-by-their-roles")
def test_a_declared_function_has_a_name_a_schema_and_roles() -> None:
    spec = count.spec
    assert (spec.full_name, spec.effect, spec.description) == ("app.count", ToolEffect.INSPECT, "Count the lines.\n\nMore about it.")
    assert [(meaning.argument, meaning.roles) for meaning in spec.meanings] == [("path", (Role.READ_PATH,))]
    properties = spec.schema_["properties"]
    assert isinstance(properties, dict)
    assert [*properties] == ["path", "size", "note"]
    assert spec.schema_["required"] == ["path"]
    assert order.spec.effect is ToolEffect.SEND, "a tool without an effect is the strictest"


def test_the_program_itself_calls_the_function_as_before(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    assert count(tmp_path / "a") == 2
    assert count.__name__ == "count"


@covers("library.own-tools-are-judged-by-their-roles")
def test_the_function_gets_the_path_that_was_judged(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "link").symlink_to("a")
    prepared, result = called(count, {"path": "link"}, tmp_path)
    assert prepared.arguments["path"] == str(tmp_path / "a")
    assert [(it.role, it.value) for it in prepared.subject.resources[1:]] == [(Role.READ_PATH, str(tmp_path / "a"))]
    assert (result.ok, result.value) == (True, 2)


@covers("library.own-tools-are-judged-by-their-roles")
def test_an_argument_without_a_role_names_nothing_and_one_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    prepared, _ = called(count, {"path": "a", "note": "/etc/shadow"}, tmp_path)
    assert [it.value for it in prepared.subject.resources[1:]] == [str(tmp_path / "a")]
    with pytest.raises(BadCall, match="other"):
        called(count, {"path": "a", "other": "/etc/shadow"}, tmp_path)


@covers("library.own-tools-are-judged-by-their-roles")
def test_a_default_is_judged_like_what_an_agent_names(tmp_path: Path) -> None:
    @tool(effect="inspect", roles={"path": "read-path"})
    def show(path: str = "/etc/passwd") -> str:
        """Show a file."""
        return path

    prepared, result = called(show, {}, tmp_path)
    assert [it.value for it in prepared.subject.resources[1:]] == ["/etc/passwd"]
    assert result.value == "/etc/passwd"


def test_results_become_json(tmp_path: Path) -> None:
    _, result = called(order, {"what": {"item": "milk"}}, tmp_path)
    assert result.value == {"ordered": "milk", "by": ["me"], "at": "/x", "sum": None}


@covers("library.own-tools-fail-as-results")
@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda: 1 / 0, "`app.failing` failed: ZeroDivisionError: division by zero"),
        (lambda: {}["password=hunter2hunter2"], "[masked:"),
        (object, "cannot be written as JSON"),
        (lambda: "x" * (9 * 1024 * 1024), "larger than 8 MiB"),
    ],
)
def test_what_a_function_raises_or_cannot_return_is_the_result_of_a_failed_call(
    fails: Callable[[], object], words: str, tmp_path: Path
) -> None:
    @tool(effect="inspect")
    def failing() -> object:
        """Fail."""
        return fails()

    _, result = called(failing, {}, tmp_path)
    assert not result.ok
    assert words in str(result.value)
    assert "hunter2" not in str(result.value)


def plain(a: str) -> str:
    """Do something."""
    return a


def untyped(a):
    """Do something."""


def unclear(a: Callable[[], None]) -> None:
    """Do something."""


def spread(*a: str) -> None:
    """Do something."""


def silent(a: str) -> None: ...


def pathed(a: str, b: list[Path] | None = None) -> None:
    """Do something."""


def odd(a: int = 5) -> None:
    """Do something."""


@covers("library.own-tools-are-judged-by-their-roles")
@pytest.mark.parametrize(
    ("function", "declared", "words"),
    [
        (plain, {"server": "filesystem"}, "reserved"),
        (plain, {"server": "A"}, "cannot be a name"),
        (plain, {"name": "class"}, "cannot be a name"),
        (plain, {"effect": "nothing"}, "its effect must be one of"),
        (plain, {"roles": {"b": "read-path"}}, "no parameter `b`"),
        (plain, {"roles": {"a": "reads"}}, "not known"),
        (plain, {"roles": {"a": ()}}, "plays no role"),
        (plain, {"roles": {"a": ("read-path", "fetch-url")}}, "do not go together"),
        (plain, {"effect": "execute", "roles": {"a": "run-command"}}, "outside any sandbox"),
        (plain, {"roles": {"a": "use-credential"}}, "cannot have the role"),
        (plain, {"effect": "modify", "roles": {"a": "read-path"}}, "no role says what it changes"),
        (untyped, {}, "has no type"),
        (unclear, {}, "no JSON|described in JSON"),
        (spread, {}, "give every parameter a plain name"),
        (silent, {}, "say what it does"),
        (pathed, {}, "`b` is a path"),
        (odd, {"roles": {"a": "read-path"}}, "cannot be judged"),
    ],
)
def test_a_declaration_that_nobody_could_judge_is_refused(function: Any, declared: dict[str, Any], words: str) -> None:
    with pytest.raises(BadTool, match=words):
        tool(**declared)(function)


def test_names_are_taken_once() -> None:
    require_distinct((count, order), {"files"})
    with pytest.raises(BadTool, match="two tools"):
        require_distinct((count, count), ())
    with pytest.raises(BadTool, match="is configured"):
        require_distinct((count,), {"app"})
