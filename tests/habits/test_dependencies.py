"""Dependencies are decided, locked, and free of any address."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.repository import DOCS, ROOT, name_of, tracked_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUN_LOCK, DEV_LOCK, BUILD_LOCK = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("requirements.lock", "requirements-dev.lock", "requirements-build.lock")
)


def project_name(requirement: str) -> str:
    """Return the normalised name that a requirement starts with."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


DIRECT = [project_name(line) for line in PROJECT["project"]["dependencies"]]
GROUPS = PROJECT["dependency-groups"]
BUILD, DEV = ([project_name(line) for line in GROUPS[group] if isinstance(line, str)] for group in ("build", "dev"))


def pins(lock: str) -> dict[str, str]:
    """Return what a lock holds: each name, with the line that says its version and where it is needed."""
    return {project_name(line): line for line in lock.splitlines() if line and not line.startswith((" ", "#"))}


@pytest.mark.parametrize("dependency", DIRECT)
def test_every_runtime_dependency_has_a_line_in_the_decisions(dependency: str) -> None:
    lines = [line for page in sorted((DOCS / "decisions").glob("*.md")) for line in page.read_text(encoding="utf-8").splitlines()]
    assert any(line.startswith("|") and f"`{dependency}`" in line for line in lines), (
        f"say in docs/decisions/ what `{dependency}` is for and why it was chosen"
    )


def test_the_locks_hold_every_direct_dependency() -> None:
    assert sorted({*DIRECT, *BUILD} - {*pins(RUN_LOCK)}) == []
    assert sorted({*DIRECT, *BUILD, *DEV} - {*pins(DEV_LOCK)}) == []


def test_what_runs_is_what_is_tested_and_brings_no_tool_of_development() -> None:
    assert {*pins(RUN_LOCK).values()} <= {*pins(DEV_LOCK).values()}
    assert {*pins(BUILD_LOCK).values()} <= {*pins(RUN_LOCK).values()}
    assert {*BUILD} <= {*pins(BUILD_LOCK)}
    assert sorted({*DEV} & {*pins(RUN_LOCK)}) == []


@pytest.mark.parametrize("lock", [RUN_LOCK, DEV_LOCK, BUILD_LOCK], ids=["run", "dev", "build"])
def test_every_locked_version_has_hashes_and_no_address(lock: str) -> None:
    assert "://" not in lock
    assert not re.search(r"^\s*--(?!hash=)", lock, flags=re.MULTILINE)
    for block in re.split(r"\n(?=\S)", lock.strip()):
        assert "==" in block.splitlines()[0], block
        assert "--hash=sha256:" in block, block


@pytest.mark.parametrize(("target", "lock"), [("run", "requirements.lock"), ("test", "requirements-dev.lock")])
def test_the_first_call_says_that_it_installs_and_takes_no_more_than_it_needs(target: str, lock: str, tmp_path: Path) -> None:
    words = ["make", "--dry-run", "--no-print-directory", target, f"VENV={tmp_path / 'none'}"]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    locks = re.findall(r"--no-deps --require-hashes (--no-build-isolation )?-r (\S+)", told)
    assert locks == [("", "requirements-build.lock"), ("--no-build-isolation ", lock)]
    assert "once; this takes" in told.splitlines()[0]


# Written in two halves, so that this file does not hold what it looks for.
REGISTRIES = tuple(
    f"{name}.{end}"
    for name, end in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry.npmjs", "org"),
        ("registry.yarnpkg", "com"),
        ("registry-1.docker", "io"),
        ("index.docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("deb.debian", "org"),
    )
)


def test_no_file_names_a_registry() -> None:
    found = [f"{name_of(path)}: {host}" for path in tracked_files() for host in REGISTRIES if host.encode() in path.read_bytes()]
    assert found == []
