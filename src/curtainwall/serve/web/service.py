"""The web as a service: serves the pages with this installation's ports until it is stopped."""

import asyncio
import ssl
import sys
from collections.abc import Iterable
from pathlib import Path

from curtainwall.channels.web import Hubs, WebAccess, WebPorts, web_app
from curtainwall.config.schema import Config
from curtainwall.config.web import WebSection
from curtainwall.config.web_people import WEB, web_operators, web_tokens
from curtainwall.model import TryLater
from curtainwall.serve.firings import JobFirings
from curtainwall.serve.http import listen, serve_pages
from curtainwall.serve.service import Serving
from curtainwall.serve.status import health_of
from curtainwall.serve.supervisor import Service
from curtainwall.serve.web.parts import WebJobs, WebRecords, WebRuleTrials, WebSessionStarter, WebTeamPairs
from curtainwall.serve.web.sign_in import announce_listener, sign_in_link, sign_ins_of

SECTIONS = frozenset({"web", "channels"})
"""The configuration tables that the pages depend on."""


class WebService:
    """Serves the pages."""

    name = WEB

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._is_listening = False

    async def run(self) -> None:
        """Serve until cancelled; print a sign-in link for the person at the terminal."""
        serving, setup, web = self._serving, self._serving.wired.setup, self._serving.config.web
        certificate = _certificate(web)
        ports = web_ports(serving)
        hubs = Hubs(ports)
        server_socket = listen(web.host, web.port, "web.port")
        with server_socket, announce_listener(setup.home, web, server_socket) as listener:
            sign_ins = sign_ins_of(setup.home, setup.config, listener.run)
            app = web_app(ports, hubs, web_access(setup.config), sign_ins, lambda: web_tokens(serving.config))
            # A link is a key: it goes to the person at the terminal, not into files and journals.
            has_terminal = sys.stderr.isatty()
            how = sign_in_link(setup.home, setup.config, run=listener.run) if has_terminal else "what `curtainwall web link` prints"
            serving.book.say(f"the web is at {web.address}; sign in with {how}", service=WEB)
            hubs.start()
            pages = asyncio.create_task(serve_pages(app, server_socket, certificate), name="web: pages")
            self._is_listening = True
            try:
                await asyncio.shield(pages)
            finally:
                self._is_listening = False
                # Event streams never end on their own, and the server would wait for them.
                await hubs.stop()
                pages.cancel()
                await asyncio.gather(pages, return_exceptions=True)

    def health(self) -> str:
        """Return what is wrong, or ""."""
        return "" if self._is_listening else "it does not listen"


def services(serving: Serving) -> Iterable[Service]:
    """Return the service, unless the configuration disables it."""
    return (WebService(serving),) if serving.config.web.enabled else ()


def web_ports(serving: Serving) -> WebPorts:
    """Return the ports of the pages."""
    return WebPorts(
        line=serving.line,
        index=serving.wired.store.index,
        board=serving.board(),
        revoke=serving.wired.registry.revoke,
        trials=WebRuleTrials(lambda: serving.wired.setup),
        starter=WebSessionStarter(serving.work),
        records=WebRecords(serving.wired, lambda: health_of(serving)),
        jobs=WebJobs(serving.wired, JobFirings(serving.wired, serving.work.turns.attend, serving.model)),
        teams=WebTeamPairs(serving.wired),
    )


def web_access(config: Config) -> WebAccess:
    """Return the host names that the pages answer to, and their users."""
    web = config.web
    outside = (web.url or "").partition("://")[2].lower()
    hosts = {web.host.lower(), *(host.lower() for host in web.hosts), *([outside.rpartition(":")[0] or outside] if outside else [])}
    return WebAccess(
        hosts=frozenset(f"[{host}]" if ":" in host and not host.startswith("[") else host for host in hosts),
        operators=web_operators(config),
        users=frozenset(web.users),
        is_secure=web.certificate is not None or (web.url or "").startswith("https://"),
    )


def _certificate(web: WebSection) -> tuple[str, str] | None:
    """Return the certificate and key files; raise `TryLater` if they are unusable, before any address is announced."""
    if web.certificate is None or web.key is None:
        return None
    files = str(Path(web.certificate).expanduser()), str(Path(web.key).expanduser())
    try:
        # A key with a password would prompt at a terminal where nobody sits.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files, password="")
    except OSError as error:
        why = "they are no certificate and its key, without a password, as PEM" if isinstance(error, ssl.SSLError) else str(error.strerror)
        raise TryLater(f"certificate `{files[0]}` and key `{files[1]}` cannot be used: {why.lower()}") from None
    return files
