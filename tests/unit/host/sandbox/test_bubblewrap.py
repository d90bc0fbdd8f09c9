import os
from pathlib import Path

import pytest

from curtainwall.host import Bubblewrap, BubblewrapMissing, confinement_report, find_bubblewrap, look_for_bubblewrap
from curtainwall.host.sandbox.limits import counts_processes


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_machine_without_it_says_how_to_get_it() -> None:
    found = look_for_bubblewrap(None)
    assert isinstance(found, BubblewrapMissing)
    assert "not on the path" in found.reason
    assert "install bubblewrap" in found.remedy


def test_an_old_one_is_not_good_enough(tmp_path: Path) -> None:
    found = look_for_bubblewrap(program(tmp_path / "bwrap", "echo bubblewrap 0.3.1"))
    assert isinstance(found, BubblewrapMissing)
    assert "--disable-userns" in found.reason


def test_one_that_cannot_make_namespaces_is_as_good_as_none(tmp_path: Path) -> None:
    help_ = "--disable-userns --ro-bind-fd --json-status-fd --seccomp --size --perms"
    text = f'case "$1" in --version) echo bubblewrap 0.11.0;; --help) echo "{help_}";; *) echo "bwrap: No permissions" >&2; exit 1;; esac'
    found = look_for_bubblewrap(program(tmp_path / "bwrap", text))
    assert isinstance(found, BubblewrapMissing)
    assert "No permissions" in found.reason
    assert "user namespaces" in found.remedy


def test_one_that_is_no_program_is_none(tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("no program")
    assert isinstance(look_for_bubblewrap(str(tmp_path / "bwrap")), BubblewrapMissing)


@pytest.mark.usefixtures("bubblewrap")
def test_the_one_of_this_machine_is_found_once() -> None:
    found = find_bubblewrap()
    assert isinstance(found, Bubblewrap)
    assert found is find_bubblewrap()
    names = ["confinement", "system-call filter", "Unix sockets", "process limit", "memory limit", "session limits"]
    assert [one.name for one in confinement_report()] == names
    assert confinement_report()[0].holds


@pytest.mark.parametrize(
    ("release", "uid", "counts"),
    [("6.1.0-18-amd64", 1000, True), ("5.14.0", 1000, True), ("5.10.0-28", 1000, False), ("6.1.0", 0, False), ("4.18.0-x", 7, False)],
)
def test_the_kernel_counts_a_users_processes_per_namespace_since_5_14(release: str, uid: int, counts: bool) -> None:
    assert counts_processes(release, uid) is counts


def test_of_this_machine_it_is_known_too() -> None:
    assert isinstance(counts_processes(), bool)
    assert not (os.geteuid() == 0 and counts_processes())
