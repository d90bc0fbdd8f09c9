"""A real browser, a served house, and people in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.webs import Web, web_at

OFF = (
    # Every window would draw pages of its own for what may drop down below the address: nobody sees them, and they take as long as ours.
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
    # Only the last such list counts, so what Playwright has off stands here again.
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable"),
    *("LensOverlay", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch"),
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--disable-features={','.join(OFF)}",
)
PATIENCE = 90_000


@dataclass
class Screens:
    """Windows of one browser; whatever goes wrong in any of them is a fault of the test."""

    browser: Browser
    web: Web
    faults: list[str] = field(default_factory=list)

    def window(self, user: str | None = "ann", **options: Any) -> Page:
        """Return a window with cookies of its own, signed in unless nobody is named."""
        page = self.browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options}).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda fault: self.faults.append(str(fault)))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda said: self.faults.append(said.text) if "Content Security Policy" in said.text else None)
        if user is not None:
            page.goto(self.web.link(user))
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(f"{self.web.base}/")
        return page


@pytest.fixture(scope="module")
def browser(real_part: Callable[[str], str]) -> Iterator[Browser]:
    real_part("chromium")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    scratch = tmp_path_factory.mktemp("web").resolve()
    (scratch / "project").mkdir()
    (scratch / "project" / "notes.txt").write_text("remember the milk\n")
    with web_at(scratch) as made:
        yield made


@pytest.fixture
def screens(browser: Browser, web: Web) -> Iterator[Screens]:
    made = Screens(browser, web)
    yield made
    web.settle()
    for context in browser.contexts:
        context.close()
    assert made.faults == []
