"""One session that starts as much as it can: it gets its part of the machine, and the others theirs."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pydantic
import pytest

from curtainwall.host import MIB, Bounds, Confinement, ShareLimits, Shares, charged_to, run_confined, start_confined
from curtainwall.host.sandbox.cgroups import holds_memory
from curtainwall.tools.servers.launch import LaunchMachine as ServerMachine
from curtainwall.tools.servers.launch import launch
from curtainwall.tools.servers.spec import ServerSpec
from tests.support.covers import covers
from tests.support.machines import Machine
from tests.support.repository import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("bubblewrap")
MANY = 60
COUNTED = "mkdir running/$N; ls running | wc -l >> peaks; sleep 0.2; rmdir running/$N"


@covers("confinement.a-session-has-its-part")
def test_of_sixty_commands_at_once_a_few_run_and_another_sessions_runs_meanwhile(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path)
    (machine.workspace / "running").mkdir()
    other = machine.in_session("s2")

    async def story() -> None:
        commands = [COUNTED.replace("$N", str(number)) for number in range(MANY)]
        greedy = [asyncio.create_task(machine.run(machine.prepare("shell.run", command=command))) for command in commands]
        await eventually((machine.workspace / "peaks").exists)
        done = await other.run(other.prepare("shell.run", command="echo mine"))
        assert isinstance(done.value, dict)
        assert done.value["stdout"] == "mine\n"
        assert sum(not task.done() for task in greedy) > MANY // 2, "the others still wait"
        for result in await asyncio.gather(*greedy):
            assert isinstance(result.value, dict)
            assert result.value["exit_code"] == 0

    asyncio.run(story())
    peaks = [int(line) for line in (machine.workspace / "peaks").read_text().split()]
    assert len(peaks) == MANY
    assert max(peaks) <= 4


FILL = "import sys, time\nheld = bytearray(int(sys.argv[1]) << 20)\nprint('filled', flush=True)\ntime.sleep(float(sys.argv[2]))"


async def fill(shares: Shares, session: str, size: int, seconds: float = 1.5) -> tuple[int, str]:
    """Use so many MiB for a while, and return how that ended."""
    with charged_to(shares.of(session)):
        words = ["/usr/bin/python3", "-c", FILL, str(size), str(seconds)]
        done = await run_confined(words, Confinement(cwd="/tmp", bounds=Bounds(seconds=60)))
    return done.code, done.stopped or ""


@covers("confinement.a-session-has-its-part")
def test_the_kernel_holds_the_memory_of_a_session_and_of_all_together() -> None:
    if not holds_memory():
        pytest.skip("this machine does not let us make control groups for memory")
    shares = Shares(ShareLimits(session_commands=8, commands=16, session_memory=300 * MIB, memory=500 * MIB))

    async def story() -> None:
        with charged_to(shares.of("a")):
            keeper = await start_confined(["/bin/sleep", "100"], Confinement(cwd="/tmp", bounds=Bounds(seconds=None)))
        try:
            greedy = [fill(shares, "a", 120) for _ in range(6)]
            ends = await asyncio.gather(*greedy, fill(shares, "b", 120))
            assert ends[-1] == (0, ""), "another session has its own part"
            assert sum(code == 137 and "this session together" in why for code, why in ends[:-1]) >= 3
            peaks = [int(path.read_text()) for path in peak_files()]
            assert len(peaks) == 2
            assert min(peaks) <= 300 * MIB
            assert max(peaks) <= 500 * MIB
        finally:
            await keeper.close()

    asyncio.run(story())
    assert not peak_files()


def peak_files() -> list[Path]:
    """Return where the kernel says the most memory that our process and its session ever had."""
    groups = [path for path in Path("/sys/fs/cgroup").rglob(f"curtainwall-{os.getpid()}-*") if (path / "cgroup.procs").exists()]
    found = [path for group in groups for path in (group, *group.glob("curtainwall-session-*"))]
    return [path / name for path in found for name in ("memory.peak", "memory.max_usage_in_bytes") if (path / name).exists()]


WATCHED = """
import asyncio, json, sys
from curtainwall.host import MIB, Bounds, Confinement, ShareLimits, Shares, charged_to, run_confined
from curtainwall.host.sandbox.cgroups import holds_memory
FILL = sys.argv[1]
shares = Shares(ShareLimits(session_commands=8, commands=16, session_memory=300 * MIB, memory=900 * MIB))
async def fill(session, seconds):
    with charged_to(shares.of(session)):
        words = ["/usr/bin/python3", "-c", FILL, "120", str(seconds)]
        done = await run_confined(words, Confinement(cwd="/tmp", bounds=Bounds(seconds=60)))
    return done.code, done.stopped or ""
async def main():
    return await asyncio.gather(*(fill("a", 8) for _ in range(5)), fill("b", 1))
print(json.dumps([holds_memory(), asyncio.run(main())]))
"""


def test_where_the_kernel_cannot_hold_it_what_takes_most_of_a_sessions_memory_is_ended() -> None:
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    if version.stdout.split() != [str(part) for part in sys.version_info[:2]]:
        pytest.skip("the system's Python, which everybody can run, is another version than ours")
    path = f"{ROOT}/src:{Path(pydantic.__file__).parents[1]}"
    with tempfile.TemporaryDirectory() as nowhere:
        done = subprocess.run(
            ["/usr/bin/python3", "-c", WATCHED, FILL], user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True,
            env={"PYTHONPATH": path, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": nowhere}, timeout=90, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    held, ends = pydantic.TypeAdapter(tuple[bool, list[tuple[int, str]]]).validate_json(done.stdout)
    if held:
        pytest.skip("this machine lets everybody make control groups")
    assert ends[-1] == (0, "")
    assert sum("this session together used more than 300 MiB" in why for _, why in ends[:-1]) >= 3


def test_a_tool_server_counts_as_its_sessions_and_needs_no_place(tmp_path: Path) -> None:
    place = Machine.at(tmp_path).place
    shares = Shares(ShareLimits(session_commands=1, commands=1))

    async def story() -> None:
        spec = ServerSpec(name="s", command="sleep", args=("100",))
        servers = [await launch(spec, place, ServerMachine(home=str(tmp_path), shares=shares)) for _ in range(3)]
        assert len(shares.of(place.session).families) == 3
        await eventually(lambda: shares.of(place.session).usage.memory > 0)
        for server in servers:
            await server.close()
        assert shares.of(place.session).families == []

    asyncio.run(story())
