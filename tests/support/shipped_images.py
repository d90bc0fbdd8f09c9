"""Images as our recipes make them, without a registry: `apt-get` finds everything there, and `npm` takes the packages of this machine."""

import io
import tarfile
from pathlib import Path

from curtainwall.agents.external.container import Engine, Images
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.real_parts import CLAUDE, CODEX, GEMINI, NODE, OPENCODE, PACKAGES

_PACKED = {"claude-code": (CLAUDE,), "codex": (CODEX.parents[3],), "opencode": (OPENCODE,), "gemini": (GEMINI, NODE)}
_APT = "#!/bin/sh\nexit 0\n"
_NPM = '#!/bin/sh\n[ "$1 $2" = "install --prefix" ] && mkdir -p "$3" && cp -a /packages/node_modules "$3/"\n'
_RECIPE = f"FROM {IMAGE}\nUSER root\nCOPY bin /usr/bin\nCOPY packages /packages\n"


async def shipped_image(docker: DockerEngine, agent: str) -> str:
    """Build an agent's image by its recipe, and return its name."""
    ground = f"curtainwall-ground:{agent}"
    engine = Engine(docker.address)
    try:
        if not await engine.has_image(ground):
            make_ground(docker, agent, ground)
        images = Images(engine, on=ground)
        lines = [line async for line in images.build(agent, network="none")]
        assert lines
        return images.name_of(agent)
    finally:
        await engine.close()


def make_ground(docker: DockerEngine, agent: str, name: str) -> None:
    """Make the image that an agent's recipe builds on: all that the recipe would fetch is there."""
    docker.docker("build", "--network", "none", "-t", name, "-", stdin=_context(agent))


def _context(agent: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in (("Dockerfile", _RECIPE), ("bin/apt-get", _APT), ("bin/npm", _NPM)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path in (*_PACKED[agent], PACKAGES / ".package-lock.json"):
            archive.add(path, _inside(path))
    return packed.getvalue()


def _inside(path: Path) -> str:
    return f"packages/node_modules/{path.relative_to(PACKAGES)}"
