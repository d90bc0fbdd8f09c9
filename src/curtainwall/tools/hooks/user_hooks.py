"""Run the user's hooks behind the `Hooks` port: select them, run them concurrently, merge their replies and note failures."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, assert_never

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    Broken,
    CurtainwallError,
    HookEvent,
    HookReply,
    Mode,
    Notification,
    Place,
    PostCompact,
    PreCompact,
    SessionEnd,
    SessionId,
    SessionStart,
    Stop,
    StopFailure,
    Subject,
    ToolResult,
    UserPromptSubmit,
    record,
)
from curtainwall.tools.hooks.copies import Copies
from curtainwall.tools.hooks.pins import HookTrust, Pins, workspace_hooks
from curtainwall.tools.hooks.problems import explain_failure, explaining_hook
from curtainwall.tools.hooks.process import HookRun, hook_environment, post_event, run_program
from curtainwall.tools.hooks.replies import HookAnswer, may_refuse, merge, read_reply
from curtainwall.tools.hooks.settings import CLAUDE_NAMES, CommandHook, Hook, HookSettings, tool_names

_AT_ONCE: Final = 32
_NOTHING: Final = HookReply()
_MODES: Final = {
    Mode.PLAN: "plan",
    Mode.REVIEW: "acceptEdits",
    Mode.DEFAULT: "default",
    Mode.ACCEPT_EDITS: "acceptEdits",
    Mode.BYPASS: "bypassPermissions",
}

NoteSink = Callable[[SessionId, Mapping[str, JsonValue]], Awaitable[object]]
"""Store a note about a hook with its session."""


async def no_notes(_session: SessionId, _note: Mapping[str, JsonValue]) -> None:
    """Discard the note."""


@record
class HookSurroundings:
    """The environment of hooks: the user's variables, those that we withhold, and the masker for secrets."""

    masker: Masker
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    withheld: frozenset[str] = frozenset()


