"""The homeserver: our login, requests with retries, and the events since the last sync. It knows nothing of sessions or policy."""

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from curtainwall.channels.matrix.events import Raw, rows, table, text_of
from curtainwall.channels.matrix.library import AsyncClient, AsyncClientConfig, ClientError, LoginResponse
from curtainwall.model import Broken, CommandRefused, TryLater, record

_LONGEST_TOKEN = 4_096


class LoginRefused(Broken):
    """The login is wrong or missing. Retrying does not help and might lock the account; the user has to correct it."""


@record
class Account:
    """How to reach a homeserver and log in; either a password or a token is set."""

    homeserver: str
    user: str
    device: str
    directory: Path
    seal: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def store(self) -> str:
        """The name of the file that holds the keys of our device."""
        return f"{_file_name(self.user)}_{_file_name(self.device)}.db"

    def stored_token(self) -> str | None:
        """Return the token that this device received before; None if there is none or it belongs to another device."""
        try:
            stored = table(json.loads(self._token_file.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return None
        if (stored.get("homeserver"), stored.get("user"), stored.get("device")) != (self.homeserver, self.user, self.device):
            return None
        return text_of(stored.get("token"), _LONGEST_TOKEN)

    def store_token(self, token: str) -> None:
        """Store a token for the next start, readable only by its owner."""
        content = {"homeserver": self.homeserver, "user": self.user, "device": self.device, "token": token}
        draft = self._token_file.with_suffix(".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._token_file)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock for this user in this home; raise `TryLater` if another process holds it."""
        path = self.directory / f"{_file_name(self.user)}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise TryLater(f"another process speaks as `{self.user}` already; stop it, or wait until it ends") from None
        try:
            yield
        finally:
            os.close(descriptor)

    @property
    def _token_file(self) -> Path:
        return self.directory / f"{_file_name(self.user)}.json"


def _file_name(name: str) -> str:
    """Return a file name made from a user or device id."""
    if not name or len(name) > 200:
        raise Broken("a Matrix user and a device have names of at most 200 characters")
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)


_LARGEST: Final = 64 * 1024 * 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_TRIES: Final = 8
_LONGEST_CODE: Final = 100
_SURELY_WRONG: Final = frozenset({"M_FORBIDDEN", "M_USER_DEACTIVATED", "M_UNKNOWN_TOKEN"})
"""Error codes for a password or token that stays wrong until someone changes it."""
_NAME: Final = "Curtainwall"
_PATH: Final = "/_matrix/client/v3"


class HomeserverRefused(CommandRefused):
    """The homeserver understood the request and refuses it; retrying does not help. `code` is its error code."""

    def __init__(self, words: str, code: str = "") -> None:
        super().__init__(words)
        self.code = code


class Homeserver:
    """One device's connection."""

    def __init__(self, account: Account, client: AsyncClient) -> None:
        self.account = account
        self.client = client

    async def request(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, wait: float = 60, tries: int = _TRIES
    ) -> Raw:
        """Return the homeserver's answer; raise `HomeserverRefused`, or `TryLater` if it cannot be reached after some tries.

        If the homeserver says how long to wait, it waits that long.
        """
        pause = _FIRST_PAUSE
        for attempt in range(tries):
            try:
                status, answer = await self._once(method, path, body, wait)
            except (ClientError, TimeoutError, OSError) as error:
                if attempt + 1 == tries:
                    raise unreachable(self.account, error) from error
            else:
                if status < 400:
                    return answer
                if status != 429 and status < 500:
                    code = str(answer.get("errcode", status))[:_LONGEST_CODE]
                    raise HomeserverRefused(f"the homeserver refused: {code}: {str(answer.get('error', ''))[:200]}", code)
                if attempt + 1 == tries:
                    raise TryLater(f"the homeserver is in trouble: it answers {status}")
                pause = max(pause, _requested_pause(answer))
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
            raise HomeserverRefused("the homeserver sends more than can be read at once")
        try:
            return response.status, table(json.loads(content))
        except (ValueError, RecursionError):
            return (response.status if response.status >= 400 else 502), {}

    async def sync(self, since: str | None, filter_: Mapping[str, object], *, wait: int, whole: bool = False) -> Raw:
        """Return what happened since a token, waiting up to `wait` seconds for news; `whole` requests the full state of the rooms."""
        query = {"filter": json.dumps(filter_), "timeout": str(wait * 1000), "set_presence": "online"}
        query |= {"since": since} if since else {}
        query |= {"full_state": "true"} if whole else {}
        # The first sync of many rooms takes a homeserver a long time.
        return await self.request("GET", f"/sync?{urlencode(query)}", wait=wait + 120, tries=2)

    async def fingerprint(self) -> str | None:
        """Return the fingerprint that the homeserver has for our device, if any."""
        user, device = self.account.user, self.account.device
        try:
            answer = await self.request("POST", "/keys/query", {"device_keys": {user: [device]}})
        except HomeserverRefused:
            return None
        device_keys = table(table(table(answer.get("device_keys")).get(user)).get(device))
        return text_of(table(device_keys.get("keys")).get(f"ed25519:{device}"))

    async def messages_before(self, room: str, start: str, end: str, filter_: Mapping[str, object]) -> Raw:
        """Return a page of messages in a room between two points, newest first."""
        query = {"dir": "b", "from": start, "to": end, "limit": "100", "filter": json.dumps(filter_)}
        return await self.request("GET", f"/rooms/{quote(room, safe='')}/messages?{urlencode(query)}")

    async def join(self, room: str) -> None:
        """Join a room that we are invited to or that is public."""
        await self.request("POST", f"/rooms/{quote(room, safe='')}/join", {})

    async def create_direct(self, person: str) -> str:
        """Make an encrypted room with one person, who is invited, and return its id."""
        encryption = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        body = {"preset": "private_chat", "is_direct": True, "name": _NAME, "invite": [person], "initial_state": [encryption]}
        room = text_of((await self.request("POST", "/createRoom", body)).get("room_id"))
        if room is None or not room.startswith("!"):
            raise TryLater("the homeserver's answer makes no sense")
        return room

    async def invite(self, room: str, person: str) -> None:
        """Invite somebody into a room."""
        await self.request("POST", f"/rooms/{quote(room, safe='')}/invite", {"user_id": person})

    async def membership(self, room: str, person: str) -> str:
        """Return whether somebody is in a room: `join`, `invite`, `leave` or `ban`; "" if we cannot know."""
        try:
            path = f"/rooms/{quote(room, safe='')}/state/m.room.member/{quote(person, safe='')}"
            return text_of((await self.request("GET", path)).get("membership")) or ""
        except HomeserverRefused:
            return ""

    async def typing(self, room: str, *, seconds: int) -> None:
        """Show a typing notification for this many seconds; 0 ends it."""
        path = f"/rooms/{quote(room, safe='')}/typing/{quote(self.account.user, safe='')}"
        content: dict[str, object] = {"typing": True, "timeout": seconds * 1000} if seconds else {"typing": False}
        await self.request("PUT", path, content, wait=10, tries=1)


def unreachable(account: Account, error: Exception) -> TryLater:
    """Return the error for a homeserver that does not answer, with its address and the system's reason if there is one."""
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number).lower() if number is not None and number > 0 else getattr(error, "strerror", None)
    reason = reason or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
    return TryLater(f"the homeserver `{account.homeserver}` cannot be reached: {reason}")


@asynccontextmanager
async def open_homeserver(account: Account) -> AsyncGenerator[Homeserver]:
    """Log in as the account's device, with its keys loaded, until the context is left."""
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
    token = account.token or account.stored_token()
    try:
        if token is not None:
            await _verify_token(account, client, token)
            client.restore_login(account.user, account.device, token)
            return
    except HomeserverRefused as refusal:
        client.access_token = ""
        if account.password is None:
            words = f"the homeserver does not take the token of `{account.user}`; set another, or a password"
            raise (LoginRefused(words) if refusal.code in _SURELY_WRONG else TryLater(f"{words} ({refusal.code})")) from None
    assert account.password is not None
    try:
        response = await client.login(account.password, device_name=_NAME)
    except (ClientError, TimeoutError, OSError) as error:
        raise unreachable(account, error) from error
    if not isinstance(response, LoginResponse):
        raise _login_fault(account, str(response.status_code), str(response.message))
    if response.user_id != account.user or response.device_id != account.device:
        raise Broken(f"the homeserver knows us as `{response.user_id}`, device `{response.device_id}`; write these into the configuration")
    account.store_token(response.access_token)


async def _verify_token(account: Account, client: AsyncClient, token: str) -> None:
    """Raise `HomeserverRefused` if the token is no longer valid, and `Broken` if it does not belong to our device."""
    client.access_token = token
    answer = await Homeserver(account, client).request("GET", "/account/whoami", tries=3)
    user, device = text_of(answer.get("user_id")), text_of(answer.get("device_id"))
    if (user, device) != (account.user, account.device):
        raise Broken(f"the token belongs to `{user}`, device `{device}`; write these into the configuration, or set another token")


def _login_fault(account: Account, code: str, words: str) -> Exception:
    if code in _SURELY_WRONG:
        return LoginRefused(f"the homeserver does not let `{account.user}` in: {words[:200]}")
    return TryLater(f"the homeserver did not answer to the login: {words[:200] or code}")


def _requested_pause(answer: Raw) -> float:
    millis = answer.get("retry_after_ms")
    return min(millis / 1000, _LONGEST_PAUSE) if isinstance(millis, int) and millis > 0 else 0.0


def quiet_library() -> None:
    """Keep the library's log lines out of our logs; some quote messages."""
    for name in ("nio", "peewee"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


MOST: Final = 5_000
"""How many missed events to fetch; beyond that, only the newest count."""

EVENT_TYPES: Final = (
    "m.room.message",
    "m.room.encrypted",
    "m.reaction",
    "m.room.redaction",
    "m.room.member",
    "m.room.encryption",
    "m.room.name",
)
_PAGE_SIZE: Final = 100
_LONGEST_CURSOR: Final = 4_096

TIMELINE: Final[dict[str, object]] = {"limit": _PAGE_SIZE, "types": list(EVENT_TYPES), "lazy_load_members": True}


@record
class MissedEvents:
    """The missed events, and whether there were more than could be fetched."""

    events: Sequence[Raw]
    cut: bool = False


async def events_since(homeserver: Homeserver, room: str, info: Raw, since: str | None, own: str) -> MissedEvents:
    """Return the events of a room since a token; in a room that we have just joined, those since joining."""
    timeline = table(info.get("timeline"))
    events = list(rows(timeline.get("events")))
    start = text_of(timeline.get("prev_batch"), _LONGEST_CURSOR)
    cut = False
    if since is not None and timeline.get("limited") is True and start is not None:
        older, cut = await _older_events(homeserver, room, start, since, own)
        events = [*older, *events]
    return MissedEvents(_after_our_join(events, own, is_first=since is None), cut)


async def _older_events(homeserver: Homeserver, room: str, start: str, since: str, own: str) -> tuple[list[Raw], bool]:
    events: list[Raw] = []
    while len(events) < MOST:
        answer = await homeserver.messages_before(room, start, since, TIMELINE)
        page = rows(answer.get("chunk"))
        events += page
        end = text_of(answer.get("end"), _LONGEST_CURSOR)
        if end is None or end == start or not page or any(_is_our_join(raw, own) for raw in page):
            return list(reversed(events)), False
        start = end
    return list(reversed(events)), True


def _after_our_join(events: Sequence[Raw], own: str, *, is_first: bool) -> Sequence[Raw]:
    """Return the events after we joined; on the very first sync, everything earlier is history."""
    joins = [index for index, raw in enumerate(events) if _is_our_join(raw, own)]
    if joins:
        return events[joins[-1] + 1 :]
    return () if is_first else events


def _is_our_join(raw: Raw, own: str) -> bool:
    """Tell whether this event is our joining the room; a change of our display name looks similar."""
    if raw.get("type") != "m.room.member" or raw.get("state_key") != own:
        return False
    before = table(table(raw.get("unsigned")).get("prev_content")).get("membership")
    return table(raw.get("content")).get("membership") == "join" and before != "join"
