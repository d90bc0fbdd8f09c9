"""Encryption: stores the keys that arrive, decrypts messages, and verifies who really sent them."""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from curtainwall.channels.matrix.events import EncryptedEvent, Raw, rows, table, text_of
from curtainwall.channels.matrix.library import AsyncClient, MegolmEvent, SyncResponse, ToDeviceEvent
from curtainwall.channels.matrix.library import Event as NioEvent
from curtainwall.model import record

_KEPT_STATE: Final = ("m.room.member", "m.room.encryption")
_ENOUGH_KEYS: Final = 4_096


class Device(Protocol):
    """A user's device, as the library describes it."""

    user_id: str
    device_id: str
    ed25519: str
    curve25519: str
    verified: bool
    blacklisted: bool


@record
class DecryptedEvent:
    """The decrypted content.

    `fault` says why it cannot be attributed to its sender; `twin` is the same if the same bytes are sent again.
    """

    raw: Raw
    fault: str
    twin: str


class DeviceKeys:
    """The keys of our device. `pinned` lists, for some users, the only fingerprints that count as theirs."""

    def __init__(self, client: AsyncClient, pinned: Mapping[str, frozenset[str]]) -> None:
        self._client = client
        self._pinned = pinned

    @property
    def fingerprint(self) -> str:
        """Our own device's fingerprint, for people to compare."""
        keys = cast("Mapping[str, str]", self._olm.account.identity_keys)
        return keys["ed25519"]

    @property
    def _olm(self) -> Any:
        olm = self._client.olm
        assert olm is not None
        return olm

    async def take(self, sync: Raw) -> bool:
        """Apply the keys and memberships of a sync, all or nothing; tell whether keys arrived."""
        keys_arrived = False
        with cast("Any", self._client.store).database.atomic():
            for raw in rows(table(sync.get("to_device")).get("events")):
                keys_arrived |= self._take_to_device(raw)
            self._olm.collect_key_requests()
            response = SyncResponse.from_dict(_for_library(sync))
            self._forget_members(sync)
            if isinstance(response, SyncResponse):
                # The library skips a token that it has seen, although the state of a room that we have just made may come with it.
                self._client.next_batch = ""
                # Nothing in here waits: the library has no callbacks registered, so no other task runs inside the transaction.
                await self._client.receive_response(response)
        return keys_arrived

    def _forget_members(self, sync: Raw) -> None:
        """Mark the members of rooms with gaps in the sync as unknown: people may have come or gone, so we ask again before we send."""
        for room, info in table(table(sync.get("rooms")).get("join")).items():
            joined = self._client.rooms.get(room)
            if joined is not None and table(table(info).get("timeline")).get("limited") is True:
                joined.members_synced = False

    def _take_to_device(self, raw: Raw) -> bool:
        if not isinstance(raw.get("content"), dict) or text_of(raw.get("type")) is None or text_of(raw.get("sender")) is None:
            return False
        try:
            event = cast("Any", ToDeviceEvent).parse_event(dict(raw))
            return event is not None and self._olm.handle_to_device_event(event) is not None
        except Exception:  # noqa: BLE001 - a malformed message to our device must not stop the next one
            return False

    async def maintain(self) -> None:
        """Upload, query and claim the keys that are due."""
        client = self._client
        if client.should_upload_keys:
            await client.keys_upload()
        if client.should_query_keys:
            await client.keys_query()
        if client.should_claim_keys:
            await client.keys_claim(cast("Any", client.get_users_for_key_claiming()))
        await client.send_to_device_messages()

    def is_encrypted(self, room: str) -> bool:
        """Tell whether a room is encrypted; once encrypted it stays so, whatever the homeserver says later."""
        joined = self._client.rooms.get(room)
        return room in self._client.encrypted_rooms or (joined is not None and joined.encrypted)

    async def open(self, sealed: EncryptedEvent) -> DecryptedEvent | None:
        """Return the decrypted event, or None while its key is missing."""
        event = self._as_library_event(sealed)
        if event is None:
            return None
        try:
            decrypted = self._client.decrypt_event(event)
        except Exception:  # noqa: BLE001 - a missing key, a broken message and a wrong one all mean that it cannot be read
            return None
        inside = table(getattr(decrypted, "source", None))
        fault = await self._doubt(sealed, event)
        return DecryptedEvent(inside, fault, _twin(event))

    def _as_library_event(self, sealed: EncryptedEvent) -> MegolmEvent | None:
        raw = dict(sealed.raw)
        content = dict(table(raw.get("content")))
        session = text_of(content.get("session_id"))
        if session is None:
            return None
        # Current clients may leave these two out; the key tells whose it is.
        content["sender_key"] = self._owner_of(sealed.head.room, session) or content.get("sender_key")
        content.setdefault("device_id", "")
        raw["content"] = content
        try:
            event = NioEvent.parse_event(raw)
        except Exception:  # noqa: BLE001 - what the library cannot parse is not a message
            return None
        if not isinstance(event, MegolmEvent):
            return None
        event.room_id = sealed.head.room
        return event

    def _owner_of(self, room: str, session: str) -> str | None:
        stored = cast("Mapping[str, Mapping[str, object]]", self._olm.inbound_group_store[room])
        return next((owner for owner, sessions in stored.items() if session in sessions), None)

    async def _doubt(self, sealed: EncryptedEvent, event: MegolmEvent) -> str:
        """Return why a message cannot be attributed to its sender, or "".

        INVARIANT: the homeserver names the sender, and the key came from some device; they belong together only if that device is the
        sender's. The library checks this for verified devices only.
        """
        sender = sealed.head.sender
        session = self._olm.inbound_group_store.get(sealed.head.room, event.sender_key, event.session_id)
        if session is None or session.forwarding_chain:
            return "its key came from somebody else"
        device = self._device(sender, str(event.sender_key))
        if device is None:
            self._olm.users_for_key_query.add(sender)
            await self._client.keys_query()
            device = self._device(sender, str(event.sender_key))
        if device is None or device.ed25519 != session.ed25519:
            return "it was not encrypted by a device of its sender"
        pinned = self._pinned.get(sender)
        if pinned is not None and device.ed25519 not in pinned:
            return f"device `{device.device_id}` is none of those that the configuration names for this user"
        return ""

    def _device(self, user: str, curve: str) -> Device | None:
        return cast("Device | None", self._client.device_store.device_from_sender_key(user, curve))

    async def ready(self, room: str) -> None:
        """Before sending, make sure that only the right devices get our keys."""
        client = self._client
        joined = client.rooms.get(room)
        if joined is None or not joined.encrypted:
            return
        if not joined.members_synced:
            await client.joined_members(room)
            client.invalidate_outbound_session(room)
        if client.should_query_keys:
            await client.keys_query()
        for user in joined.users:
            for device in cast("Iterable[Any]", tuple(client.device_store.active_user_devices(user))):
                self._trust(device)

    def _trust(self, device: Any) -> None:
        pinned = self._pinned.get(device.user_id)
        if pinned is None:
            if device.blacklisted:
                self._client.unblacklist_device(device)
            if device.verified:
                self._client.unverify_device(device)
        elif device.ed25519 in pinned:
            if not device.verified:
                self._client.verify_device(device)
        elif not device.blacklisted:
            self._client.blacklist_device(device)


