"""Images on a real engine: built in two steps, with progress, and only once."""

from pathlib import Path

import pytest

from curtainwall.agents.container import Engine, Images
from curtainwall.model import TryLater
from tests.support.covers import covers
from tests.support.docker_engine import IMAGE, DockerEngine
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
            assert not await images.is_built("mine")
            lines = [line async for line in images.build("mine")]
            assert [line for line in lines if line.startswith("building ")] == [lines[0], f"building {images.name_of('mine')}"]
            assert "Step 2/3 : FROM ${FROM}" in lines
            assert await images.is_built("mine")
            assert [line.rpartition(" is ")[2] async for line in images.build("mine")] == ["there", "there"]
            layer.write_text("ARG BASE\nFROM ${BASE}\nLABEL step=new\n")
            assert not await images.is_built("mine"), "another recipe is another image"
            layer.write_text("ARG BASE\nFROM ${BASE}\nCOPY nothing /\n")
            with pytest.raises(TryLater, match="nothing"):
                assert [line async for line in images.build("mine")]
        finally:
            await engine.close()

    run(story())
