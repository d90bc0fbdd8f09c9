"""A credential is used and shown to nobody: the upstream gets it; log, blobs, audit, children and screens do not."""

import asyncio
import base64
import gzip
import html
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.facts import Masker
from curtainwall.host.user import local_user
from curtainwall.model import (
    Answer,
    AnswerApproval,
    ApprovalAsked,
    Broken,
    CallId,
    CallPermitted,
    CallRequest,
    CommandRefused,
    GrantScope,
    Mode,
    OpenSession,
    PermitId,
    Place,
    ReadySession,
    Role,
    SessionId,
    Workspace,
    denial,
)
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, shell_runners
from tests.support.covers import covers
from tests.support.forks import curtainwall
from tests.support.houses import events, run, until
from tests.support.sites import Seen, Site, redirect, reply, site

SECRET = "Zx9/kQ+v7wL2mT4r=Yp"
USER = "ann"


def spellings(secret: str) -> set[bytes]:
    """Return what would give the secret away, wherever it stands."""
    data = secret.encode()
    found = {data, data.hex().encode(), secret.encode("utf-16-le"), quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode()}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data)
        steady = encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        found |= {steady, steady.replace(b"+", b"-").replace(b"/", b"_")}
    return found


def leaks_in(content: bytes) -> set[bytes]:
    return {form for form in spellings(SECRET) if form in content}


def leaking_files(home: Path) -> dict[str, set[bytes]]:
    """Return every file below a directory that gives the secret away, compressed ones included."""
    found: dict[str, set[bytes]] = {}
    for path in home.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            content += gzip.decompress(content) if content[:2] == b"\x1f\x8b" else b""
            if leaks := leaks_in(content):
                found[str(path)] = leaks
    return found


class Stage:
    """A home with one credential, and an upstream that likes to repeat what it hears."""

    def __init__(self, scratch: Path, server: Site, source: str, send: str = "bearer") -> None:
        self.scratch, self.server = scratch, server
        self.home, self.workspace = scratch / "cw", scratch / "work"
        self.home.mkdir(mode=0o700)
        self.workspace.mkdir()
        here = f"127.0.0.1:{server.port}"
        text = f'[lists]\nhosts = ["{here}"]\n[credentials.api]\n{source}\nhosts = ["{here}"]\nsend = "{send}"\n'
        (self.home / "config.toml").write_text(text)

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "CURTAINWALL_HOME": str(self.home), "HOME": str(self.scratch), "API_TOKEN": SECRET, "NO_COLOR": "1"}

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    async def open_session(self, wired: GatedSessions) -> SessionId:
        session, setup, me = SessionId(wired.registry.mint()), wired.setup, local_user()
        setup.home.session(session).prepare()
        opening = OpenSession(
            by=me, session=session, name="keys", agent="test", model="none", workspace=setup.workspace_at(self.workspace, own=True),
            mode=Mode.DEFAULT, limits=setup.limits, policy=setup.policy.version,
        )  # fmt: skip
        await wired.registry.send(session, opening)
        await wired.registry.send(session, ReadySession(by=me))
        return session

    def screens(self, session: str) -> bytes:
        """Return everything that the program prints about the session."""
        words = (
            ["sessions", "show", session], ["sessions", "export", session], ["sessions", "replay", session], ["audit", "verify"],
            ["approvals", "list", "--all"], ["grants", "list"], ["config", "show"], ["audit", "tail", session],
        )  # fmt: skip
        told = b""
        for line in words:
            done = curtainwall(*line, environ=self.environ, place=self.scratch)
            told += done.stdout.encode() + done.stderr.encode()
        return told


@pytest.fixture
def server() -> Iterator[Site]:
    with site() as opened:
        yield opened


async def fetch(wired: GatedSessions, session: SessionId, url: str, *, wait: bool = True, **more: Any) -> Answer:
    return await wired.gate.request(session, CallRequest(tool="fetch.get", arguments={"url": url, "credential": "api", **more}), wait=wait)


