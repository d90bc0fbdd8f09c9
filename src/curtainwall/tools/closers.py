"""Calls that mean more than their arguments say: which skill a name leads to, whose memory a note goes into."""

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import Place, Prepared, Resource, Role, ToolEffect, ToolFacts, subject_digest

Closer = Callable[[Prepared, Place], Prepared]
"""Looks closer at a call that is well formed; reads, never changes, and raises `BadCall`."""


def meaning_more(prepared: Prepared, more: Mapping[str, JsonValue], resources: tuple[Resource, ...], masker: Masker) -> Prepared:
    """Return a call with what else it means, in its canonical form, its resources and its digest."""
    subject = prepared.subject
    canonical = {**prepared.arguments, **more}
    shown = {key: masker.mask_json(value) for key, value in more.items()}
    every = (*subject.resources, *resources)
    told = {
        "canonical": {**subject.canonical, **shown},
        "resources": every,
        "digest": subject_digest(subject.kind, subject.tool, canonical, every),
        "masked": subject.masked or shown != dict(more),
        "hidden": {**subject.hidden, **masker.outlines(dict(more), shown)},
    }
    return Prepared(subject=subject.model_copy(update=told), arguments=canonical)


def also(tool: str, effect: ToolEffect) -> Resource:
    """Return what a call is besides its tool, under a name of its own that rules can ask about."""
    return Resource(role=Role.USE_TOOL, value=tool, facts=ToolFacts(server=tool.partition(".")[0], effect=effect))
