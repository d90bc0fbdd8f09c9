"""Times on pages: in the zone of whoever reads them, and in the server's where no script runs."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from playwright.sync_api import expect

from curtainwall.model import Millis, SessionId, SessionQuery
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.webs import Web

ZONE = "America/St_Johns"


def told(at: Millis, zone: ZoneInfo | None = None) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone(zone).strftime("%H:%M")


def begun(web: Web, name: str) -> tuple[SessionId, Millis]:
    session = web.session(name)
    (row,) = web.served.wired.store.index.sessions(SessionQuery(prefix=session, limit=1))
    return session, row.changed


@covers("web.times-of-the-reader")
def test_times_are_told_in_the_readers_zone_also_of_what_comes_later(screens: Screens, web: Web) -> None:
    page = screens.window("ann", timezone_id=ZONE)
    first, at = begun(web, "before")
    page.goto(f"{web.base}/sessions")
    time = page.locator(f"#row-{first} time")
    expect(time).to_have_text(told(at, ZoneInfo(ZONE)))
    expect(time).to_have_attribute("title", f"{datetime.fromtimestamp(at // 1000, ZoneInfo(ZONE)):%Y-%m-%d %H:%M:%S} {ZONE}")
    later, at = begun(web, "while it is looked at")
    expect(page.locator(f"#row-{later} time")).to_have_text(told(at, ZoneInfo(ZONE)))


@covers("web.times-of-the-reader")
def test_in_the_audit_a_time_of_another_day_than_its_heading_names_that_day(screens: Screens, web: Web) -> None:
    session, _ = begun(web, "audited")
    web.wish(session, "filesystem.list_directory", path=".")
    page = screens.window("ann", timezone_id=ZONE)
    web.until(lambda: "CallPermitted" in page.goto(f"{web.base}/audit?session={session}").text())  # type: ignore[union-attr] - a page
    time = page.locator("li.CallPermitted time").first
    at = datetime.fromisoformat(time.get_attribute("datetime") or "")
    here = at.astimezone(ZoneInfo(ZONE))
    expect(time).to_have_attribute("data-day", f"{at.astimezone():%Y-%m-%d}")
    day = "" if here.date() == at.astimezone().date() else f"{here:%d %b} "
    expect(time).to_have_text(f"{day}{here:%H:%M:%S}")
    # As if it stood under another day than it is here.
    page.evaluate("""() => {
        for (const time of document.querySelectorAll("li.CallPermitted time")) time.dataset.day = "2000-01-01";
        document.dispatchEvent(new CustomEvent("htmx:load", { detail: { elt: document.body } }));
    }""")
    expect(time).to_have_text(f"{here:%d %b %H:%M:%S}")


@covers("web.times-of-the-reader")
def test_without_a_script_times_are_the_servers(screens: Screens, web: Web) -> None:
    session, at = begun(web, "plain")
    page = screens.window("ann", timezone_id=ZONE, java_script_enabled=False)
    page.goto(f"{web.base}/sessions")
    expect(page.locator(f"#row-{session} time")).to_have_text(told(at))
