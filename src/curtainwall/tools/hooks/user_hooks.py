"""The user's hooks behind the `Hooks` port: which run for an event, all at once, what they say together, and notes of what went wrong."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
)
from curtainwall.tools.hooks.copies import Copies
from curtainwall.tools.hooks.pins import HookTrust, Pins, workspace_hooks
from curtainwall.tools.hooks.problems import explain_failure, explaining_hook
from curtainwall.tools.hooks.process import HookRun, hook_environment, post_event, run_program
from curtainwall.tools.hooks.replies import HookAnswer, may_refuse, merge, read_reply
from curtainwall.tools.hooks.settings import CLAUDE_NAMES, CommandHook, Hook, HookSettings, tool_names

_AT_ONCE: Final = 32
_NOTHING: Final = HookReply()
_MODES: Final = {Mode.DEFAULT: "default", Mode.PLAN: "plan", Mode.ACCEPT_EDITS: "acceptEdits", Mode.BYPASS: "bypassPermissions"}

NoteSink = Callable[[SessionId, Mapping[str, JsonValue]], Awaitable[object]]
"""Keeps a note about a hook with its session."""


async def no_notes(_session: SessionId, _told: Mapping[str, JsonValue]) -> None:
    """Keep nothing."""


@dataclass(frozen=True, slots=True)
class HookSurroundings:
    """What hooks run in: the user's environment, the variables of it that stay with us, and everything that is secret."""

    masker: Masker
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    withheld: frozenset[str] = frozenset()


