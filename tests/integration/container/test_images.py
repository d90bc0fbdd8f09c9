"""Images on a real engine: built in two steps, with progress, and only once."""

import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from curtainwall.agents.external.container import Engine, Images
from curtainwall.model import TryLater
from tests.support.covers import covers
from tests.support.docker_engine import IMAGE, DockerEngine, shared_engine
from tests.support.forks import curtainwall
from tests.support.talking import run


@covers("image.built-once")
def test_an_image_is_built_with_progress_and_only_once(docker_engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "base.Dockerfile").write_text("ARG FROM\nFROM ${FROM}\nLABEL step=base\n")
    layer = tmp_path / "mine.Dockerfile"
    layer.write_text("ARG BASE\nFROM ${BASE}\nLABEL step=mine\n")

    async def story() -> None:
        engine = Engine(docker_engine.address)
        images = Images(engine, tmp_path, on=IMAGE)
        try:
            assert not await engine.has_image(images.name_of("mine"))
            lines = [line async for line in images.build("mine", network="none")]
            assert [line for line in lines if line.startswith("building ")] == [lines[0], f"building {images.name_of('mine')}"]
            assert "Step 2/4 : FROM ${FROM}" in lines
            assert await engine.has_image(images.name_of("mine"))
            assert [line.rpartition(" is ")[2] async for line in images.build("mine")] == ["there", "there"]
            layer.write_text("ARG BASE\nFROM ${BASE}\nLABEL step=new\n")
            assert not await engine.has_image(images.name_of("mine")), "another recipe is another image"
            layer.write_text("ARG BASE\nFROM ${BASE}\nCOPY nothing /\n")
            with pytest.raises(TryLater, match="nothing"):
                assert [line async for line in images.build("mine")]
        finally:
            await engine.close()

    run(story())


def test_progress_is_told_line_by_line_without_the_colours_that_programs_give_it(docker_engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "base.Dockerfile").write_text("ARG FROM\nFROM ${FROM}\nRUN printf '\\033[91mone\\033[0m\\r\\ntwo\\n'\n")
    (tmp_path / "coloured.Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")

    async def story() -> None:
        engine = Engine(docker_engine.address)
        try:
            lines = [line async for line in Images(engine, tmp_path, on=IMAGE).build("coloured", network="none")]
        finally:
            await engine.close()
        assert [line for line in lines if line in {"one", "two"}] == ["one", "two"]

    run(story())


def test_a_step_that_fails_leaves_no_container(docker_engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "base.Dockerfile").write_text("ARG FROM\nFROM ${FROM}\nRUN exit 77\n")
    (tmp_path / "mine.Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")

    async def story() -> None:
        engine = Engine(docker_engine.address)
        try:
            with pytest.raises(TryLater, match="exit 77"):
                assert [line async for line in Images(engine, tmp_path, on=IMAGE).build("mine", network="none")]
        finally:
            await engine.close()

    run(story())
    assert "exit 77" not in docker_engine.docker("ps", "--all", "--no-trunc", "--format", "{{.Command}}")


def test_where_the_image_below_cannot_be_fetched_it_is_said_what_to_do(docker_engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "base.Dockerfile").write_text("ARG FROM\nFROM ${FROM}\nLABEL step=base\n")
    (tmp_path / "mine.Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")

    async def story() -> None:
        engine = Engine(docker_engine.address)
        try:
            with pytest.raises(
                TryLater, match=r"`127.0.0.1:1/no:1` is not there; .* or name one that you have as `image` in \[agents.mine\]"
            ):
                assert [line async for line in Images(engine, tmp_path, on="127.0.0.1:1/no:1").build("mine")]
        finally:
            await engine.close()

    run(story())


