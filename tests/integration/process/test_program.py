"""`curtainwall` with a local agent: the real program, the real Claude Code, our own proxy, and a provider that does what it is told."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program, finished, make_program
from tests.support.prompted import Prompted, prompted_beside
from tests.support.real_parts import CLAUDE
from tests.support.upstream import KEY

AGENT = ("--agent", "claude-local", "--model", "anthropic:claude-sonnet-4-5")


@pytest.fixture
def provider() -> Iterator[Prompted]:
    with prompted_beside() as site:
        yield site


@pytest.fixture
def program(short_path: Path, provider: Prompted, real_part: Callable[[str], str]) -> Iterator[Program]:
    real_part("claude-code")
    scratch = short_path.resolve()
    make_program(scratch)
    made = Program(scratch)
    made.configure(f'[lists]\nhosts = ["docs.python.org"]\n[models.anthropic]\nurl = "{provider.url}"\n[processes]\nprogram = "{CLAUDE}"\n')
    try:
        yield made
    finally:
        finished(made)


@covers("agents.told-free-hosts", "process.by-name")
def test_a_session_with_a_local_agent_is_like_any_other(program: Program, provider: Prompted) -> None:
    first = program.json("start", *AGENT, "word=alpha", ANTHROPIC_API_KEY=KEY)
    assert (first["status"], first["text"]) == ("done", "HEARD: alpha")
    task = 'word=beta CALL write_file {"path": "made.txt", "content": "x"}'
    second = program.json("start", "--resume", first["session"], task, ANTHROPIC_API_KEY=KEY)
    assert second["status"] == "done"
    assert "wrote 1 byte" in second["text"]
    third = program.json("start", "--resume", first["session"], "word=gamma", ANTHROPIC_API_KEY=KEY)
    assert third["text"] == "HEARD: alpha, beta, gamma"
    turns = {event["turn"] for event in program.events(first["session"], "TurnEnded")}
    calls, models = program.events(first["session"], "CallRequested"), program.events(first["session"], "ModelResponded")
    assert {call["turn"] for call in calls} <= turns
    assert calls
    assert {model["turn"] for model in models} == turns, "what its models used belongs to its turns"
    assert all(asked.headers.get("x-api-key") == KEY for asked in provider.asked), "its own key is a stand-in"
    told_of = [json.dumps(asked.body) for asked in provider.asked]
    assert any("without anybody being asked: docs.python.org." in body for body in told_of), "it knows what it may reach"


@covers("brokered.denied-beforehand")
def test_a_task_that_denies_every_ask_goes_on_to_the_local_agents_own_words(program: Program) -> None:
    wish = json.dumps({"path": str(program.scratch / "outside.txt"), "content": "hello"})
    done = program.json("start", *AGENT, "--on-ask", "deny", f"CALL write_file {wish}", ANTHROPIC_API_KEY=KEY)
    assert (done["status"], done["pending"]) == ("done", [])
    assert "--on-ask deny" in done["text"], "the agent was told why, and went on"


def test_a_project_of_a_local_agent_is_not_said_to_be_given_away(program: Program) -> None:
    task = 'word=alpha CALL write_file {"path": "made.txt", "content": "x"}'
    done = program("start", *AGENT, "--workspace", ".", "--on-ask", "park", task, fails=True, ANTHROPIC_API_KEY=KEY)
    assert "filesystem.write_file made.txt waits for an answer" in done.stderr, "its edits are asked about"
    assert "is given to" not in done.stderr, "so nobody is told otherwise"


@covers("brokered.signed-in")
def test_a_local_agent_signs_in_with_a_token_of_the_configuration(program: Program, provider: Prompted) -> None:
    token = program.scratch / "token"
    token.write_text(f"{KEY}\n")
    token.chmod(0o600)
    section = f'[models.anthropic]\nurl = "{provider.url}"\nfile = "{token}"\noauth = true\n'
    program.configure(f'{section}[processes]\nprogram = "{CLAUDE}"\n')
    assert program.json("start", *AGENT, "word=alpha")["text"] == "HEARD: alpha"
    assert {asked.headers.get("authorization") for asked in provider.asked} == {f"Bearer {KEY}"}
    own = program("start", "--model", "anthropic:claude-sonnet-4-5", "hello", fails=True)
    assert "set ANTHROPIC_API_KEY" in own.stderr, "our own agent does not sign in as another program"


@covers("agents.own-keys")
def test_a_local_agent_uses_its_own_key_and_nothing_on_disk_has_it(program: Program, provider: Prompted) -> None:
    users = "sk-ant-api03-the-users-own-key-for-everything-else"
    place = program.scratch / "team.key"
    place.write_text(f"{KEY}\n")
    place.chmod(0o600)
    section = f'[models.anthropic]\nurl = "{provider.url}"\n[processes]\nprogram = "{CLAUDE}"\n'
    program.configure(f'{section}[agents.claude-local.keys.anthropic]\nfile = "{place}"\n')
    done = program.json("start", *AGENT, "word=alpha", ANTHROPIC_API_KEY=users)
    assert done["text"] == "HEARD: alpha"
    assert {asked.headers.get("x-api-key") for asked in provider.asked} == {KEY}, "the user's own key is not used for it"
    for path in program.home.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert KEY.encode() not in content, path
        assert users.encode() not in content, path
    (agent,) = (each for each in program.json("agents", "list") if each["name"] == "claude-local")
    assert agent["runnable"], "its own key is enough"
    place.unlink()
    lost = program("start", "--resume", done["session"], "word=beta", fails=True, ANTHROPIC_API_KEY=users)
    assert f"`claude-local` cannot get the key for its models: the file `{place}`" in lost.stderr, "and what is missing is said"
    (keys,) = (each for each in program.json("doctor")["findings"] if each["name"] == "keys")
    assert (keys["standing"], str(place) in keys["what"]) == ("warn", True)
    assert {asked.headers.get("x-api-key") for asked in provider.asked} == {KEY}


@covers("teams.own-keys")
def test_two_teams_with_the_same_agent_each_use_their_own_key_and_nothing_on_disk_has_them(program: Program, provider: Prompted) -> None:
    keys = {name: f"sk-ant-api03-the-key-of-{name}-{'0123456789' * 4}" for name in ("backend", "frontend")}
    provider.accepted |= {*keys.values()}
    users = "sk-ant-api03-the-users-own-key-for-everything-else"
    text = f'[models.anthropic]\nurl = "{provider.url}"\n[processes]\nprogram = "{CLAUDE}"\n[lists]\nteams = ["*"]\n'
    for name, key in keys.items():
        project, place = program.scratch / name, program.scratch / f"{name}.key"
        project.mkdir()
        place.write_text(f"{key}\n")
        place.chmod(0o600)
        text += f'[teams.{name}]\nproject = "{project}"\nagent = "claude-local"\n[teams.{name}.keys.anthropic]\nfile = "{place}"\n'
    program.configure(text)
    for name, key in keys.items():
        provider.asked.clear()
        asked = program.json("teams", "ask", name, "word=alpha", "--timeout", "60", ANTHROPIC_API_KEY=users)
        assert asked["text"] == "HEARD: alpha", asked
        assert {each.headers.get("x-api-key") for each in provider.asked} == {key}
    for path in program.home.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for key in (*keys.values(), users):
            assert key.encode() not in content, path
    provider.asked.clear()
    (program.scratch / "backend.key").unlink()
    lost = program("teams", "ask", "backend", "word=beta", "--timeout", "60", fails=True, ANTHROPIC_API_KEY=users)
    assert "the key for anthropic is not to be had at the moment" in f"{lost.stdout}{lost.stderr}"
    assert not provider.asked, "no other key is used in its place"
    (found,) = (each for each in program.json("doctor")["findings"] if each["name"] == "keys")
    assert (found["standing"], str(program.scratch / "backend.key") in found["what"]) == ("warn", True)


@covers("process.says-what-to-do")
def test_without_a_program_or_a_key_the_command_says_what_to_do(program: Program) -> None:
    assert "set ANTHROPIC_API_KEY" in program("start", *AGENT, "hello", fails=True).stderr
    program.configure('[processes]\nprogram = "/nowhere/claude"\n')
    done = program("start", *AGENT, "hello", fails=True, ANTHROPIC_API_KEY=KEY)
    assert done.returncode == 1
    assert "install it (`npm install" in done.stderr


@covers("process.budget")
def test_the_last_model_call_that_a_budget_allows_is_still_answered(program: Program, provider: Prompted) -> None:
    program.configure(f'[models.anthropic]\nurl = "{provider.url}"\n[processes]\nprogram = "{CLAUDE}"\n[limits]\nsteps = 2\n')
    task = 'CALL write_file {"path": "made.txt", "content": "x"}'
    first = program.json("start", *AGENT, task, ANTHROPIC_API_KEY=KEY)
    assert first["status"] == "done"
    assert first["text"].startswith("the tool says wrote 1 byte to ")
    assert len(program.events(first["session"], "ModelResponded")) == 2
    second = program.json("start", "--resume", first["session"], "word=beta", fails=True, ANTHROPIC_API_KEY=KEY)
    assert (second["status"], second["text"]) == ("waiting", "")
    assert len(program.events(first["session"], "ModelResponded")) == 2
