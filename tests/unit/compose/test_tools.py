"""Our own tools: what is loaded with the first call is what the catalogue promises."""

from collections.abc import Iterable

import pytest

from curtainwall.facts import Masker
from curtainwall.model import ToolSpec
from curtainwall.tools import NATIVE_TOOLS, compile_check, fetch_runners, filesystem_runners, git_runners, shell_runners, team_tools

MASKER = Masker(b"k" * 32)


@pytest.mark.parametrize(
    ("server", "runners"),
    [("fetch", fetch_runners(MASKER)), ("filesystem", filesystem_runners(MASKER)), ("git", git_runners()), ("shell", shell_runners())],
)
def test_a_kind_of_tools_that_is_loaded_late_has_a_runner_for_each_of_its_tools(server: str, runners: Iterable[str]) -> None:
    assert {*runners} == {spec.full_name for spec in NATIVE_TOOLS if spec.server == server}


@pytest.mark.parametrize("spec", [*NATIVE_TOOLS, *team_tools(["backend"])], ids=lambda spec: spec.full_name)
def test_the_schema_of_each_of_our_own_tools_can_be_compiled(spec: ToolSpec) -> None:
    compile_check(spec.schema_)
