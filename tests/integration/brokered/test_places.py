"""Where a foreign agent works: projects that it is given, repositories that are cloned for it, and two sessions beside each other."""

import json
import os
import socket
import subprocess

import pytest

from tests.integration.brokered.conftest import SHELL, Brokered
from tests.support.covers import covers
from tests.support.waiting import until

AGENT = 1000
"""Whose the project is: an agent never is root."""


def project(brokered: Brokered) -> str:
    os.chown(brokered.workspace, AGENT, AGENT)
    (brokered.workspace / "readme").write_text("mine\n")
    os.chown(brokered.workspace / "readme", AGENT, AGENT)
    return str(brokered.workspace)


@covers("brokered.project")
def test_a_project_is_given_for_editing_and_in_plan_mode_for_reading_alone(brokered: Brokered) -> None:
    place = project(brokered)
    done = brokered("start", "--agent", SHELL, "--workspace", place, "cat readme; echo yours >readme; echo done")
    assert done.stdout == "mine\ndone\n"
    assert f"`{place}` is given to `shell`, which can read and change everything in it without asking" in done.stderr
    assert (brokered.workspace / "readme").read_text() == "yours\n"
    read = brokered("start", "--agent", SHELL, "--workspace", place, "--mode", "plan", "cat readme; echo changed >readme; echo tried")
    assert read.stdout == "yours\ntried\n"
    assert "and change nothing there" in read.stderr
    assert (brokered.workspace / "readme").read_text() == "yours\n"


@covers("brokered.runs-later")
def test_an_agent_leaves_nothing_in_a_project_that_runs_by_itself(brokered: Brokered) -> None:
    place = project(brokered)
    subprocess.run(("git", "init", "-q", place), check=True)
    subprocess.run(("chown", "-R", f"{AGENT}:{AGENT}", place), check=True)
    plant = """
    echo evil >.git/hooks/post-commit && echo planted a hook
    echo '[core] fsmonitor = evil' >>.git/config && echo changed what git runs
    mv .git .old && echo moved the repository
    echo evil >.envrc && echo made a file
    (while :; do echo evil >.envrc; sleep 0.1; done) >/dev/null 2>&1 &
    """
    done = brokered.start(SHELL, "--workspace", place, plant)
    assert "made a file\n" in done["text"]
    for boast in ("planted", "changed", "moved"):
        assert boast not in done["text"]
    assert "`.envrc.held`" in done["text"], "it is said what was set aside"
    assert "`curtainwall sessions held` says how to put it back" in done["text"]
    (row,) = brokered.json("sessions", "held")
    assert (row["path"], row["aside"]) == (f"{place}/.envrc", f"{place}/.envrc.held")
    assert not (brokered.workspace / ".envrc").exists()
    assert "evil" not in (brokered.workspace / ".git" / "config").read_text()


@covers("brokered.no-socket-of-the-users")
def test_an_agent_reaches_no_socket_and_no_pipe_that_a_project_holds(brokered: Brokered) -> None:
    place = project(brokered)
    attack = "echo x | socat -T1 - UNIX-CONNECT:service && echo connected; [ -p pipe ] && echo x >pipe; echo tried"
    os.mkfifo(brokered.workspace / "pipe")
    held = os.open(brokered.workspace / "pipe", os.O_RDWR | os.O_NONBLOCK)
    above = os.open(place, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(f"/proc/self/fd/{above}/service")
        service.listen()
        for name in ("service", "pipe"):
            os.chmod(brokered.workspace / name, 0o777)
        subprocess.run(["/bin/sh", "-c", attack], cwd=place, check=True, capture_output=True)
        with service.accept()[0] as client:
            assert client.recv(9) == b"x\n", "outside, the same words reach it"
        assert os.read(held, 9) == b"x\n"
        service.settimeout(0)
        for mode in ("default", "plan"):
            done = brokered("start", "--agent", SHELL, "--workspace", place, "--mode", mode, attack)
            assert done.stdout == "tried\n"
            with pytest.raises(BlockingIOError):
                service.accept()
            with pytest.raises(BlockingIOError):
                os.read(held, 9)
    os.close(held)
    os.close(above)


@covers("brokered.runs-later-crash")
def test_what_an_agent_planted_before_our_process_died_is_set_aside_at_the_next_turn(brokered: Brokered) -> None:
    place = project(brokered)
    planted = brokered.workspace / ".envrc"
    script = "[ -e begun ] && echo here again && exit; touch begun; while :; do echo evil >.envrc; sleep 0.05; done"
    running = brokered.starting(SHELL, "--workspace", place, script)
    until(planted.exists, 120)
    running.kill_everything()
    (row,) = brokered.sessions()
    done = brokered.resumed(row["id"])
    assert "here again" in done["text"], "the turn is taken up"
    assert "`.envrc.held`" in done["text"], "and it is said what was set aside"
    assert not planted.exists(), "what still ran was ended first"
    assert brokered.resumed(row["id"], "echo once more")["text"].endswith("once more\n")
    assert not (brokered.home / "sessions" / row["id"] / "watched.json").exists()


@covers("brokered.mounted-is-read")
def test_what_is_mounted_counts_as_read(brokered: Brokered) -> None:
    place = project(brokered)
    (brokered.workspace / ".env").write_text("PASSWORD=x\n")
    assert brokered.start(SHELL, "--workspace", place, "echo nothing was read")["status"] == "done"
    (row,) = brokered.sessions()
    assert row["labels"] == ["sensitive"]


@covers("brokered.apart")
def test_two_sessions_at_once_are_in_containers_of_their_own(brokered: Brokered) -> None:
    begun = [
        brokered.starting(SHELL, f"echo {name} >/tmp/{name}; until [ -e /workspace/go ]; do sleep 0.1; done; ls /tmp") for name in "ab"
    ]
    until(lambda: len(brokered.containers("running")) == 2, 120)
    for row in brokered.sessions():
        (brokered.home / "sessions" / row["id"] / "workspace" / "go").touch()
    assert [running.code(120) for running in begun] == [0, 0], [running.err for running in begun]
    assert [json.loads(running.out)["text"] for running in begun] == ["a\n", "b\n"]
