"""What a plan means: its steps, each as it would be on its own."""

import pytest
from pydantic import JsonValue

from curtainwall.model import BadCall, Prepared
from tests.support.covers import covers
from tests.unit.tools.stage import Stage


def prepared(stage: Stage, *steps: JsonValue) -> Prepared:
    return stage.prepare("session.propose_plan", steps=list(steps))


def step(tool: str, **arguments: JsonValue) -> JsonValue:
    return {"tool": tool, "arguments": arguments}


def test_each_step_is_the_call_that_it_would_be_on_its_own(stage: Stage) -> None:
    plan = prepared(stage, step("filesystem.write_file", path="a/../b", content="x"), step("filesystem.read_file", path="b")).subject
    alone = stage.prepare("filesystem.write_file", path="b", content="x").subject
    assert [each.tool for each in plan.steps] == ["filesystem.write_file", "filesystem.read_file"]
    assert plan.steps[0].digest == alone.digest
    assert plan.steps[0].canonical["path"] == str(stage.workspace / "b")
    assert [resource.value for resource in plan.resources] == ["session.propose_plan"]


def test_a_plan_is_another_plan_when_a_step_means_something_else(stage: Stage) -> None:
    first = prepared(stage, step("filesystem.read_file", path="link")).subject
    (stage.workspace / "link").symlink_to(stage.outside / "b")
    assert prepared(stage, step("filesystem.read_file", path="link")).subject.digest != first.digest


def test_a_plan_can_be_read_again_from_what_the_log_keeps_of_it(stage: Stage) -> None:
    first = prepared(stage, step("fetch.get", url="https://example.com", credential="github"))
    steps = first.subject.raw["steps"]
    assert isinstance(steps, list)
    assert prepared(stage, *steps).subject == first.subject
    assert not first.subject.masked


def test_a_secret_in_a_step_marks_the_plan(stage: Stage) -> None:
    plan = prepared(stage, step("filesystem.write_file", path="a", content="ghp_" + "a1B2" * 9)).subject
    assert plan.masked
    assert "ghp_" not in str(plan)


@covers("tools.a-plan-lists-calls-that-mean-something")
@pytest.mark.parametrize(
    ("steps", "rule", "words"),
    [
        ([step("filesystem.read_file", path="a"), step("filesystem.read", path="a")], "unknown-tool", "step 2 of the plan"),
        ([step("filesystem.read_file", path="a", more=1)], "invalid-arguments", "step 1 of the plan"),
        ([step("session.follow_instructions", path="a", content="b")], "unknown-tool", "for agents"),
        ([step("session.propose_plan", steps=[])], "invalid-arguments", "is a plan"),
        ([{"tool": "shell.run"}], "invalid-arguments", "missing"),
        ([{"tool": "shell.run", "arguments": {"command": "ls"}, "as": "root"}], "invalid-arguments", "unknown argument"),
        (["delete everything"], "invalid-arguments", "must be an object"),
        ([], "invalid-arguments", ""),
        ([step("shell.run", command="ls")] * 33, "invalid-arguments", ""),
    ],
)
def test_what_is_no_list_of_calls_is_refused(stage: Stage, steps: list[JsonValue], rule: str, words: str) -> None:
    with pytest.raises(BadCall) as refused:
        prepared(stage, *steps)
    assert refused.value.rule == rule
    assert words in str(refused.value)