def asks(wired: GatedSessions, session: SessionId) -> list[ApprovalAsked]:
    return [event for event in events(wired.registry, session) if isinstance(event, ApprovalAsked)]


async def allowed(wired: GatedSessions, session: SessionId, url: str) -> Answer:
    """Fetch with the credential and answer the one question about it with a plain yes."""
    asking = asyncio.create_task(fetch(wired, session, url))
    (ask,) = await until(lambda: asks(wired, session))
    assert [(cover.role, cover.value) for cover in ask.covers] == [(Role.USE_CREDENTIAL, "api")]
    assert "a yes holds for the rest of this session" in ask.shown
    await wired.registry.send(session, AnswerApproval(by=local_user(), approval=ask.approval, granted=True))
    return await asking


def heard(seen: Seen) -> str:
    """Return what an upstream heard of the credential, as it was sent."""
    header = seen.headers.get("authorization", "") or seen.headers.get("x-api-key", "")
    return header or seen.target.partition("key=")[2]


def echoes(server: Site) -> list[str]:
    """Let the upstream repeat the credential in every way that it can think of, and return the paths where it does."""

    def page(*, body: str = "{}", content_type: str = "text/plain", pack: bool = False, **headers: str) -> Any:
        def answer(seen: Seen) -> bytes:
            told = SECRET if heard(seen) else "nothing"
            shapes = {
                "{}": told, "b64": base64.b64encode(told.encode()).decode(), "pair": base64.b64encode(f"{USER}:{told}".encode()).decode(),
                "url": quote(told, safe=""), "json": json.dumps({"key": told, "deep": [{"x": f"a {told} b"}]}), "hex": told.encode().hex(),
                "tags": f"<p>{told[:5]}<b>{told[5:9]}</b><!-- -->{told[9:]}</p>", "entity": "".join(f"&#{ord(letter)};" for letter in told),
                "escaped": json.dumps({"key": told}).replace("Z", "\\u005a"),
            }  # fmt: skip
            content = shapes[body].encode()
            named = {name: value.replace("{}", told) for name, value in headers.items()}
            return reply(200, gzip.compress(content) if pack else content, content_type=content_type, **named)

        return answer

    server.pages |= {
        "/plain": page(), "/b64": page(body="b64"), "/pair": page(body="pair"), "/url": page(body="url"), "/hex": page(body="hex"),
        "/json": page(body="json", content_type="application/json"), "/escaped": page(body="escaped", content_type="application/json"),
        "/tags": page(body="tags", content_type="text/html"), "/entity": page(body="entity", content_type="text/html"),
        "/packed": page(pack=True, content_encoding="gzip"), "/header": page(www_authenticate="Bearer {}", link="<https://x/{}>"),
        "/binary": page(content_type="image/png"), "/etag": page(etag='"{}"'),
    }  # fmt: skip
    return [*server.pages]