class UserHooks:
    """The hooks in the user's configuration, plus those of a workspace while they are unchanged since the user trusted them."""

    def __init__(self, configured: HookSettings, around: HookSurroundings, pins: Pins | None = None, note: NoteSink = no_notes) -> None:
        self._configured = configured
        self._around = around
        self._pins = pins
        self._copies = None if pins is None else Copies.of(pins)
        self._note = note
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._notifying: set[asyncio.Task[HookReply]] = set()

    async def aclose(self) -> None:
        """Wait for the hooks that nobody waits for."""
        await asyncio.gather(*self._notifying, return_exceptions=True)

    async def before_call(self, subject: Subject, place: Place) -> HookReply:
        """Return what the hooks decide about this call; a hook that fails denies it."""
        if not self.listens("PreToolUse", place):
            return _NOTHING
        arguments = dict(subject.canonical)
        fields = {"tool_input": arguments}
        reply = await self._fire("PreToolUse", tool_names(subject.tool), fields, place)
        if reply.arguments is None:
            return reply
        # Fields that we only displayed (a remote's URLs, a path under Claude's name) are not arguments; drop those the hook left unchanged.
        added = {key: value for key, value in _as_claude_names_it(arguments).items() if key not in subject.raw}
        kept = {key: value for key, value in reply.arguments.items() if key not in added or value != added[key]}
        return reply.model_copy(update={"arguments": kept})

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:
        """Report the result of a call to the hooks; they cannot change the outcome."""
        fields = {"tool_input": dict(subject.canonical), "tool_response": result.value, "is_error": not result.ok}
        try:
            if not self.listens("PostToolUse", place):
                return _NOTHING
            return await self._fire("PostToolUse", tool_names(subject.tool), fields, place)
        except Exception as error:  # noqa: BLE001 - the call has run, so a failure here must not look like a failed call
            await self._store_note(place, "PostToolUse", "", {"failure": type(error).__name__})
            return _NOTHING

    async def tell(self, event: HookEvent, place: Place) -> HookReply:
        """Report an event other than a call to the hooks, before or after it happens. Nobody waits for those of a notification."""
        name = type(event).__name__
        if not self.listens(name, place):
            return _NOTHING
        if isinstance(event, Notification):
            task = asyncio.create_task(self._fire(name, (_matched(event),), _fields(event), place), name=f"{name} hooks")
            self._notifying.add(task)
            task.add_done_callback(self._notifying.discard)
            return _NOTHING
        return await self._fire(name, (_matched(event),), _fields(event), place)

    def listens(self, event: str, place: Place) -> bool:
        """Tell whether any hook may subscribe to an event in a place."""
        return bool(self._configured.of(event)) or (self._pins is not None and place.workspace.path in self._pins.all())

    async def _fire(self, event: str, names: Sequence[str], fields: Mapping[str, JsonValue], place: Place) -> HookReply:
        if self._pins is None or self._copies is None or place.workspace.path not in self._pins.all():
            return await self._run(event, names, fields, place, (self._configured.of(event), None))
        async with self._copies.held():
            return await self._run(event, names, fields, place, await self._hooks_of(event, place))

    async def _run(
        self,
        event: str,
        names: Sequence[str],
        fields: Mapping[str, JsonValue],
        place: Place,
        selection: tuple[tuple[Hook, ...], HookAnswer | None],
    ) -> HookReply:
        configured, complaint = selection
        if not configured and complaint is None:
            return _NOTHING
        # A program that two files configure runs once.
        chosen = {hook.action: (hook, name) for hook in reversed(configured) if (name := hook.matcher.finds(names)) is not None}
        matched = tuple(reversed(chosen.values()))
        answers = [
            (hook.name, answer) for (hook, _), answer in zip(matched, await self._run_hooks(event, matched, fields, place), strict=True)
        ]
        if complaint:
            answers.append(("workspace-hooks" if complaint.failure else "workspace-changed", complaint))
        for name, answer in answers:
            await self._note_answer(event, name, answer, place)
        return merge(event, answers)

    async def _hooks_of(self, event: str, place: Place) -> tuple[tuple[Hook, ...], HookAnswer | None]:
        """Return the hooks of an event. If trusted ones are gone or altered, a guard may be missing, so ask a human instead."""
        configured = self._configured.of(event)
        pins = None if self._pins is None else self._pins.all()
        if pins is None or place.workspace.path not in pins:
            return configured, None
        hooks, complaint = await asyncio.to_thread(self._pinned_hooks, event, place, pins)
        return (*configured, *hooks), complaint if complaint is None or complaint.failure or event == "PreToolUse" else None

    def _pinned_hooks(self, event: str, place: Place, pins: Mapping[str, str]) -> tuple[tuple[Hook, ...], HookAnswer | None]:
        """Return a workspace's hooks for an event in the form in which they may run, or the answer to give instead.

        INVARIANT: what runs is what was inspected. A program that could be swapped in between is copied from the inspected content.
        """
        workspace = place.workspace.path
        changed = f"the hooks of `{workspace}` are not those that were trusted and do not run; see `curtainwall hooks list`"
        try:
            inspected = workspace_hooks(workspace, pins)
            if inspected.trust is not HookTrust.PINNED or self._copies is None:
                return (), HookAnswer(effect="ask", refusal=changed)
            is_free = place.workspace.own or place.mode is Mode.BYPASS
            hooks = self._copies.hooks(inspected, event, is_free=is_free)
            return tuple(explaining_hook(hook, inspected, is_free=is_free) for hook in hooks), None
        except Broken:
            return (), HookAnswer(effect="ask", refusal=changed)
        except OSError as error:
            return (), HookAnswer(failure=f"the programs of its hooks could not be copied: {(error.strerror or '').lower()}")

    async def _run_hooks(
        self, event: str, matched: Sequence[tuple[Hook, str]], fields: Mapping[str, JsonValue], place: Place
    ) -> list[HookAnswer]:
        if not matched:
            return []
        environ = hook_environment(self._around.environ, self._around.masker, place, self._around.withheld)
        return await asyncio.gather(*(self._run_hook(hook, _payload(event, name, fields, place), environ) for hook, name in matched))

    async def _run_hook(self, hook: Hook, payload: bytes, environ: Mapping[str, str]) -> HookAnswer:
        async with self._slots:
            try:
                if isinstance(hook.action, CommandHook):
                    run = await run_program(hook.runs or hook.action, payload, environ, hook.directory, hook.seconds)
                else:
                    run = await post_event(hook.action, payload, environ, hook.seconds)
            except Exception as error:  # noqa: BLE001 - a hook that fails in any way has not allowed the call
                run = HookRun(failure=f"it could not be run ({type(error).__name__})")
        answer = await asyncio.to_thread(read_reply, hook.event, run)
        return _masked(explain_failure(answer, hook, run), self._around.masker)

    async def _note_answer(self, event: str, name: str, answer: HookAnswer, place: Place) -> None:
        """Note what the log would otherwise miss; it already records denials and asks."""
        note: dict[str, JsonValue] = {key: text for key in ("context", "warning") if (text := getattr(answer, key))}
        if answer.failure and event != "PreToolUse":
            note["failure"] = answer.failure
        if answer.refusal is not None and event != "PreToolUse":
            note["refusal" if may_refuse(event) else "failure"] = answer.refusal
        if answer.stopped is not None:
            note["stopped"] = answer.stopped
        if note:
            await self._store_note(place, event, name, note)

    async def _store_note(self, place: Place, event: str, name: str, note: Mapping[str, JsonValue]) -> None:
        try:
            await self._note(place.session, {"event": event, "hook": name, **note})
        except CurtainwallError as error:
            # A session that has ended accepts no notes.
            logging.getLogger(__name__).warning("hook %s of %s: %s (not in the log: %s)", name, event, json.dumps(dict(note)), error)