@covers("agents.listed-and-built")
def test_the_command_builds_what_is_missing_once_and_lists_what_each_agent_lacks(docker_engine: DockerEngine, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    agents = f'[agents.mine]\nimage = "{IMAGE}"\ncommand = ["sh"]\n[agents.codex]\nimage = "{IMAGE}"\nready = true\n'
    (home / "config.toml").write_text(agents + '[agents.gemini]\nimage = "never-made:1"\nready = true\n')
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CURTAINWALL_HOME": str(home)}

    def command(*words: str, engine: str = docker_engine.address, **more: str) -> subprocess.CompletedProcess[str]:
        return curtainwall("agents", *words, environ={**environ, "DOCKER_HOST": engine, **more})

    listed = {each["name"]: each for each in json.loads(command("list", "--output", "json", OPENAI_API_KEY="k" * 40).stdout)}
    assert (listed["mine"]["built"], listed["mine"]["runnable"]) == (True, True)
    assert (listed["codex"]["image"], listed["codex"]["runnable"], listed["codex"]["why"]) == (IMAGE, True, "")
    assert "make `never-made:1` first" in listed["gemini"]["why"]
    assert (listed["claude-code"]["version"], listed["claude-code"]["built"]) == ("2.1.325", False)
    assert "curtainwall agents build claude-code" in listed["claude-code"]["why"]
    assert "goose" not in listed
    assert "no key for openai" in command("list").stdout
    nowhere = command("build", "claude-code", engine=f"unix://{tmp_path}/none")
    assert (nowhere.returncode, "does not answer" in nowhere.stderr) == (1, True)
    assert "there is no agent `clade`" in command("build", "clade").stderr
    assert "nothing to build: `codex` runs in your image" in command("build", "codex").stderr


def test_start_names_the_command_that_builds_the_image_of_its_agent_alone(docker_engine: DockerEngine, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": docker_engine.address, "OPENAI_API_KEY": "k" * 40}
    told = curtainwall("start", "--agent", "codex", "hello", environ=environ)
    assert (told.returncode, told.stderr) == (
        1,
        "curtainwall: the image of `codex` is not there; build it with `curtainwall agents build codex`\n",
    )
    home = tmp_path / ".curtainwall"
    (home / "config.toml").write_text('[agents.codex]\nimage = "never-made:1"\nready = true\n')
    told = curtainwall("start", "--agent", "codex", "hello", environ=environ)
    assert told.stderr == "curtainwall: the image of `codex` is not there; make `never-made:1` first\n"


@covers("image.pruned")
def test_pruning_removes_what_no_recipe_makes_any_more_and_keeps_the_rest(
    real_part: Callable[[str], str], short_path: Path, tmp_path: Path
) -> None:
    real_part("docker")
    # Images are the whole machine's, and other tests need theirs.
    with shared_engine(short_path / "e") as engine:
        _prune_images(engine, tmp_path)


def _prune_images(docker_engine: DockerEngine, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": docker_engine.address}

    async def names() -> tuple[str, ...]:
        engine = Engine(docker_engine.address)
        try:
            return Images(engine, on="mine:1").names_of("codex")
        finally:
            await engine.close()

    base, current = run(names())
    for name in (base, current, "curtainwall/codex:0000000000000000"):
        recipe = f"FROM {IMAGE}\nLABEL curtainwall.on=mine:1 name={name}\n"
        docker_engine.docker("build", "--network", "none", "-t", name, "-", stdin=recipe.encode())
    left = docker_engine.docker("build", "--network", "none", "-q", "-", stdin=f"FROM {IMAGE}\nLABEL curtainwall.recipe=codex\n".encode())
    foreign = docker_engine.docker("build", "--network", "none", "-q", "-", stdin=f"FROM {IMAGE}\nLABEL theirs=1\n".encode())
    told = json.loads(curtainwall("agents", "prune", "--output", "json", environ=environ).stdout)
    assert {"curtainwall/codex:0000000000000000", left} <= set(told["removed"])
    there = docker_engine.docker("images", "-a", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}")
    assert base in there
    assert current in there
    assert foreign in there, "only what our recipes left behind is ours"
    holder = docker_engine.docker("create", current, "true")
    try:
        everything = json.loads(curtainwall("agents", "prune", "--all", "--output", "json", environ=environ).stdout)["removed"]
        assert base in everything
        assert current not in everything, "a container uses it"
    finally:
        docker_engine.docker("rm", holder)
        docker_engine.docker("rmi", foreign)


@covers("image.pinned-by-digest")
def test_pull_pins_the_base_to_what_the_registry_has_now(docker_engine: DockerEngine, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CURTAINWALL_HOME": str(home), "DOCKER_HOST": docker_engine.address}
    with registry() as (port, digest):
        image = f"127.0.0.1:{port}/ground:1"
        # The image is empty, so building on it fails; it is pinned before that.
        told = curtainwall("agents", "build", "codex", "--image", image, "--pull", "--network", "none", environ=environ)
    pinned = f"127.0.0.1:{port}/ground@{digest}"
    assert f"`{image}` is pinned to `{pinned}`" in told.stderr
    assert json.loads((home / "images.json").read_text()) == {image: pinned}
    assert f"FROM {pinned}" in told.stderr or "Step 2" in told.stderr
    docker_engine.docker("rmi", pinned)


@contextmanager
def registry() -> Iterator[tuple[int, str]]:
    """Serve one image that holds nothing but a file, as a registry does, and give its port and digest."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("here"), io.BytesIO())
    layer = gzip.compress(packed.getvalue(), mtime=0)
    rootfs = {"type": "layers", "diff_ids": [_digest(packed.getvalue())]}
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = json.dumps({"architecture": machine, "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": _part("application/vnd.docker.container.image.v1+json", config),
            "layers": [_part("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)],
        }
    ).encode()
    blobs = {_digest(content): content for content in (layer, config)}

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            content = manifest if "/manifests/" in self.path else blobs.get(name, b"{}")
            self.send_response(200)
            self.send_header("Content-Type", kind if "/manifests/" in self.path else "application/octet-stream")
            self.send_header("Docker-Content-Digest", _digest(content))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 - the server's own names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's own name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, _digest(manifest)
        finally:
            server.shutdown()
            thread.join()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _part(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(content), "digest": _digest(content)}
