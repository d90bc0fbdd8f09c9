"""This repository as the habit tests read it: its files, modules, pages and tables."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "curtainwall"
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"
PURE_ROOMS = ("model", "policy", "session")


def modules(below: Path = PACKAGE) -> list[Path]:
    """Return every Python file below a directory."""
    return sorted(below.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a file's name inside the repository, as people write it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def tracked_files() -> list[Path]:
    """Return the files that are in the repository or would be added to it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def table_rows(page: Path, header: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of every table on a page whose header is this one; raise LookupError if there is no such table."""
    rows: list[dict[str, str]] = []
    found = inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = _cells(line)
        if cells is None:
            inside = False
        elif tuple(cells) == header:
            found = inside = True
        elif inside and not _is_rule(cells):
            if len(cells) != len(header):
                raise LookupError(f"{name_of(page)}: this row does not have {len(header)} cells: {line}")
            rows.append(dict(zip(header, cells, strict=True)))
    if not found:
        raise LookupError(f"{name_of(page)} has no table with the columns {' | '.join(header)}")
    return rows


def _cells(line: str) -> list[str] | None:
    stripped = line.strip()
    if not (stripped.startswith("|") and stripped.endswith("|") and len(stripped) > 1):
        return None
    return [cell.strip().replace("\\|", "|") for cell in _split(stripped[1:-1])]


def _split(text: str) -> Iterator[str]:
    """Split at bars, except escaped ones."""
    cell = ""
    for letter in text:
        if letter == "|" and not cell.endswith("\\"):
            yield cell
            cell = ""
        else:
            cell += letter
    yield cell


def _is_rule(cells: list[str]) -> bool:
    return all(cell and set(cell) <= {"-", ":"} for cell in cells)
