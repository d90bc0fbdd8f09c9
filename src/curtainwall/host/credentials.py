"""Credentials by name: what each may be used for, how it is sent, and its value at the moment we send it.

Each use reads the value again. Messages from here never contain a value or a program's output.
"""

import importlib
import os
import re
import signal
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from curtainwall.host.credential_transport import Sending
from curtainwall.model import CurtainwallError, HostFacts, record

if TYPE_CHECKING:
    # Start-up time: a command that only judges reads no credential. A function that waits imports it.
    import asyncio

COMMAND_SECONDS: Final = 30.0
_MAX_BYTES: Final = 64 * 1024

# The variables that password stores need to find their files and their agent; they get nothing else from our environment.
_INHERITED: Final = (
    "HOME PATH USER LOGNAME LANG LC_ALL TERM TMPDIR XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME "
    "DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY GNUPGHOME GPG_TTY SSH_AUTH_SOCK PASSWORD_STORE_DIR BW_SESSION "
    "BITWARDENCLI_APPDATA_DIR"
).split()


class Unavailable(CurtainwallError):
    """A credential cannot be read or may not be used here; the message says what to do and never holds a value."""


class CredentialSource(Protocol):
    """A place that holds a credential's value."""

    @property
    def is_at_hand(self) -> bool:
        """Tell whether reading is cheap and never prompts anyone, so that the value can be read at start-up."""
        ...

    async def read(self) -> str:
        """Return the value; raise `Unavailable`."""
        ...


@record
class FromEnvironment:
    """A variable of our environment."""

    variable: str
    environ: Mapping[str, str] = field(repr=False)
    is_at_hand: bool = True

    async def read(self) -> str:
        """Return the variable's value."""
        value = self.environ.get(self.variable, "").strip()
        if not value:
            raise Unavailable(f"the environment variable `{self.variable}` is not set")
        return value


@record
class FromFile:
    """A file that holds the value and nothing else."""

    path: Path
    is_at_hand: bool = True

    async def read(self) -> str:
        """Return the file's text without surrounding white space."""
        import asyncio

        return await asyncio.to_thread(_read_text, self.path)


@record
class FromKeyring:
    """An entry of the user's keyring."""

    service: str
    user: str
    is_at_hand: bool = False

    async def read(self) -> str:
        """Return the entry's password."""
        import asyncio

        try:
            # The package is optional: a machine without a desktop does not need it.
            library = importlib.import_module("keyring")
        except ImportError:
            how = "install it with `pip install 'curtainwall[keyring]'`, or use `env`, `file` or `command`"
            raise Unavailable(f"the keyring needs the Python package `keyring`; {how}") from None
        get = cast("Callable[[str, str], str | None]", library.get_password)
        try:
            password = await asyncio.to_thread(get, self.service, self.user)
        except Exception as fault:  # noqa: BLE001 - back ends raise anything, and their messages may hold secrets
            raise Unavailable(f"the keyring cannot be read ({type(fault).__name__})") from None
        if not password:
            raise Unavailable(f"the keyring has no entry for `{self.service}` and `{self.user}`")
        return password.strip()


@record
class FromCommand:
    """The first line that a program of the user prints, such as `pass show github`."""

    words: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)
    seconds: float = COMMAND_SECONDS
    is_at_hand: bool = False

    async def read(self) -> str:
        """Run the program outside any sandbox, with a small environment and no input, and return its first line."""
        import asyncio

        name = self.words[0]
        environment = {key: self.environ[key] for key in _INHERITED if key in self.environ}
        try:
            child = await asyncio.create_subprocess_exec(
                *self.words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment,
                cwd=_home_in(environment),
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


async def _read_all(stream: "asyncio.StreamReader") -> bytes:
    out = bytearray()
    while piece := await stream.read(_MAX_BYTES):
        out += piece
        if len(out) > _MAX_BYTES:
            raise Unavailable("the program printed far more than a credential")
    return bytes(out)


def _home_in(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "/")
    return home if Path(home).is_dir() else "/"


def _read_text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as fault:
        raise Unavailable(f"the file `{path}` cannot be read: {(fault.strerror or '').lower()}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unavailable(f"`{path}` is not a file")
        content = os.read(descriptor, _MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > _MAX_BYTES:
        raise Unavailable(f"the file `{path}` is far bigger than a credential")
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        raise Unavailable(f"the file `{path}` is not UTF-8 text") from None


_MIN_LENGTH: Final = 6
_MAX_LENGTH: Final = 16_384
_THIS_MACHINE = re.compile(r"127(?:\.[0-9]+){3}|::1|localhost|.+\.localhost")


@record
class Credential:
    """One credential of the configuration. `covers` tells whether it is for a host; if `tools` is empty, every tool may use it there."""

    name: str
    source: CredentialSource
    covers: Callable[[HostFacts], bool]
    sending: Sending = Sending()
    tools: frozenset[str] = frozenset()
    plain_http: bool = False

    def require_destination(self, tool: str, facts: HostFacts) -> None:
        """Raise `Unavailable` unless the credential is for this tool and host, over a connection that nobody else can read."""
        if self.tools and tool not in self.tools:
            raise Unavailable(f"the credential `{self.name}` is not for `{tool}`")
        if not self.covers(facts):
            raise Unavailable(f"the credential `{self.name}` is not for the host `{facts.host}` on port {facts.port}")
        if not (facts.secure or self.plain_http or _THIS_MACHINE.fullmatch(facts.host)):
            raise Unavailable(f"the credential `{self.name}` is only sent over https")


class Secret:
    """A credential's value, which only `reveal` returns: it is not in the repr."""

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
    """The configured credentials. INVARIANT: the masks learn a value before anyone else gets it."""

    def __init__(self, credentials: Iterable[Credential] = (), learn: Callable[[str, str], None] = lambda _name, _value: None) -> None:
        self._credentials = {credential.name: credential for credential in credentials}
        self._learn = learn

    def names(self) -> tuple[str, ...]:
        """Return the names of all credentials."""
        return tuple(sorted(self._credentials))

    def find(self, name: str) -> Credential:
        """Return the credential with this name; raise `Unavailable`, which suggests a similar name."""
        credential = self._credentials.get(name)
        if credential is None:
            matches = get_close_matches(name, self._credentials, n=1)
            hint = f"; did you mean `{matches[0]}`?" if matches else "; `[credentials.NAME]` in the configuration makes one"
            raise Unavailable(f"there is no credential `{name}`{hint}")
        return credential

    async def resolve(self, name: str) -> Secret:
        """Read a credential's value, have it masked from now on, and return it; raise `Unavailable`."""
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
        """Have every value masked that can be read without prompting anyone; the others follow at their first use."""
        for credential in self._credentials.values():
            if credential.source.is_at_hand:
                try:
                    await self.resolve(credential.name)
                except Unavailable:
                    continue  # the call that needs it will say so


def _require_sound_value(name: str, value: str, sending: Sending) -> None:
    if not _MIN_LENGTH <= len(value) <= _MAX_LENGTH:
        raise Unavailable(
            f"the credential `{name}` must have between {_MIN_LENGTH} and {_MAX_LENGTH} characters; a shorter one cannot be masked"
        )
    plain = value.isprintable() and (value.isascii() or sending.way in {"basic", "query"})
    if not plain:
        raise Unavailable(f"the credential `{name}` holds a line break or another character that cannot be sent as it is configured")
