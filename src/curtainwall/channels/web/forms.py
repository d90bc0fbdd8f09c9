"""Reads what a browser sends, strictly: bounded, one value per name, no files."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.types import Receive

from curtainwall.model import CommandRefused

LONGEST_BODY = 2 * 1024 * 1024
_MOST_FIELDS = 60

E = TypeVar("E", bound=StrEnum)


class TooBig(Exception):
    """The body is longer than any form of ours."""


class Misread(Exception):
    """The body is not a valid form."""


async def read_body(receive: Receive) -> bytes:
    """Return the whole body; raise `TooBig` instead of holding more of it."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Misread("the browser went away")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > LONGEST_BODY:
            raise TooBig
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def read_form(kind: str, body: bytes) -> Mapping[str, str]:
    """Return the fields of a form; raise `Misread` for anything that a page of ours would not send."""
    if kind.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Misread("send a form")
    try:
        # Browsers end lines with CR LF, whatever the person typed.
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise Misread("this is no form in UTF-8, or it has too many fields") from None
    fields = {name: value.replace("\r\n", "\n") for name, value in pairs}
    if len(fields) != len(pairs):
        raise Misread("a field stands twice")
    return fields


def choice(kinds: type[E], value: str, what: str) -> E:
    """Return the enum member of this value; raise a refusal that lists the choices."""
    try:
        return kinds(value)
    except ValueError:
        raise CommandRefused(f"there is no such {what}; choose {', '.join(kinds)}") from None


def number(value: str, least: float, most: float, what: str) -> float:
    """Return a finite number within bounds; raise a refusal."""
    try:
        parsed = float(value.replace(",", "").replace("_", ""))
    except ValueError:
        parsed = float("nan")
    if not least <= parsed <= most:
        raise CommandRefused(f"{what} is a number from {least:,.10g} to {most:,.10g}")
    return parsed
