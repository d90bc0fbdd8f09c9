"""A client for what we use of the Docker engine: containers, programs in them, and images. It translates Docker's errors into ours."""

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Literal, cast

from pydantic import JsonValue

from curtainwall.agents.external.container.owners import HOUSE, OWNER, SESSION, ContainerOwner
from curtainwall.agents.external.container.spec import BUILD, ContainerGone, EngineMissing, ImageMissing
from curtainwall.host.extras import extra
from curtainwall.model import SessionId, TryLater, record

with extra("docker"):
    from aiodocker import Docker, DockerError
    from aiodocker.containers import DockerContainer
    from aiodocker.images import DockerImages

_DEFAULT: Final = "unix:///var/run/docker.sock"
_UNREACHABLE: Final = 900
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_NOT_MODIFIED: Final = 304
_GOING: Final = 30.0
_LOOK_AGAIN: Final = 0.05
ON_LABEL: Final = "curtainwall.on"
"""The label of an image with what it was to be built on."""

RECIPE_LABEL: Final = "curtainwall.recipe"
"""The label that every stage of a recipe has, so that what building leaves behind is found."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")

Stream = Literal["out", "err"]


@record
class ListedContainer:
    """One of our containers, as the engine lists it."""

    id: str
    session: SessionId
    owner: ContainerOwner | None
    house: str
    state: str
    created: int


@record
class ListedImage:
    """An image, as the engine lists it."""

    id: str
    names: tuple[str, ...]
    size: int
    on: str
    """The image that the user wanted it to be built on."""


@record
class ContainerExec:
    """A program inside a container, and its output."""

    id: str
    read: Callable[[], Awaitable[tuple[Stream, bytes] | None]]
    """Returns the next output, or None at the end."""


@record
class ContainerPipe:
    """A program inside a container whose input and output are ours."""

    read: Callable[[], Awaitable[tuple[Stream, bytes] | None]]
    """Returns the next output, or None at the end."""
    write: Callable[[bytes], Awaitable[None]]
    """Writes to its input."""


def engine_socket() -> str:
    """Return the path of the engine's socket, which no agent may reach; empty if the engine is not on this machine."""
    address = os.environ.get("DOCKER_HOST") or _DEFAULT
    return os.path.realpath(address.removeprefix("unix://")) if address.startswith("unix://") else ""


