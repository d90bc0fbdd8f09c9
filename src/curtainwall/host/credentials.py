"""Credentials by name: what each is for, how it is sent, and its value in the one moment in which we send it ourselves.

A value is read anew for each use. Nothing here puts a value, or what a program said, into a message.
"""

import asyncio
import base64
import importlib
import os
import re
import signal
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, Protocol, cast
from urllib.parse import quote

from curtainwall.model import CurtainwallError, HostFacts

COMMAND_SECONDS: Final = 30.0
_BIGGEST: Final = 64 * 1024

# What password stores need to find themselves and their agent; nothing else of our environment.
_PASSED: Final = (
    "HOME PATH USER LOGNAME LANG LC_ALL TERM TMPDIR XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME "
    "DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY GNUPGHOME GPG_TTY SSH_AUTH_SOCK PASSWORD_STORE_DIR BW_SESSION "
    "BITWARDENCLI_APPDATA_DIR"
).split()


class Unavailable(CurtainwallError):
    """A credential that cannot be had or may not be used here; the message says what to do and never holds a value."""


class CredentialSource(Protocol):
    """One place where a value is kept."""

    @property
    def is_at_hand(self) -> bool:
        """Say whether reading costs nothing and asks nobody, so that the value can be known from the start."""
        ...

    async def read(self) -> str:
        """Return the value; raise `Unavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """A variable of our own environment."""

    variable: str
    environ: Mapping[str, str] = field(repr=False)
    is_at_hand: bool = True

    async def read(self) -> str:
        """Return the variable's value."""
        found = self.environ.get(self.variable, "").strip()
        if not found:
            raise Unavailable(f"the environment variable `{self.variable}` is not set")
        return found


@dataclass(frozen=True, slots=True)
class FromFile:
    """A file that holds the value and nothing else."""

    path: Path
    is_at_hand: bool = True

    async def read(self) -> str:
        """Return the file's text without the white space around it."""
        return await asyncio.to_thread(_text_of, self.path)


@dataclass(frozen=True, slots=True)
class FromKeyring:
    """An entry of the user's keyring."""

    service: str
    user: str
    is_at_hand: bool = False

    async def read(self) -> str:
        """Return the entry's password."""
        try:
            # Optional: a machine without a desktop has no use for it.
            library = importlib.import_module("keyring")
        except ImportError:
            raise Unavailable("the keyring needs the Python package `keyring`; install it, or use `env`, `file` or `command`") from None
        get = cast("Callable[[str, str], str | None]", library.get_password)
        try:
            found = await asyncio.to_thread(get, self.service, self.user)
        except Exception as fault:  # noqa: BLE001 - back ends raise what they like, and their words may hold anything
            raise Unavailable(f"the keyring cannot be read ({type(fault).__name__})") from None
        if not found:
            raise Unavailable(f"the keyring has no entry for `{self.service}` and `{self.user}`")
        return found.strip()


@dataclass(frozen=True, slots=True)
class FromCommand:
    """What a program of the user's prints, such as `pass show github`: its first line."""

    words: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)
    seconds: float = COMMAND_SECONDS
    is_at_hand: bool = False

    async def read(self) -> str:
        """Run the program outside any sandbox, with a small environment and no input, and return its first line."""
        name = self.words[0]
        passed = {key: self.environ[key] for key in _PASSED if key in self.environ}
        try:
            child = await asyncio.create_subprocess_exec(
                *self.words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=passed,
                cwd=_home_in(passed),
                start_new_session=True,
            )
        except OSError as fault:
            raise Unavailable(f"the program `{name}` cannot be started: {(fault.strerror or '').lower()}") from None
        assert child.stdout is not None
        try:
            async with asyncio.timeout(self.seconds):
                out = await _read_all(child.stdout)
                code = await child.wait()
        except TimeoutError:
            raise Unavailable(f"the program `{name}` did not end within {self.seconds:g} seconds") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
        if code:
            raise Unavailable(f"the program `{name}` failed with exit code {code}; run it by hand to see why")
        lines = out.decode("utf-8", "replace").strip().splitlines()
        if not lines:
            raise Unavailable(f"the program `{name}` printed nothing")
        return lines[0].strip()


async def _read_all(stream: asyncio.StreamReader) -> bytes:
    out = bytearray()
    while piece := await stream.read(_BIGGEST):
        out += piece
        if len(out) > _BIGGEST:
            raise Unavailable("the program printed far more than a credential")
    return bytes(out)


def _home_in(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "/")
    return home if Path(home).is_dir() else "/"


