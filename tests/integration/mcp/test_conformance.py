"""The protocol's own test suite against a session's socket, through a bridge; docs/mcp.md says which scenarios apply."""

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import CallPermitted, Place, Prepared, ToolEffect, ToolResult, ToolSpec
from curtainwall.tools import CannotDo, Catalogue
from curtainwall.tools.runners import progress_listener
from tests.support.covers import covers
from tests.support.houses import run
from tests.support.mcp import native, serving
from tests.support.mcp_bridge import bridge
from tests.support.real_parts import CONFORMANCE
from tests.support.repository import DOCS, table_rows

ROWS = table_rows(DOCS / "mcp.md", ("scenario", "result", "why"))
EXPECTED = {row["scenario"].strip("`"): set(re.findall("`(.+?)`", row["result"])) for row in ROWS if row["result"].startswith("passes")}


@pytest.fixture(scope="session")
def versions(real_part: Callable[[str], str]) -> dict[str, list[str]]:
    """Return every server scenario with the versions it is defined for."""
    real_part("mcp-conformance")
    listed = subprocess.run([*CONFORMANCE, "list"], capture_output=True, text=True, timeout=60, check=True).stdout
    return {name: told.split(",") for name, told in re.findall(r"^  - (\S+) \[(.+)\]$", listed.split("Client scenarios")[0], re.MULTILINE)}


def test_the_page_speaks_of_every_scenario(versions: dict[str, list[str]]) -> None:
    told = [row["scenario"].strip("`") for row in ROWS]
    assert sorted(told) == sorted(name for name, of in versions.items() if of != ["extension"])
    assert all(row["why"] for row in ROWS if row["result"] != "passes")


async def say(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
    return ToolResult(ok=True, value="This is a simple text response for testing.")


async def go_slowly(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
    heard = progress_listener()
    for percent in (0, 50, 100):
        if heard is not None:
            heard(percent, 100, None)
        await asyncio.sleep(0.05)
    return ToolResult(ok=True, value="done")


async def fail(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
    raise CannotDo("This tool intentionally returns an error for testing")


def tool(name: str) -> ToolSpec:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return ToolSpec(server="test", name=name, description="A tool of the suite.", schema_=schema, effect=ToolEffect.INSPECT)


async def checks_of(scenario: str, version: str, url: str, directory: Path) -> list[dict[str, str]]:
    command = ("server", "--url", url, "--scenario", scenario, "--spec-version", version, "--output-dir", str(directory))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*CONFORMANCE, *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    said, _ = await process.communicate()
    found = kept(directory)
    assert found, said.decode()
    return found


def kept(directory: Path) -> list[dict[str, str]]:
    return [check for file in sorted(directory.rglob("checks.json")) for check in json.loads(file.read_text())]


@pytest.mark.parametrize("scenario", EXPECTED)
@covers("mcp-in.conformance")
def test_a_scenario_of_the_suite_that_applies_passes(scenario: str, versions: dict[str, list[str]], tmp_path: Path) -> None:
    runners = {"test.test_simple_text": say, "test.test_error_handling": fail, "test.test_tool_with_progress": go_slowly}
    tools = native(runners, Catalogue(tool(name.partition(".")[2]) for name in runners))

    async def story() -> None:
        async with serving(tmp_path, tools=tools) as served, bridge(served.socket) as url:
            for version in versions[scenario]:
                checks = await checks_of(scenario, version, url, tmp_path / version)
                failed = {check["id"]: check.get("errorMessage", "") for check in checks if check["status"] == "FAILURE"}
                assert set(failed) == EXPECTED[scenario], f"{version}: {failed}"
                assert any(check["status"] == "SUCCESS" for check in checks)

    run(story())
