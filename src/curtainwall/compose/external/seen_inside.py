"""Answers of the gate as an agent in a container can use them: paths of its workspace under the name by which it knows them."""

import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from curtainwall.model import Answer, CallId, CallRequest, Gate, Presence, Save, SessionId, ToolResult

# What these return is somebody's text, and has to come back as it was.
_WORD_FOR_WORD = ("filesystem.read_", "filesystem.edit_", "fetch.", "shell.", "git.")


class SeenInside:
    """The gate, seen from inside a container."""

    def __init__(self, gate: Gate, workspace: str, inside: str) -> None:
        self._gate = gate
        self._inside = inside
        self._outside = re.compile(rf"{re.escape(workspace)}(?![\w.-])")

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Walk the ten steps, and speak of the workspace as the agent does."""
        answer = await self._gate.request(session, request, wait=wait, save=save, presence=presence)
        verdict = answer.verdict.model_copy(update={"reason": self._seen(answer.verdict.reason)})
        result = answer.result
        if result is not None and not (result.ok and request.tool.startswith(_WORD_FOR_WORD)):
            result = ToolResult(ok=result.ok, value=self._seen(result.value))
        return replace(answer, verdict=verdict, result=result)

    async def go_on(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Go on with a call that was asked for."""
        return await self._gate.go_on(session, call, arguments)

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Let go of a call that nobody waits for any more."""
        await self._gate.drop(session, call, why)

    def _seen(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._outside.sub(self._inside, value)
        if isinstance(value, list):
            return [self._seen(each) for each in value]
        return {self._outside.sub(self._inside, key): self._seen(each) for key, each in value.items()} if isinstance(value, dict) else value