def _text_of(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as fault:
        raise Unavailable(f"the file `{path}` cannot be read: {(fault.strerror or '').lower()}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unavailable(f"`{path}` is not a file")
        content = os.read(descriptor, _BIGGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > _BIGGEST:
        raise Unavailable(f"the file `{path}` is far bigger than a credential")
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        raise Unavailable(f"the file `{path}` is not UTF-8 text") from None


Way = Literal["bearer", "header", "basic", "query"]

_SHORTEST: Final = 6
_LONGEST: Final = 16_384
_WAYS: Final = ("bearer", "header", "basic", "query")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_FRAMING: Final = frozenset("host content-length transfer-encoding connection te trailer upgrade expect".split())
_THIS_MACHINE = re.compile(r"127(?:\.[0-9]+){3}|::1|localhost|.+\.localhost")


@dataclass(frozen=True, slots=True)
class Sending:
    """How a credential travels: `bearer`, `header:X-Api-Key`, `basic:user` or `query:key`."""

    way: Way = "bearer"
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Sending":
        """Return what a text says; raise ValueError that says what to write."""
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
        """Return what a URL's query carries, or nothing."""
        return f"{quote(self.name, safe='')}={quote(value, safe='')}" if self.way == "query" else ""

    def forms(self, value: str) -> tuple[str, ...]:
        """Return everything that gives a value away where it is sent so."""
        return (value, self._pair(value)) if self.way == "basic" else (value,)

    def _pair(self, value: str) -> str:
        return base64.b64encode(f"{self.name}:{value}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Credential:
    """One entry of the configuration. `covers` says whether a host is among those that it is for; without `tools`, any may use it there."""

    name: str
    source: CredentialSource
    covers: Callable[[HostFacts], bool]
    sending: Sending = Sending()
    tools: frozenset[str] = frozenset()
    plain_http: bool = False

    def require_destination(self, tool: str, facts: HostFacts) -> None:
        """Raise `Unavailable` unless the credential is for this tool at this host, over a connection that nobody else can read."""
        if self.tools and tool not in self.tools:
            raise Unavailable(f"the credential `{self.name}` is not for `{tool}`")
        if not self.covers(facts):
            raise Unavailable(f"the credential `{self.name}` is not for the host `{facts.host}` on port {facts.port}")
        if not (facts.secure or self.plain_http or _THIS_MACHINE.fullmatch(facts.host)):
            raise Unavailable(f"the credential `{self.name}` is only sent over https")


class Secret:
    """A value that shows itself to nobody who does not ask for it by its one method."""

    __slots__ = ("_value", "credential")

    def __init__(self, credential: Credential, value: str) -> None:
        self.credential = credential
        self._value = value

    def __repr__(self) -> str:
        return f"Secret({self.credential.name})"

    def reveal(self) -> str:
        """Return the value, for the one place that sends it."""
        return self._value


class Credentials:
    """The credentials of this house. INVARIANT: whoever masks has learned a value before anyone else gets it."""

    def __init__(self, known: Iterable[Credential] = (), learn: Callable[[str, str], None] = lambda _name, _value: None) -> None:
        self._known = {credential.name: credential for credential in known}
        self._learn = learn

    def names(self) -> tuple[str, ...]:
        """Return what can be asked for."""
        return tuple(sorted(self._known))

    def find(self, name: str) -> Credential:
        """Return the credential of that name; raise `Unavailable` with what was probably meant."""
        found = self._known.get(name)
        if found is None:
            near = get_close_matches(name, self._known, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else "; `[credentials.NAME]` in the configuration makes one"
            raise Unavailable(f"there is no credential `{name}`{meant}")
        return found

    async def resolve(self, name: str) -> Secret:
        """Read the value of a credential, let it be masked from now on, and return it; raise `Unavailable`."""
        credential = self.find(name)
        try:
            value = await credential.source.read()
        except Unavailable as fault:
            raise Unavailable(f"the credential `{name}` cannot be had: {fault}") from None
        for form in credential.sending.forms(value):
            self._learn(name, form)
        _require_sound_value(name, value, credential.sending)
        return Secret(credential, value)

    async def learn_at_hand(self) -> None:
        """Let every value be masked that can be read without asking anyone; the others follow with their first use."""
        for credential in self._known.values():
            if credential.source.is_at_hand:
                try:
                    await self.resolve(credential.name)
                except Unavailable:
                    continue  # the call that needs it will say so


def _require_sound_value(name: str, value: str, sending: Sending) -> None:
    if not _SHORTEST <= len(value) <= _LONGEST:
        raise Unavailable(
            f"the credential `{name}` must have between {_SHORTEST} and {_LONGEST} characters; a shorter one cannot be masked"
        )
    plain = value.isprintable() and (value.isascii() or sending.way in {"basic", "query"})
    if not plain:
        raise Unavailable(f"the credential `{name}` holds a line break or another character that cannot be sent as it is configured")
