"""Matrix on a real homeserver: conversations in encrypted rooms, asks and answers, and everything that comes in between."""

import asyncio
import json
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from curtainwall.model import ApprovalAnswered, MessageAccepted
from tests.support.covers import covers
from tests.support.matrix_house import configure, served
from tests.support.synapse import Synapse, homeserver, person
from tests.support.talking import Home, home, run

__all__ = ["home"]


@pytest.fixture(scope="module")
def synapse(real_part: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Generator[Synapse]:
    real_part("synapse")
    with homeserver(tmp_path_factory.mktemp("synapse")) as server:
        for name in ("wall", "ann", "bob", "eve"):
            server.register(name)
        yield server


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALL_PASSWORD", "secret")


def script(home: Home, *lines: dict[str, object]) -> str:
    """Write replies for the model that plays them, and return its name."""
    path = home.root.parent / "script.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return f"script:{path}"


def writes(home: Home, name: str = "note.txt", content: str = "x") -> dict[str, object]:
    """Return a reply that wants to write a file outside of the workspace, which asks."""
    return {"tool": "filesystem.write_file", "arguments": {"path": str(home.outside / name), "content": content}}


def test_a_conversation_in_an_encrypted_room_with_an_ask_that_an_operator_approves(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse, model=script(home, {"text": "hello **you**"}, writes(home), {"text": "it is written"}))
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served() as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            await ann.say(room, "good morning")
            reply = await ann.hears(room, wall, "hello **you**")
            assert reply.encrypted
            assert reply.source["content"]["formatted_body"] == "<p>hello <strong>you</strong></p>"
            await ann.say(room, "write it")
            card = await ann.hears(room, wall, "waits for an answer")
            approval = card.text.split()[0]
            assert not (home.outside / "note.txt").exists()
            await ann.say(room, f"/approve {approval}")
            await ann.hears(room, wall, "it is written")
            await ann.until(lambda: "was approved by @ann:curtain.test on matrix" in card.text)
            assert (home.outside / "note.txt").read_text() == "x"
            assert here.matrix.health() == ""

    run(talk(), 110)
