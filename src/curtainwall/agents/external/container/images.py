"""The images that agents run in: a base and a layer per agent, each named by the digest of its inputs, so that it is built once."""

import hashlib
import io
import json
import platform
import re
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, cast

from curtainwall.agents.external.container.engine import Engine
from curtainwall.model import Broken, NotFound, TryLater, record

USUAL: Final = "debian:bookworm-slim"
"""The image that the base builds on by default."""

DEV: Final = "dev"
"""Our image with compilers, Python, Node and ssh, which agents can build on instead."""

RECIPES: Final = Path(__file__).parent / "docker"
"""The directory of the Dockerfiles."""

_VERSION = re.compile(rb"^ARG VERSION=(\S+)$", re.MULTILINE)
_PROCESSORS: Final = {"x86_64": "x64", "aarch64": "arm64"}


@record
class _Step:
    """One image to build."""

    name: str
    recipe: bytes
    arguments: Mapping[str, str]


class ImagePins:
    """The digests of the images that recipes build on, as they were when they were last fetched with `agents build --pull`."""

    def __init__(self, home: Path) -> None:
        self._file = home / "images.json"

    def all(self) -> dict[str, str]:
        """Return the pinned names by image; empty if nothing was pinned."""
        try:
            content = cast("object", json.loads(self._file.read_bytes()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise Broken(f"`{self._file}` cannot be read; remove it and build with `--pull`") from None
        entries = cast("dict[str, object]", content).items() if isinstance(content, dict) else ()
        return {image: pinned for image, pinned in entries if isinstance(pinned, str) and "@sha256:" in pinned}

    def set(self, image: str, pinned: str) -> None:
        """Pin an image to the content that it has now."""
        new = self._file.with_name(f".{self._file.name}.new")
        new.write_text(json.dumps({**self.all(), image: pinned}, indent=1), encoding="utf-8")
        new.replace(self._file)


class Images:
    """Names and builds images. `on` is the image that they build on; `pins` has the content of such images by their names."""

    def __init__(self, engine: Engine, directory: Path | None = None, on: str = USUAL, pins: Mapping[str, str] | None = None) -> None:
        self._engine = engine
        self._directory = directory or RECIPES
        # Our own image for development is built like that of an agent, on the usual one.
        self._between: tuple[str, ...] = (DEV,) if on == DEV else ()
        self._named_on = on
        self._asked_for = USUAL if on == DEV else on
        self._on = (pins or {}).get(self._asked_for, self._asked_for)

    @property
    def ground(self) -> str:
        """Return the image that everything builds on, without its digest."""
        return self._asked_for

    @property
    def agents(self) -> tuple[str, ...]:
        """Return the agents that have recipes."""
        return tuple(sorted(path.stem for path in self._directory.glob("*.Dockerfile") if path.stem not in ("base", DEV)))

    def name_of(self, agent: str) -> str:
        """Return the name of an agent's image, which depends on its recipe and on everything below it."""
        return self._steps(agent)[-1].name

    def names_of(self, agent: str) -> tuple[str, ...]:
        """Return the names of an agent's image and of those below it that we build."""
        return tuple(step.name for step in self._steps(agent))

    def version_of(self, agent: str) -> str:
        """Return the version that an agent's recipe installs, if it names one."""
        match = _VERSION.search(self._recipe(agent))
        return match[1].decode() if match else ""

    async def build(self, agent: str, network: str | None = None) -> AsyncIterator[str]:
        """Build the missing images, the base first, and yield the progress; existing images are not rebuilt.

        `network` is the engine's network in which packages are fetched; left out, its usual one.
        """
        for step in self._steps(agent):
            if await self._engine.has_image(step.name):
                yield f"{step.name} is there"
                continue
            yield f"building {step.name}"
            try:
                async for line in self._engine.build(_context(step.recipe), step.name, step.arguments, network, self._named_on):
                    yield line
            except TryLater as fault:
                if step.arguments.get("FROM") is None or await self._engine.has_image(self._on):
                    raise
                how = f"see that the engine can fetch it, or name one that you have as `image` in [agents.{agent}]"
                raise TryLater(f"the image `{self._on}` is not there; {how} ({fault})") from None

    def _steps(self, agent: str) -> list[_Step]:
        """Return what is built for an agent, the base first."""
        recipe = self._recipe("base")
        steps = [_Step(self._named("base", recipe, self._on), recipe, {"FROM": self._on})]
        for name in (*self._between, agent):
            recipe, below = self._recipe(name), steps[-1].name
            steps.append(_Step(self._named(name, recipe, below, _processor()), recipe, {"BASE": below, "PROCESSOR": _processor()}))
        return steps

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
