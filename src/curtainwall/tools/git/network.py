"""Run git on the network in a clean repository, with the judged URL and no config, hooks or helpers of the workspace's repository.

This runs in a confinement with the machine's network. Objects go in and out through bundles and local fetches, each in a separate
confinement, so programs that a repository makes git run cannot change the clean one, and the network step never sees the repository.
"""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from curtainwall.facts import quoted, scope_of_address
from curtainwall.host import (
    HOME,
    MIB,
    Bounds,
    Confinement,
    ConfinementFailed,
    Finished,
    Network,
    Sockets,
    confinement_owner,
    hand_over,
    run_confined,
)
from curtainwall.model import HostFacts, record
from curtainwall.tools.git.confined import LOCAL, failure_text, git_args, run_git, try_git
from curtainwall.tools.runners import CannotDo

FAR: Final = Bounds(seconds=600, output=1 * MIB, file_size=8192 * MIB)

_SETTINGS = (
    "credential.helper=", "core.askPass=false", "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.gitProxy=none",
    "http.followRedirects=false", "http.sslVerify=true", "http.lowSpeedLimit=1", "http.lowSpeedTime=60", "http.cookieFile=",
    "transfer.fsckObjects=true", "fetch.fsck.zeroPaddedFilemode=warn", "fetch.fsck.badTimezone=warn",
    "fetch.fsck.missingSpaceBeforeDate=warn", "transfer.bundleURI=false", "fetch.uriProtocols=", "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no", "push.gpgSign=false", "gc.auto=0", "maintenance.auto=false", "safe.directory=*", "color.ui=false",
)  # fmt: skip
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C.UTF-8",
}
_PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@record
class GitTarget:
    """The target of a network step: the judged URL, and the judged facts of its host."""

    url: str
    facts: HostFacts

    @property
    def protocol(self) -> str:
        """Return the one protocol that git may use."""
        return urlsplit(self.url).scheme if "://" in self.url else "ssh"


@record
class CleanRepository:
    """A temporary repository for one network step, in a directory that nothing else uses."""

    directory: str

    @property
    def repository(self) -> str:
        """Return the bare repository."""
        return f"{self.directory}/repository"

    @property
    def alone(self) -> Confinement:
        """Return a confinement that holds only this repository."""
        return Confinement(cwd=self.directory, writable=(self.directory,), bounds=LOCAL)

    async def take_over(self, source: Confinement, revisions: Sequence[str], refspec: str) -> bool:
        """Import commits from a repository in the workspace; return whether there were any."""
        bundle = os.open(f"{self.directory}/bundle", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            done = await try_git(["bundle", "create", "--quiet", "-", *revisions], source, stdout=bundle)
        finally:
            os.close(bundle)
        if done.code != 0:
            if b"empty bundle" in done.err:
                return False
            raise CannotDo(failure_text(done, "bundle"))
        await run_git(["-C", self.repository, "fetch", "--quiet", f"{self.directory}/bundle", refspec], self.alone)
        os.unlink(f"{self.directory}/bundle")
        return True


@asynccontextmanager
async def clean_repository(object_format: str = "sha1") -> AsyncGenerator[CleanRepository]:
    """Create an empty temporary repository, whose objects are named by SHA-1 or SHA-256, and delete it afterwards."""
    directory = await asyncio.to_thread(lambda: os.path.realpath(tempfile.mkdtemp(prefix="curtainwall-git-")))
    clean = CleanRepository(directory)
    try:
        words = ["init", "--quiet", "--bare", "--template=", "--initial-branch=main", f"--object-format={object_format}"]
        await run_git([*words, clean.repository], clean.alone)
        yield clean
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))


LookUp = Callable[[HostFacts, frozenset[int]], Awaitable[list[str]]]
"""Returns the addresses of a host, all in the judged scope."""


@record
class GitNetwork:
    """The machine's settings for a network step: the environment with proxies and the ssh agent, our own ports, and name lookup."""

    environ: Mapping[str, str]
    own_ports: frozenset[int] = frozenset()
    look_up: LookUp | None = None


