"""`web link`: there is a link only to the port that our own `serve` holds."""

import json
import os
import socket
from collections.abc import Callable
from contextlib import closing

import pytest

from curtainwall.compose.store import SERVING
from curtainwall.config.web import WebSection
from curtainwall.host.home import find_home
from curtainwall.model import TryLater
from curtainwall.runtime import SystemClock
from curtainwall.serve.web.sign_in import announce_listener, require_listener
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.in_process import Places, Said
from tests.support.ports import free_port

Run = Callable[..., Said]
SIGN_INS = "keys/web-sign-ins.json"


def listener(port: int) -> socket.socket:
    """Return a socket of somebody who holds the port."""
    made = socket.socket()
    made.bind(("127.0.0.1", port))
    made.listen()
    return made


def configure(places: Places, port: int, more: str = "") -> None:
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text(f"[web]\nport = {port}\n{more}")
    (places.home / "config.toml").chmod(0o600)


@covers("web.links-lead-to-us")
def test_there_is_no_link_while_nothing_serves_or_somebody_else_holds_the_port(run: Run, places: Places) -> None:
    configure(places, port := free_port())

    def refused() -> None:
        told = run("web", "link", "--output", "json")
        assert (told.code, told.out) == (1, "")
        assert f"nothing serves the pages of `{places.home}`" in told.err
        assert "start `curtainwall serve`" in told.err
        assert not (places.home / SIGN_INS).exists(), "no code was made"

    refused()
    with closing(listener(port)):
        refused()
        # A `serve` that could not get the port holds the home all the same.
        with closing(SqliteStore.open(places.home, SystemClock(), decode=lift)) as store:
            assert store.leases.take(SERVING)
            refused()


@covers("web.links-lead-to-us")
def test_what_an_earlier_serve_wrote_down_vouches_for_nobody(run: Run, places: Places) -> None:
    configure(places, port := free_port())
    home, web = find_home(), WebSection(port=port)
    home.prepare()
    with listener(port) as ours, announce_listener(home, web, ours):
        assert run("web", "link").out.startswith(f"http://127.0.0.1:{port}/sign-in?code=")
        written = (home.root / "run" / "web.json").read_bytes()
        assert (home.root / "run" / "web.json").stat().st_mode & 0o777 == 0o600
    assert not (home.root / "run" / "web.json").exists()
    (home.root / "run" / "web.json").write_bytes(written)
    with pytest.raises(TryLater):
        require_listener(home, web)
    with listener(port) as foreign:
        assert os.fstat(foreign.fileno()).st_ino != json.loads(written)["inode"]
        with pytest.raises(TryLater):
            require_listener(home, web)
    (home.root / "run" / "web.json").write_bytes(b"{}")
    with pytest.raises(TryLater):
        require_listener(home, web)


@covers("web.links-lead-to-us")
def test_a_configuration_that_names_another_port_than_the_one_that_is_served_gives_no_link(run: Run, places: Places) -> None:
    home, port, other = find_home(), free_port(), free_port()
    home.prepare()
    with listener(port) as ours, announce_listener(home, WebSection(port=port), ours):
        configure(places, other)
        told = run("web", "link")
        assert (told.code, f"served at port {port}" in told.err) == (1, True)


def test_a_link_names_the_one_address_that_is_listened_at() -> None:
    assert WebSection(host="localhost", port=7).address == "http://127.0.0.1:7"


def test_there_is_no_link_to_pages_that_are_switched_off(run: Run, places: Places) -> None:
    configure(places, 7878, "enabled = false\n")
    told = run("web", "link")
    assert (told.code, "web.enabled = false" in told.err) == (1, True)
