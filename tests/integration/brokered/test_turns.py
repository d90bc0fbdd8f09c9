"""Foreign agents as any other session: tools through the gate, asks answered from elsewhere, interrupts, crashes, budgets."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.brokered.conftest import AGENTS, MODELS, SHELL, Brokered, configuration
from tests.support.covers import covers
from tests.support.docker_engine import IMAGE
from tests.support.upstream import KEY
from tests.support.waiting import until

CLAUDE = "claude-code"
RAISED = """
async with curtainwall.open_session(resume=ID) as session:
    assert (await session.go_on()).status == "waiting"
    await session.raise_budget(BudgetKind.TOKENS, 100_000)
    reply = await session.go_on()
    print(f"{reply.status}: {reply.text.rpartition(' ')[0][-6:]} {reply.text.rpartition(' ')[2]}")
"""
INSTRUCTED = """
async with curtainwall.open_session(agent="AGENT", system_prompt="Answer like a pirate.") as session:
    print((await session.send(WORDS)).text)
"""
ANSWERED = """
async with curtainwall.open_session(agent="claude-code", model="anthropic:claude-sonnet-4-5") as session:
    reply = await session.send(WORDS)
    (ask,) = reply.pending
    assert (reply.status, session.info.agent) == ("waiting", "claude-code")
    await session.answer(ask.approval, granted=True)
    reply = await session.go_on()
    print(f"{reply.status}: {reply.text}")
