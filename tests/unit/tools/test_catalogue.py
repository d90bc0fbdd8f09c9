import pytest
from pydantic import JsonValue

from curtainwall.model import BadCall, Broken, Case, Meaning, Role, ToolEffect, ToolFacts, ToolSpec
from curtainwall.tools import NATIVE_TOOLS, Catalogue


def spec(*meanings: Meaning, name: str = "tool", **properties: JsonValue) -> ToolSpec:
    shape: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}, **properties}}
    return ToolSpec(server="s", name=name, description="", schema_=shape, effect=ToolEffect.INSPECT, meanings=meanings)


def test_a_tool_is_found_by_its_full_name_alone() -> None:
    catalogue = Catalogue([spec()])
    assert catalogue.find("s.tool") == spec()
    assert catalogue.find("tool") is None
    assert catalogue.entry("s.tool").itself.facts == ToolFacts(server="s", effect=ToolEffect.INSPECT)


def test_a_tool_is_in_the_catalogue_once() -> None:
    with pytest.raises(Broken, match=r"`s.tool` is in the catalogue twice"):
        Catalogue([spec(), spec()])


def test_the_listing_is_by_name_and_by_server() -> None:
    catalogue = Catalogue([spec(name="z"), spec(name="a"), *NATIVE_TOOLS])
    assert [tool.full_name for tool in catalogue.listing("s")] == ["s.a", "s.z"]
    assert len(catalogue.listing()) == len(NATIVE_TOOLS) + 2


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("filesystem.read_fil", "filesystem.read_file"),
        ("read_file", "filesystem.read_file"),
        ("fs.write_file", "filesystem.write_file"),
        ("git.pul", "git.pull"),
    ],
)
def test_a_near_miss_is_told_what_was_probably_meant(asked: str, meant: str) -> None:
    with pytest.raises(BadCall, match=f"did you mean `{meant}`") as told:
        Catalogue(NATIVE_TOOLS).entry(asked)
    assert told.value.rule == "unknown-tool"


@pytest.mark.parametrize("asked", ["", "x" * 100_000, "\n`", "\ud800", "Filesystem.read_file\0", None, 1, ["filesystem.read_file"], {}])
def test_nonsense_is_an_unknown_tool(asked: str) -> None:
    with pytest.raises(BadCall) as told:
        Catalogue(NATIVE_TOOLS).entry(asked)
    assert told.value.rule == "unknown-tool"
    assert len(str(told.value)) < 300


READ, WRITE = Role.READ_PATH, Role.WRITE_PATH


@pytest.mark.parametrize(
    ("meanings", "why"),
    [
        ([Meaning(argument="none", roles=(READ,))], "does not name"),
        ([Meaning(argument="a", roles=(READ,)), Meaning(argument="a", roles=(WRITE,))], "two meanings"),
        ([Meaning(argument="a", roles=())], "no role"),
        ([Meaning(argument="a", roles=(READ,), within="b"), Meaning(argument="b", roles=(READ,))], "come before"),
        ([Meaning(argument="a", roles=(READ, Role.FETCH_URL))], "do not go together"),
        ([Meaning(argument="a", roles=(Role.USE_TOOL,))], "do not go together"),
        ([Meaning(argument="a", roles=(READ,), cases=(Case(argument="none", roles=(READ,)),))], "does not name"),
        ([Meaning(argument="a", roles=(READ,), cases=(Case(argument="b", equals=(True,), roles=()),))], "without a role"),
        ([Meaning(argument="a", roles=(READ,), cases=(Case(argument="b", equals=([1],), roles=(READ,)),))], "plain values"),
        ([Meaning(argument="a", roles=(READ, WRITE), cases=(Case(argument="b", roles=(READ,)),))], "looser"),
    ],
)
def test_meanings_that_do_not_hold_are_refused(meanings: list[Meaning], why: str) -> None:
    with pytest.raises(Broken, match=why):
        Catalogue([spec(*meanings)])


def test_a_case_may_put_the_stronger_role_in_place_of_the_weaker() -> None:
    stronger = spec(Meaning(argument="a", roles=(Role.FETCH_URL,), cases=(Case(argument="b", roles=(Role.SEND_URL,)),)))
    assert Catalogue([stronger]).find("s.tool") == stronger
    weaker = spec(Meaning(argument="a", roles=(Role.SEND_URL,), cases=(Case(argument="b", roles=(Role.FETCH_URL,)),)))
    with pytest.raises(Broken, match="looser"):
        Catalogue([weaker])
