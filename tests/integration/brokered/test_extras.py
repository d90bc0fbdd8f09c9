"""What a user adds to an agent's container, from outside: image, mounts, caches, variables, ports, programs beside the agent."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.integration.brokered.conftest import SHELL, Brokered
from tests.support.covers import covers
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.waiting import until

WAIT = "until [ -e go ]; do sleep 0.05; done"


def configured(brokered: Brokered, *lines: str, image: str = IMAGE) -> Path:
    """Configure the shell as an agent, and return a project that it may change."""
    brokered.configure("\n".join((f"[agents.{SHELL}]", f'image = "{image}"', 'command = ["sh"]', *lines, "")))
    project = brokered.scratch / "project"
    project.mkdir(exist_ok=True)
    project.chmod(0o777)
    if project.stat().st_uid == 0:
        os.chown(project, 1000, 1000)
    return project


@covers("container.extras-in-the-container", "sessions.exec", "oneshot.changed-files")
def test_mounts_caches_and_variables_reach_the_agent_and_the_user_can_look_beside_it(brokered: Brokered) -> None:
    data = brokered.scratch / "data"
    data.mkdir()
    (data / "set").write_text("mounted")
    lines = (f'mounts = ["{data}:/data"]', 'caches = [".cache/pip"]', 'env = ["REGION=tok-12345678"]')
    project = configured(brokered, *lines)
    script = f"cat /data/set; touch /data/x; echo kept >.cache-probe; cp .cache-probe ~/.cache/pip/kept; echo $REGION; touch here; {WAIT}"
    running = brokered.starting(SHELL, "--workspace", project, script)
    until((project / "here").exists, 90)
    session = json.loads(brokered("sessions", "list", "--output", "json").stdout)[0]["id"]
    beside = brokered("sessions", "exec", session, "--", "sh", "-c", 'id -u; echo "$REGION"; touch /x; exit 7', fails=True)
    assert (beside.returncode, beside.stdout.split()[1]) == (7, "tok-12345678")
    assert beside.stdout.split()[0] != "0"
    assert "Read-only" in beside.stderr
    (project / "go").touch()
    assert running.child.wait(90) == 0, running.err
    result = json.loads(running.out)
    assert result["text"].startswith("mounted")
    assert "tok-12345678" not in running.out, "what the user configured is masked"
    assert not (data / "x").exists(), "a mount is read-only unless the user says otherwise"
    assert {"change": "changed", "path": "here"} in result["files"]
    again = brokered.start(SHELL, "--workspace", project, "cat ~/.cache/pip/kept; echo $REGION >/dev/null")
    assert again["text"] == "kept\n", "sessions of one project share a cache"
    assert brokered.start(SHELL, "ls ~/.cache 2>/dev/null; echo none")["text"] == "none\n"
    gone = brokered("sessions", "exec", session, "--", "true", fails=True)
    assert "has no container now" in gone.stderr


@covers("sessions.exec")
def test_ctrl_c_ends_what_the_user_runs_beside_the_agent(brokered: Brokered) -> None:
    project = configured(brokered)
    running = brokered.starting(SHELL, "--workspace", project, f"touch here; {WAIT}; echo done")
    until((project / "here").exists, 90)
    session = json.loads(brokered("sessions", "list", "--output", "json").stdout)[0]["id"]
    beside = brokered.begin("sessions", "exec", session, "--", "sh", "-c", "echo begun >begun; sleep 1234 & wait")
    until((project / "begun").exists, 90)
    looked = brokered("sessions", "exec", session, "--", "sh", "-c", "ps ax | grep '[s]leep 1234'")
    assert "sleep 1234" in looked.stdout
    beside.child.send_signal(signal.SIGINT)
    assert beside.child.wait(30) == 130
    gone = brokered("sessions", "exec", session, "--", "sh", "-c", "ps ax | grep '[s]leep 1234' | grep -v grep; echo looked")
    assert gone.stdout == "looked\n"
    missing = brokered("sessions", "exec", session, "--", "no-such-program", fails=True)
    assert missing.returncode == 127
    (project / "go").touch()
    assert running.child.wait(90) == 0, running.err


@covers("container.mounts-are-checked")
def test_a_mount_that_holds_our_home_ends_the_turn_before_anything_starts(brokered: Brokered) -> None:
    configured(brokered, f'mounts = ["{brokered.scratch}:/data"]')
    told = brokered("start", "--agent", SHELL, "ls /data", fails=True)
    assert (told.returncode, "protected path" in told.stderr) == (1, True)
    assert brokered.containers() == []


@covers("image.per-session", "image.devcontainer")
def test_a_session_keeps_the_image_that_it_was_given(brokered: Brokered, docker_engine: DockerEngine) -> None:
    docker_engine.docker("build", "--network", "none", "-t", "theirs:1", "-", stdin=f"FROM {IMAGE}\nENV WHERE=theirs\n".encode())
    project = configured(brokered)
    (project / ".devcontainer.json").write_text('{"image": "theirs:1", "runArgs": ["--privileged"]} // hello')
    assert brokered.start(SHELL, "--workspace", project, "echo in $WHERE")["text"] == "in\n", "nobody chose the project's image"
    told = brokered.start(SHELL, "--workspace", project, "--image", "devcontainer", "echo in $WHERE")
    assert told["text"] == "in theirs\n"
    (project / ".devcontainer.json").write_text('{"image": "other:1"}')
    assert brokered.resumed(told["session"], "echo still in $WHERE")["text"] == "still in theirs\n"
    missing = brokered("start", "--agent", SHELL, "--image", "never:1", "echo no", fails=True)
    assert "make `never:1` first" in missing.stderr
    assert "--image is for agents in containers" in brokered("start", "--image", "dev", "echo no", fails=True).stderr


@covers("container.ports")
def test_a_forwarded_port_leads_into_the_container_from_loopback_alone(brokered: Brokered) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        port = free.getsockname()[1]
    project = configured(brokered, f'ports = ["{port}:9090"]')
    served = "socat TCP-LISTEN:9090,bind=127.0.0.1,fork,reuseaddr SYSTEM:'read line; echo got $line'"
    running = brokered.starting(SHELL, "--workspace", project, f"{served} & touch here; {WAIT}; kill $!; echo served")
    until((project / "here").exists, 90)

    def answer() -> bytes:
        with socket.create_connection(("127.0.0.2", port), 10) as line:
            line.sendall(b"hello\n")
            return line.recv(100)

    until(lambda: answer() == b"got hello\n", 30)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)
    (project / "go").touch()
    assert running.child.wait(90) == 0, running.err
    with pytest.raises(ConnectionRefusedError):
        answer()
