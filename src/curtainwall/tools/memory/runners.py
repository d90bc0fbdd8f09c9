"""The tools that remember and recall notes: where a note goes, which labels it carries, and what recall returns."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    REMEMBER,
    REMEMBER_FOR_ALL,
    CallPermitted,
    Label,
    LabelSource,
    Place,
    Prepared,
    SessionId,
    ToolEffect,
    ToolResult,
)
from curtainwall.tools.memory.notebook import Notebook, NoteMatch
from curtainwall.tools.memory.notes import Note
from curtainwall.tools.runners import Refiner, Runner, extra_resource, refined

RECALL: Final = "session.recall"
_MOST_RESULTS: Final = 10

Touched = Callable[[SessionId], Awaitable[tuple[str, tuple[Label, ...]]]]
"""Returns a session's agent and the labels it has touched so far."""

Taint = Callable[[SessionId, Sequence[LabelSource]], Awaitable[None]]
"""Records that a session has touched something, durably."""


def memory_refiners(notebook: Notebook, masker: Masker) -> Mapping[str, Refiner]:
    """Return the refiner that adds the memory that a note goes into."""

    def remember(prepared: Prepared, place: Place) -> Prepared:
        for_all = (extra_resource(REMEMBER_FOR_ALL, ToolEffect.MODIFY),) if place.workspace.own else ()
        return refined(prepared, {"memory": str(notebook.path_for(place.workspace))}, for_all, masker)

    return {REMEMBER: remember}


def memory_runners(notebook: Notebook, masker: Masker, touched: Touched, taint: Taint) -> Mapping[str, Runner]:
    """Return the tools that remember and recall."""
    # Start-up time: judging a call runs none.
    import asyncio

    async def remember(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        agent, labels = await touched(place.session)
        text = masker.mask_text(_plain(str(prepared.arguments["text"])))
        note = Note(text, permit.call, permit.at, place.session, agent, labels)
        path = await asyncio.to_thread(notebook.add, place.workspace, note)
        return ToolResult(ok=True, value={"remembered": note.id, "in": str(path)})

    async def recall(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        query = str(prepared.arguments["query"])
        matches = await asyncio.to_thread(notebook.search, place.workspace, query, _MOST_RESULTS)
        # INVARIANT: the session has a note's labels before it has the note.
        labelled = {label: match.note for match in matches for label in match.note.labels}
        if labelled:
            sources = [
                LabelSource(label=label, call=permit.call, origin=f"note {note.id} of session {note.session}")
                for label, note in labelled.items()
            ]
            await taint(place.session, sources)
        skipped: list[JsonValue] = [reason for page in notebook.pages(place.workspace) for reason in page.skipped]
        payload: dict[str, JsonValue] = {"notes": [_render(match) for match in matches]}
        return ToolResult(ok=True, value={**payload, "skipped": skipped} if skipped else payload)

    return {REMEMBER: remember, RECALL: recall}


def _render(match: NoteMatch) -> JsonValue:
    note = match.note
    if note.is_by_hand:
        return {"text": note.text, "by": "the user", "memory": match.page}
    when = datetime.fromtimestamp(note.at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    labels: list[JsonValue] = [*note.labels]
    by = f"an agent ({note.agent}) in session {note.session}"
    return {"text": note.text, "by": by, "at": when, "note": note.id, "labels": labels, "memory": match.page}


def _plain(text: str) -> str:
    """Return a note's text with its lines intact and all control characters replaced."""
    return "\n".join(
        "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in line) for line in text.splitlines()
    )