@covers("credentials.are-shown-to-nobody")
@pytest.mark.parametrize("send", ["bearer", "header:X-Api-Key", f"basic:{USER}", "query:key"])
@pytest.mark.parametrize("source", ["env", "file", "command"])
def test_the_upstream_gets_it_and_nobody_else(
    tmp_path: Path, server: Site, monkeypatch: pytest.MonkeyPatch, source: str, send: str
) -> None:
    kept = tmp_path / "token"
    kept.write_text(SECRET)
    sources = {"env": 'env = "API_TOKEN"', "file": f'file = "{kept}"', "command": f'command = ["cat", "{kept}"]'}
    stage = Stage(tmp_path, server, sources[source], send)
    paths = echoes(server)
    server.pages["/away"] = lambda _seen: redirect(f"/plain?again={quote(SECRET, safe='')}")
    monkeypatch.setenv("CURTAINWALL_HOME", str(stage.home))
    monkeypatch.setenv("API_TOKEN", SECRET)

    async def story() -> SessionId:
        async with open_gate(load_setup()) as wired:
            session = await stage.open_session(wired)
            answers = [await allowed(wired, session, stage.url("/plain"))]
            for path in (*paths, "/away"):
                answers += [await fetch(wired, session, stage.url(path)), await fetch(wired, session, stage.url(path), format="raw")]
            assert len(asks(wired, session)) == 1, "asked once per session"
            assert not leaks_in(repr(answers).encode())
            assert "[masked:api:" in repr(answers)
            assert leaking_files(stage.home) == {}, "while the database is open, its WAL included"
            return session

    session = run(story())
    wire = {"bearer": f"Bearer {SECRET}", "query:key": quote(SECRET, safe="")}.get(send, SECRET)
    if send.startswith("basic"):
        wire = f"Basic {base64.b64encode(f'{USER}:{SECRET}'.encode()).decode()}"
    assert {heard(seen) for seen in server.seen} == {wire}, "the upstream really received it"
    assert not [seen for seen in server.seen if "again=" in seen.target], "a redirect with the credential in it is not followed"
    assert leaking_files(stage.home) == {}
    screens = stage.screens(session)
    assert b"fetch.get" in screens
    assert not leaks_in(screens)
    assert str(kept) in {*leaking_files(tmp_path)}, "the search finds what is there"


@covers("credentials.go-only-where-they-are-for")
def test_it_is_sent_to_no_other_port_and_only_where_it_was_asked_for(tmp_path: Path, server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, server, 'env = "API_TOKEN"')
    monkeypatch.setenv("CURTAINWALL_HOME", str(stage.home))
    monkeypatch.setenv("API_TOKEN", SECRET)
    with site() as other:
        config = stage.home / "config.toml"
        config.write_text(config.read_text().replace('[lists]\nhosts = ["', f'[lists]\nhosts = ["127.0.0.1:{other.port}", "'))
        server.pages |= {"/": reply(200, "x"), "/elsewhere": redirect(f"http://127.0.0.1:{other.port}/there")}
        other.pages["/there"] = reply(200, "there", content_type="text/plain")

        async def story() -> None:
            async with open_gate(load_setup()) as wired:
                session = await stage.open_session(wired)
                await allowed(wired, session, stage.url("/"))
                refused = await fetch(wired, session, f"http://127.0.0.1:{other.port}/there")
                assert refused.result is not None
                assert "the credential `api` is not for the host `127.0.0.1`" in str(refused.result.value)
                assert other.seen == []
                led = await fetch(wired, session, stage.url("/elsewhere"))
                assert led.result is not None
                assert led.result.ok
                (seen,) = other.seen
                assert SECRET not in repr(seen)
                assert "authorization" not in seen.headers
                await wired.gate.request(session, CallRequest(tool="fetch.get", arguments={"url": stage.url("/")}))
                assert "authorization" not in server.seen[-1].headers

        run(story())


@pytest.mark.parametrize(
    ("send", "path", "headers"),
    [
        ("header:X-Team", "/", {"x-TEAM": "mine"}),
        ("query:key", "/?key=mine", {}),
        ("query:key", "/?a=b&%6bey=mine", {}),
    ],
)
def test_an_agent_cannot_send_a_value_of_its_own_beside_it(
    tmp_path: Path, server: Site, monkeypatch: pytest.MonkeyPatch, send: str, path: str, headers: dict[str, str]
) -> None:
    stage = Stage(tmp_path, server, 'env = "API_TOKEN"', send)
    monkeypatch.setenv("CURTAINWALL_HOME", str(stage.home))
    monkeypatch.setenv("API_TOKEN", SECRET)
    server.pages["/"] = reply(200, "x", content_type="text/plain")

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            session = await stage.open_session(wired)
            await allowed(wired, session, stage.url("/"))
            assert len(server.seen) == 1
            refused = await fetch(wired, session, stage.url(path), headers=headers)
            assert refused.result is not None
            assert not refused.result.ok
            assert "it is sent for you" in str(refused.result.value)
            assert len(server.seen) == 1

    run(story())


