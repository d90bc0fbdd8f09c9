"""The images that agents run in: a base and a layer per agent, each named by the digest of its inputs, so that it is built once."""

import hashlib
import io
import platform
import re
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from curtainwall.agents.external.container.engine import Engine
from curtainwall.model import NotFound, TryLater

USUAL: Final = "debian:bookworm-slim"
"""The image that the base builds on by default."""

RECIPES: Final = Path(__file__).parent / "docker"
"""The directory of the Dockerfiles."""

_VERSION = re.compile(rb"^ARG VERSION=(\S+)$", re.MULTILINE)
_PROCESSORS: Final = {"x86_64": "x64", "aarch64": "arm64"}


class Images:
    """Names and builds images. `on` is the image that they build on."""

    def __init__(self, engine: Engine, directory: Path | None = None, on: str = USUAL) -> None:
        self._engine = engine
        self._directory = directory or RECIPES
        self._on = on

    @property
    def agents(self) -> tuple[str, ...]:
        """Return the agents that have recipes."""
        return tuple(sorted(path.stem for path in self._directory.glob("*.Dockerfile") if path.stem != "base"))

    def name_of(self, agent: str) -> str:
        """Return the name of an agent's image, which depends on its recipe and base."""
        return self._named(agent, self._recipe(agent), self._base(), _processor())

    def version_of(self, agent: str) -> str:
        """Return the version that an agent's recipe installs, if it names one."""
        match = _VERSION.search(self._recipe(agent))
        return match[1].decode() if match else ""

    async def build(self, agent: str, network: str | None = None) -> AsyncIterator[str]:
        """Build the missing images, the base first, and yield the progress; existing images are not rebuilt.

        `network` is the engine's network in which packages are fetched; left out, its usual one.
        """
        base, image = self._base(), self.name_of(agent)
        steps = (("base", base, {"FROM": self._on}), (agent, image, {"BASE": base, "PROCESSOR": _processor()}))
        for recipe, name, arguments in steps:
            if await self._engine.has_image(name):
                yield f"{name} is there"
                continue
            yield f"building {name}"
            try:
                async for line in self._engine.build(_context(self._recipe(recipe)), name, arguments, network):
                    yield line
            except TryLater as fault:
                if recipe != "base" or await self._engine.has_image(self._on):
                    raise
                how = f"see that the engine can fetch it, or name one that you have as `image` in [agents.{agent}]"
                raise TryLater(f"the image `{self._on}` is not there; {how} ({fault})") from None

    def _base(self) -> str:
        return self._named("base", self._recipe("base"), self._on)

    def _recipe(self, name: str) -> bytes:
        try:
            return (self._directory / f"{name}.Dockerfile").read_bytes()
        except FileNotFoundError:
            known = ", ".join(self.agents)
            raise NotFound(f"there is no recipe for an image of `{name}`; there are: {known}. Name an image of your own for it") from None

    def _named(self, name: str, *made_of: bytes | str) -> str:
        digest = hashlib.sha256()
        for part in made_of:
            content = part.encode() if isinstance(part, str) else part
            digest.update(len(content).to_bytes(8, "big") + content)
        return f"curtainwall/{name}:{digest.hexdigest()[:16]}"


def _processor() -> str:
    return _PROCESSORS.get(platform.machine(), platform.machine())


def _context(recipe: bytes) -> io.BytesIO:
    """Return a build context that contains only the recipe."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(recipe)
        archive.addfile(entry, io.BytesIO(recipe))
    packed.seek(0)
    return packed
