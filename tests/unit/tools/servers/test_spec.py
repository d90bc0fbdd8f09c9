"""What a user may say about a server, and what is refused."""

import pytest

from curtainwall.model import Broken, Case, Meaning, Role, ToolEffect
from curtainwall.tools.servers import ServerSpec, ToolRoles, allowed_environment


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


def test_values_of_the_environment_are_not_shown() -> None:
    assert "hidden" not in repr(ServerSpec("x", "y", environment={"A": "hidden"}))


def test_the_environment_is_what_the_list_says() -> None:
    ours = {"A": "1", "B": "2", "EMPTY": ""}
    assert allowed_environment(["A", "C=3=4", "D", "EMPTY"], ours, frozenset()) == {"A": "1", "C": "3=4", "EMPTY": ""}
    for entry in ("", "=x", "A B", "A-B=1", "A=\0"):
        with pytest.raises(Broken, match="neither the name of a variable"):
            allowed_environment([entry], ours, frozenset())
