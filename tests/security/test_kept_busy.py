"""An agent that keeps its house busy: what it writes and leaves on the disk is looked at in bounded time, and others get their turn."""

import asyncio
import subprocess
import time
import zlib
from pathlib import Path

import pytest

from curtainwall.facts import Unclear, canonical_remotes, find_push
from curtainwall.model import PROPOSE_PLAN, Answer, BadCall, CallRequest
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import inert
from curtainwall.store import MemoryStore
from curtainwall.tools.files.tool import nothing_protected
from curtainwall.tools.files.walks import DirectoryWalk
from curtainwall.tools.runners import THREADS_AT_ONCE
from tests.support.git_server import git
from tests.support.houses import FarSide, house, open_session, run, tools
from tests.support.machines import Machine
from tests.support.stand_in import file_tools


async def see_that_others_go_on(call: "asyncio.Task[Answer]") -> None:
    """See that the loop has turns for others until a call is done; with the call on the loop itself it would be one or two."""
    turns = 0
    while not call.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 5


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("".join(f"pushurl=https://a.b/c/{number}\n" for number in range(9_000)), id="places"),
        pytest.param("z\n" * 120_000, id="keys"),
        pytest.param("z=" + "x" * 1_000_000, id="size"),
    ],
)
def test_a_hostile_git_config_is_read_in_time_or_not_at_all(tmp_path: Path, config: str) -> None:
    git = tmp_path.resolve() / ".git"
    for part in ("objects", "refs"):
        (git / part).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(f'[remote "origin"]\nurl=https://a.b/c\n{config}')
    begun = time.process_time()
    with pytest.raises(Unclear):
        canonical_remotes("origin", repository=str(git.parent), push=True)
    assert time.process_time() - begun < 1


def test_paths_that_lie_deep_are_followed_in_time_or_not_at_all(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path)
    deep = f"{machine.workspace}{'/d' * 1_900}"
    subprocess.run(["mkdir", "-p", deep], check=True)
    try:
        begun = time.process_time()
        for path in (f"{deep}/new", f"{deep}/../new", deep[:-2]):
            with pytest.raises(BadCall, match="lies more than"):
                machine.prepare("filesystem.write_file", path=path, content="x")
        with pytest.raises(BadCall, match="lies more than"):
            machine.prepare("shell.run", cwd=deep, command=" ".join(f">{number}" for number in range(250)))
        with pytest.raises(BadCall, match="too many files or bytes"):
            machine.prepare("filesystem.move_file", source="d", destination="e")
        assert time.process_time() - begun < 1
    finally:
        subprocess.run(["rm", "-r", f"{machine.workspace}/d"], check=True)


def test_links_that_lead_round_and_round_are_followed_in_time_or_not_at_all(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path)
    (machine.workspace / "d").mkdir()
    for number in range(39):
        (machine.workspace / f"l{number}").symlink_to("d/../" * 800 + (f"l{number + 1}" if number < 38 else "d"))
    begun = time.process_time()
    with pytest.raises(BadCall, match="takes too many steps"):
        machine.prepare("shell.run", command=" ".join(f">l0/{number}" for number in range(250)))
    assert time.process_time() - begun < 1


def test_packs_that_an_agent_made_are_looked_at_in_time_or_not_at_all(tmp_path: Path) -> None:
    repository = _full_of_packs(tmp_path, 20)
    begun = time.process_time()
    push = find_push(str(repository), "origin", None)
    assert push is not None
    assert push.summary.endswith("how many commits that are cannot be told here")
    assert time.process_time() - begun < 5


def test_nobody_waits_while_it_is_looked_at_what_a_push_would_publish(tmp_path: Path) -> None:
    repository = _full_of_packs(tmp_path, 20)
    git("remote", "add", "origin", "https://git.example.org/ann/r", cwd=repository)

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, repository)
            gate = SessionGate(opened, Machine.at(tmp_path / "machine").tools)
            for ask in (
                CallRequest(tool="git.push", arguments={}),
                CallRequest(tool=PROPOSE_PLAN, arguments={"steps": [{"tool": "git.push", "arguments": {}}]}),
            ):
                call = asyncio.create_task(gate.request(session, ask, wait=False))
                await see_that_others_go_on(call)

    run(work())


