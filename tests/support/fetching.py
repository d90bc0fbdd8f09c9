"""A session with the real gate, policy and fetch tool, in a network where one address of this machine counts as public."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.host import Credentials, Dialler
from curtainwall.model import Answer, CallRequest, CallRequested, Presence, Scope, SessionId
from curtainwall.policy import Lists
from curtainwall.runtime import SessionGate, SessionRegistry, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from curtainwall.tools.fetch.tool import Fetch, FetchLimits, scopes
from tests.support.houses import events, house, open_session, policy
from tests.support.sites import PUBLIC, FakeNames


def scope_of(address: str, port: int) -> Scope:
    """Return the real scope of an address, except for the one that the tests call public."""
    return Scope.PUBLIC if address == PUBLIC else scopes()(address, port)


@dataclass(frozen=True)
class Web:
    """One session that fetches."""

    house: SessionRegistry
    gate: SessionGate
    session: SessionId
    names: FakeNames

    async def get(self, url: str, *, wait: bool = True, **arguments: JsonValue) -> Answer:
        request = CallRequest(tool="fetch.get", arguments={"url": url, **arguments})
        return await asyncio.wait_for(self.gate.request(self.session, request, wait=wait), 90)

    @property
    def requested(self) -> list[str]:
        """Return the URL of every call in the log, hops included, in order."""
        return [str(event.subject.raw.get("url")) for event in events(self.house, self.session) if isinstance(event, CallRequested)]


def told(answer: Answer) -> Any:
    """Return what the agent gets."""
    assert answer.result is not None, answer.verdict
    return answer.result.value


@asynccontextmanager
async def web(
    workspace: Path,
    listed: Sequence[str] = (),
    limits: FetchLimits | None = None,
    masker: Masker | None = None,
    credentials: Credentials | None = None,
) -> AsyncGenerator[Web]:
    """Open a session whose listed hosts are free to fetch from."""
    names, masks = FakeNames(), masker or Masker(b"k" * 32)
    rules = Rules(policy=policy(lists=Lists(hosts=tuple(listed))))
    async with house(MemoryStore(SystemClock()), rules) as opened:
        session = await open_session(opened, workspace)

        async def ask_again(where: SessionId, request: CallRequest, presence: Presence) -> Answer:
            return await gate.request(where, request, presence=presence)

        fetch = Fetch(Dialler(scope_of, names), masks, credentials, ask_again, limits)
        tools = NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=masks, runners={"fetch.get": fetch.run})
        gate = SessionGate(opened, tools)
        yield Web(opened, gate, session, names)