class UserHooks:
    """The hooks of the user's configuration, and those of a workspace for as long as they are what the user trusted."""

    def __init__(self, configured: HookSettings, around: HookSurroundings, pins: Pins | None = None, note: NoteSink = no_notes) -> None:
        self._configured = configured
        self._around = around
        self._pins = pins
        self._copies = None if pins is None else Copies.of(pins)
        self._note = note
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def before_call(self, subject: Subject, place: Place) -> HookReply:
        """Say what the hooks want for this call; a hook that fails denies it."""
        if not self.listens("PreToolUse", place):
            return _NOTHING
        given = dict(subject.canonical)
        told = {"tool_input": given}
        reply = await self._fire("PreToolUse", tool_names(subject.tool), told, place)
        if reply.arguments is None:
            return reply
        # What we only showed (a remote's URLs, a path under Claude's name for it) is no argument; left as it was, it is taken back.
        added = {key: value for key, value in _as_claude_names_it(given).items() if key not in subject.raw}
        kept = {key: value for key, value in reply.arguments.items() if key not in added or value != added[key]}
        return reply.model_copy(update={"arguments": kept})

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:
        """Tell the hooks what came of it; whatever they do, the outcome stands."""
        told = {"tool_input": dict(subject.canonical), "tool_response": result.value, "is_error": not result.ok}
        try:
            if not self.listens("PostToolUse", place):
                return _NOTHING
            return await self._fire("PostToolUse", tool_names(subject.tool), told, place)
        except Exception as fault:  # noqa: BLE001 - the call has run, and nothing here may say otherwise
            await self._keep(place, "PostToolUse", "", {"failure": type(fault).__name__})
            return _NOTHING

    async def tell(self, event: HookEvent, place: Place) -> HookReply:
        """Tell the hooks of something else that happened, or is about to."""
        name = type(event).__name__
        if not self.listens(name, place):
            return _NOTHING
        return await self._fire(name, (_matched(event),), event.model_dump(mode="json"), place)

    def listens(self, event: str, place: Place) -> bool:
        """Tell whether any hook may have to hear of an event in a place."""
        return bool(self._configured.of(event)) or (self._pins is not None and place.workspace.path in self._pins.all())

    async def _fire(self, event: str, names: Sequence[str], told: Mapping[str, JsonValue], place: Place) -> HookReply:
        if self._pins is None or self._copies is None or place.workspace.path not in self._pins.all():
            return await self._run(event, names, told, place, (self._configured.of(event), None))
        async with self._copies.held():
            return await self._run(event, names, told, place, await self._hooks_of(event, place))

    async def _run(
        self,
        event: str,
        names: Sequence[str],
        told: Mapping[str, JsonValue],
        place: Place,
        found: tuple[tuple[Hook, ...], HookAnswer | None],
    ) -> HookReply:
        configured, complaint = found
        if not configured and complaint is None:
            return _NOTHING
        # The same program that stands in two files runs once.
        chosen = {hook.action: (hook, name) for hook in reversed(configured) if (name := hook.matcher.finds(names)) is not None}
        meant = tuple(reversed(chosen.values()))
        said = [(hook.name, each) for (hook, _), each in zip(meant, await self._ask(event, meant, told, place), strict=True)]
        if complaint:
            said.append(("workspace-hooks" if complaint.failure else "workspace-changed", complaint))
        for name, each in said:
            await self._remember(event, name, each, place)
        return merge(event, said)

    async def _hooks_of(self, event: str, place: Place) -> tuple[tuple[Hook, ...], HookAnswer | None]:
        """Return the hooks of an event; where trusted ones are gone or altered, a guard may be missing, and a human is asked instead."""
        own = self._configured.of(event)
        pins = None if self._pins is None else self._pins.all()
        if pins is None or place.workspace.path not in pins:
            return own, None
        hooks, said = await asyncio.to_thread(self._pinned_hooks, event, place, pins)
        return (*own, *hooks), said if said is None or said.failure or event == "PreToolUse" else None

    def _pinned_hooks(self, event: str, place: Place, pins: Mapping[str, str]) -> tuple[tuple[Hook, ...], HookAnswer | None]:
        """Return a workspace's hooks of an event as they may run, or what is to be said instead.

        INVARIANT: what runs is what was looked at. A program that could be exchanged in between is copied out of the look itself.
        """
        workspace = place.workspace.path
        changed = f"the hooks of `{workspace}` are not those that were trusted and do not run; see `curtainwall hooks list`"
        try:
            found = workspace_hooks(workspace, pins)
            if found.trust is not HookTrust.PINNED or self._copies is None:
                return (), HookAnswer(effect="ask", refusal=changed)
            is_free = place.workspace.own or place.mode is Mode.BYPASS
            hooks = self._copies.hooks(found, event, is_free=is_free)
            return tuple(explaining_hook(hook, found, is_free=is_free) for hook in hooks), None
        except Broken:
            return (), HookAnswer(effect="ask", refusal=changed)
        except OSError as fault:
            return (), HookAnswer(failure=f"the programs of its hooks could not be copied: {(fault.strerror or '').lower()}")

    async def _ask(self, event: str, meant: Sequence[tuple[Hook, str]], told: Mapping[str, JsonValue], place: Place) -> list[HookAnswer]:
        if not meant:
            return []
        environ = hook_environment(self._around.environ, self._around.masker, place, self._around.withheld)
        return await asyncio.gather(*(self._one(hook, _payload(event, name, told, place), environ) for hook, name in meant))

    async def _one(self, hook: Hook, told: bytes, environ: Mapping[str, str]) -> HookAnswer:
        async with self._slots:
            try:
                if isinstance(hook.action, CommandHook):
                    ran = await run_program(hook.runs or hook.action, told, environ, hook.directory, hook.seconds)
                else:
                    ran = await post_event(hook.action, told, environ, hook.seconds)
            except Exception as fault:  # noqa: BLE001 - whatever goes wrong around a hook, it has not said yes
                ran = HookRun(failure=f"it could not be run ({type(fault).__name__})")
        said = await asyncio.to_thread(read_reply, hook.event, ran)
        return _masked(explain_failure(said, hook, ran), self._around.masker)

    async def _remember(self, event: str, name: str, said: HookAnswer, place: Place) -> None:
        """Note what would otherwise be nowhere: a denial or an ask stands in the log by itself."""
        told: dict[str, JsonValue] = {key: text for key in ("context", "warning") if (text := getattr(said, key))}
        if said.failure and event != "PreToolUse":
            told["failure"] = said.failure
        if said.refusal is not None and event != "PreToolUse":
            told["refusal" if may_refuse(event) else "failure"] = said.refusal
        if said.stopped is not None:
            told["stopped"] = said.stopped
        if told:
            await self._keep(place, event, name, told)

    async def _keep(self, place: Place, event: str, name: str, told: Mapping[str, JsonValue]) -> None:
        try:
            await self._note(place.session, {"event": event, "hook": name, **told})
        except CurtainwallError as fault:
            # A session that has ended takes no notes.
            logging.getLogger(__name__).warning("hook %s of %s: %s (not in the log: %s)", name, event, json.dumps(dict(told)), fault)


def _payload(event: str, name: str, told: Mapping[str, JsonValue], place: Place) -> bytes:
    payload: dict[str, JsonValue] = {
        "session_id": place.session,
        "cwd": place.workspace.path,
        "permission_mode": _MODES[place.mode],
        "hook_event_name": event,
        **told,
    }
    if event in {"PreToolUse", "PostToolUse"}:
        payload["tool_name"] = name
        given = told["tool_input"]
        if name in CLAUDE_NAMES and isinstance(given, dict):
            payload["tool_input"] = _as_claude_names_it(given)
    return json.dumps(payload).encode()


def _as_claude_names_it(given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a call's arguments with the path also under the name that hooks written for Claude Code look for."""
    return {**given, "file_path": given["path"]} if "path" in given else dict(given)


def _matched(event: HookEvent) -> str:
    """Return what the matcher of an event is compared with."""
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


def _masked(said: HookAnswer, masker: Masker) -> HookAnswer:
    """Return the same without secrets; arguments are masked with the subject that they become."""

    def clean(text: str) -> str:
        return masker.mask_text(text) if text else text

    return replace(
        said,
        failure=clean(said.failure),
        refusal=None if said.refusal is None else clean(said.refusal),
        context=clean(said.context),
        stopped=None if said.stopped is None else clean(said.stopped),
        warning=clean(said.warning),
    )
