"""`web link`: it says whether anybody serves what it leads to."""

from collections.abc import Callable

from curtainwall.app.services import INSTANCE
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.unit.app.conftest import Places, Said

Run = Callable[..., Said]


def test_a_link_that_leads_nowhere_yet_says_so(run: Run, places: Places) -> None:
    told = run("web", "link")
    assert "/sign-in?code=" in told.out
    assert f"nothing serves `{places.home}` now: start `curtainwall serve` first" in told.err
    store = SqliteStore.open(places.home, SystemClock(), decode=lift)
    try:
        assert run("web", "link", "--output", "json").json["served"] is False
        assert store.leases.take(INSTANCE)
        told = run("web", "link", "--output", "json")
        assert (told.json["served"], "nothing serves" in told.err) == (True, False)
    finally:
        store.close()


def test_there_is_no_link_to_pages_that_are_switched_off(run: Run, places: Places) -> None:
    places.home.mkdir(mode=0o700)
    (places.home / "config.toml").write_text("[web]\nenabled = false\n")
    (places.home / "config.toml").chmod(0o600)
    told = run("web", "link")
    assert (told.code, "web.enabled = false" in told.err) == (1, True)
