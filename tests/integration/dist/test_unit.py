"""The unit for systemd: what it takes away from the service, and what the sandboxes inside it still need."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.covers import covers
from tests.support.repository import ROOT

UNIT = ROOT / "deploy/curtainwall.service"


def settings() -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), flags=re.MULTILINE))


@covers("serve.unit-is-hardened")
def test_the_unit_takes_away_what_neither_we_nor_our_sandboxes_need() -> None:
    unit = settings()
    for name in ("NoNewPrivileges", "LockPersonality", "RestrictRealtime", "RestrictSUIDSGID"):
        assert unit[name] == "yes", name
    assert unit["UMask"] == "0077"
    assert unit["SystemCallArchitectures"] == "native"
    assert unit["SystemCallFilter"].startswith("~")
    assert {"@clock", "@module", "@raw-io", "@reboot", "@swap"} <= {*unit["SystemCallFilter"][1:].split()}
    assert set(unit["RestrictAddressFamilies"].split()) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}
    assert (unit["Type"], unit["NotifyAccess"], unit["WatchdogSec"]) == ("notify", "main", "120")


@covers("serve.unit-is-hardened")
def test_the_unit_leaves_what_bubblewrap_needs() -> None:
    unit = settings()
    assert not {"RestrictNamespaces", "ProtectProc", "ProcSubset", "ProtectKernelTunables", "ProtectKernelLogs"} & set(unit)
    assert not {"@mount", "@privileged", "@sandbox"} & {*unit["SystemCallFilter"][1:].split()}


@covers("serve.unit-is-hardened")
def test_systemd_understands_every_line(tmp_path: Path, real_part: Callable[[str], str]) -> None:
    real_part("systemd")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("%h/.local/bin/curtainwall", "/bin/true"))
    done = subprocess.run(
        ("systemd-analyze", "verify", "--user", "--man=no", unit),
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