async def run_on_network(words: Sequence[str], clean: CleanRepository, target: GitTarget, way_out: GitNetwork) -> Finished:
    """Run one git command in the clean repository with the network; raise `CannotDo` if it fails."""
    if target.protocol not in {"https", "http", "ssh"}:
        raise CannotDo(f"{quoted(target.url)} is neither encrypted nor can it be held to one address; use https or ssh")
    environ = way_out.environ
    environment = {**_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": target.protocol}
    # A proxy resolves the host itself. We alone decide which hosts bypass it, and pin those to their addresses.
    if _has_proxy(target, environ):
        environment |= {name: environ[name] for name in _PROXIES if name in environ}
        addresses = list[str]()
    else:
        addresses = await (way_out.look_up or _addresses)(target.facts, way_out.own_ports)
    settings: list[str] = [*_SETTINGS]
    readable: list[tuple[str, str]] = []
    if target.protocol == "ssh":
        readable = _keys(environ)
        environment["GIT_SSH_COMMAND"] = ssh_command(target, addresses[0])
        environment["GIT_SSH_VARIANT"] = "ssh"
        environment["SSH_AUTH_SOCK"] = _AGENT
    elif addresses:
        settings.append(f"http.curloptResolve={target.facts.host}:{target.facts.port}:{','.join(addresses)}")
    confinement = Confinement(
        cwd=clean.repository, writable=(clean.directory,), readable=tuple(readable), environment=environment, network=Network.HOST,
        sockets=Sockets.ANY, bounds=FAR,
    )  # fmt: skip
    try:
        done = await run_confined([*git_args(settings), *words], confinement)
    except ConfinementFailed as error:
        raise CannotDo(str(error)) from error
    if done.stopped:
        raise CannotDo(f"git was stopped: {done.stopped}")
    if done.code != 0:
        raise CannotDo(failure_text(done, words[0]))
    return done


_AGENT: Final = "/run/ssh-agent"


def ssh_command(target: GitTarget, address: str) -> str:
    """Return the ssh command for git: only to the judged host, with the user's keys, and without prompts.

    Aliases, jump hosts and proxy commands in ssh's config are overridden.
    """
    host, port = target.facts.host, target.facts.port
    alias = host if port == 22 else f"[{host}]:{port}"
    options = (
        "BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no",
        "PermitLocalCommand=no", "ProxyCommand=none", "ControlMaster=no", "ControlPath=none", f"HostName={address}",
        f"HostKeyAlias={alias}",
    )  # fmt: skip
    return " ".join(["ssh", *(f"-o '{option}'" for option in options)])


def _keys(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the mounts of the user's ssh directory and agent, the only user files that a network step sees."""
    mounts: list[tuple[str, str]] = []
    directory = os.path.realpath(os.path.join(environ.get("HOME", "/nonexistent"), ".ssh"))
    if os.path.isdir(directory):
        mounts += [(directory, f"{HOME}/.ssh"), *([(directory, directory)] if directory != f"{HOME}/.ssh" else [])]
    agent = os.path.realpath(environ.get("SSH_AUTH_SOCK", "/nonexistent"))
    if os.path.exists(agent):
        mounts.append((agent, _AGENT))
    return mounts


def _has_proxy(target: GitTarget, environ: Mapping[str, str]) -> bool:
    names = {"https": ("https_proxy", "HTTPS_PROXY"), "http": ("http_proxy",)}.get(target.protocol, ())
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_is_meant(entry.strip().lower(), target.facts.host) for entry in exceptions.split(",")):
        return False
    return any(environ.get(name) for name in (*names, *(("all_proxy", "ALL_PROXY") if names else ())))


def _is_meant(entry: str, host: str) -> bool:
    name = entry.removeprefix("*").lstrip(".")
    return entry == "*" or (bool(name) and f".{host}".endswith(f".{name}"))


async def _addresses(facts: HostFacts, own_ports: frozenset[int]) -> list[str]:
    """Resolve a judged host once; every answer must be in the part of the network that was judged."""
    try:
        records = await asyncio.get_running_loop().getaddrinfo(facts.host, facts.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CannotDo(f"{quoted(facts.host)} cannot be found: {error.strerror}") from error
    addresses = list(dict.fromkeys(str(record[4][0]) for record in records))
    for address in addresses:
        if scope_of_address(address.partition("%")[0], facts.port, own_ports) is not facts.scope:
            raise CannotDo(f"{quoted(facts.host)} was judged as {facts.scope.value}, but leads to {quoted(address)}, which is not")
    return addresses


def shown(text: bytes, clean: CleanRepository, target: GitTarget) -> str:
    """Return git's output with the path of the clean repository replaced by the judged URL."""
    return text.decode(errors="replace").replace(clean.repository, target.url).strip()


async def reading(confinement: Confinement, clean: CleanRepository) -> Confinement:
    """Return a confinement that can also read the clean repository, whose ownership passes to the user that it runs as."""
    if (owner := confinement_owner(confinement)) is not None:
        await asyncio.to_thread(hand_over, clean.directory, owner)
    return replace(confinement, readable=(*confinement.readable, (clean.directory, clean.directory)))
