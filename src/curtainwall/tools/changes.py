"""Change sets at the gate: what each writes and deletes, what people are shown, and how an accepted one is applied."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Final

from pydantic import JsonValue, ValidationError

from curtainwall.facts import Masker, writes_what_runs
from curtainwall.model import (
    APPLIED,
    APPLY_CHANGES,
    LEFT_ALONE,
    TAKES_BACK,
    AppliedChanges,
    BadCall,
    Blobs,
    Broken,
    CallPermitted,
    ChangeKind,
    ChangeSet,
    FileChange,
    NotFound,
    PathFacts,
    Place,
    Prepared,
    ProjectFiles,
    Resource,
    Role,
    SessionId,
    SessionViews,
    ToolResult,
    TryLater,
    ViewContents,
    ViewFailed,
    canonical_json,
    record,
    runs_later,
    working_in,
)
from curtainwall.tools.change_card import ChangeDescription
from curtainwall.tools.runners import Refiner, Runner, refined
from curtainwall.tools.schema_check import RULE

Tell = Callable[[SessionId, str, str], Awaitable[None]]
"""Tells a session's agent something before its next reply; the same key is told once."""

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_MOST_NAMED: Final = 100


@record
class ChangePorts:
    """What applying changes needs besides the call."""

    views: SessionViews
    contents: ViewContents
    files: ProjectFiles
    blobs: Blobs
    masker: Masker
    tell: Tell


def manifest_of(changes: ChangeSet) -> bytes:
    """Return the text of a change set; its digest is that of the set."""
    return canonical_json(changes.model_dump(mode="json", exclude={"left_out"}))


def load_changes(blobs: Blobs, digest: str, project: str) -> ChangeSet:
    """Return the change set of a digest; raise `BadCall` if there is none, or if it belongs to another project."""
    try:
        changes = ChangeSet.model_validate_json(blobs.get(digest))
    except (NotFound, Broken, ValidationError) as fault:
        raise BadCall(RULE, f"the change set `{digest[:12]}` cannot be read: {fault}") from fault
    if changes.digest != digest or changes.project != project:
        raise BadCall(RULE, f"the change set `{digest[:12]}` is not one of this project")
    if not all(change.is_applicable and _is_inside(path) for change in changes.changes for path in change.paths):
        raise BadCall(RULE, f"the change set `{digest[:12]}` holds something that cannot be applied")
    return changes


def _is_inside(path: str) -> bool:
    """Tell whether a relative path leads only downwards."""
    return bool(path) and "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def resources_of(changes: ChangeSet) -> dict[str, tuple[Resource, ...]]:
    """Return what each change writes and deletes, by its path."""
    return {change.path: tuple(_resource(changes.project, role, path) for role, path in _touched(change)) for change in changes.changes}


def _touched(change: FileChange) -> list[tuple[Role, str]]:
    match change.kind:
        case ChangeKind.ADDED | ChangeKind.MODIFIED | ChangeKind.MODE:
            return [(Role.WRITE_PATH, change.path)]
        case ChangeKind.DELETED:
            return [(Role.DELETE_PATH, change.path)]
        case ChangeKind.RENAMED:
            return [(Role.DELETE_PATH, change.source), (Role.WRITE_PATH, change.path)]
        case ChangeKind.REPLACED:
            return [(Role.DELETE_PATH, change.path), (Role.WRITE_PATH, change.path)]


def _resource(project: str, role: Role, path: str) -> Resource:
    value = f"{project.rstrip('/')}/{path}"
    return Resource(role=role, value=value, facts=PathFacts(runs_later=True) if writes_what_runs(value, project) else None)


def is_later(resource: Resource, project: str) -> bool:
    """Tell whether a changed path runs later by itself."""
    return runs_later(resource.value, project) or (isinstance(resource.facts, PathFacts) and resource.facts.runs_later)