class Engine:
    """One engine. It must be on this machine, because the mounts are directories of this machine."""

    def __init__(self, address: str | None = None) -> None:
        self._address = address or os.environ.get("DOCKER_HOST") or _DEFAULT
        self._docker: Docker | None = None

    async def close(self) -> None:
        """Close the connection; calling it twice is harmless."""
        docker, self._docker = self._docker, None
        if docker is not None:
            await docker.close()

    async def check(self, image: str, free: int, *places: Path, remedy: str = BUILD) -> None:
        """Check that an agent can start: the engine answers, the image exists, no disk is full."""
        about = await self.about()
        with self._in_our_words():
            try:
                await self._open().images.inspect(image)
            except DockerError as fault:
                if fault.status != _NOT_FOUND:
                    raise
                raise ImageMissing(f"there is no image `{image}`; {remedy}") from None
        require_free_space(free, Path(str(about.get("DockerRootDir", "/"))), *places)

    async def about(self) -> Mapping[str, JsonValue]:
        """Return the engine's description of itself; raise `EngineMissing`."""
        if not self._address.startswith("unix://"):
            raise EngineMissing(
                f"the Docker engine at `{self._address}` is not on this machine; unset DOCKER_HOST or name a `unix://` socket"
            )
        with self._in_our_words():
            return await _info(self._open())

    async def list_containers(self, session: SessionId | None = None) -> Sequence[ListedContainer]:
        """Return our containers, of one session or of all, oldest first."""
        label = OWNER if session is None else f"{SESSION}={session}"
        with self._in_our_words():
            listed = await _listed(self._open(), label)
        return sorted((_listed_container(each) for each in listed), key=lambda each: (each.created, each.id))

    async def create(self, config: Mapping[str, JsonValue], name: str | None = None) -> str:
        """Create a container without starting it, and return its id; if another container has its name, it goes without one."""
        with self._in_our_words():
            containers = self._open().containers
            try:
                container = await containers.create(cast("Any", dict(config)), name=name)
            except DockerError as fault:
                if name is None or fault.status != _CONFLICT:
                    raise
                container = await containers.create(cast("Any", dict(config)))
        return container.id

    async def start(self, container: str) -> None:
        """Start a container."""
        with self._in_our_words():
            await self._at(container).start()  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped

    async def state(self, container: str) -> Mapping[str, JsonValue]:
        """Return the state of a container; empty if there is no such container."""
        with self._in_our_words():
            try:
                description = await _shown(self._at(container))
            except DockerError as fault:
                if fault.status == _NOT_FOUND:
                    return {}
                raise
        return cast("Mapping[str, JsonValue]", description["State"])

    async def pause(self, container: str) -> None:
        """Freeze everything in a container; ignore one that is already frozen or gone.

        A cancelled caller still waits for the engine: a container that froze later, while others use it, would never thaw.
        """
        with self._in_our_words(_CONFLICT, _NOT_FOUND, 500):
            freezing = asyncio.ensure_future(self._at(container).pause())
            try:
                await asyncio.shield(freezing)
            except asyncio.CancelledError:
                await _outlasted(freezing)
                raise

    async def resume(self, container: str) -> None:
        """Unfreeze a container; ignore one that runs or is gone."""
        with self._in_our_words(_CONFLICT, _NOT_FOUND, 500):
            await self._at(container).unpause()

    async def kill(self, container: str) -> None:
        """End everything in a container at once."""
        # A frozen process cannot be killed.
        await self.resume(container)
        with self._in_our_words(_CONFLICT, _NOT_FOUND):
            await self._at(container).kill()

    async def remove(self, container: str) -> None:
        """End and remove a container; ignore one that is gone, and wait for one that is already being removed.

        A frozen one is killed without unfreezing it: the rest ends with its first process.
        """
        with self._in_our_words(_CONFLICT, _NOT_FOUND, 500):
            await self._at(container).kill(signal="SIGKILL")
        with self._in_our_words(_NOT_FOUND):
            try:
                await self._at(container).delete(force=True, v=True)
            except DockerError as fault:
                if fault.status != _CONFLICT:
                    raise
                await self._wait_until_gone(container)

    async def _wait_until_gone(self, container: str) -> None:
        until = time.monotonic() + _GOING
        while await self.state(container) and time.monotonic() < until:  # noqa: ASYNC110 - the engine sends no signal
            await asyncio.sleep(_LOOK_AGAIN)

    @asynccontextmanager
    async def run(
        self, container: str, command: Sequence[str], environment: Mapping[str, str], *, as_root: bool = False
    ) -> AsyncGenerator[ContainerExec]:
        """Run a program inside a container, as the container's user or as a root without capabilities.

        Leaving the context closes its output but does not end the program.
        """
        with self._in_our_words():
            program = await self._at(container).exec(
                list(command), stdout=True, stderr=True, environment=dict(environment), user="0:0" if as_root else ""
            )
            stream = program.start(detach=False)
            await stream.__aenter__()

        async def read() -> tuple[Stream, bytes] | None:
            with self._in_our_words():
                piece = await stream.read_out()
            return None if piece is None else (("out" if piece.stream == 1 else "err"), piece.data)

        try:
            yield ContainerExec(program.id, read)
        finally:
            await stream.close()

    @asynccontextmanager
    async def pipe(self, container: str, command: Sequence[str]) -> AsyncGenerator[ContainerPipe]:
        """Run a program inside a container with its input and output connected to the caller; its input ends with the context."""
        with self._in_our_words():
            program = await self._at(container).exec(list(command), stdin=True, stdout=True, stderr=True)
            stream = program.start(detach=False)
            await stream.__aenter__()

        async def read() -> tuple[Stream, bytes] | None:
            with self._in_our_words():
                piece = await stream.read_out()
            return None if piece is None else (("out" if piece.stream == 1 else "err"), piece.data)

        async def write(data: bytes) -> None:
            with self._in_our_words():
                await stream.write_in(data)

        try:
            yield ContainerPipe(read, write)
        finally:
            await stream.close()

    async def exit_code(self, program: str) -> int | None:
        """Return the exit code of a program inside a container, or None while it runs."""
        with self._in_our_words():
            status = await self._open().containers.exec(program).inspect()
        code = status.get("ExitCode")
        return code if isinstance(code, int) and not status.get("Running") else None

    async def ran_out_of_memory(self, container: str, since: float) -> bool:
        """Tell whether the kernel has killed a program in a container since a time because its memory was used up."""
        filters = json.dumps({"container": [container], "event": ["oom"]})
        with self._in_our_words():
            return bool(await _events(self._open(), {"since": f"{since:.6f}", "until": f"{time.time():.6f}", "filters": filters}))

    async def pull(self, image: str) -> str:
        """Fetch an image anew, and return its name with the digest of its content; raise `TryLater`."""
        with self._in_our_words():
            images = self._open().images
            await images.pull(image)
            about = cast("Mapping[str, JsonValue]", await images.inspect(image))
        digests = about.get("RepoDigests")
        pinned = next((str(each) for each in digests if "@sha256:" in str(each)), "") if isinstance(digests, list) else ""
        if not pinned:
            raise TryLater(f"the registry gave no digest for `{image}`, so it cannot be pinned")
        return pinned

    async def images(self, label: str = "") -> Sequence[ListedImage]:
        """Return the images of our recipes; with a label, only the nameless ones that have it."""
        filters: dict[str, list[str]] = {"label": [label], "dangling": ["true"]} if label else {"reference": ["curtainwall/*"]}
        with self._in_our_words():
            listed = await _listed_images(self._open(), filters)
        return [_listed_image(each) for each in listed]

    async def remove_image(self, image: str) -> bool:
        """Remove an image; return False if a container or another image still needs it."""
        with self._in_our_words():
            try:
                await self._open().images.delete(image)
            except DockerError as fault:
                if fault.status == _CONFLICT:
                    return False
                if fault.status != _NOT_FOUND:
                    raise
        return True

    async def has_image(self, image: str) -> bool:
        """Tell whether an image exists."""
        with self._in_our_words():
            try:
                await self._open().images.inspect(image)
            except DockerError as fault:
                if fault.status == _NOT_FOUND:
                    return False
                raise
        return True

    async def build(
        self, context: IO[bytes], image: str, arguments: Mapping[str, str], network: str | None = None, on: str = ""
    ) -> AsyncIterator[str]:
        """Build an image from a packed context and yield the engine's progress lines; raise `TryLater` if a step fails.

        `on` is remembered with the image: what the user wanted it to be built on.
        """
        with self._in_our_words():
            docker = _InNetwork(self._open(), network) if network else self._open().images
            lines = docker.build(
                fileobj=context, encoding="identity", tag=image, buildargs=dict(arguments), labels={ON_LABEL: on}, forcerm=True, stream=True
            )
            async for line in lines:
                for text in _COLOUR.sub("", str(line.get("stream") or line.get("status") or "")).splitlines():
                    if text.strip():
                        yield text.strip()

    def _open(self) -> Docker:
        if self._docker is None:
            self._docker = Docker(url=self._address)
        return self._docker

    def _at(self, container: str) -> DockerContainer:
        return self._open().containers.container(container)  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped

    @contextmanager
    def _in_our_words(self, *harmless: int) -> Generator[None]:
        try:
            yield
        except DockerError as fault:
            if fault.status in harmless or fault.status == _NOT_MODIFIED:
                return
            raise self._fault(fault) from None
        except (OSError, asyncio.IncompleteReadError) as fault:
            raise EngineMissing(f"the Docker engine at `{self._address}` broke off: {fault}") from None

    def _fault(self, fault: DockerError) -> Exception:
        if fault.status == _UNREACHABLE:
            how = "start it (`sudo systemctl start docker`), and see that you may use it (`docker info`)"
            return EngineMissing(f"the Docker engine does not answer at `{self._address}`; {how}")
        if "no space left" in fault.message:
            return TryLater(f"a disk is full: {fault.message}")
        if fault.status == _NOT_FOUND and "No such container" in fault.message:
            return ContainerGone("the container is gone")
        return TryLater(f"the Docker engine refuses: {fault.message.strip()}")


