"""The web from the attacker's side: an agent in its sandbox, a page on another site, a neighbour on the network."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from curtainwall.config.loader import parse_config
from curtainwall.config.web_people import web_operators
from curtainwall.model import Effect
from tests.support.covers import covers
from tests.support.waiting import replace
from tests.support.webs import CONFIG, Web, web_at


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_at(tmp_path_factory.mktemp("web").resolve(), CONFIG) as made:
        yield made


SPELLINGS = (
    "http://127.0.0.1:{}/",
    "http://localhost:{}/",
    "http://127.1:{}/",
    "http://0x7f000001:{}/",
    "http://[::1]:{}/",
    "http://[::ffff:127.0.0.1]:{}/",
)


@covers("web.agents-cannot-reach-it")
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_our_port_can_be_fetched_and_nobody_is_asked(web: Web, spelling: str) -> None:
    session = web.session()
    answer = web.wish(session, "fetch.get", url=spelling.format(web.port))
    assert (answer.verdict.effect, answer.waiting) == (Effect.DENY, False)
    assert "forbidden-address" in answer.verdict.because
    assert web.asks(session) == []


@covers("web.agents-cannot-reach-it")
def test_a_command_in_the_shells_sandbox_finds_no_way_to_the_port(web: Web, bubblewrap: str) -> None:
    session = web.session()
    probe = f"exec 3<>/dev/tcp/127.0.0.1/{web.port} && echo reached || echo no way"
    answer = web.wish(session, "shell.run", command=f"bash -c '{probe}'")
    assert answer.result is not None
    told = str(answer.result.value)
    assert "no way" in told
    assert "reached" not in told
    assert httpx2.get(f"{web.base}/sign-in", trust_env=False, timeout=90).status_code == 200


@covers("web.agents-cannot-reach-it")
def test_what_signs_people_in_is_out_of_every_agents_reach(web: Web) -> None:
    session = web.session()
    kept = web.served.wired.setup.home.root / "keys" / "web-sign-ins.json"
    web.visit("ann")
    assert kept.exists()
    for tool, more in (("filesystem.read_file", {}), ("filesystem.write_file", {"content": "{}"})):
        assert "protected-path" in web.wish(session, tool, path=str(kept), **more).verdict.because


def test_guessing_codes_is_stopped_for_everybody(tmp_path_factory: pytest.TempPathFactory) -> None:
    with web_at(tmp_path_factory.mktemp("guessing").resolve(), CONFIG) as web:
        stranger = web.visit(None)
        codes = [stranger.post("/sign-in", code=f"guess {number}").status_code for number in range(12)]
        assert codes == [401] * 10 + [429] * 2
        assert int(stranger.post("/sign-in", code="again").headers["retry-after"]) > 0
        # Whoever has a link is not kept out by those who guess.
        code = parse_qs(urlsplit(web.link("ann")).query)["code"][0]
        assert [web.visit(None).post("/sign-in", code=code).status_code for _ in range(2)] == [303, 429]


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ('host = "0.0.0.0"', "without encryption"),
        ('host = "192.168.1.7"', "without encryption"),
        ('host = "::"', "without encryption"),
        ('host = "box.example.org"', "without encryption"),
        ("operators = []", "operators"),
        ('certificate = "/c.pem"', "belong together"),
        ('tokens = {eve = "/t"}\noperators = ["ann"]', "neither among"),
        ('operators = ["a b"]', "a name here"),
        ("port = 0", "port"),
    ],
)
@covers("web.other-machines-need-tls")
def test_a_web_that_would_be_open_to_others_is_refused_before_it_starts(table: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_config(f"[web]\n{table}\n")


@covers("web.other-machines-need-tls")
@pytest.mark.parametrize(
    "table",
    ['host = "127.0.0.9"', 'host = "::1"', 'host = "0.0.0.0"\nallow-remote = true', 'host = "0.0.0.0"\ncertificate = "/c"\nkey = "/k"'],
)
def test_this_machine_alone_tls_or_ones_own_word_is_enough(table: str) -> None:
    assert parse_config(f"[web]\n{table}\n").web.enabled


def test_without_a_list_the_one_who_runs_it_is_the_operator() -> None:
    assert len(web_operators(parse_config(""))) == 1


def test_the_cookie_is_kept_from_scripts_and_other_sites(web: Web) -> None:
    visit = web.visit(None)
    page = visit.client.get(web.link("ann"))
    code = page.text.partition('name="code" value="')[2].partition('"')[0]
    cookie = visit.post("/sign-in", code=code).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "domain" not in cookie


@pytest.mark.parametrize(
    "ahead", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/\n/evil", "\\\\evil"]
)
def test_nobody_is_sent_elsewhere_after_signing_in_or_a_form(web: Web, ahead: str) -> None:
    visit = web.visit(None)
    page = visit.client.get(web.link("ann"))
    code = page.text.partition('name="code" value="')[2].partition('"')[0]
    assert visit.post("/sign-in", code=code, next=ahead).headers["location"] == "/"
    signed = web.visit("ann")
    assert signed.post("/theme", theme="dark", back=ahead).headers["location"] == "/"


def test_somebody_who_is_off_the_list_is_out_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    with web_at(tmp_path_factory.mktemp("list").resolve(), CONFIG) as web:
        olga = web.visit("olga")
        assert olga.get("/").status_code == 200
        config = web.served.wired.setup.home.config
        replace(config, config.read_text().replace(', "olga"', ""))
        web.until(lambda: _is_out(olga))


def _is_out(visit: object) -> bool:
    try:
        return visit.get("/").status_code == 303  # type: ignore[attr-defined] - a visit
    except (httpx2.HTTPError, asyncio.CancelledError):
        return False


@covers("web.sign-ins-are-counted-per-person")
def test_somebody_who_signs_in_without_end_signs_nobody_else_out(tmp_path: Path) -> None:
    token = "a token that is long enough to be one"
    (tmp_path / "token").write_text(token)
    config = f'{CONFIG}tokens = {{{{ uma = "{tmp_path / "token"}" }}}}\n'
    with web_at(tmp_path.resolve(), config) as made:
        ann = made.visit("ann")
        for _ in range(205):
            uma = made.visit(None)
            assert uma.post("/sign-in", code=token).status_code == 303
        assert ann.get("/").status_code == 200
        assert uma.get("/").status_code == 200


@covers("serve.health-quotes-nothing")
def test_somebody_who_may_only_look_is_not_told_what_is_wrong_with_the_configuration(web: Web) -> None:
    config = web.served.wired.setup.home.config
    before = config.read_text()
    ann, uma = web.visit("ann"), web.visit("uma")
    replace(config, f'{before}\n[notify]\nurl = "https://ann:very-secret@"\n')
    try:
        web.until(lambda: "very-secret" in ann.get("/health").text)
        page = uma.get("/health").text
        assert "very-secret" not in page
        assert "operators see what it is" in page
    finally:
        replace(config, before)