@covers("credentials.are-asked-for-once-per-session")
def test_another_session_asks_anew_and_a_project_cannot_be_granted(tmp_path: Path, server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, server, 'env = "API_TOKEN"')
    monkeypatch.setenv("CURTAINWALL_HOME", str(stage.home))
    monkeypatch.setenv("API_TOKEN", SECRET)
    server.pages["/"] = reply(200, "x", content_type="text/plain")

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            first, second = await stage.open_session(wired), await stage.open_session(wired)
            await allowed(wired, first, stage.url("/"))
            assert not (await fetch(wired, first, stage.url("/other"), wait=False)).waiting
            assert (await fetch(wired, second, stage.url("/"), wait=False)).waiting
            (ask,) = asks(wired, second)
            yes = AnswerApproval(by=local_user(), approval=ask.approval, granted=True, scope=GrantScope.PROJECT)
            with pytest.raises(CommandRefused, match="for one session at most"):
                await wired.registry.send(second, yes)

    run(story())


def test_no_agent_touches_the_file_and_no_server_gets_the_variable(tmp_path: Path, server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "work" / "token"
    stage = Stage(tmp_path, server, f'file = "{kept}"')
    kept.write_text(SECRET)
    monkeypatch.setenv("CURTAINWALL_HOME", str(stage.home))
    monkeypatch.setenv("API_TOKEN", SECRET)
    with pytest.raises(CommandRefused, match="protected path"):
        load_setup().workspace_at(stage.workspace, own=True)
    config = stage.home / "config.toml"
    changed = config.read_text().replace(f'file = "{kept}"', 'env = "API_TOKEN"')
    config.write_text(f'{changed}[servers.x]\ncommand = "x"\nenv = ["API_TOKEN"]\n')
    with pytest.raises(Broken, match="API_TOKEN"):
        load_setup()


def test_a_command_in_the_shell_does_not_see_it(tmp_path: Path, bubblewrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    tools = NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=Masker(b"k" * 32), runners=shell_runners())
    place = Place(session=SessionId("s1"), workspace=Workspace(path=os.path.realpath(tmp_path), own=True))
    # Its own environment and its parent's, which outside the sandbox are this test's; no other process is looked at.
    look = "env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'; echo done"
    prepared = tools.prepare("shell.run", {"command": look}, place)
    permit = CallPermitted(at=0, call=CallId("c"), permit=PermitId("p"), digest=prepared.subject.digest, verdict=denial("x", "x"))
    told = run(tools.run(prepared, permit, place))
    assert "done" in str(told.value)
    assert not leaks_in(str(told.value).encode())
    outside = subprocess.run(["/bin/bash", "-c", look], capture_output=True, check=False)
    assert leaks_in(outside.stdout), "outside the sandbox it would be seen"


@pytest.mark.parametrize(
    ("source", "words"),
    [('env = "NOT_SET_ANYWHERE"', "is not set"), ('file = "/nowhere/token"', "no such file"), ('command = ["false"]', "exit code 1")],
)
def test_a_credential_that_cannot_be_had_sends_nothing(
    tmp_path: Path, server: Site, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    stage = Stage(tmp_path, server, source)
    monkeypatch.setenv("CURTAINWALL_HOME", str(stage.home))

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            session = await stage.open_session(wired)
            answer = await allowed(wired, session, stage.url("/"))
            assert answer.result is not None
            assert not answer.result.ok
            assert words in str(answer.result.value)
            assert server.seen == []

    run(story())


def test_a_page_that_writes_a_credential_back_as_html_is_masked() -> None:
    masker, value = Masker(b"k" * 32), "aZ9<kQ&x\"7p'LmN0"
    masker.learn("token", value)
    for page in (html.escape(value), html.escape(value).replace("&#x27;", "&#39;"), html.escape(value, quote=False)):
        assert page not in masker.mask_text(f"<p>{page}</p>")
