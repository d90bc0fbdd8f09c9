"""Headers of a fetch: which of them an agent may write, and which of an answer it gets to see."""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote_plus

from curtainwall.facts import quoted
from curtainwall.facts.secrets.names import is_secret_key
from curtainwall.tools.runners import CannotDo

Headers = tuple[tuple[str, str], ...]

USER_AGENT: Final = "curtainwall"
_LONGEST: Final = 8_192
_LONGEST_SHOWN: Final = 2_048
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_UNSOUND = re.compile(r"[^\t\x20-\x7e]")

_MAY_SEND: Final = frozenset(
    (
        "accept accept-language cache-control content-language content-type dnt if-match if-modified-since if-none-match if-range "
        "if-unmodified-since pragma prefer priority range user-agent"
    ).split()
)
# Frameworks let these change the method, the path or the sender that was judged.
_MISLEADING = re.compile(r"x-(?:http-method|method|original|rewrite|forwarded|real-ip|client-ip|host|override|remote)\b.*")
# Who an agent is, or what it knows of another place, goes to no place that it did not name itself.
_GO_ELSEWHERE: Final = frozenset("accept accept-language cache-control user-agent".split())
_OF_A_BODY: Final = frozenset("content-language content-type".split())

_SHOWN: Final = frozenset(
    (
        "accept-ranges age allow cache-control content-disposition content-language content-length content-range content-type date "
        "deprecation etag expires last-modified link location ratelimit-limit ratelimit-remaining ratelimit-reset retry-after sunset vary "
        "www-authenticate x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-request-id x-total-count"
    ).split()
)


def request_headers(written: Mapping[str, str]) -> Headers:
    """Return the headers that an agent wrote; raise `CannotDo` for one that is ours, a secret, or not a header."""
    told: dict[str, tuple[str, str]] = {}
    for name, value in written.items():
        plain = name.lower()
        if not _NAME.fullmatch(name) or plain in told:
            raise CannotDo(f"{quoted(name)} is no name of a header, or stands there twice")
        if is_secret_key(name) or plain in {"proxy-authorization", "authentication"}:
            raise CannotDo(f"the header {quoted(name)} carries a secret; name a `credential` instead, and it is sent for you")
        if not _may_send(plain):
            raise CannotDo(
                f"the header {quoted(name)} cannot be set; free are {', '.join(sorted(_MAY_SEND))} and those that begin with `x-`"
            )
        if len(value) > _LONGEST or _UNSOUND.search(value):
            raise CannotDo(f"the value of the header {quoted(name)} is too long, or holds a line break or a letter that is not plain ASCII")
        told[plain] = (name, value.strip())
    return tuple(told.values())


def see_that_it_goes_once(written: Headers, sent: Headers, credential: str) -> None:
    """Raise `CannotDo` where an agent wrote the header that carries a credential: of two, nobody knows which one a server takes."""
    carrying = {name.lower() for name, _ in sent}
    for name, _ in written:
        if name.lower() in carrying:
            raise CannotDo(f"the header {quoted(name)} carries the credential `{credential}`; leave it out, it is sent for you")


def has_parameter(target: str, name: str) -> bool:
    """Tell whether a request's target names a parameter, in any spelling."""
    told = parse_qsl(target.partition("?")[2].replace(";", "&"), keep_blank_values=True)
    return unquote_plus(name) in {each for each, _ in told}


def _may_send(name: str) -> bool:
    custom = name.startswith("x-") or name.endswith("-version")
    return name in _MAY_SEND or (custom and not _MISLEADING.fullmatch(name))


def headers_after(written: Mapping[str, str], *, same_origin: bool, keeps_body: bool) -> dict[str, str]:
    """Return the headers that go along with a redirect."""
    kept = written if same_origin else {name: value for name, value in written.items() if name.lower() in _GO_ELSEWHERE | _OF_A_BODY}
    return {name: value for name, value in kept.items() if keeps_body or name.lower() not in _OF_A_BODY}


def shown_headers(headers: Headers) -> dict[str, str]:
    """Return the headers of an answer that an agent may see, each once and cut where long; never a cookie."""
    shown: dict[str, str] = {}
    for name, value in headers:
        plain = name.lower()
        if plain in _SHOWN:
            told = f"{shown[plain]}, {value}" if plain in shown else value
            shown[plain] = told if len(told) <= _LONGEST_SHOWN else f"{told[:_LONGEST_SHOWN]}…"
    return shown


def header_of(headers: Iterable[tuple[str, str]], name: str) -> str:
    """Return the first value of a header, or nothing."""
    return next((value for told, value in headers if told.lower() == name), "")
