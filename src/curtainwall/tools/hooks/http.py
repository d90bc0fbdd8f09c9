"""One http hook: the event as a POST to a URL of the user's, and the body of the answer as if a program had printed it."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import Final

from curtainwall.host import Connection, system_trust
from curtainwall.tools.fetch.exchange import Request, exchange
from curtainwall.tools.hooks.process import MOST_OUTPUT, Ran
from curtainwall.tools.hooks.settings import Endpoint
from curtainwall.tools.runners import CannotDo

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
_OURS: Final = frozenset("host content-length content-type transfer-encoding connection".split())
_GOOD: Final = range(200, 300)


async def post_event(endpoint: Endpoint, told: bytes, environ: Mapping[str, str], seconds: float) -> Ran:
    """Post the event; any answer but 2xx is a failure, and no redirect is followed."""
    facts = endpoint.url.facts
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(facts.host, facts.port, ssl=system_trust() if facts.secure else None)
            connection = Connection(reader, writer, facts.host)
            try:
                reply = await exchange(connection, _request(endpoint, told, environ), MOST_OUTPUT)
            finally:
                await connection.close()
    except TimeoutError:
        return Ran(failure=f"it did not answer within {seconds:g} seconds")
    except CannotDo as fault:
        return Ran(failure=str(fault))
    except ssl.SSLCertVerificationError as fault:
        return Ran(failure=f"`{facts.host}` showed a certificate that is not valid for it: {fault.verify_message}")
    except OSError as fault:
        return Ran(failure=f"it cannot be reached: {(fault.strerror or type(fault).__name__).lower()}")
    if reply.status not in _GOOD:
        return Ran(failure=f"it answered with status {reply.status}")
    if reply.cut:
        return Ran(failure=f"it answered with more than {MOST_OUTPUT} bytes")
    return Ran(out=reply.body)


def _request(endpoint: Endpoint, told: bytes, environ: Mapping[str, str]) -> Request:
    def value_of(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        return environ.get(name, "") if name in endpoint.variables else ""

    own = tuple((name, _VARIABLE.sub(value_of, value)) for name, value in endpoint.headers if name.lower() not in _OURS)
    origin = endpoint.url.origin
    head = (("Host", origin.partition("://")[2]), ("Content-Type", "application/json"), ("Connection", "close"))
    return Request("POST", endpoint.url.text[len(origin) :] or "/", (*head, *own), told)
