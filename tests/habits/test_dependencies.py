"""Dependencies are decided, locked, and free of any address."""

import re
import tomllib

import pytest

from tests.support.repository import DOCS, ROOT, name_of, tracked_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def project_name(requirement: str) -> str:
    """Return the normalised name that a requirement starts with."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


DIRECT = [project_name(line) for line in PROJECT["project"]["dependencies"]]
DEV = [project_name(line) for line in PROJECT["dependency-groups"]["dev"]]
LOCKED = [project_name(line) for line in LOCK.splitlines() if line and not line.startswith((" ", "#"))]


@pytest.mark.parametrize("dependency", DIRECT)
def test_every_runtime_dependency_has_a_line_in_the_decisions(dependency: str) -> None:
    lines = [line for page in sorted((DOCS / "decisions").glob("*.md")) for line in page.read_text(encoding="utf-8").splitlines()]
    assert any(line.startswith("|") and f"`{dependency}`" in line for line in lines), (
        f"say in docs/decisions/ what `{dependency}` is for and why it was chosen"
    )


def test_the_lock_holds_every_direct_dependency() -> None:
    assert sorted({*DIRECT, *DEV} - {*LOCKED}) == []


def test_every_locked_version_has_hashes_and_no_address() -> None:
    assert "://" not in LOCK
    assert not re.search(r"^\s*--(?!hash=)", LOCK, flags=re.MULTILINE)
    for block in re.split(r"\n(?=\S)", LOCK.strip()):
        assert "==" in block.splitlines()[0], block
        assert "--hash=sha256:" in block, block


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
