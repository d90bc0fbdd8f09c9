import os
import subprocess
from pathlib import Path

import pytest

from curtainwall.facts import Masker
from curtainwall.model import Place, SessionId, Workspace
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, filesystem_runners
from tests.unit.tools.stage import Git, Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    root = Path(os.path.realpath(tmp_path))
    for name in ("home/work", "outside"):
        (root / name).mkdir(parents=True)
    tools = NativeTools(
        Catalogue(NATIVE_TOOLS),
        home=str(root / "home"),
        masker=Masker(b"k" * 32),
        own_ports=frozenset({8642}),
        runners=filesystem_runners(Masker(b"k" * 32)),
    )
    workspace = Workspace(path=str(root / "home" / "work"), own=True)
    return Stage(root, tools, Place(session=SessionId("s1"), workspace=workspace))


@pytest.fixture
def git(tmp_path: Path) -> Git:
    def run(where: Path, *words: str) -> None:
        quiet = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", "-C", str(where), *words], check=True, capture_output=True, env=quiet)

    return run
