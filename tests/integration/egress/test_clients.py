"""Real clients through the proxy, the way an agent's programs come in: the ssl module, httpx2, and the providers' own libraries."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest

from curtainwall.egress import ANTHROPIC, OPENAI, Access, Authority, Egress, ProxyConfig, openai_compatible
from curtainwall.host import Dialler
from tests.support.covers import covers
from tests.support.egress import REAL, Fixed, Ledger, Session, asking, says, scope_of, session
from tests.support.houses import run
from tests.support.upstream import KEY, Says, upstream


@asynccontextmanager
async def hop(path: Path) -> AsyncGenerator[str]:
    """Run what stands inside a container between a TCP port and the socket, and return its URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        out, back = await asyncio.open_unix_connection(str(path))
        pumps = [asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(out, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for side in (writer, back):
                side.close()
                with suppress(OSError):
                    await side.wait_closed()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(both(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def by_hand(there: Session) -> bytes:
    """Make one request with nothing but the standard library."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
        plain.settimeout(60)
        plain.connect(str(there.path))
        plain.sendall(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nHost: api.anthropic.com:443\r\n\r\n")
        assert plain.recv(4096).startswith(b"HTTP/1.1 200 ")
        with there.trust().wrap_socket(plain, server_hostname="api.anthropic.com") as secure:
            assert secure.version() in {"TLSv1.2", "TLSv1.3"}
            assert secure.selected_alpn_protocol() == "http/1.1"
            (names,) = (value for key, value in secure.getpeercert().items() if key == "subjectAltName")
            assert names == (("DNS", "api.anthropic.com"),)
            secure.sendall(there.request(headers=("connection: close",)))
            came = b""
            while piece := secure.recv(4096):
                came += piece
            return came


def test_the_ssl_module_believes_the_certificate_and_gets_its_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(says({"hello": "there"}))
            came = await asyncio.to_thread(by_hand, there)
            assert came.endswith(b'{"hello": "there"}')
            assert b"connection: close" in came
            assert REAL.encode() not in came

    run(story())


def test_whoever_does_not_trust_the_authority_is_not_talked_to(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.raw() as client:
            await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
            await client.head()
            with pytest.raises(ssl.SSLCertVerificationError):
                await client.secure(ssl.create_default_context(), "api.anthropic.com")

    run(story())


def test_httpx_keeps_its_connection_and_sees_refusals_as_answers(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, hop(there.path) as proxy:
            async with httpx2.AsyncClient(proxy=proxy, verify=there.trust()) as client:
                headers = {"x-api-key": there.sentinel}
                for _ in range(3):
                    got = await client.post("https://api.anthropic.com/v1/messages?beta=true", json=asking(), headers=headers)
                    assert got.status_code == 200
                refused = await client.post("https://api.anthropic.com/api/event_logging/batch", json={"events": []}, headers=headers)
                assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
                assert there.proxy.counters.connections == 1
                with pytest.raises(httpx2.ProxyError, match="403"):
                    await client.get("https://example.com/")
            assert [seen.target for seen in there.far.seen] == ["/v1/messages?beta=true"] * 3

    run(story())


@covers("egress.real-clients")
def test_the_providers_own_libraries_stream_through_and_are_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with upstream() as site:
            ledger = Ledger()
            egress = Egress(Authority(tmp_path / "ca"), Dialler(scope_of))
            own = openai_compatible("own", "models.internal", site.url)
            accesses = tuple(Access(each, Fixed(KEY)) for each in (ANTHROPIC.at(site.url), OPENAI.at(site.url), own))
            proxy = await egress.open(ProxyConfig(accesses, ledger), tmp_path / "p")
            trust = ssl.create_default_context(cadata=egress.authority.certificate.decode())
            async with hop(tmp_path / "p") as through, httpx2.AsyncClient(proxy=through, verify=trust) as web:
                site.will(*(Says(("Hello ", "there"), read=200, written=20, cached=50) for _ in range(3)))
                claude = anthropic.AsyncAnthropic(api_key=proxy.sentinels["anthropic"], http_client=web, max_retries=0)
                text = ""
                async with claude.messages.stream(model="claude-x", max_tokens=100, messages=[{"role": "user", "content": "hi"}]) as stream:
                    async for piece in stream.text_stream:
                        text += piece
                assert text == "Hello there"
                gpt = openai.AsyncOpenAI(api_key=proxy.sentinels["openai"], http_client=web, max_retries=0)
                kinds = [event.type async for event in await gpt.responses.create(model="gpt-x", input="hi", stream=True)]
                assert kinds[-1] == "response.completed"
                mine = openai.AsyncOpenAI(
                    api_key=proxy.sentinels["own"], base_url="https://models.internal/v1", http_client=web, max_retries=0
                )
                chunks = [chunk async for chunk in await mine.chat.completions.create(model="m", messages=[], stream=True)]
                assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello there"
            used = [(counted.input_tokens, counted.output_tokens, counted.measured, ended.how) for _, counted, ended in ledger.ends]
            assert used == [(200, 20, True, "done")] * 3
            assert [call.provider for call, _, _ in ledger.ends] == ["anthropic", "openai", "own"]
            await proxy.close()
            egress.close()

    run(story())


def test_a_library_sees_a_stop_as_an_error_of_its_provider(tmp_path: Path) -> None:
    async def story() -> None:
        async with upstream() as site:
            egress = Egress(Authority(tmp_path / "ca"), Dialler(scope_of))
            access = Access(ANTHROPIC.at(site.url), Fixed(KEY))
            proxy = await egress.open(ProxyConfig((access,), Ledger(most=1020)), tmp_path / "p")
            trust = ssl.create_default_context(cadata=egress.authority.certificate.decode())
            async with hop(tmp_path / "p") as through, httpx2.AsyncClient(proxy=through, verify=trust) as web:
                site.will(Says(tuple("word " * 8 for _ in range(50))))
                claude = anthropic.AsyncAnthropic(api_key=proxy.sentinels["anthropic"], http_client=web, max_retries=0)
                text = ""

                async def talk() -> None:
                    nonlocal text
                    async with claude.messages.stream(model="c", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream:
                        async for piece in stream.text_stream:
                            text += piece

                with pytest.raises(anthropic.APIStatusError, match="the budget of this session is used up"):
                    await talk()
                assert text == "word " * 16
            await proxy.close()
            egress.close()

    run(story())