def _twin(event: MegolmEvent) -> str:
    """Return a digest of the encrypted bytes, independent of their base64 spelling."""
    try:
        content = base64.b64decode(event.ciphertext + "=" * (-len(event.ciphertext) % 4))
    except (binascii.Error, ValueError):
        content = event.ciphertext.encode()
    return hashlib.sha256(content).hexdigest()[:32]


def _for_library(sync: Raw) -> dict[str, object]:
    """Return the part of a sync that the library needs, without anything it could fail on."""
    counts = table(sync.get("device_one_time_keys_count"))
    lists = table(sync.get("device_lists"))
    joined = {room: _state(table(info)) for room, info in table(table(sync.get("rooms")).get("join")).items() if room.startswith("!")}
    return {
        "next_batch": text_of(sync.get("next_batch"), _ENOUGH_KEYS) or "",
        "device_one_time_keys_count": {name: count for name, count in counts.items() if isinstance(count, int)},
        "device_lists": {name: [user for user in _texts(lists.get(name)) if user.startswith("@")] for name in ("changed", "left")},
        "rooms": {"join": joined, "invite": {}, "leave": {}},
        "to_device": {"events": []},
        "presence": {"events": []},
    }


def _texts(value: object) -> Sequence[str]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [text for item in items if (text := text_of(item)) is not None]


def _state(info: Raw) -> dict[str, object]:
    state, timeline = table(info.get("state")), table(info.get("timeline"))
    return {
        "state": {"events": list(_reduced(rows(state.get("events"))))},
        "timeline": {"events": list(_reduced(rows(timeline.get("events")))), "limited": False, "prev_batch": ""},
        "ephemeral": {"events": []},
        "account_data": {"events": []},
    }


def _reduced(events: Iterable[Raw]) -> Iterator[dict[str, object]]:
    """Yield the member and encryption events, reduced to the fields that matter."""
    for raw in events:
        kind, content = raw.get("type"), table(raw.get("content"))
        if kind not in _KEPT_STATE or not isinstance(raw.get("state_key"), str):
            continue
        reduced = (
            {"membership": content.get("membership")}
            if kind == "m.room.member"
            else {"algorithm": text_of(content.get("algorithm")) or "unknown"}
        )
        event: dict[str, object] = {
            "type": kind,
            "state_key": raw.get("state_key"),
            "event_id": raw.get("event_id"),
            "sender": raw.get("sender"),
            "origin_server_ts": 0,
            "content": reduced,
        }
        try:
            parsed = NioEvent.parse_event(event)
        except Exception:  # noqa: BLE001, S112 - what the library cannot parse says nothing about the room
            continue
        if type(parsed).__name__ in ("RoomMemberEvent", "RoomEncryptionEvent"):
            yield event