class _InNetwork(DockerImages):
    """Builds in one of the engine's networks, which the library has no parameter for."""

    def __init__(self, docker: Docker, network: str) -> None:
        super().__init__(cast("Docker", _Adding(docker, {"networkmode": network})))


class _Adding:
    """A client that adds parameters to every query."""

    def __init__(self, docker: Docker, more: Mapping[str, str]) -> None:
        self._docker = docker
        self._more = more

    def __getattr__(self, name: str) -> Any:
        return getattr(self._docker, name)

    def _query(self, path: str, method: str, *, params: Mapping[str, Any], **rest: Any) -> Any:
        query = self._docker._query  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - see `_InNetwork`
        return query(path, method, params={**params, **self._more}, **rest)


def require_free_space(free: int, *places: Path) -> None:
    """Raise `TryLater` if a disk is full."""
    for place in places:
        if place.is_dir() and (left := shutil.disk_usage(place).free) < free:
            raise TryLater(f"the disk with `{place}` is full ({left // 1024**2} MB left); make room and try again")


async def _outlasted(work: "asyncio.Future[None]") -> None:
    """Wait for work to end, up to a limit, even if cancelled repeatedly."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _GOING
    while not work.done() and (left := until - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait((work,), timeout=left)


async def _info(docker: Docker) -> Mapping[str, JsonValue]:
    return cast("Any", await docker.system.info())  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped


async def _events(docker: Docker, wanted: Mapping[str, str]) -> bytes:
    """Return the engine's past events in a period; the library can only wait for new ones."""
    query = docker._query  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - see above
    async with query("events", params=dict(wanted)) as response:
        return await response.read()


async def _listed(docker: Docker, label: str) -> list[DockerContainer]:
    filters = json.dumps({"label": [label]})
    return await docker.containers.list(all=True, filters=filters)  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped


def _listed_image(listed: Mapping[str, Any]) -> ListedImage:
    names = tuple(tag for tag in listed.get("RepoTags") or () if tag != "<none>:<none>")
    labels = cast("Mapping[str, str]", listed.get("Labels") or {})
    return ListedImage(str(listed["Id"]), names, int(listed["Size"]), labels.get(ON_LABEL, ""))


async def _listed_images(docker: Docker, filters: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return the images that fit; the library cannot filter."""
    query = docker._query_json  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - see above
    return await query("images/json", params={"filters": json.dumps(filters)})


async def _shown(container: DockerContainer) -> Mapping[str, Any]:
    return await container.show()  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped


def _listed_container(container: DockerContainer) -> ListedContainer:
    labels = cast("Mapping[str, str]", container["Labels"])
    return ListedContainer(
        id=container.id,
        session=SessionId(labels.get(SESSION, "")),
        owner=ContainerOwner.from_labels(labels),
        house=labels.get(HOUSE, ""),
        state=str(container["State"]),
        created=int(container["Created"]),
    )
