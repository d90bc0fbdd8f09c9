"""Containers on a real engine: what an agent can reach from inside, and what becomes of containers that are killed, left over or idle."""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from curtainwall.agents.external.container import ContainerLimits, Engine, EngineMissing, Fleet, ImageMissing, PlainAgent
from curtainwall.agents.external.container.owners import ContainerOwner
from curtainwall.agents.external.container.spec import ContainerRequest
from curtainwall.model import (
    AnswerApproval,
    ApprovalAsked,
    ExtensionNoted,
    InterruptTurn,
    SessionId,
    TextStreamed,
    TryLater,
    TurnStatus,
    changed_files,
    session_stream,
)
from tests.support.contained import contained, listening
from tests.support.covers import covers
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.engine_relay import relayed
from tests.support.houses import ANN, until
from tests.support.repository import ROOT
from tests.support.talking import of, run

SHELL = PlainAgent("shell", ("sh",))
"""An agent that does what it is told: the message is its script."""

LOOK_AROUND = """
echo "user $(id -u):$(id -g)"
grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'
echo "interfaces $(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n')"
echo "writable $(find / -xdev -path /proc -prune -o -type d -writable -print 2>/dev/null | sort | tr '\\n' ' ')"
for place in $(cut -d' ' -f2 /proc/mounts | sort -u); do
  case $place in /proc*|/sys*) continue ;; esac
  [ -d "$place" ] && touch "$place/.probe" 2>/dev/null && echo "wrote $place" && rm "$place/.probe"
done
[ -e /var/run/docker.sock ] && echo "the engine's socket is here"
exit 0
"""


