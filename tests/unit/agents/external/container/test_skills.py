"""Where agents in containers find the user's skills."""

from pathlib import Path

from curtainwall.agents.external.container import Adapters
from curtainwall.agents.external.container.folders import DISCOVERY, skill_mounts


def test_each_agent_finds_them_where_it_looks() -> None:
    [claude] = skill_mounts("claude-code", {"ship": "/h/skills/ship"})
    assert (claude.here, claude.inside) == (Path("/h/skills/ship"), "/home/agent/.claude/skills/ship")
    assert [each.inside for each in skill_mounts("codex", {"b": "/b", "a": "/a"})] == [
        "/home/agent/.agents/skills/a",
        "/home/agent/.agents/skills/b",
    ]


def test_of_an_agent_that_is_not_known_nothing_is_lent() -> None:
    assert skill_mounts("mine", {"ship": "/h/skills/ship"}) == ()


def test_of_every_agent_that_ships_it_is_known() -> None:
    assert set(DISCOVERY) == set(Adapters().names), "say in `DISCOVERY` (`container/folders.py`) where the agent looks for skills"
