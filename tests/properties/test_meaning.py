"""Whatever an agent sends, a call is prepared or refused; and what was approved is bound to every part of what would run."""

import os
import tempfile
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from curtainwall.facts import Masker, Unclear
from curtainwall.model import BadCall, Place, Prepared, SessionId, ToolSpec, Workspace
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools

ROOT = os.path.realpath(tempfile.gettempdir())
TOOLS = NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=Masker(b"k" * 32))
PLACE = Place(session=SessionId("s"), workspace=Workspace(path=f"{ROOT}/no-such-workspace", own=True))

# What people who mean harm have tried before.
HOSTILE = st.sampled_from(
    [
        "", ".", "..", "/", "//", "~", "~root", "~/x", "a\0b", "../../../../etc/passwd", "/proc/self/environ", "/dev/fd/0", "-rf", "--help",
        "\ud800", "é", "é", "ａ", "a" * 300, "http://127.1/", "https://a\\@b", "file:///x", "https://[::1", "git@github.com:a/b", "ext::x",
        "[masked:github:ab12cd34]", "$(x)", "`x`", "a; b | c > d", "<(x)", "'", "origin", "HEAD", "tokens", "GET", "true", "\u202e", "\r\n",
    ]
)  # fmt: skip
TEXT = HOSTILE | st.text(max_size=40) | st.text(alphabet=st.characters(), max_size=10)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12)


def arguments_for(tool: ToolSpec) -> st.SearchStrategy[JsonValue]:
    """Return arguments that look like the tool's: its own names, mostly the right types, now and then anything at all."""
    properties = tool.schema_["properties"]
    assert isinstance(properties, dict)
    near = {name: _near(shape) for name, shape in properties.items()}
    required = tool.schema_["required"]
    assert isinstance(required, list)
    fixed = {name: near[name] for name in near if name in required}
    optional = {name: near[name] for name in near if name not in required}
    likely = st.fixed_dictionaries(fixed, optional=optional)
    broken = st.fixed_dictionaries({}, optional={**dict.fromkeys(near, VALUES), "unknown": VALUES})
    return likely | likely | broken | VALUES  # pyright: ignore[reportReturnType] - all of it is JSON


def _near(shape: JsonValue) -> st.SearchStrategy[object]:
    assert isinstance(shape, dict)
    if "enum" in shape:
        enum = shape["enum"]
        assert isinstance(enum, list)
        return st.sampled_from(enum)
    match shape.get("type"):
        case "string":
            return TEXT
        case "integer":
            return st.integers(1, 100)
        case "number":
            return st.floats(0.1, 100) | st.integers(1, 100)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_near(shape["items"]), min_size=1, max_size=3)
        case _:
            properties = shape.get("properties")
            return (
                st.fixed_dictionaries({key: _near(inner) for key, inner in properties.items()}) if isinstance(properties, dict) else VALUES
            )


def prepared(tool: str, arguments: object) -> Prepared | None:
    try:
        return TOOLS.prepare(tool, arguments, PLACE)  # pyright: ignore[reportArgumentType] - anything at all
    except BadCall as fault:
        see_that_it_is_civil(fault)
        return None


def see_that_it_is_civil(fault: BadCall) -> None:
    assert fault.rule in {"unknown-tool", "invalid-arguments", "masked-arguments"}
    assert len(str(fault)) < 1500
    assert str(fault).isprintable()
    # A fault of our own would deny as well, but then something is missing in the facts.
    cause: BaseException | None = fault
    while isinstance(cause, BadCall):
        cause = cause.__cause__
    assert cause is None or isinstance(cause, Unclear), repr(cause)


@pytest.mark.parametrize("tool", NATIVE_TOOLS, ids=lambda tool: tool.full_name)
def test_any_arguments_are_prepared_or_refused(tool: ToolSpec) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(arguments_for(tool))
    def hold(arguments: object) -> None:
        found = prepared(tool.full_name, arguments)
        if found is None:
            return
        first, *others = found.subject.resources
        assert (first.role.value, first.value) == ("use-tool", tool.full_name)
        assert len({(one.role, one.value, one.facts) for one in others}) == len(others) < 256
        assert type(found.subject).model_validate(found.subject.model_dump(mode="json")) == found.subject
        assert set(found.arguments) - set(tool.schema_["properties"]) <= {"urls"}  # pyright: ignore[reportArgumentType] - a mapping
        for one in others:
            if one.role.value.endswith("-path"):
                assert one.value.startswith("/")
                assert not {"..", "."} & {*one.value.split("/")}

    hold()


@settings(max_examples=300, deadline=None)
@given(TEXT, VALUES)
def test_any_tool_name_is_known_or_refused(name: str, arguments: object) -> None:
    prepared(name, arguments)


def _told(found: Prepared) -> tuple[Mapping[str, JsonValue], list[JsonValue]]:
    return found.arguments, [resource.model_dump(mode="json") for resource in found.subject.resources]


PAIRED = [
    tool
    for tool in NATIVE_TOOLS
    if tool.full_name in {"filesystem.edit_file", "filesystem.move_file", "fetch.get", "shell.run", "git.diff"}
]


@pytest.mark.parametrize("tool", PAIRED, ids=lambda tool: tool.full_name)
def test_digests_are_the_same_exactly_where_the_subject_is(tool: ToolSpec) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(arguments_for(tool), arguments_for(tool))
    def hold(one: object, other: object) -> None:
        first, second = prepared(tool.full_name, one), prepared(tool.full_name, other)
        if first is None or second is None:
            return
        same = repr(_told(first)) == repr(_told(second)) or _told(first) == _told(second)
        assert (first.subject.digest == second.subject.digest) == same

    hold()


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_one_bad_path_refuses_the_whole_list(paths: list[str]) -> None:
    alone = [prepared("filesystem.read_file", {"path": path}) for path in paths]
    together = prepared("filesystem.read_multiple_files", {"paths": paths})
    assert (together is None) == any(one is None for one in alone)
    if together is not None:
        assert together.arguments["paths"] == [one.arguments["path"] for one in alone if one is not None]
