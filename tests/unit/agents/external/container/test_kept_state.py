"""What an agent keeps is found, whatever else it put into its home, and nobody waits for that."""

import asyncio
import sys
import threading
from pathlib import Path

from curtainwall.agents.external.container.folders import state_sizes
from tests.support.covers import covers

PATTERNS = (".codex/sessions/*/*/rollout-*-abc.jsonl",)

_lookers: set[int] = set()


def _notice(event: str, _arguments: object) -> None:
    if event == "os.scandir":
        _lookers.add(threading.get_ident())


def kept_in(home: Path, *parts: str) -> Path:
    directory = home.joinpath(".codex", "sessions", *parts)
    directory.mkdir(parents=True)
    kept = directory / "rollout-1-abc.jsonl"
    kept.write_text("words")
    return kept


def found(home: Path) -> dict[Path, int]:
    return dict(asyncio.run(asyncio.wait_for(state_sizes(home, PATTERNS), 60)))


def test_a_conversation_is_found_with_its_size(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, "2026", "11")
    (kept.parent / "rollout-1-other.jsonl").write_text("other words")
    assert found(tmp_path) == {kept: 5}
    assert found(tmp_path / "nowhere") == {}
    assert asyncio.run(state_sizes(tmp_path, ())) == {}


def test_links_out_of_the_home_are_not_followed(tmp_path: Path) -> None:
    kept_in(tmp_path / "elsewhere", "2026", "11")
    sessions = tmp_path / "home" / ".codex" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "2026").symlink_to(tmp_path / "elsewhere" / ".codex" / "sessions" / "2026")
    assert found(tmp_path / "home") == {}
    assert asyncio.run(state_sizes(tmp_path / "home", ("../elsewhere/.codex/sessions/*/*/*.jsonl",))) == {}


@covers("container.an-agents-home-holds-nobody-up")
def test_a_home_full_of_names_is_looked_at_beside_everything_else_and_not_to_its_end(tmp_path: Path) -> None:
    kept = kept_in(tmp_path, "2026", "11")
    for number in range(100):
        (kept.parent / f"rollout-{number}-abc.jsonl").touch()
    sys.addaudithook(_notice)
    assert len(asyncio.run(state_sizes(tmp_path, PATTERNS, most=50))) < 50
    assert _lookers
    assert threading.get_ident() not in _lookers
