"""The socket itself: who may open it, who may connect, and what happens to a file that is there already."""

import os
import socket
import time
from pathlib import Path

import pytest

from curtainwall.host import is_served
from curtainwall.model import Broken, TryLater
from tests.support.houses import kinds, run, until
from tests.support.mcp import bare, calling, serving


def test_a_second_process_is_told_that_the_socket_is_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            with pytest.raises(TryLater, match="another process serves"):
                await served.door.open(served.socket).__aenter__()
            assert is_served(served.socket)

    run(story())


def test_a_socket_that_nobody_serves_any_more_is_replaced_and_another_s_file_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "one.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        assert not is_served(path)
        async with serving(tmp_path) as served:
            assert is_served(served.socket)
            other = tmp_path / "other"
            other.touch()
            other.rename(path)
        assert path.is_file()

    run(story())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a socket away")
def test_the_socket_can_be_given_to_the_user_of_a_container(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            path = tmp_path / "given.sock"
            async with served.door.open(path, mode=0o660, owner=1000):
                found = path.stat()
                assert (found.st_uid, found.st_mode & 0o777) == (1000, 0o660)
                async with bare(path) as peer:
                    await peer.greet()

    run(story())


@pytest.mark.parametrize(("path", "told"), [("x" * 200, "too long"), ("no/such/directory", "cannot be made")])
def test_a_socket_that_cannot_be_made_is_told_in_words(path: str, told: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            with pytest.raises(Broken, match=told):
                await served.door.open(tmp_path / path).__aenter__()

    run(story())


def test_a_peer_that_has_said_its_last_word_still_gets_its_answers(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            (served.workspace / "a").write_text("hello")
            async with bare(served.socket) as peer:
                await peer.send(*(calling("filesystem__read_file", {"path": "a"}, number) for number in range(30)))
                peer.writer.write_eof()
                assert (await peer.rest()).count(b"hello") == 30

    run(story())


def test_a_peer_that_hangs_up_after_its_last_word_is_let_go_of_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            began = time.monotonic()
            for number in range(8):
                async with bare(served.socket) as peer:
                    await peer.send(calling("filesystem__read_file", {"path": "/etc/hostname"}, number))
                    await until(lambda: kinds(served.house, served.session).count("ApprovalAsked") > 0)
                    peer.writer.write_eof()
                    async with bare(served.socket) as other:
                        # Once this one is answered, the last word of the first has been heard.
                        await other.greet()
                await until(lambda: not served.door.connections)
            # One that is looked at once a second would have taken that long each time.
            assert time.monotonic() - began < 6

    run(story())
