"""Where the value of a credential is kept: an environment variable, a file, the keyring, or what a program prints.

A value is read anew for each use. Nothing here puts a value, or what a program said, into a message.
"""

import asyncio
import importlib
import os
import signal
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, cast

from curtainwall.model import CurtainwallError

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


class Source(Protocol):
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