@covers("container.isolated")
def test_an_agent_has_no_network_no_rights_and_writes_only_where_it_may(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            session = await rig.open("shell")
            said = (await rig.say(session, LOOK_AROUND)).text
            none = "0" * 16
            assert "user 1000:1000" in said
            for line in (*(f"Cap{kind}:{none}" for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")), "NoNewPrivs:1", "Seccomp:2"):
                assert line in said
            assert "interfaces lo\n" in said
            assert "writable /home/agent /tmp /workspace \n" in said, "nothing of the image itself can be written"
            wrote = {line.removeprefix("wrote ") for line in said.splitlines() if line.startswith("wrote ")}
            assert wrote == {"/workspace", "/home/agent", "/tmp", "/dev/shm"}
            assert "socket is here" not in said
            # An engine without a bridge isolates everything, so what was asked for is looked at as well.
            shown = await rig.inspect(session)
            host = shown["HostConfig"]
            assert (host["NetworkMode"], host["ReadonlyRootfs"], host["Privileged"], host["CapDrop"]) == ("none", True, False, ["ALL"])
            assert (host["PidsLimit"], host["Memory"], host["NanoCpus"], host["Init"]) == (256, 4 * 1024**3, 2_000_000_000, True)
            assert host["SecurityOpt"] == ["no-new-privileges:true"]
            mounts = {mount["Destination"]: mount["RW"] for mount in shown["Mounts"]}
            assert mounts == {"/workspace": True, "/etc/curtainwall": False, "/run/curtainwall": False, "/home/agent": True}

    run(story())
    everything = docker_engine.docker("run", "--rm", "--network", "host", IMAGE, "tail", "-n", "+3", "/proc/net/dev")
    assert len(everything.splitlines()) > 1, "with the host's network there is more to be seen, so the test can see it"


@covers("container.apart")
def test_two_sessions_do_not_see_each_other(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            one, two = await rig.open("shell"), await rig.open("shell")
            left = "echo mine >/tmp/a; echo mine >/workspace/a; echo mine >/home/agent/a; (sleep 900 &) ; ls -A /run/curtainwall"
            found = "ls /tmp /workspace /home/agent; ps -e -o args; ls -A /run/curtainwall"
            first, second = await asyncio.gather(rig.say(one, left), rig.say(two, "echo here"))
            assert first.is_done, first.end.failure
            assert second.is_done, second.end.failure
            seen = (await rig.say(two, found)).text
            assert seen.splitlines()[-2:] == ["egress.sock", "mcp.sock"]
            assert "sleep 900" not in seen
            assert "\na\n" not in seen
            assert await rig.container(one) != await rig.container(two)

    run(story())


@covers("container.killed-outside")
def test_a_container_killed_from_outside_is_a_clear_failure_and_the_next_turn_works(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            session = await rig.open("shell")
            before = rig.house.feed.head(session_stream(session))
            async with listening(rig, session) as heard:
                await rig.tell(session, "echo begun; echo more; sleep 900")
                await until(lambda: any("begun" in live.text for live in heard()), 60)
            docker_engine.docker("kill", await rig.container(session))
            turn = await rig.ended(session, before)
            assert turn.end.status is TurnStatus.FAILED
            assert "the container was stopped from outside" in turn.end.failure
            assert "begun" in "".join(event.text for event in turn.events if isinstance(event, TextStreamed)), "what was shown is kept"
            assert (await rig.say(session, "echo again")).text == "again\n"

    run(story())


@covers("container.interrupt")
def test_an_interrupt_ends_the_agent_inside_with_every_child_of_its(docker_engine: DockerEngine, short_path: Path) -> None:
    script = """
    trap 'echo goodbye >/home/agent/last-words; exit 0' TERM
    setsid sh -c 'while :; do echo alive >>/workspace/child; sleep 0.05; done' &
    echo begun
    while :; do sleep 0.05; done
    """

    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            session = await rig.open("shell")
            folders = rig.folders(session)
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, script)
            await until(lambda: of(ExtensionNoted, rig.events(session)), 60)
            await until((folders.workspace / "child").exists, 60)
            await rig.house.send(session, InterruptTurn(by=ANN))
            turn = await rig.ended(session, before)
            assert turn.end.status is TurnStatus.INTERRUPTED
            assert (folders.state / "last-words").read_text() == "goodbye\n", "it had the time to end by itself"
            assert await rig.engine.list_containers(session) == [], "the child had left the agent's group, so the container ended with it"
            assert (await rig.say(session, "echo again")).text == "again\n"

    run(story())


@covers("container.time-limit")
def test_a_turn_that_works_too_long_is_stopped(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(turn=0.5, grace=0.2)) as rig:
            session = await rig.open("shell")
            # An agent that does not want to end is ended all the same.
            turn = await rig.say(session, "trap '' TERM; echo begun; while :; do sleep 0.05; done")
            assert turn.end.status is TurnStatus.FAILED
            assert "stopped after 0.5 seconds of work" in turn.end.failure
            assert await rig.engine.list_containers(session) == []

    run(story())


@covers("container.leftovers")
def test_what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not(docker_engine: DockerEngine, short_path: Path) -> None:
    script = f"""
import asyncio, os, sys
from pathlib import Path
from curtainwall.agents.external.container import ContainerFolders, Engine, Fleet
from curtainwall.agents.external.container.spec import ContainerRequest
async def leave():
    folders = ContainerFolders(*(Path({str(short_path)!r}),) * 4)
    async with Fleet(Engine({docker_engine.address!r})).borrow(ContainerRequest("left", "shell", {IMAGE!r}, folders, 1000, 1000), print):
        os._exit(0)
asyncio.run(leave())
"""

    async def is_left(engine: Engine) -> bool:
        """Leave a container behind. Tests beside this one share the engine: an agent that starts there in between removes it."""
        await asyncio.to_thread(subprocess.run, (sys.executable, "-c", script), check=True, timeout=90, cwd=ROOT)
        return len(await engine.list_containers(SessionId("left"))) == 1

    async def story() -> None:
        async with contained(docker_engine, short_path / "home", SHELL) as rig:
            assert await is_left(rig.engine) or await is_left(rig.engine) or await is_left(rig.engine)
            session = await rig.open("shell")
            assert (await rig.say(session, "echo here")).is_done
            assert await rig.engine.list_containers(SessionId("left")) == [], "whoever needs a container cleans first"
            await rig.fleet.clean()
            assert len(await rig.engine.list_containers(session)) == 1
            other = Fleet(rig.engine, owner=_someone_else())
            wish = ContainerRequest(session, "shell", IMAGE, rig.folders(session), 1000, 1000)
            [resting] = await rig.engine.list_containers(session)
            async with other.borrow(wish, print) as held:
                assert [each.id for each in await rig.engine.list_containers(session)] == [held.id] != [resting.id], (
                    "who works now has its own"
                )
            await other.close()

    run(story())


def _someone_else() -> ContainerOwner:
    return ContainerOwner(pid=1, started=1, boot="another boot", namespace=1)


@covers("container.limit")
def test_no_more_containers_run_than_allowed_and_the_next_one_is_told_that_it_waits(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(containers=1)) as rig:
            one, two = await rig.open("shell"), await rig.open("shell")
            before = [rig.house.feed.head(session_stream(session)) for session in (one, two)]
            async with listening(rig, two) as heard:
                await rig.tell(one, "until [ -e /workspace/go ]; do sleep 0.05; done; echo first")
                await until(lambda: list(rig.folders(one).orientation.glob("message")), 60)
                await rig.tell(two, "echo second")
                await until(lambda: any("containers run already, which is the most" in live.text for live in heard()), 60)
            (rig.folders(one).workspace / "go").touch()
            assert (await rig.ended(one, before[0])).text == "first\n"
            assert (await rig.ended(two, before[1])).text == "second\n"
            assert await rig.engine.list_containers(one) == [], "the one that had nothing to do made room"

    run(story())


@covers("container.idle")
def test_an_idle_container_is_paused_goes_on_with_the_next_message_and_is_removed_in_the_end(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(pause_after=0.1, remove_after=600)) as rig:
            session = await rig.open("shell")
            assert (await rig.say(session, "echo one >/tmp/kept")).end.failure == "shell ended without an answer"
            await rig.becomes(session, "paused")
            assert (await rig.say(session, "cat /tmp/kept")).text == "one\n", "it is the same container"
            before, workspace = rig.house.feed.head(session_stream(session)), rig.folders(session).workspace
            await rig.tell(session, "touch here; until [ -e go ]; do sleep 0.05; done; cat /tmp/kept")
            await until((workspace / "here").exists)
            # From the end of this turn on; what rests already would be gone before the turn begins.
            rig.fleet.limits = ContainerLimits(pause_after=0.1, remove_after=0.2)
            (workspace / "go").touch()
            assert (await rig.ended(session, before)).text == "one\n"
            await rig.becomes(session, "gone")
            assert (await rig.say(session, "ls /tmp; echo new")).text == "new\n"

    run(story())


@covers("teams.waking-tells-the-truth")
def test_waking_says_whether_there_is_a_container_and_sleeping_removes_one_at_rest(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            session = await rig.open("shell")
            assert await rig.agent.wake(session) == "the container of shell starts with the next message"
            assert not await rig.engine.list_containers(session)
            assert (await rig.say(session, "echo one")).text == "one\n"
            assert await rig.agent.wake(session) == "awake"
            before, workspace = rig.house.feed.head(session_stream(session)), rig.folders(session).workspace
            await rig.tell(session, "touch here; until [ -e go ]; do sleep 0.05; done; echo two")
            await until((workspace / "here").exists)
            await rig.agent.sleep(session)
            (workspace / "go").touch()
            assert (await rig.ended(session, before)).text == "two\n", "one at work stays"
            await rig.agent.sleep(session)
            assert not await rig.engine.list_containers(session)
            assert (await rig.say(session, "echo three")).text == "three\n"

    run(story())


@covers("container.idle")
def test_a_container_that_nobody_waits_for_any_more_rests_and_is_removed_in_the_end(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(containers=1, pause_after=0.1)) as rig:
            waiting, working = await rig.open("shell"), await rig.open("shell")
            assert (await rig.say(waiting, "echo here")).is_done
            await rig.becomes(waiting, "paused")
            place = rig.folders(working).workspace
            await rig.tell(working, "touch here; until [ -e go ]; do sleep 0.05; done")
            await until((place / "here").exists, 60)
            before = rig.house.feed.head(session_stream(waiting))
            async with listening(rig, waiting) as heard:
                await rig.tell(waiting, "echo again")
                await until(lambda: any("containers run already" in live.text for live in heard()), 60)
            rig.fleet.limits = ContainerLimits(containers=1, pause_after=0.1, remove_after=0.2)
            await rig.house.send(waiting, InterruptTurn(by=ANN))
            assert (await rig.ended(waiting, before)).end.status is TurnStatus.INTERRUPTED
            await rig.becomes(waiting, "gone")
            (place / "go").touch()

    run(story())


@asynccontextmanager
async def slow_to_pause(engine: DockerEngine, place: Path) -> AsyncGenerator[tuple[Engine, asyncio.Event, asyncio.Event]]:
    """Lend the engine through a socket that keeps a wish to pause for a while; tell when one has come, and be told when it goes on."""
    come, goes_on = asyncio.Event(), asyncio.Event()

    async def lets_pass(wish: bytes) -> bool:
        if wish.startswith(b"POST") and b"/pause" in wish:
            come.set()
            await goes_on.wait()
        return True

    async with relayed(engine, place, lets_pass) as relay:
        slow = Engine(relay.address)
        try:
            yield slow, come, goes_on
        finally:
            await slow.close()


@covers("container.idle")
def test_whoever_no_longer_wants_a_pause_knows_whether_it_came_to_that(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with (
            contained(docker_engine, short_path, SHELL) as rig,
            slow_to_pause(docker_engine, short_path / "s") as (slow, come, goes_on),
        ):
            session = await rig.open("shell")
            assert (await rig.say(session, "echo here")).is_done
            container = await rig.container(session)
            pausing = asyncio.create_task(slow.pause(container))
            await asyncio.wait_for(come.wait(), 60)
            pausing.cancel()
            await asyncio.sleep(0)
            pausing.cancel()
            done, _ = await asyncio.wait((pausing,), timeout=0.5)
            assert not done, "the engine may still do it"
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await pausing
            assert (await rig.engine.state(container))["Paused"]
            assert (await rig.say(session, "echo again")).text == "again\n"

    run(story())


@covers("container.waits-paused")
def test_a_container_whose_agent_waits_for_a_human_is_paused_and_goes_on_with_the_answer(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "1"}}
    wish = {"name": "filesystem__write_file", "arguments": {"path": f"{short_path}/outside.txt", "content": "hello"}}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": wish},
    ]
    script = f"printf '%s\\n' {shlex.join(map(json.dumps, frames))} | socat -t 600 - UNIX-CONNECT:/run/curtainwall/mcp.sock"

    async def story() -> None:
        limits = ContainerLimits(pause_after=0.3, turn=30)
        async with contained(docker_engine, short_path / "home", SHELL, limits=limits) as rig:
            session = await rig.open("shell")
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, script)
            asked = await until(lambda: of(ApprovalAsked, rig.events(session)), 60)
            await rig.becomes(session, "paused")
            assert not (short_path / "outside.txt").exists()
            await rig.house.send(session, AnswerApproval(by=ANN, approval=asked[0].approval, granted=True))
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert '"id":2' in turn.text
            assert (short_path / "outside.txt").read_text() == "hello"

    run(story())


@covers("container.clear-errors")
def test_what_is_missing_is_said_before_anything_starts(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        nowhere, there = Engine(f"unix://{short_path}/nowhere.sock"), Engine(docker_engine.address)
        try:
            with pytest.raises(EngineMissing, match=r"does not answer at .*; start it"):
                await nowhere.check(IMAGE, 0)
            with pytest.raises(EngineMissing, match="is not on this machine"):
                await Engine("tcp://192.0.2.1:2375").check(IMAGE, 0)
            with pytest.raises(ImageMissing, match="no image `never-built`; build it with `curtainwall agents build`"):
                await there.check("never-built", 0)
            with pytest.raises(TryLater, match="is full"):
                await there.check(IMAGE, 10**18)
            await there.check(IMAGE, 1)
        finally:
            await nowhere.close()
            await there.close()

    run(story())


@covers("container.named-after-its-session")
def test_a_container_is_named_after_its_session_and_runs_also_if_the_name_is_taken(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            one, two = await rig.open("shell"), await rig.open("shell")
            assert (await rig.say(one, "echo here")).is_done
            assert (await rig.inspect(one))["Name"] == f"/curtainwall-{one}"
            docker_engine.docker("create", "--name", f"curtainwall-{two}", IMAGE, "true")
            try:
                assert (await rig.say(two, "echo there")).text == "there\n"
            finally:
                docker_engine.docker("rm", f"curtainwall-{two}")

    run(story())


@covers("oneshot.changed-files")
def test_files_that_an_agent_changes_with_its_own_tools_are_in_the_log(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            session = await rig.open("shell")
            (rig.folders(session).workspace / "kept").write_text("as it was")
            turn = await rig.say(session, "mkdir a; echo one >a/new; cat kept")
            assert [path for event in turn.events for path in changed_files(event)] == ["a/new"]
            again = await rig.say(session, "echo two >>kept")
            assert [path for event in again.events for path in changed_files(event)] == ["kept"]

    run(story())