def _payload(event: str, name: str, fields: Mapping[str, JsonValue], place: Place) -> bytes:
    payload: dict[str, JsonValue] = {
        "session_id": place.session,
        "cwd": place.workspace.path,
        "permission_mode": _MODES[place.mode],
        "hook_event_name": event,
        **fields,
    }
    if event in {"PreToolUse", "PostToolUse"}:
        payload["tool_name"] = name
        arguments = fields["tool_input"]
        if name in CLAUDE_NAMES and isinstance(arguments, dict):
            payload["tool_input"] = _as_claude_names_it(arguments)
    return json.dumps(payload).encode()


def _as_claude_names_it(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a call's arguments, with the path also under the key that hooks written for Claude Code expect."""
    return {**arguments, "file_path": arguments["path"]} if "path" in arguments else dict(arguments)


def _fields(event: HookEvent) -> dict[str, JsonValue]:
    """Return an event's fields. The response and the reason are also there under these plain names, which other systems use."""
    fields = event.model_dump(mode="json")
    match event:
        case Stop():
            return {**fields, "response": event.last_assistant_message}
        case StopFailure():
            return {**fields, "reason": event.error}
        case _:
            return fields


def _matched(event: HookEvent) -> str:
    """Return the text that matchers of an event are compared with."""
    match event:
        case SessionStart():
            return event.source
        case SessionEnd():
            return event.reason
        case StopFailure():
            return event.error
        case PreCompact() | PostCompact():
            return event.trigger
        case Notification():
            return event.notification_type
        case UserPromptSubmit() | Stop():
            return ""
        case _:
            assert_never(event)


def _masked(answer: HookAnswer, masker: Masker) -> HookAnswer:
    """Return the answer with secrets masked. Arguments are masked later, as part of the subject that they become."""

    def clean(text: str) -> str:
        return masker.mask_text(text) if text else text

    return replace(
        answer,
        failure=clean(answer.failure),
        refusal=None if answer.refusal is None else clean(answer.refusal),
        context=clean(answer.context),
        stopped=None if answer.stopped is None else clean(answer.stopped),
        warning=clean(answer.warning),
    )
