import asyncio
from pathlib import Path

import pytest

from curtainwall.host import Bounds
from curtainwall.model import Mode
from tests.support.machines import Machine

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine.at(tmp_path)


def test_a_command_runs_in_the_workspace_at_its_own_path(machine: Machine) -> None:
    told = machine.sh("pwd; echo oops >&2; exit 3")
    assert told == {"exit_code": 3, "stdout": f"{machine.workspace}\n", "stderr": "oops\n", "cut": False, "timed_out": False}


def test_it_is_bash_and_the_workspace_is_writable(machine: Machine) -> None:
    assert machine.out("a=(1 2 3); echo ${a[1]} | tee x") == "2\n"
    assert (machine.workspace / "x").read_text() == "2\n"


def test_another_directory_of_the_workspace(machine: Machine) -> None:
    (machine.workspace / "sub").mkdir()
    assert machine.sh("pwd", cwd="sub")["stdout"] == f"{machine.workspace}/sub\n"
    assert "chdir" in machine.fault("shell.run", command="pwd", cwd="none")
    assert "the workspace alone" in machine.fault("shell.run", command="pwd", cwd=str(machine.root))


def test_time_is_limited_by_the_call_and_by_default(machine: Machine) -> None:
    told = machine.sh("echo begun; sleep 100", timeout=4)
    assert (told["timed_out"], told["stdout"]) == (True, "begun\n")
    assert "longer than 4 seconds" in str(told["notes"])


def test_what_is_cut_says_so(tmp_path: Path) -> None:
    small = Machine.at(tmp_path, bounds=Bounds(output=100))
    told = small.sh("seq 1000")
    assert told["cut"] is True
    assert "left out" in str(told["stdout"])


def test_bytes_that_are_no_text_do_no_harm(machine: Machine) -> None:
    assert machine.out(r"printf '\xff\x00ok'") == "\ufffd\0ok"


def test_secrets_in_the_output_are_masked(machine: Machine) -> None:
    assert "[masked:" in machine.out("echo sk-ant-$(printf 'q%.0s' {1..40})")


def test_a_command_of_the_longest_length_runs_and_more_bytes_are_refused(machine: Machine) -> None:
    assert machine.out("echo " + "x" * 130_900).strip() == "x" * 130_900
    assert "too long" in machine.fault("shell.run", command="echo " + "ä" * 100_000)


def test_two_commands_run_at_once(machine: Machine) -> None:
    async def main() -> None:
        met = "touch {}; until [ -e 0 ] && [ -e 1 ] && [ -e 2 ] && [ -e 3 ]; do sleep 0.01; done"
        done = await asyncio.gather(*(machine.run(machine.prepare("shell.run", command=met.format(each))) for each in range(4)))
        assert all(each.ok for each in done), "one waited for another to end"

    asyncio.run(main())


def test_in_a_project_they_take_turns(tmp_path: Path) -> None:
    project = Machine.at(tmp_path, own=False, mode=Mode.ACCEPT_EDITS)

    async def main() -> None:
        command = "[ -e busy ] && touch crossed; touch busy; sleep 0.3; rm busy"
        await asyncio.gather(*(project.run(project.prepare("shell.run", command=command)) for _ in range(3)))

    asyncio.run(main())
    assert list(project.workspace.iterdir()) == []


def test_plan_and_default_see_a_project_read_only(tmp_path: Path) -> None:
    for mode in (Mode.PLAN, Mode.DEFAULT):
        project = Machine.at(tmp_path, own=False, mode=mode)
        told = project.sh("touch x")
        assert "Read-only" in str(told["stderr"])
        assert "`/mode accept-edits`" in str(told["notes"])
        assert "notes" not in project.sh("ls")
    assert project.as_(Mode.BYPASS).out("touch .envrc && ls -A") == ".envrc\n"