def change_refiners(ports: ChangePorts) -> dict[str, Refiner]:
    """Return the refiner that binds the call to the paths of its change set, and adds what people are shown."""

    def apply_changes(prepared: Prepared, place: Place) -> Prepared:
        changes = load_changes(ports.blobs, str(prepared.arguments["changes"]), place.workspace.path)
        # What a path means is a question about the project, not about the view.
        with working_in(None):
            by_path = resources_of(changes)
        closer = refined(prepared, {}, tuple(dict.fromkeys(each for resources in by_path.values() for each in resources)), ports.masker)
        later = frozenset(path for path, resources in by_path.items() if any(is_later(each, changes.project) for each in resources))
        description = ChangeDescription(changes, later, ports.masker, partial(ports.contents.content, place.session))
        notes = prepared.arguments.get("left_out")
        card = description.card(tuple(map(str, notes)) if isinstance(notes, list) else ())
        if because := prepared.arguments.get("because"):
            card = card.model_copy(update={"summary": f"{because}: {card.summary}"})
        subject = closer.subject
        hidden = {**subject.hidden, **description.hidden}
        return replace(closer, subject=subject.model_copy(update={"changes": card, "hidden": hidden}))

    return {APPLY_CHANGES: apply_changes}


def change_runners(ports: ChangePorts) -> dict[str, Runner]:
    """Return the runner that applies accepted changes, and tells the agent what became of them."""

    async def apply_changes(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        changes = load_changes(ports.blobs, str(prepared.arguments["changes"]), place.workspace.path)
        chosen = changes if permit.only is None else changes.only(permit.only)
        is_taken_back = TAKES_BACK in prepared.arguments
        work = partial(ports.files.write, place, chosen) if is_taken_back else partial(ports.views.settle, place, chosen, apply=True)
        because = prepared.arguments.get("because", "takes back a step")
        done, failed = (f"The user {because} of your accepted changes",) * 2 if is_taken_back else (_ANSWERED, _FAILED)
        try:
            applied = await _apply(work)
        except ViewFailed as fault:
            await ports.tell(place.session, f"{failed}, which failed: {fault}", f"changes {permit.call}")
            return ToolResult(ok=False, value=f"the changes could not be applied: {fault}")
        words = outcome_words(applied, rest=len(changes.changes) - len(chosen.changes))
        names = f" ({_names(applied.applied)})" if is_taken_back and applied.applied else ""
        await ports.tell(place.session, f"{done}: {words}{names}", f"changes {permit.call}")
        left = {file.path for file in applied.files} - {*applied.applied}
        if not left:
            return ToolResult(ok=True, value=words)
        # Positions instead of paths: a path may look like a secret, and would be masked in the log.
        numbers: list[JsonValue] = [number for number, change in enumerate(changes.changes) if change.path in left]
        return ToolResult(ok=False, value={"outcome": words, APPLIED: len(applied.applied), LEFT_ALONE: numbers})

    return {APPLY_CHANGES: apply_changes}


_ANSWERED: Final = "Your changes in the project were answered"
_FAILED: Final = "Your changes were accepted and were to be applied"


def _names(paths: Collection[str]) -> str:
    first = ", ".join(f"`{path}`" for path in list(paths)[:_MOST_NAMED])
    return f"{first} and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else first


async def _apply(work: Callable[[], AppliedChanges]) -> AppliedChanges:
    """Apply changes, however long the disk takes. What has begun in a thread ends there, even if nobody waits for it any more."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await _to_its_end(work)
        except TryLater:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _to_its_end(work: Callable[[], AppliedChanges]) -> AppliedChanges:
    """Run work in a thread and wait for its end, even if cancelled meanwhile; then raise the cancellation."""
    task, is_cancelled = asyncio.ensure_future(asyncio.to_thread(work)), False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    return task.result()


def outcome_words(applied: AppliedChanges, rest: int) -> str:
    """Return the outcome of applying a change set, for people and for the agent; it names what was left alone."""
    sentences = [_counted(len(applied.applied), "was applied", "were applied")]
    if others := [file for file in applied.files if file.path not in {*applied.applied}]:
        listed = "; ".join(f"`{file.path}`: {file.reason}" for file in others[:_MOST_NAMED])
        more = f"; and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        sentences.append(f"{_counted(len(others), 'was', 'were')} left alone ({listed}{more})")
    if rest:
        sentences.append(f"{_counted(rest, 'was', 'were')} not accepted and {'is' if rest == 1 else 'are'} only in your view")
    return "; ".join(sentences)


def _counted(count: int, one: str, many: str) -> str:
    return f"1 change {one}" if count == 1 else f"{count} changes {many}"


def named(paths: Collection[str], why: str) -> str:
    """Return a sentence about paths that are left out, the first of them by name."""
    first = ", ".join(f"`{path}`" for path in list(paths)[:_MOST_SAID])
    more = f" and {len(paths) - _MOST_SAID} more" if len(paths) > _MOST_SAID else ""
    return f"{first}{more}: {why}"


_MOST_SAID: Final = 8
