"""How the value of a credential is put into a request."""

import base64
import re
from typing import Final, Literal
from urllib.parse import quote

from curtainwall.model import record

Way = Literal["bearer", "header", "basic", "query"]

_WAYS: Final = ("bearer", "header", "basic", "query")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_FRAMING: Final = frozenset("host content-length transfer-encoding connection te trailer upgrade expect".split())


@record
class Sending:
    """How a credential travels: `bearer`, `header:X-Api-Key`, `basic:user` or `query:key`."""

    way: Way = "bearer"
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Sending":
        """Parse a setting; raise ValueError with the forms that are allowed."""
        way, colon, name = text.partition(":")
        if way not in _WAYS or (way == "bearer") is bool(colon) or (colon and not name):
            raise ValueError("write `bearer`, `header:NAME`, `basic:USER` or `query:NAME`")
        if way in {"header", "query"} and not _TOKEN.fullmatch(name):
            raise ValueError(f"`{name}` is no name of a {'header' if way == 'header' else 'parameter'}")
        if way == "header" and name.lower() in _FRAMING:
            raise ValueError(f"the header `{name}` is ours to write")
        if way == "basic" and (":" in name or not name.isprintable()):
            raise ValueError(f"`{name}` is no user name")
        return cls(way, name)

    def headers(self, value: str) -> tuple[tuple[str, str], ...]:
        """Return the headers that carry a value."""
        match self.way:
            case "bearer":
                return (("Authorization", f"Bearer {value}"),)
            case "header":
                return ((self.name, value),)
            case "basic":
                return (("Authorization", f"Basic {self._pair(value)}"),)
            case "query":
                return ()

    def query(self, value: str) -> str:
        """Return what to add to a URL's query; empty unless the credential travels there."""
        return f"{quote(self.name, safe='')}={quote(value, safe='')}" if self.way == "query" else ""

    def forms(self, value: str) -> tuple[str, ...]:
        """Return every string that would reveal the value when it is sent this way."""
        return (value, self._pair(value)) if self.way == "basic" else (value,)

    def _pair(self, value: str) -> str:
        return base64.b64encode(f"{self.name}:{value}".encode()).decode()
