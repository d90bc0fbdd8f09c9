"""Redirects: where an answer leads, and what would be asked for there. Whether anyone may go there is for the gate to say."""

import re
from collections.abc import Mapping
from typing import Final, cast

import ada_url
from pydantic import JsonValue

from curtainwall.facts import Unclear, canonical_url, quoted
from curtainwall.tools.fetch.exchange import Reply
from curtainwall.tools.fetch.headers import header_of, headers_after
from curtainwall.tools.runners import CannotDo

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# As in URLs of agents: what one program drops, another takes for a slash.
_TREACHEROUS = re.compile(r"[\x00-\x1f\x7f\\]")


def onward(arguments: Mapping[str, JsonValue], reply: Reply) -> dict[str, JsonValue] | None:
    """Return the arguments of the call that an answer redirects to, or None where it does not; raise `CannotDo` for one without sense.

    The method becomes GET, and the body stays behind, as browsers have it. A credential never goes to another origin.
    """
    location = header_of(reply.headers, "location").strip() if reply.status in _REDIRECTS else ""
    if not location:
        return None
    here = canonical_url(arguments["url"])
    try:
        if _TREACHEROUS.search(location):
            raise Unclear("it holds a backslash or a control character")
        there = canonical_url(_without_fragment(ada_url.join_url(here.text, location)))
    except (Unclear, ValueError) as fault:
        why = fault.message if isinstance(fault, Unclear) else "it is not valid"
        raise CannotDo(f"`{here.text}` redirects to {quoted(location)}, which is not followed: {why}") from None
    method = arguments.get("method", "GET")
    keeps_body = not ((reply.status == 303 and method != "HEAD") or (reply.status in {301, 302} and method == "POST"))
    same_origin = there.origin == here.origin
    told: dict[str, JsonValue] = {"url": there.text}
    if keeps_body:
        told |= {name: arguments[name] for name in ("method", "body") if name in arguments}
    written = cast("Mapping[str, str]", arguments.get("headers") or {})
    if headers := headers_after(written, same_origin=same_origin, keeps_body=keeps_body):
        told["headers"] = {**headers}
    kept = ("format", "credential") if same_origin else ("format",)
    return told | {name: arguments[name] for name in kept if name in arguments}


def _without_fragment(url: str) -> str:
    return url.partition("#")[0]
