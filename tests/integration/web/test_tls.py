"""The pages over TLS: a real certificate, a real browser, cookies that never travel without it, and nothing said in the clear."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests.integration.web.conftest import PATIENCE
from tests.support.certificates import Authority
from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program, finished, make_program

BOUND = 90
CONFIG = '[web]\nport = {port}\noperators = ["ann"]\nurl = "https://localhost:{port}"\ncertificate = "{pem}"\nkey = "{pem}"\n'


@dataclass
class Encrypted:
    """`serve` with a certificate, and the authority that signed it."""

    program: Program
    authority: Authority
    port: int

    @property
    def base(self) -> str:
        return f"https://localhost:{self.port}"

    def client(self, **options: object) -> httpx2.Client:
        return httpx2.Client(base_url=self.base, verify=self.authority.trust, trust_env=False, timeout=90, **options)  # type: ignore[arg-type] - options of a client


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    scratch, port = tmp_path_factory.mktemp("tls").resolve(), free_port()
    program, authority = make_program(scratch), Authority(scratch)
    program.configure(CONFIG.format(port=port, pem=authority.written("localhost", "127.0.0.1")))
    program.begin("serve").says(r"the web is at https://localhost", BOUND)
    yield Encrypted(program, authority, port)
    finished(program)


@covers("web.tls")
def test_a_browser_signs_in_over_tls_and_its_cookie_goes_nowhere_else(encrypted: Encrypted, browser: Browser) -> None:
    link = encrypted.program.json("web", "link")["url"]
    assert link.startswith(f"{encrypted.base}/sign-in?code=")
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{encrypted.base}/")
    expect(page.locator("#live")).to_have_class(re.compile(r"\bon\b"))
    (cookie,) = [it for it in context.cookies() if it.get("httpOnly")]
    assert (cookie["name"], cookie["secure"], cookie["sameSite"], cookie["path"]) == ("__Host-curtainwall", True, "Strict", "/")  # pyright: ignore[reportTypedDictNotRequiredAccess] - a browser's own
    page.locator(".menu summary").click()
    page.get_by_role("button", name="dark").click()
    page.wait_for_url(f"{encrypted.base}/")
    assert all(it.get("secure") for it in context.cookies())
    context.close()


@covers("web.tls")
def test_only_whoever_trusts_the_certificate_hears_anything(encrypted: Encrypted) -> None:
    with encrypted.client() as client:
        page = client.get("/sign-in")
        assert page.status_code == 200
        assert page.headers["strict-transport-security"] == "max-age=31536000"
        forged = client.post("/sign-in", data={"code": "x"}, headers={"Origin": f"http://localhost:{encrypted.port}"})
        assert forged.status_code == 403, "the same page without encryption is another origin"
    with httpx2.Client(trust_env=False, timeout=90) as stranger, pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        stranger.get(f"{encrypted.base}/sign-in")
    with httpx2.Client(trust_env=False, timeout=90) as bare, pytest.raises(httpx2.HTTPError):
        bare.get(f"http://localhost:{encrypted.port}/sign-in")


@covers("web.tls")
@pytest.mark.parametrize(("content", "why"), [(None, "no such file"), ("no certificate at all", "no certificate and its key")])
def test_a_certificate_that_cannot_be_used_is_named_and_nothing_is_served_in_the_clear(
    tmp_path: Path, content: str | None, why: str
) -> None:
    program, port = make_program(tmp_path.resolve()), free_port()
    pem = program.scratch / "box.pem"
    if content is not None:
        pem.write_text(content)
    program.configure(CONFIG.format(port=port, pem=pem))
    try:
        serving = program.begin("serve")
        serving.says(rf"certificate `{re.escape(str(pem))}` and key [^\n]* cannot be used: [^\n]*{why}", BOUND)
        assert "the web is at" not in serving.err
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"http://localhost:{port}/sign-in", trust_env=False)
    finally:
        finished(program)
