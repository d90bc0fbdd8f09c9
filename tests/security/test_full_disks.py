"""An agent that fills the disk: what it runs is ended while there is still room for the log of everybody."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from curtainwall.agents.external.container.engine import Engine
from curtainwall.agents.external.container.spec import ContainerFolders, ContainerLimits
from curtainwall.agents.external.container.turn_watch import ContainerTurnWatch
from curtainwall.facts import Masker
from curtainwall.host import MIB, Bounds
from curtainwall.model import CallPermitted, Place, Prepared, ToolResult, TryLater
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from tests.support.houses import house, open_session, policy, read, run
from tests.support.machines import Machine

SMALL_DISK = "mount -t tmpfs -o nr_inodes=11000 tmpfs {0} && exec {1} -c '{2}' {0}"
MANY_NAMES = """
import sys
from curtainwall.host.sandbox.limits import DiskRoom
room = DiskRoom(sys.argv[1:], 0)
print(room.missing())
for name in range(1_500):
    open(f"{sys.argv[1]}/{name}", "w").close()
print(room.missing())
"""


@pytest.mark.usefixtures("bubblewrap")
def test_a_command_that_fills_the_disk_is_ended_while_there_is_room(tmp_path: Path) -> None:
    spare = shutil.disk_usage(tmp_path).free - 100 * MIB
    machine = Machine.at(tmp_path, bounds=Bounds(seconds=60, spare=spare))
    told = machine.sh("for i in {1..20}; do fallocate -l 100M f$i; sleep 0.2; done")
    assert f"less than {spare // MIB} MiB left" in str(told["notes"])
    assert not (machine.workspace / "f20").exists()


@pytest.mark.usefixtures("bubblewrap")
def test_a_disk_that_was_nearly_full_before_is_still_worked_on(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path, bounds=Bounds(seconds=60, spare=shutil.disk_usage(tmp_path).total))
    assert machine.sh("echo a > f; sleep 0.5; cat f")["stdout"] == "a\n"


def test_a_turn_in_a_container_is_stopped_when_the_disk_runs_full(tmp_path: Path) -> None:
    async def wrote(seconds: float) -> None:
        return

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, tmp_path)
            limits = ContainerLimits(free_disk=shutil.disk_usage(tmp_path).total)
            await ContainerTurnWatch(Engine(), "none", limits, wrote, ContainerFolders(*(tmp_path,) * 4)).until_stop(
                opened.feed, session, 0
            )

    with pytest.raises(TryLater, match="is full"):
        run(work())


def test_names_run_out_as_well(tmp_path: Path) -> None:
    script = SMALL_DISK.format(tmp_path, sys.executable, MANY_NAMES.replace("'", '"'))
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["None", f"the disk with `{tmp_path}` has hardly any room left for names of files"]


def test_what_is_kept_beside_the_log_counts_towards_what_a_session_may_log(tmp_path: Path) -> None:
    async def tell(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return ToolResult(ok=True, value=f"{prepared.arguments['path']} " * 10_000)

    native = NativeTools(
        Catalogue(NATIVE_TOOLS), home="/nowhere", masker=Masker(key=b"k" * 32, known={}), runners={"filesystem.read_file": tell}
    )
    store, rules = MemoryStore(SystemClock()), Rules(policy=policy(), logged_bytes=1_000_000)

    async def work() -> list[bool]:
        async with house(store, rules) as opened:
            session = await open_session(opened, tmp_path)
            answers = [await SessionGate(opened, native).request(session, read(tmp_path / f"{at}")) for at in range(100)]
        async with house(store, rules) as again:
            answers.append(await SessionGate(again, native).request(session, read(tmp_path / "x")))
        return ["call-budget" in answer.verdict.because for answer in answers]

    refused = run(work())
    assert 1 <= refused.index(True) < 5
    assert all(refused[refused.index(True) :])
