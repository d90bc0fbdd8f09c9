"""Homes on disks that take nothing: what is in them can be looked at."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.support.covers import covers
from tests.support.houses import read
from tests.support.in_process import Places, session_in

pytestmark = pytest.mark.usefixtures("bubblewrap")
LOOKS = (("sessions", "list"), ("approvals", "list"), ("grants", "list"), ("audit", "verify"))


def told(confinement: Sequence[str], home: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ("bwrap", "--dev-bind", "/", "/", *confinement, sys.executable, "-m", "curtainwall", *words)
    environ = {**os.environ, "CURTAINWALL_HOME": home}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=120)


@covers("cli.looks-at-a-home-that-takes-nothing")
def test_a_home_on_a_read_only_disk_can_be_looked_at_and_is_not_changed(places: Places) -> None:
    session, _ = session_in(places.workspace, read("/etc/hostname"))
    home = str(places.home)
    before = sorted((path, path.stat().st_mtime_ns) for path in places.home.rglob("*"))
    read_only = ("--ro-bind", home, home, "--")
    for words in LOOKS:
        said = told(read_only, home, *words, "--output", "json")
        assert (said.returncode, f"`{home}` is on a disk that is read-only or full" in said.stderr) == (0, True), said
        assert json.loads(said.stdout) is not None
    assert session in told(read_only, home, "sessions", "show", session).stdout
    assert told(read_only, home, "sessions", "export", session).stdout.count("\n") > 3
    refused = told(read_only, home, "sessions", "rename", session, "x")
    assert (refused.returncode, "nothing was written" in refused.stderr) == (1, True)
    assert sorted((path, path.stat().st_mtime_ns) for path in places.home.rglob("*")) == before


@covers("cli.looks-at-a-home-that-takes-nothing")
def test_a_home_on_a_full_disk_can_be_looked_at(places: Places) -> None:
    session, _ = session_in(places.workspace, read("/etc/hostname"))
    small = places.user / "small"
    small.mkdir()
    fill = f'cp -rp {places.home} {small}/cw && head -c 9000000 /dev/zero > {small}/fill; exec "$@"'
    full = ("--size", "3000000", "--tmpfs", str(small), "--", shutil.which("sh") or "sh", "-c", fill, "sh")
    said = told(full, str(small / "cw"), "sessions", "list", "--output", "json")
    assert [row["id"] for row in json.loads(said.stdout)] == [session]
    assert "this is told from a copy of its log" in said.stderr
