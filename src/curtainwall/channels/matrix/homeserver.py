"""The way to a homeserver: requests with patience, and the device's own account there. Knows no session and no policy."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote, urlencode

from curtainwall.channels.matrix.account import Account, NotLetIn
from curtainwall.channels.matrix.events import Raw, table, text_of
from curtainwall.channels.matrix.library import AsyncClient, AsyncClientConfig, ClientError, LoginResponse
from curtainwall.model import Broken, CommandRefused, TryLater

_LARGEST: Final = 64 * 1024 * 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_TRIES: Final = 8
_LONGEST_CODE: Final = 100
_SURELY_WRONG: Final = frozenset({"M_FORBIDDEN", "M_USER_DEACTIVATED", "M_UNKNOWN_TOKEN"})
"""What a homeserver says of a password or a token that will not become right by itself."""
_NAME: Final = "Curtainwall"
_PATH: Final = "/_matrix/client/v3"


class Refused(CommandRefused):
    """The homeserver understood and does not want to; asking again changes nothing. `code` is its own word for why."""

    def __init__(self, words: str, code: str = "") -> None:
        super().__init__(words)
        self.code = code


class Homeserver:
    """One device's connection."""

    def __init__(self, account: Account, client: AsyncClient) -> None:
        self.account = account
        self.client = client

    async def ask(self, method: str, path: str, body: Mapping[str, object] | None = None, *, wait: float = 60, tries: int = _TRIES) -> Raw:
        """Return what the homeserver answers; raise `Refused`, or `TryLater` where it cannot be reached after some tries.

        Where it says how long to wait, so long is waited.
        """
        pause = _FIRST_PAUSE
        for attempt in range(tries):
            try:
                status, told = await self._once(method, path, body, wait)
            except (ClientError, TimeoutError, OSError) as fault:
                if attempt + 1 == tries:
                    raise unreachable(self.account, fault) from fault
            else:
                if status < 400:
                    return told
                if status != 429 and status < 500:
                    code = str(told.get("errcode", status))[:_LONGEST_CODE]
                    raise Refused(f"the homeserver refused: {code}: {str(told.get('error', ''))[:200]}", code)
                if attempt + 1 == tries:
                    raise TryLater(f"the homeserver is in trouble: it answers {status}")
                pause = max(pause, _wanted_pause(told))
            await asyncio.sleep(min(pause, _LONGEST_PAUSE))
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise TryLater("the homeserver was not asked")

    async def _once(self, method: str, path: str, body: Mapping[str, object] | None, wait: float) -> tuple[int, Raw]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.client.access_token}"}
        data = None if body is None else json.dumps(body)
        response = await self.client.send(method, f"{_PATH}{path}", data, headers, timeout=wait)
        async with response:
            content = await response.content.read(_LARGEST + 1)
            while len(content) <= _LARGEST and (more := await response.content.read(_LARGEST)):
                content += more
        if len(content) > _LARGEST:
            raise Refused("the homeserver sends more than can be read at once")
        try:
            return response.status, table(json.loads(content))
        except (ValueError, RecursionError):
            return (response.status if response.status >= 400 else 502), {}

    async def sync(self, since: str | None, wanted: Mapping[str, object], *, wait: int, whole: bool = False) -> Raw:
        """Return what happened since a token, waiting for so many seconds where nothing did; `whole` brings the rooms' state again."""
        told = {"filter": json.dumps(wanted), "timeout": str(wait * 1000), "set_presence": "online"}
        told |= {"since": since} if since else {}
        told |= {"full_state": "true"} if whole else {}
        # A first look at many rooms takes a homeserver long.
        return await self.ask("GET", f"/sync?{urlencode(told)}", wait=wait + 120, tries=2)

    async def fingerprint(self) -> str | None:
        """Return the fingerprint that the homeserver has for our device, where it has one."""
        user, device = self.account.user, self.account.device
        try:
            told = await self.ask("POST", "/keys/query", {"device_keys": {user: [device]}})
        except Refused:
            return None
        known = table(table(table(told.get("device_keys")).get(user)).get(device))
        return text_of(table(known.get("keys")).get(f"ed25519:{device}"))

    async def before(self, room: str, start: str, end: str, wanted: Mapping[str, object]) -> Raw:
        """Return a page of what was said in a room before a point, newest first, down to another."""
        told = {"dir": "b", "from": start, "to": end, "limit": "100", "filter": json.dumps(wanted)}
        return await self.ask("GET", f"/rooms/{quote(room, safe='')}/messages?{urlencode(told)}")

    async def join(self, room: str) -> None:
        """Go into a room that we are invited to, or that is open."""
        await self.ask("POST", f"/rooms/{quote(room, safe='')}/join", {})

    async def typing(self, room: str, *, seconds: int) -> None:
        """Show for so long that somebody is at work; none ends it."""
        path = f"/rooms/{quote(room, safe='')}/typing/{quote(self.account.user, safe='')}"
        told: dict[str, object] = {"typing": True, "timeout": seconds * 1000} if seconds else {"typing": False}
        await self.ask("PUT", path, told, wait=10, tries=1)


