"""One script of keys for every agent: no channel can tell them apart."""

import json
import os
from collections.abc import Callable

import pytest

from tests.integration.brokered.conftest import MODELS, Brokered, configuration
from tests.integration.cli.test_start_terminal import READY, ask, press
from tests.support.covers import covers
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("tmux")


@covers("brokered.same-terminal")
@pytest.mark.parametrize("agent", ["builtin", "claude-code"])
def test_the_same_keys_drive_every_agent(agent: str, brokered: Brokered, real_part: Callable[[str], str]) -> None:
    outside = brokered.scratch / "outside.txt"
    wish = {"path": str(outside), "content": "hello"}
    if agent == "builtin":
        script = brokered.scratch / "script.jsonl"
        call = {"tool": "filesystem.write_file", "arguments": wish}
        lines = (call, {"text": "the tool says it is written"}, {"text": "HEARD: pear"}, call, {"text": "the tool says it was denied"})
        script.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        model = f"script:{script}"
    else:
        real_part(agent)
        model = MODELS[agent]
    with brokered.terminal("start", "--agent", agent, "--model", model) as screen:
        screen.until(READY)
        screen.enter(f"CALL write_file {json.dumps(wish)}")
        card = screen.until("y once", 90)
        assert "filesystem.write_file" in card
        assert not outside.exists()
        press(screen, "y", "the tool says")
        screen.until("the tool says")
        assert outside.read_text() == "hello"
        screen.enter("word=pear")
        screen.until("HEARD: pear")
        screen.enter("/session")
        screen.until(agent)
        outside.unlink()
        screen.enter(f"CALL write_file {json.dumps(wish)}")
        approval = ask(screen)
        screen.enter(f"/deny {approval} not there")
        screen.until(lambda seen: seen.count("the tool says") == 2)
        assert not outside.exists()
        screen.enter("/quit")
        assert screen.exit_code() == 0


@covers("brokered.budget")
def test_a_budget_that_ends_a_reply_is_raised_where_one_sits_and_the_agent_goes_on(
    brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part("claude-code")
    brokered.configure(configuration(brokered.provider, "[limits]\ntokens = 5000\n"))
    with brokered.terminal("start", "--agent", "claude-code", "--model", MODELS["claude-code"]) as screen:
        screen.until(READY)
        screen.enter("LONG word=apple")
        assert "line 1999" not in screen.until("the budget of tokens is used up", 90)
        screen.enter("/budget tokens 100000")
        screen.until("HEARD: apple", 90)
        screen.enter("/quit")
        assert screen.exit_code() == 0


@covers("container.stricter-at-work")
def test_plan_mode_typed_while_claude_code_works_in_a_project_takes_the_project_from_it(
    brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part("claude-code")
    place = brokered.workspace
    os.chown(place, 1000, 1000)
    call = json.dumps({"command": "while date >>/workspace/child; do :; done", "description": "write"})
    with brokered.terminal("start", "--agent", "claude-code", "--model", MODELS["claude-code"], "--workspace", str(place)) as screen:
        screen.until(READY)
        screen.enter(f"word=apple CALL Bash {call}")
        until((place / "child").exists, 90)
        first = brokered.containers("running")
        screen.enter("/mode plan")
        screen.until("the mode is plan now: all that ran in the container was ended", 90)
        screen.until("Read-only file system", 90)
        size = (place / "child").stat().st_size
        screen.enter("word=pear")
        screen.until("HEARD: apple, pear", 90)
        assert (place / "child").stat().st_size == size
        assert not set(first) & set(brokered.containers())
        screen.enter("/quit")
        assert screen.exit_code() == 0
