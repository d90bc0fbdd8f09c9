"""The map in `docs/architecture.md`, the folders and the import contracts say the same; folders stay small, and modules are nouns."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.repository import PACKAGE, ROOT, modules, name_of

MOST_MODULES = 26
"""How many modules one folder shows at most, its door included."""

NOUNS = {"meaning", "string"}
"""Modules that end like a gerund and are none."""

ROW = re.compile(r"^\| `(\w+)` \|(?:[^|\n]*)\|([^|\n]*)\|$", re.MULTILINE)


def folders(within: Path) -> set[str]:
    return {path.parent.name for path in within.glob("*/__init__.py")}


def mapped() -> dict[str, set[str]]:
    """Return the packages of the map, from the top down, with their folders."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| package |") : page.index("\n\n", page.index("| package |"))]
    return {name: set(re.findall(r"`(\w+)`", inner)) for name, inner in ROW.findall(table)}


def contracted() -> list[set[str]]:
    """Return the floors of the import contract, from the top down."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (floors,) = [contract for contract in tool["contracts"] if contract["id"] == "floors"]
    return [set(re.findall(r"\w+", floor)) for floor in floors["layers"]]


def test_the_map_names_every_package_and_folder() -> None:
    there, on_the_map = {name: folders(PACKAGE / name) for name in folders(PACKAGE)}, mapped()
    different = {name: there.get(name) for name in there.keys() | on_the_map.keys() if there.get(name) != on_the_map.get(name)}
    assert different == {}, "correct the first table of docs/architecture.md; these are the folders that there are"


def test_the_places_that_the_map_names_for_a_change_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| change |") : page.index("\n\n", page.index("| change |"))]
    named = [place for row in table.splitlines()[2:] for place in re.findall(r"`([\w/]+(?:/[\w.]+)+)`", row)]
    assert len(named) > 10
    assert [place for place in named if not (PACKAGE / place).exists() and not (ROOT / place).exists()] == []


def test_the_map_has_the_order_of_the_import_contract() -> None:
    rank = {name: place for place, floor in enumerate(contracted()) for name in floor}
    assert rank.keys() == mapped().keys()
    places = [rank[name] for name in mapped()]
    assert places == sorted(places)


def test_what_the_page_says_of_floors_that_packages_share_is_what_the_contract_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    sentence = page[page.index("share a floor") - 200 : page.index("Every other package")]
    shared = [floor for floor in contracted() if len(floor) > 1]
    assert set().union(*shared) <= set(re.findall(r"`(\w+)`", sentence))


@pytest.mark.parametrize("folder", sorted({module.parent for module in modules()}), ids=name_of)
def test_a_folder_shows_few_modules(folder: Path) -> None:
    assert len([*folder.glob("*.py")]) <= MOST_MODULES, "merge modules that only make sense together, or make a folder for one concept"


def test_modules_are_nouns() -> None:
    gerunds = [name_of(module) for module in modules() if module.stem.rpartition("_")[2].endswith("ing") and module.stem not in NOUNS]
    assert gerunds == [], "name a module by what it holds: `reload.py`, not `reloading.py`"
