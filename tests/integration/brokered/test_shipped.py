"""Each agent as a user has it first: the image that our recipe makes, and the model that the agent chooses by itself."""

import asyncio
from collections.abc import Callable

import pytest

from tests.integration.brokered.conftest import AGENTS, Brokered, configuration
from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.shipped_images import shipped_image

CONNECT = '@id("connect") permit (principal, action == Action::"use-tool", resource == Tool::"egress.connect");\n'


@pytest.fixture
def shipped(brokered: Brokered, docker_engine: DockerEngine, real_part: Callable[[str], str]) -> Callable[[str], None]:
    """Return what sets the program up for one agent in the image that its recipe makes."""

    def set_up(agent: str) -> None:
        real_part(agent)
        image = asyncio.run(shipped_image(docker_engine, agent))
        brokered.configure(configuration(brokered.provider, images={agent: image}))

    return set_up


@covers("image.agents-have-their-tools")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_with_its_own_model_in_its_shipped_image_uses_a_tool_through_the_gate(
    agent: str, brokered: Brokered, shipped: Callable[[str], None]
) -> None:
    shipped(agent)
    done = brokered.start(agent, 'CALL write_file {"path": "/workspace/notes.txt", "content": "the moon is full"} word=apple')
    assert done["status"] == "done", done
    session = done["session"]
    assert (brokered.home / "sessions" / session / "workspace" / "notes.txt").read_text() == "the moon is full"
    assert [call["subject"]["tool"] for call in brokered.told(session, "CallRequested")] == ["filesystem.write_file"]
    assert brokered.resumed(session, "word=pear")["text"] == "HEARD: apple, pear"


@covers("container.asks-for-nothing-by-itself")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_asks_for_no_connection_by_itself_where_a_rule_would_have_a_person_asked(
    agent: str, brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(agent)
    rules = brokered.home / "policy"
    rules.mkdir(mode=0o700)
    (rules / "mine.cedar").write_text(CONNECT)
    done = brokered.start(agent, "--on-ask", "park", "word=apple")
    assert (done["status"], done["text"]) == ("done", "HEARD: apple")
    assert brokered.told(done["session"], "CallRequested") == []
    again = brokered.resumed(done["session"], "--on-ask", "park", "word=pear")
    assert (again["status"], again["text"]) == ("done", "HEARD: apple, pear")
    assert brokered.told(done["session"], "CallRequested") == []
