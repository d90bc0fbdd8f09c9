"""Remembering and recalling: what a note carries with it, and that labels come before the text."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from curtainwall.facts import Masker
from curtainwall.model import (
    BadCall,
    CallId,
    CallPermitted,
    Effect,
    Label,
    LabelSource,
    PermitId,
    Place,
    Prepared,
    SessionId,
    ToolResult,
    Verdict,
    Workspace,
)
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from curtainwall.tools.memory import Notebook, memory_refiners, memory_runners
from tests.support.covers import covers


class Stage:
    def __init__(self, root: Path) -> None:
        self.notebook = Notebook(root)
        self.labels: tuple[Label, ...] = ()
        self.tainted: list[LabelSource] = []
        self.project = Place(session=SessionId("s1"), workspace=Workspace(path="/srv/project", own=False))
        self.alone = Place(session=SessionId("s2"), workspace=Workspace(path="/srv/own", own=True))
        masker = Masker(b"k" * 32, {"password": "correct horse battery"})
        runners, refiners = memory_runners(self.notebook, masker, self._touched, self._taint), memory_refiners(self.notebook, masker)
        self.tools = NativeTools(Catalogue(NATIVE_TOOLS), home="/h", masker=masker, runners=runners, refiners=refiners)

    async def _touched(self, session: SessionId) -> tuple[str, tuple[Label, ...]]:
        return "builtin", self.labels

    async def _taint(self, session: SessionId, labels: Sequence[LabelSource]) -> None:
        self.tainted += labels

    def prepare(self, tool: str, text: str, place: Place | None = None) -> Prepared:
        argument = "text" if tool == "remember" else "query"
        return self.tools.prepare(f"session.{tool}", {argument: text}, place or self.project)

    def run(self, prepared: Prepared, place: Place | None = None, call: str = "c1") -> ToolResult:
        verdict = Verdict(effect=Effect.ALLOW, because=())
        permit = CallPermitted(
            at=1_700_000_000_000, call=CallId(call), permit=PermitId("p"), digest=prepared.subject.digest, verdict=verdict
        )
        return asyncio.run(self.tools.run(prepared, permit, place or self.project))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(Path(os.path.realpath(tmp_path)))


def test_a_note_comes_back_with_where_it_came_from(stage: Stage) -> None:
    assert stage.run(stage.prepare("remember", "we use ninja")).ok
    assert stage.run(stage.prepare("recall", "ninja")).value == {
        "notes": [
            {
                "text": "we use ninja",
                "by": "an agent (builtin) in session s1",
                "at": "2023-11-14 22:13 UTC",
                "note": "c1",
                "labels": [],
                "memory": "project",
            }
        ]
    }
    assert stage.tainted == []


@covers("tools.a-note-carries-the-labels-of-its-session")
def test_a_note_taints_whoever_recalls_it_with_what_its_session_had_touched(stage: Stage) -> None:
    stage.labels = (Label("sensitive"), Label("untrusted-content"))
    stage.run(stage.prepare("remember", "revenue is 3"), call="c7")
    stage.labels = ()
    stage.run(stage.prepare("remember", "we use ninja"))
    stage.run(stage.prepare("recall", "ninja"))
    assert stage.tainted == []
    stage.run(stage.prepare("recall", "revenue"), call="c9")
    assert [(each.label, each.call, each.origin) for each in stage.tainted] == [
        ("sensitive", "c9", "note c7 of session s1"),
        ("untrusted-content", "c9", "note c7 of session s1"),
    ]


def test_a_note_in_a_workspace_of_ones_own_is_for_all_and_says_so(stage: Stage) -> None:
    resources = [resource.value for resource in stage.prepare("remember", "x", stage.alone).subject.resources]
    assert resources == ["session.remember", "session.remember_for_all"]
    assert [resource.value for resource in stage.prepare("remember", "x").subject.resources] == ["session.remember"]


def test_secrets_are_masked_before_they_are_written(stage: Stage) -> None:
    stage.run(stage.prepare("remember", "password: hunter2-and-more"))
    kept = stage.notebook.path_for(stage.project.workspace).read_text()
    assert "hunter2" not in kept
    assert "[masked:" in kept


def test_a_known_credential_is_not_remembered(stage: Stage) -> None:
    with pytest.raises(BadCall, match="holds the credential `password`"):
        stage.prepare("remember", "it is correct horse battery")


def test_a_secret_that_was_written_by_hand_is_masked_when_it_is_recalled(stage: Stage) -> None:
    path = stage.notebook.path_for(stage.project.workspace)
    path.parent.mkdir()
    path.write_text("the word is correct horse battery\n")
    result = stage.run(stage.prepare("recall", "word"))
    assert "horse" not in str(result.value)
    assert "by': 'the user" in str(result.value)


def test_what_moves_a_cursor_is_not_kept(stage: Stage) -> None:
    stage.run(stage.prepare("remember", "a\x1b[2Jb\x07\u202ec\nd\te"))
    kept = stage.notebook.path_for(stage.project.workspace).read_text()
    assert not any(char in kept for char in "\x1b\x07\u202e")
    assert "> d\te" in kept


def test_what_is_passed_over_is_said(stage: Stage) -> None:
    stage.run(stage.prepare("remember", "we use ninja"))
    path = stage.notebook.path_for(stage.project.workspace)
    path.write_text(path.read_text().replace('"at"', "at"))
    result = stage.run(stage.prepare("recall", "ninja"))
    assert isinstance(result.value, dict)
    assert result.value["notes"] == []
    assert "is passed over" in str(result.value["skipped"])
