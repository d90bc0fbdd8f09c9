"""What a user may say about a server, and what is refused."""

import pytest
from pydantic import JsonValue

from curtainwall.model import Broken, Case, Meaning, Role, ToolEffect
from curtainwall.tools.servers import ServerSpec, ToolRoles, allowed_environment
from tests.support.covers import covers


@pytest.mark.parametrize("name", ["", "Files", "my-files", "1st", "a.b", "a" * 40, "../x", "a b"])
def test_a_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(Broken, match="lower-case letters"):
        ServerSpec(name, "x")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"command": ""}, "must name a program"),
        ({"command": "x\0y"}, "must name a program"),
        ({"args": ("a\0",)}, "must name a program"),
        ({"trusted": True, "read": ("/x",)}, "for the sandbox"),
        ({"shared": True, "args": ("{workspace}",)}, "belongs to no session"),
        ({"shared": True, "write": ("{workspace}/x",)}, "belongs to no session"),
        ({"read": ("relative",)}, "must be absolute"),
        ({"write": ("~other/x",)}, "must be absolute"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, object], why: str) -> None:
    with pytest.raises(Broken, match=rf"^\[servers.x\]: .*{why}"):
        ServerSpec(**{"name": "x", "command": "y", **said})  # type: ignore[arg-type] - wrong on purpose


def test_within_is_for_paths_and_cases_count_as_roles() -> None:
    base = Meaning(argument="repo", roles=(Role.READ_PATH,))
    remote = Meaning(argument="remote", roles=(Role.READ_REMOTE,), within="repo")
    with pytest.raises(Broken, match="`within` is for paths"):
        ServerSpec("x", "y", tools={"t": ToolRoles(ToolEffect.SEND, (base, remote))})
    case = Case(argument="other", equals=(True,), roles=(Role.RAISE_BUDGET,))
    with pytest.raises(Broken, match="cannot have the role `raise-budget`"):
        ServerSpec("x", "y", tools={"t": ToolRoles(ToolEffect.INSPECT, (Meaning(argument="p", roles=(Role.READ_PATH,), cases=(case,)),))})


READ, WRITE, DELETE = Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH
FETCH, SEND = Role.FETCH_URL, Role.SEND_URL


def spelled(roles: tuple[Role, ...], *cases: Case) -> ServerSpec:
    meaning = Meaning(argument="p", roles=roles, cases=cases)
    return ServerSpec("x", "y", tools={"t": ToolRoles(ToolEffect.SEND, (meaning,))})


def case(*roles: Role, equals: tuple[JsonValue, ...] = ("rm",)) -> Case:
    return Case(argument="op", equals=equals, roles=roles)


@covers("servers.no-role-by-spelling")
@pytest.mark.parametrize(
    ("roles", "cases"),
    [
        ((READ,), [case(DELETE)]),
        ((READ,), [case(READ, DELETE)]),
        ((READ, WRITE), [case(DELETE)]),
        ((WRITE,), [case(READ)]),
        ((FETCH,), [case(SEND)]),
        ((FETCH,), [case(SEND, equals=(True,))]),
        ((FETCH,), [case(SEND, equals=(1,))]),
        ((FETCH,), [case(SEND, equals=("POST", "PUT", "PATCH", "DELETE"))]),
        ((READ, DELETE), [case(READ, equals=("ls",)), case(READ, WRITE, equals=("cp",))]),
        ((Role.READ_REMOTE,), [case(Role.WRITE_REMOTE)]),
        ((SEND,), [case(FETCH, equals=("GET",)), case(SEND, equals=())]),
    ],
)
def test_an_annotation_in_which_a_spelling_would_matter_is_refused(roles: tuple[Role, ...], cases: list[Case]) -> None:
    with pytest.raises(Broken, match=r"^\[servers.x\]: t: `p`: a case .*; write "):
        spelled(roles, *cases)


@pytest.mark.parametrize(
    ("roles", "cases"),
    [
        ((READ, DELETE), [case(READ, equals=("ls", "cat"))]),
        ((READ, WRITE), [case(READ, equals=(True,)), case(READ, WRITE, equals=("x",))]),
        ((SEND,), [case(FETCH, equals=("GET", "HEAD"))]),
        ((FETCH,), [case(SEND, equals=())]),
        ((SEND,), [case(SEND, equals=()), case(FETCH, equals=("GET",))]),
    ],
)
def test_an_annotation_in_which_only_exact_values_ask_for_less_is_taken(roles: tuple[Role, ...], cases: list[Case]) -> None:
    assert spelled(roles, *cases).tools["t"].meanings[0].cases == tuple(cases)


def test_values_of_the_environment_are_not_shown() -> None:
    assert "hidden" not in repr(ServerSpec("x", "y", environment={"A": "hidden"}))


def test_the_environment_is_what_the_list_says() -> None:
    ours = {"A": "1", "B": "2", "EMPTY": ""}
    assert allowed_environment(["A", "C=3=4", "D", "EMPTY"], ours, frozenset()) == {"A": "1", "C": "3=4", "EMPTY": ""}
    for entry in ("", "=x", "A B", "A-B=1", "A=\0"):
        with pytest.raises(Broken, match="neither the name of a variable"):
            allowed_environment([entry], ours, frozenset())