def test_ignore_files_that_an_agent_made_do_not_keep_a_walk_from_ending(tmp_path: Path) -> None:
    workspace = _full_of_ignore_files(tmp_path, depth=12, lines=2_000)
    walk = DirectoryWalk(str(workspace), nothing_protected, ignores=True, seconds=0.2)
    begun = time.process_time()
    list(walk)
    assert walk.cut
    assert time.process_time() - begun < 5


def test_a_session_that_searches_without_end_leaves_others_their_threads(tmp_path: Path) -> None:
    workspace = _full_of_ignore_files(tmp_path, depth=3, lines=500)
    beside = tmp_path.resolve() / "other"
    beside.mkdir()

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            busy, other = await open_session(opened, workspace), await open_session(opened, beside)
            gate = SessionGate(opened, file_tools())
            search = CallRequest(tool="filesystem.search_files", arguments={"path": ".", "pattern": "*.py"})
            searches = [asyncio.create_task(gate.request(busy, search)) for _ in range(20)]
            await asyncio.sleep(0)
            wrote = await gate.request(other, CallRequest(tool="filesystem.write_file", arguments={"path": "a", "content": "x"}))
            assert wrote.result is not None
            assert wrote.result.ok
            assert sum(search.done() for search in searches) <= 2 * THREADS_AT_ONCE
            for search in searches:
                search.cancel()
            await asyncio.gather(*searches, return_exceptions=True)

    run(work())


def test_nobody_waits_while_a_long_call_is_read(tmp_path: Path) -> None:
    workspace = tmp_path.resolve()
    secrets = "https://u:p@h/ " * 70_000

    async def work() -> None:
        far = FarSide(tmp_path / "far")
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, workspace)
            gate = SessionGate(opened, tools(far))
            call = asyncio.create_task(
                gate.request(session, CallRequest(tool="filesystem.write_file", arguments={"path": "a", "content": secrets}), wait=False)
            )
            await see_that_others_go_on(call)

    run(work())


def test_a_card_of_megabytes_is_written_at_once() -> None:
    begun = time.process_time()
    shown = inert("x" * 8_000_000 + "é")
    assert time.process_time() - begun < 0.2
    assert "characters cut" in shown
    assert len(shown) < 3_000


def _full_of_packs(root: Path, number: int) -> Path:
    """Return a repository whose one commit is said to be in many packs, each time as a long row of differences that say nothing."""
    where = root.resolve() / "packs"
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=where)
    tip = git("rev-parse", "HEAD", cwd=where).strip()
    (where / f".git/objects/{tip[:2]}/{tip[2:]}").unlink()
    counts = b"".join((1 if byte >= int(tip[:2], 16) else 0).to_bytes(4, "big") for byte in range(256))
    slow = zlib.compress(b"\xe8\x07\xe8\x07" + bytes(262_000))
    body, place = b"\x90\x3f" + zlib.compress(b"x" * 1_000), 0
    for _ in range(50):
        place, back = len(body), len(body) - place
        body += b"\x60" + (bytes([back]) if back < 128 else bytes([0x80 | (back - 128) >> 7, back & 0x7F])) + slow
    # The last one goes further back than any number says.
    endless = b"\x60" + b"\xff" * 262_000
    for name in range(number):
        pack = where / f".git/objects/pack/pack-{name}"
        pack.with_suffix(".pack").write_bytes(endless if name == 0 else body)
        entry = bytes.fromhex(tip) + bytes(4) + (0 if name == 0 else place).to_bytes(4, "big")
        pack.with_suffix(".idx").write_bytes(b"\xfftOc\x00\x00\x00\x02" + counts + entry)
    return where


def _full_of_ignore_files(root: Path, *, depth: int, lines: int) -> Path:
    """Return a directory in which every name is held against as many patterns as one can write."""
    workspace = here = root.resolve() / "busy"
    for level in range(depth):
        here.mkdir()
        patterns = (f"{{a,b,c,d,e,f,g}}{{a,b,c,d,e,f,g}}*{level}x{number:x}" for number in range(lines))
        (here / ".gitignore").write_text("\n".join(patterns)[:65_000])
        for number in range(50):
            (here / f"file{number}").touch()
        here = here / "d"
    return workspace
