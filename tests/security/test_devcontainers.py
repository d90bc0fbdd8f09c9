"""A project's `devcontainer.json` is whoever's who writes in the project."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.covers import covers

READ = """\
import sys
from pathlib import Path
from curtainwall.agents.external.container import ImageUnclear, devcontainer_image
try:
    print(devcontainer_image(Path(sys.argv[1])))
except ImageUnclear as unclear:
    print(unclear)
"""
SIZE = 250_000


@covers("image.devcontainer")
@pytest.mark.parametrize(
    "text",
    [
        f'{{"image": "a",{"/" * SIZE}',
        f'{{"image": "a",{"/**/" * (SIZE // 4)}',
        "/*" * (SIZE // 2),
        '"' + '\\"' * (SIZE // 2) + "\\",
        "," + " " * SIZE,
        ", " * (SIZE // 2),
        "[" * SIZE,
        '{"image": ' + "9" * SIZE,
    ],
    ids=["slashes", "comments", "begun comments", "escaped quotes", "blanks", "commas", "brackets", "digits"],
)
def test_no_text_of_the_allowed_length_keeps_us_busy(tmp_path: Path, text: str) -> None:
    (tmp_path / ".devcontainer.json").write_text(text)
    # In a process of its own: a regular expression cannot be interrupted.
    done = subprocess.run([sys.executable, "-c", READ, tmp_path], capture_output=True, text=True, timeout=30, check=True)
    assert "not valid JSON" in done.stdout
