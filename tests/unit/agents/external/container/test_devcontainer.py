"""The image in a project's `devcontainer.json`: the file is hostile, and nothing else in it counts."""

import os
from pathlib import Path

import pytest

from curtainwall.agents.external.container import ImageUnclear, devcontainer_image
from tests.support.covers import covers


def image_in(project: Path, text: str, name: str = ".devcontainer/devcontainer.json") -> str:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(text)
    return devcontainer_image(project)


@covers("image.devcontainer")
def test_the_image_is_read_also_among_comments_and_trailing_commas(tmp_path: Path) -> None:
    text = """// top
    {
      "name": "a // no comment, and not the \\" end",
      /* "image": "evil" */
      "image": "mcr.microsoft.com/devcontainers/python:3.12", // this one
      "runArgs": ["--privileged"], "mounts": ["source=/,target=/host"],
    }"""
    assert image_in(tmp_path, text) == "mcr.microsoft.com/devcontainers/python:3.12"
    other = tmp_path / "other"
    other.mkdir()
    assert image_in(other, '{"image": "debian@sha256:%s"}' % ("a" * 64), ".devcontainer.json").startswith("debian@")


@covers("image.devcontainer")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"build": {"dockerfile": "Dockerfile"}}', "names no `image`"),
        ('{"image": ["a"]}', "names no `image`"),
        ("[]", "names no `image`"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"image": "${localEnv:HOME}"}', "not the name of an image"),
        ('{"image": "--privileged"}', "not the name of an image"),
        ('{"image": "a b"}', "not the name of an image"),
        ('{"image": "a\\nFROM b"}', "not the name of an image"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ImageUnclear, match=message):
        image_in(tmp_path, text)


@covers("image.devcontainer")
def test_links_pipes_and_huge_files_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text('{"image": "evil"}')
    project = tmp_path / "project"
    (project / ".devcontainer").mkdir(parents=True)
    place = project / ".devcontainer" / "devcontainer.json"
    place.symlink_to(outside)
    with pytest.raises(ImageUnclear, match=r"there is no `devcontainer\.json`"):
        devcontainer_image(project)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(ImageUnclear, match=r"there is no `devcontainer\.json`"):
        devcontainer_image(project)
    place.unlink()
    place.write_text('{"image": "evil"}' + " " * 300_000)
    with pytest.raises(ImageUnclear, match=r"there is no `devcontainer\.json`"):
        devcontainer_image(project)
