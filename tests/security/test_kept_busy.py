"""An agent that keeps its house busy: what it writes and leaves on the disk is looked at in bounded time, and others get their turn."""

import asyncio
import time
from pathlib import Path

import pytest

from curtainwall.facts import Masker, Unclear, canonical_remotes
from curtainwall.model import Ask
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import inert
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, filesystem_runners
from curtainwall.tools.filesystem import nothing_protected
from curtainwall.tools.turns import AT_ONCE
from curtainwall.tools.walks import Walk
from tests.support.houses import FarSide, house, open_session, run, tools


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


def test_ignore_files_that_an_agent_made_do_not_keep_a_walk_from_ending(tmp_path: Path) -> None:
    workspace = _full_of_ignore_files(tmp_path, depth=12, lines=2_000)
    walk = Walk(str(workspace), nothing_protected, ignores=True, seconds=0.2)
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
            gate = SessionGate(opened, _file_tools())
            search = Ask(tool="filesystem.search_files", arguments={"path": ".", "pattern": "*.py"})
            searches = [asyncio.create_task(gate.request(busy, search)) for _ in range(20)]
            await asyncio.sleep(0)
            wrote = await gate.request(other, Ask(tool="filesystem.write_file", arguments={"path": "a", "content": "x"}))
            assert wrote.result is not None
            assert wrote.result.ok
            assert sum(search.done() for search in searches) <= 2 * AT_ONCE
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
                gate.request(session, Ask(tool="filesystem.write_file", arguments={"path": "a", "content": secrets}), wait=False)
            )
            turns = 0
            while not call.done():
                await asyncio.sleep(0.01)
                turns += 1
            # On the loop itself it would be one or two.
            assert turns > 5

    run(work())


def test_a_card_of_megabytes_is_written_at_once() -> None:
    begun = time.process_time()
    shown = inert("x" * 8_000_000 + "é")
    assert time.process_time() - begun < 0.2
    assert "characters cut" in shown
    assert len(shown) < 3_000


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


def _file_tools() -> NativeTools:
    masker = Masker(b"k" * 32)
    return NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=masker, runners=filesystem_runners(masker))