def unreachable(account: Account, fault: Exception) -> TryLater:
    """Return what to raise where the homeserver does not answer: its address, and why in the system's words where it has some."""
    number = fault.errno if isinstance(fault, OSError) else None
    why = os.strerror(number).lower() if number is not None and number > 0 else getattr(fault, "strerror", None)
    why = why or ("no answer in time" if isinstance(fault, TimeoutError) else type(fault).__name__)
    return TryLater(f"the homeserver `{account.homeserver}` cannot be reached: {why}")


@asynccontextmanager
async def connected(account: Account) -> AsyncGenerator[Homeserver]:
    """Be logged in as the account's device, with its keys at hand, until the context is left."""
    config = AsyncClientConfig(store_name=account.store, pickle_key=account.seal, max_timeouts=2, request_timeout=30)
    client = AsyncClient(account.homeserver, account.user, account.device, str(account.directory), config)
    try:
        await _log_in(account, client)
        yield Homeserver(account, client)
    finally:
        await client.close()
        if client.store is not None:
            client.store.database.close()  # pyright: ignore[reportUnknownMemberType] - the library's store has no types


async def _log_in(account: Account, client: AsyncClient) -> None:
    token = account.token or account.kept_token()
    try:
        if token is not None:
            await _see_that_it_is_ours(account, client, token)
            client.restore_login(account.user, account.device, token)
            return
    except Refused as refusal:
        client.access_token = ""
        if account.password is None:
            words = f"the homeserver does not take the token of `{account.user}`; set another, or a password"
            raise (NotLetIn(words) if refusal.code in _SURELY_WRONG else TryLater(f"{words} ({refusal.code})")) from None
    assert account.password is not None
    try:
        response = await client.login(account.password, device_name=_NAME)
    except (ClientError, TimeoutError, OSError) as fault:
        raise unreachable(account, fault) from fault
    if not isinstance(response, LoginResponse):
        raise _login_fault(account, str(response.status_code), str(response.message))
    if response.user_id != account.user or response.device_id != account.device:
        raise Broken(f"the homeserver knows us as `{response.user_id}`, device `{response.device_id}`; write these into the configuration")
    account.keep_token(response.access_token)


async def _see_that_it_is_ours(account: Account, client: AsyncClient, token: str) -> None:
    """Raise `Refused` where a token is none any more, and `Broken` where it is not one of our device."""
    client.access_token = token
    told = await Homeserver(account, client).ask("GET", "/account/whoami", tries=3)
    user, device = text_of(told.get("user_id")), text_of(told.get("device_id"))
    if (user, device) != (account.user, account.device):
        raise Broken(f"the token belongs to `{user}`, device `{device}`; write these into the configuration, or set another token")


def _login_fault(account: Account, code: str, words: str) -> Exception:
    if code in _SURELY_WRONG:
        return NotLetIn(f"the homeserver does not let `{account.user}` in: {words[:200]}")
    return TryLater(f"the homeserver did not answer to the login: {words[:200] or code}")


def _wanted_pause(told: Raw) -> float:
    wanted = told.get("retry_after_ms")
    return min(wanted / 1000, _LONGEST_PAUSE) if isinstance(wanted, int) and wanted > 0 else 0.0


def quiet_library() -> None:
    """Keep the library's own remarks, some of which quote messages, out of our logs."""
    for name in ("nio", "peewee"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
