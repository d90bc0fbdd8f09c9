"""Subjects: the digest is bound to exactly what would run."""

import pytest
from hypothesis import assume
from hypothesis import given as for_all
from hypothesis import strategies as st
from pydantic import JsonValue

from curtainwall.model import (
    HostFacts,
    Resource,
    Role,
    Scope,
    SubjectKind,
    ToolEffect,
    ToolFacts,
    ToolSpec,
    canonical_json,
    subject_digest,
)
from tests.support.covers import covers
from tests.support.strategies import JSON, TEXT, words

HERE = Resource(role=Role.READ_PATH, value="/a")
PLACE = HostFacts(host="a.org", port=443, secure=True, scope=Scope.PUBLIC)
SITE = Resource(role=Role.FETCH_URL, value="https://a.org", facts=PLACE)


@covers("model.a-digest-changes-with-its-subject")
@pytest.mark.parametrize(
    "other",
    [
        (SubjectKind.EGRESS, "a.b", {"x": 1}, (HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.c", {"x": 1}, (HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 2}, (HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": "1"}, (HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1.0}, (HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": True}, (HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1, "y": None}, (HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (SITE, HERE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (HERE,)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (HERE, HERE, SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (HERE.model_copy(update={"role": Role.WRITE_PATH}), SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (HERE.model_copy(update={"value": "/b"}), SITE)),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (HERE, SITE.model_copy(update={"facts": PLACE.model_copy(update={"port": 80})}))),
        (SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (HERE, SITE.model_copy(update={"facts": None}))),
    ],
)
def test_whatever_changes_the_subject_changes_the_digest(
    other: tuple[SubjectKind, str, dict[str, JsonValue], tuple[Resource, ...]],
) -> None:
    assert subject_digest(SubjectKind.TOOL_CALL, "a.b", {"x": 1}, (HERE, SITE)) != subject_digest(*other)


@covers("model.a-digest-changes-with-its-subject")
@for_all(st.dictionaries(TEXT, JSON, max_size=3), st.dictionaries(TEXT, JSON, max_size=3), words(Resource), words(Resource))
def test_different_arguments_or_resources_have_different_digests(
    one: dict[str, JsonValue], other: dict[str, JsonValue], here: Resource, there: Resource
) -> None:
    digest = subject_digest(SubjectKind.TOOL_CALL, "a.b", one, (here,))
    assert len(digest) == 64
    assert digest == subject_digest(SubjectKind.TOOL_CALL, "a.b", dict(reversed(one.items())), (here,))
    assume(canonical_json(one) != canonical_json(other))
    assert digest != subject_digest(SubjectKind.TOOL_CALL, "a.b", other, (here,))
    assume(here != there)
    assert digest != subject_digest(SubjectKind.TOOL_CALL, "a.b", one, (there,))


def test_canonical_json_has_one_spelling() -> None:
    assert canonical_json({"b": [1, None], "a": "ä\ud800"}) == b'{"a":"\\u00e4\\ud800","b":[1,null]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


def test_a_tool_is_called_by_its_server_and_name() -> None:
    assert ToolSpec(server="git", name="push", description="", schema_={}, effect=ToolEffect.SEND).full_name == "git.push"
    assert ToolFacts(server="git", effect=ToolEffect.SEND).kind == "tool"