"""


@covers("agents.told-free-hosts", "brokered.start", "brokered.metered", "brokered.paths", "container.real-agents", "container.remembers")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_is_used_through_the_gate_and_the_next_turn_remembers_it(
    agent: str, brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(agent)
    brokered.configure(configuration(brokered.provider, '[lists]\nhosts = ["docs.python.org"]\n'))
    done = brokered.start(agent, 'CALL write_file {"path": "/workspace/notes.txt", "content": "the moon is full"} word=apple')
    session = done["session"]
    assert done["status"] == "done", done
    assert "/workspace/notes.txt" in done["text"], "the agent hears of its workspace under the name that it knows"
    assert (brokered.home / "sessions" / session / "workspace" / "notes.txt").read_text() == "the moon is full"
    assert (done["usage"]["tokens_basis"], done["usage"]["dollars_basis"]) == ("measured", "measured")
    assert done["usage"]["dollars"] > 0, [brokered.told(session, kind) for kind in ("ModelRequested", "ModelResponded", "ModelFailed")]
    told = [json.dumps(request.body) for request in brokered.provider.asked]
    assert any("You work in a sandbox that Curtainwall runs" in body for body in told), "the model knows where it is"
    assert any("without anybody being asked: docs.python.org." in body for body in told), "and what it may reach"
    assert brokered.resumed(session, "what did I say? word=pear")["text"] == "HEARD: apple, pear"
    calls = brokered.told(session, "ModelResponded")
    assert all(call["stop_reason"] for call in calls), "why each answer ended is kept"
    assert not any(payload["inline"] or payload["blob"] for call in calls for payload in (call["raw"], call["normalised"])), "and no words"
    assert brokered.json("sessions", "replay", session)["violations"] == []
    assert brokered.containers() == [], "whoever ends takes the container along"


@covers("config.instructions-without-a-project", "library.arguments-of-open-session")
@pytest.mark.parametrize("agent", AGENTS)
def test_configured_instructions_and_those_of_a_program_reach_every_agent(
    agent: str, brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(agent)
    job = f'[cron.look]\nschedule = "0 3 * * *"\nagent = "{agent}"\ninstructions = "word=apple"\n'
    brokered.configure(configuration(brokered.provider, f'[sessions]\ninstructions = "Answer in French."\n{job}'))

    def was_told(text: str) -> bool:
        requests = [json.dumps(request.body) for request in brokered.provider.asked]
        brokered.provider.asked.clear()
        return any(text in body for body in requests)

    assert brokered.start(agent, "word=fig")["status"] == "done"
    assert not was_told("Answer in French."), "on the terminal they do not count"
    assert brokered.json("cron", "run", "look")["text"] == "HEARD: apple"
    assert was_told("Answer in French.")
    assert brokered.library(INSTRUCTED.replace("AGENT", agent), "word=pear") == "HEARD: pear"
    assert was_told("Answer like a pirate.")


@pytest.mark.parametrize("agent", MODELS)
def test_a_key_that_is_not_accepted_is_said_with_where_to_set_it(agent: str, brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(agent)
    brokered.provider.accepted.clear()
    done = brokered("start", "--agent", agent, "--model", MODELS[agent], "word=apple", fails=True)
    assert done.returncode == 1
    assert "see that the key of its provider is right: docs/models.md has the places for keys" in done.stderr


@covers("brokered.asks", "brokered.denials")
def test_an_ask_is_answered_from_another_process_and_a_denial_goes_back_to_the_agent(
    brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(CLAUDE)
    outside = brokered.scratch / "outside.txt"
    wish = json.dumps({"path": str(outside), "content": "hello"})
    running = brokered.starting(CLAUDE, "--on-ask", "wait", f"CALL write_file {wish}")
    approval = running.says(r"`curtainwall approve (\w{6})`", 120)
    assert not outside.exists()
    brokered("approve", approval)
    assert running.code(120) == 0
    assert outside.read_text() == "hello"
    session = json.loads(running.out)["session"]
    other = json.dumps({"path": str(brokered.scratch / "other.txt"), "content": "hello"})
    denied = brokered.begin("start", "--resume", session, "--on-ask", "wait", "--output", "json", f"CALL write_file {other}")
    brokered("deny", denied.says(r"`curtainwall approve (\w{6})`", 120), "--reason", "not there")
    assert denied.code(120) == 0
    assert "not there" in json.loads(denied.out)["text"]
    assert not (brokered.scratch / "other.txt").exists()


@covers("brokered.denied-beforehand")
@pytest.mark.parametrize("agent", MODELS)
def test_a_task_that_denies_every_ask_goes_on_to_the_agents_own_words(
    agent: str, brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(agent)
    outside = brokered.scratch / "outside.txt"
    wish = json.dumps({"path": str(outside), "content": "hello"})
    done = brokered.start(agent, "--on-ask", "deny", f"CALL write_file {wish}")
    assert (done["status"], done["pending"]) == ("done", [])
    assert "the tool says" in done["text"]
    assert "--on-ask deny" in done["text"], "the agent was told why"
    assert not outside.exists()


@covers("brokered.parks", "brokered.answer-kept")
def test_an_answer_that_came_while_nobody_was_there_is_kept_and_the_turn_taken_up(
    brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(CLAUDE)
    outside = brokered.scratch / "outside.txt"
    wish = json.dumps({"path": str(outside), "content": "hello"})
    parked = json.loads(brokered("start", "--agent", CLAUDE, "--output", "json", f"CALL write_file {wish} word=fig", fails=True).stdout)
    assert parked["status"] == "waiting"
    session, (pending,) = parked["session"], parked["pending"]
    again = json.loads(brokered("start", "--resume", session, "--output", "json", fails=True).stdout)
    assert (again["status"], again["pending"]) == ("waiting", [pending]), "while nobody has answered nothing is started"
    brokered("approve", pending["id"])
    done = brokered.resumed(session)
    assert done["status"] == "done", done
    assert outside.read_text() == "hello"
    assert [event["scope"] for event in (grant["grant"] for grant in brokered.told(session, "GrantGiven"))] == ["once"]
    assert len(brokered.told(session, "GrantUsed")) == 1
    assert brokered.json("sessions", "replay", session)["violations"] == []


@covers("brokered.hand-over")
def test_a_message_from_a_second_process_has_its_turn_after_that_of_the_first(brokered: Brokered) -> None:
    first = brokered.starting(SHELL, "touch begun; while [ ! -e go ]; do sleep 0.1; done; echo first")
    (row,) = until(brokered.sessions, 60)
    workspace = brokered.home / "sessions" / row["id"] / "workspace"
    until((workspace / "begun").exists, 120)
    second = brokered.begin("start", "--resume", row["id"], "--output", "json", "echo second")
    until(lambda: len(brokered.told(row["id"], "MessageAccepted")) == 2, 60)
    (workspace / "go").touch()
    assert (first.code(120), second.code(120)) == (0, 0), second.err
    assert (json.loads(first.out)["text"], json.loads(second.out)["text"]) == ("first\n", "second\n")
    assert brokered.containers() == []
    assert brokered.json("sessions", "replay", row["id"])["violations"] == []


CONNECTS = (
    "printf 'CONNECT example.com:443 HTTP/1.1\\\\r\\\\nHost: example.com:443\\\\r\\\\n\\\\r\\\\n'"
    " | socat -t 600 - TCP:127.0.0.1:18080 | head -n 1"
)
TUNNELS = '@id("tunnels") permit (principal, action == Action::"use-tool", resource == Tool::"egress.connect");'


@covers("brokered.connection-parks")
def test_an_ask_for_a_connection_stays_open_when_the_task_parks_and_its_answer_counts(brokered: Brokered) -> None:
    (brokered.home / "policy").mkdir(mode=0o700, exist_ok=True)
    (brokered.home / "policy" / "tunnels.cedar").write_text(TUNNELS)
    agent = f'[agents.connector]\nimage = "{IMAGE}"\ncommand = ["sh", "-c", "{CONNECTS}"]\n'
    brokered.configure(configuration(brokered.provider, agent))
    parked = json.loads(brokered("start", "--agent", "connector", "--output", "json", "go", fails=True).stdout)
    assert parked["status"] == "waiting"
    session, (pending,) = parked["session"], parked["pending"]
    assert pending["tool"] == "egress.connect"
    assert brokered.open_approval() == pending["id"], "it is open as long as nobody has answered"
    brokered("approve", pending["id"])
    done = brokered.resumed(session)
    assert done["status"] == "done", done
    # The machine of the test reaches no such host; whoever is allowed gets as far as to hear that.
    assert " 502 " in done["text"]
    assert brokered.told(session, "ApprovalWithdrawn") == []
    assert len(brokered.told(session, "GrantUsed")) == 1
    assert brokered.json("sessions", "replay", session)["violations"] == []


@covers("brokered.crash")
def test_a_killed_process_leaves_a_turn_that_is_taken_up_with_its_conversation(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    running = brokered.starting(CLAUDE, "HANG word=apple")
    (container,) = until(lambda: brokered.containers("running"), 120)
    (row,) = brokered.sessions()
    until(lambda: brokered.told(row["id"], "TextStreamed"), 60)
    running.kill_everything()
    done = brokered.resumed(row["id"])
    assert (done["status"], done["text"]) == ("done", "HEARD: apple")
    assert container not in brokered.containers()
    assert brokered.json("sessions", "replay", row["id"])["violations"] == []


@covers("brokered.crash-in-ask")
def test_a_process_killed_while_a_human_is_asked_loses_neither_the_ask_nor_the_answer(
    brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part("codex")
    outside = brokered.scratch / "outside.txt"
    wish = json.dumps({"path": str(outside), "content": "hello"})
    running = brokered.starting("codex", "--on-ask", "wait", f"CALL write_file {wish}")
    approval = running.says(r"`curtainwall approve (\w{6})`", 120)
    running.kill_everything()
    (row,) = brokered.sessions()
    brokered("approve", approval)
    assert not outside.exists()
    assert brokered.resumed(row["id"])["status"] == "done"
    assert outside.read_text() == "hello"
    assert len(brokered.told(row["id"], "GrantUsed")) == 1
    assert brokered.json("sessions", "replay", row["id"])["violations"] == []


@covers("container.ends-with-us")
@pytest.mark.parametrize("agent", [SHELL, "opencode"])
def test_a_killed_process_takes_its_container_along_although_nothing_is_started_after_it(
    agent: str, brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    if agent != SHELL:
        real_part(agent)

    def is_seen_to_exit() -> bool:
        running = brokered.starting(agent, "HANG word=apple" if agent != SHELL else "echo begun; sleep 900")
        (container,) = until(lambda: brokered.containers("running"), 120)
        until(lambda: ("sleep 900" if agent == SHELL else "opencode run") in brokered.engine.docker("top", container), 60)
        running.kill_everything()
        until(lambda: container not in brokered.containers("running"), 20)
        return brokered.containers("exited") == [container]

    # Tests beside this one share the engine: an agent that starts there in between may remove the container before we look.
    assert any(is_seen_to_exit() for _ in range(5))


@covers("container.ends-with-us")
def test_an_agent_that_takes_the_lifeline_for_itself_uses_up_nothing_of_ours(brokered: Brokered) -> None:
    script = "for n in 1 2 3 4 5 6 7 8; do socat -u UNIX-CONNECT:/run/curtainwall/alive.sock - </dev/null && echo closed; done"
    assert brokered.start(SHELL, script)["text"] == "closed\n" * 8


@covers("brokered.clean")
def test_cleaning_removes_what_a_dead_process_left(brokered: Brokered) -> None:
    for _ in range(5):
        running = brokered.starting(SHELL, "echo begun; sleep 900")
        (container,) = until(lambda: brokered.containers("running"), 120)
        brokered("sessions", "clean", "--yes")
        assert brokered.containers() == [container], "its owner lives"
        running.kill_everything()
        told = brokered("sessions", "clean", "--yes").stderr
        assert brokered.containers() == []
        # Tests beside this one share the engine: an agent that starts there in between cleans for every home, and we find nothing.
        if re.search(r"removed \d+ containers? that a process of ours left behind", told):
            return
    pytest.fail(f"each time somebody else was faster, or nothing is told: {told}")


@covers("brokered.interrupt")
def test_an_interrupt_ends_the_agent_and_withdraws_what_it_asked(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    wish = json.dumps({"path": str(brokered.scratch / "outside.txt"), "content": "hello"})
    running = brokered.starting(CLAUDE, "--on-ask", "wait", f"CALL write_file {wish} word=apple")
    running.says(r"`curtainwall approve (\w{6})`", 120)
    running.interrupt()
    assert running.code(120) == 130
    told = json.loads(running.out)
    assert (told["status"], told["pending"]) == ("interrupted", [])
    assert brokered.json("approvals", "list") == []
    assert brokered.resumed(told["session"], "word=pear")["text"] == "HEARD: apple, pear"


@covers("brokered.killed-container")
def test_a_container_killed_from_outside_is_a_clear_error_and_the_next_turn_works(brokered: Brokered) -> None:
    running = brokered.starting(SHELL, "echo begun; sleep 900")
    (container,) = until(lambda: brokered.containers("running"), 120)
    until(lambda: "sleep 900" in brokered.engine.docker("top", container), 60)
    brokered.engine.docker("kill", container)
    assert running.code(120) == 1
    assert "the container was stopped from outside" in running.err
    assert brokered.resumed(json.loads(running.out)["session"], "echo again")["text"] == "again\n"


@covers("brokered.budget")
def test_a_budget_stops_the_agent_within_one_event_and_a_raise_lets_it_go_on(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    brokered.configure(configuration(brokered.provider, "[limits]\ntokens = 5000\n"))
    stopped = json.loads(brokered("start", "--agent", CLAUDE, "--output", "json", "LONG word=apple", fails=True).stdout)
    assert stopped["status"] == "waiting"
    session = stopped["session"]
    (exhausted,) = brokered.told(session, "BudgetExhausted")
    assert exhausted["kind"] == "tokens"
    assert exhausted["limit"] <= exhausted["used"] < exhausted["limit"] + 100, "one event is a few tokens"
    assert brokered.json("sessions", "replay", session)["violations"] == []
    assert brokered.library(RAISED, session) == "done: HEARD: apple"
    assert stopped["text"].count("line 0 of") <= 1, "the agent may be stopped before it has passed on the first line"
    assert "line 1999" not in stopped["text"]


@covers("brokered.library")
def test_a_program_holds_a_foreign_agent_as_any_other(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    outside = brokered.scratch / "outside.txt"
    wish = json.dumps({"path": str(outside), "content": "hello"})
    assert brokered.library(ANSWERED, f"CALL write_file {wish}").startswith("done: the tool says wrote 5 bytes")
    assert outside.read_text() == "hello"


@covers("brokered.skills")
def test_the_users_own_skills_are_where_the_agent_looks_for_them(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    skill = brokered.home / "skills" / "ship"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: ship\ndescription: How we ship the blue boat\n---\nShip it.\n")
    done = brokered.start(CLAUDE, "word=apple")
    assert done["text"] == "HEARD: apple"
    assert any("How we ship the blue boat" in json.dumps(request.body) for request in brokered.provider.asked)
    state = brokered.home / "sessions" / done["session"] / "state"
    assert {path.stat().st_uid for path in (state / ".claude", state / ".claude" / "skills")} == {1000}, "the agent writes there too"


@covers("brokered.fork")
def test_a_fork_is_told_what_was_said(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    first = brokered.start(CLAUDE, "word=apple")
    forked = brokered.json("start", "--fork", first["session"], "word=pear")
    assert forked["text"] == "HEARD: apple, pear"
    assert forked["session"] != first["session"]


@covers("brokered.signed-in")
def test_an_agent_that_signs_in_with_a_token_gets_a_stand_in_for_it(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    done = brokered.start(CLAUDE, "word=apple", ANTHROPIC_API_KEY="", CLAUDE_CODE_OAUTH_TOKEN=KEY)
    assert done["text"] == "HEARD: apple"
    assert {request.headers.get("authorization") for request in brokered.provider.asked} == {f"Bearer {KEY}"}
    assert not any("x-api-key" in request.headers for request in brokered.provider.asked)
    state = brokered.home / "sessions" / done["session"]
    assert not any(KEY.encode() in path.read_bytes() for path in state.rglob("*") if path.is_file()), "the agent never had it"


@covers("brokered.missing")
def test_what_is_missing_is_said_before_anything_is_opened(brokered: Brokered) -> None:
    no_engine = brokered("start", "--agent", CLAUDE, "hello", fails=True, DOCKER_HOST="unix:///nowhere.sock")
    assert "the Docker engine does not answer" in no_engine.stderr
    no_key = brokered("start", "--agent", CLAUDE, "hello", fails=True, ANTHROPIC_API_KEY="")
    assert "`claude-code` has no key for its models; set ANTHROPIC_API_KEY" in no_key.stderr
    brokered.configure(configuration(brokered.provider, '[agents.claude-code.keys.openai]\nenv = "TEAM_KEY"\n'))
    no_use = brokered("start", "--agent", CLAUDE, "hello", fails=True)
    assert "[agents.claude-code.keys.openai]: claude-code does not talk to `openai`; it talks to: anthropic" in no_use.stderr
    brokered.configure(configuration(brokered.provider))
    no_model = brokered("start", "--agent", CLAUDE, "--model", "openai:gpt-5", "hello", fails=True)
    assert "`claude-code` cannot use the model `openai:gpt-5`; it takes anthropic:NAME" in no_model.stderr
    unknown = brokered("start", "--agent", "nobody", "hello", fails=True)
    assert unknown.returncode == 2
    assert "there is no agent `nobody` here; there are: builtin, claude-local, claude-code, codex" in unknown.stderr
    assert brokered.sessions() == []


@covers("container.doctor-asks-the-engine")
def test_doctor_says_what_the_engine_of_agents_answers_now(brokered: Brokered, tmp_path: Path) -> None:
    def engine(**environ: str) -> tuple[str, str]:
        told = json.loads(brokered("doctor", "--output", "json", fails=True, **environ).stdout)
        (found,) = (each for each in told["findings"] if each["name"] == "docker")
        return found["standing"], found["what"]

    # No client of Docker's is needed for it.
    standing, what = engine(PATH="/nowhere")
    assert (standing, "container agents can run" in what) == ("ok", True)
    standing, what = engine(DOCKER_HOST=f"unix://{tmp_path}/gone.sock")
    assert standing == "warn"
    assert "container agents cannot run: the Docker engine does not answer" in what
    standing, what = engine(DOCKER_HOST="tcp://127.0.0.1:1")
    assert (standing, "is not on this machine" in what) == ("warn", True)
