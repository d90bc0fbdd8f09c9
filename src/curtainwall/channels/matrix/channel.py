"""The Matrix channel: one session per room, served by one device of one user."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from curtainwall.channels.matrix.asks import RoomAsks
from curtainwall.channels.matrix.direct import DirectRooms
from curtainwall.channels.matrix.encryption import DeviceKeys
from curtainwall.channels.matrix.events import EncryptedEvent, Raw, invitations, is_one_word, read_event, room_name, table, text_of
from curtainwall.channels.matrix.homeserver import (
    MOST,
    TIMELINE,
    Account,
    Homeserver,
    HomeserverRefused,
    LoginRefused,
    events_since,
    open_homeserver,
    quiet_library,
)
from curtainwall.channels.matrix.inbox import People, RoomInbox, RoomRouter, stale_names
from curtainwall.channels.matrix.library import ClientError, LocalProtocolError
from curtainwall.channels.matrix.memory import Memory
from curtainwall.channels.matrix.outbox import MatrixOutbox, RoomMessage
from curtainwall.channels.matrix.replies import ReplyPace, retry
from curtainwall.channels.matrix.rooms import AskPlaces, DepartedRooms, MatrixReport, Rooms
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash import LogPlaces
from curtainwall.model import Broken, CurtainwallError, Marks, TryLater, record

_LONGEST_TOKEN: Final = 4_096
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

_OTHER_KEYS: Final = (
    "the homeserver knows device `{device}` of `{user}` with other keys than those in `{directory}`, so nobody could talk to it: "
    "put the old ones back, or set another `device` under `[matrix]`"
)

_CORRECT_IT: Final = "it is not tried again: correct it, and restart `curtainwall serve` or change `[matrix]`"

FindAccount = Callable[[], Awaitable[Account]]
"""Resolves our account on the homeserver, including its secret."""


@record
class MatrixSettings:
    """The configuration besides the account: people, rooms, pinned devices, and pace."""

    people: People
    rooms: frozenset[str] = frozenset()
    pinned: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    pace: ReplyPace = field(default_factory=ReplyPace)
    wait: int = 25

    def may_enter(self, room: str, inviter: str) -> bool:
        """Tell whether to accept an invitation: into a listed room or, without a list, from an operator."""
        return room in self.rooms if self.rooms else self.people.may_control(inviter)

    def serves_room(self, room: str) -> bool:
        """Tell whether we serve a room."""
        return room.startswith("!") and is_one_word(room) and (not self.rooms or room in self.rooms)

    def sync_filter(self, direct: Iterable[str]) -> Mapping[str, object]:
        """Return the sync filter: only what we need, and the direct rooms."""
        nothing: dict[str, object] = {"not_types": ["*"]}
        rooms: dict[str, object] = {"rooms": sorted({*self.rooms, *direct})} if self.rooms else {}
        state = {"types": ["m.room.member", "m.room.encryption", "m.room.name"], "lazy_load_members": True}
        return {
            "presence": nothing,
            "account_data": nothing,
            "room": {**rooms, "timeline": TIMELINE, "state": state, "ephemeral": nothing, "account_data": nothing},
        }


@record
class MatrixPorts:
    """The parts of the runtime that the channel uses."""

    router: RoomRouter
    places: AskPlaces
    line: ChannelPorts
    marks: Marks
    log_places: LogPlaces


class MatrixChannel:
    """The channel as a service: it runs until cancelled and reports its health."""

    def __init__(self, find_account: FindAccount, settings: MatrixSettings, ports: MatrixPorts, report: MatrixReport) -> None:
        self._find_account = find_account
        self._settings = settings
        self._ports = ports
        self._memory = Memory(ports.marks, settings.people.own)
        self._report = report
        self._trouble = "it has not reached the homeserver yet"

    @property
    def name(self) -> str:
        """The service's name."""
        return "matrix"

    def health(self) -> str:
        """Return what is wrong, or ""."""
        return self._trouble

    async def run(self) -> None:
        """Serve the rooms until cancelled."""
        quiet_library()
        try:
            await self._run_as(await self._find_account())
        except LoginRefused as error:
            await self._give_up(f"{error}; {_CORRECT_IT}")
        except ExceptionGroup as errors:
            raise _first_of(errors) from errors

    async def _give_up(self, why: str) -> None:
        """Report why the login is refused, record it for later readers, and wait until this service is replaced."""
        self._report(why, is_trouble=True)
        self._trouble = why
        await self._memory.keep_not_let_in(why)
        await asyncio.Event().wait()

    async def _run_as(self, account: Account) -> None:
        ports, settings = self._ports, self._settings
        with account.locked():
            async with open_homeserver(account) as homeserver:
                await self._memory.keep_not_let_in("")
                await self._memory.tidy()
                keys = DeviceKeys(homeserver.client, settings.pinned)
                self._report(f"this is {account.user}, device {account.device}, fingerprint {grouped_fingerprint(keys.fingerprint)}")
                if await homeserver.fingerprint() not in (None, keys.fingerprint):
                    raise Broken(_OTHER_KEYS.format(device=account.device, user=account.user, directory=account.directory))
                outbox = MatrixOutbox(homeserver, keys, self._memory)
                inbox = RoomInbox(ports.router, ports.line, settings.people, outbox, self._memory, ports.log_places)
                async with asyncio.TaskGroup() as tasks:
                    operators = sorted(settings.people.operators)
                    rooms = Rooms(ports.router, ports.line, outbox, self._memory, settings.pace, operators, tasks)
                    tasks.create_task(rooms.follow(), name="rooms that lead elsewhere")
                    departed = DepartedRooms(ports.places, self._memory, account.user, self._report)
                    direct = DirectRooms(homeserver, keys, ports.places, self._memory, operators, self._report)
                    tasks.create_task(direct.follow(ports.line.feed), name="direct rooms")
                    loop = _SyncLoop(homeserver, keys, outbox, inbox, rooms, departed, direct, self._memory, settings)
                    await self._sync_forever(loop)

    async def _sync_forever(self, loop: "_SyncLoop") -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                await loop.sync_once()
            except (TryLater, ClientError, TimeoutError, LocalProtocolError) as error:
                # Nothing is lost: what was not handled completely is requested again.
                words = str(error) or type(error).__name__
                if words != self._trouble:
                    self._report(words)
                self._trouble = words
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except HomeserverRefused as error:
                raise Broken(str(error)) from error
            else:
                self._trouble, pause = "", _FIRST_PAUSE


@dataclass(slots=True)
class _SyncLoop:
    """Syncs with the homeserver, one response at a time; a response counts only after everything in it is done."""

    homeserver: Homeserver
    keys: DeviceKeys
    outbox: MatrixOutbox
    inbox: RoomInbox
    rooms: Rooms
    departed: DepartedRooms
    direct: DirectRooms
    memory: Memory
    settings: MatrixSettings
    is_first: bool = True
    _made: int = 0
    _handled: list[str] = field(default_factory=list[str])

    async def sync_once(self) -> None:
        """Handle one sync response completely, then record its token.

        INVARIANT: the token is stored after everything that came with it is done. A crash before that brings it again, under the same ids.
        """
        since, made, direct = self.memory.get("token"), self.direct.made, self.direct.people
        # After a restart the library knows no rooms, and never one that we have made, so request their full state once.
        is_whole = self.is_first or made != self._made
        sync = await self.homeserver.sync(
            since, self.settings.sync_filter(direct), wait=0 if is_whole else self.settings.wait, whole=is_whole
        )
        token = text_of(sync.get("next_batch"), _LONGEST_TOKEN)
        if token is None:
            raise TryLater("the homeserver's answer makes no sense")
        keys_arrived = await self.keys.take(sync)
        await self.keys.maintain()
        rooms = table(sync.get("rooms"))
        for room, info in table(rooms.get("join")).items():
            if self._serves(room):
                await self._read_room(room, table(info), since)
        for room, info in table(rooms.get("leave")).items():
            was_in = self.rooms.leave(room)
            if self._serves(room):
                await self.departed.leave(room, table(info), was_in=was_in)
        await self.departed.hide_asks()
        if keys_arrived or self.is_first:
            await self._try_again()
        await self.inbox.sum_up(token)
        await self._accept(rooms)
        await self.memory.settle()
        await self.memory.set({"token": token, **stale_names(self._handled, self.memory)})
        self._handled.clear()
        self.is_first, self._made = False, made

    def _serves(self, room: str) -> bool:
        return self.settings.serves_room(room) or room in self.direct.people

    async def _read_room(self, room: str, info: Raw, since: str | None) -> None:
        if not await self.direct.is_ready(room):
            return
        await self.departed.restore(room)
        room_asks = self.rooms.enter(room)
        if (name := room_name(info)) is not None:
            self.inbox.room_names[room] = name
        try:
            missed = await events_since(self.homeserver, room, info, since, self.homeserver.account.user)
        except HomeserverRefused:
            # We were removed from the room meanwhile.
            return
        if missed.cut:
            text = f"more was written here than can be read at once; of what came before the last {MOST} messages nothing was taken"
            words = RoomMessage(text, notice=True)
            await retry(lambda: self.outbox.say(room, f"{room} cut {since}", words), tries=3)
        for raw in missed.events:
            await self._take(raw, room, room_asks)

    async def _take(self, raw: Raw, room: str, room_asks: RoomAsks) -> None:
        event = read_event(raw, room)
        if event is None or event.head.sender == self.homeserver.account.user:
            return
        self._handled.append(event.head.event)
        try:
            if isinstance(event, EncryptedEvent):
                await self._open(event, room_asks, is_new=True)
            else:
                await self.inbox.take(event, encrypted=self.keys.is_encrypted(room), room_asks=room_asks)
        except (CurtainwallError, ClientError, OSError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - one event that we cannot handle must not block the others
            await self.inbox.refuse(event.head, f"this was not taken: a fault of ours, {type(error).__name__}")

    async def _open(self, sealed: EncryptedEvent, room_asks: RoomAsks, *, is_new: bool) -> None:
        decrypted = await self.keys.open(sealed)
        if decrypted is None:
            if is_new and self.settings.people.may_talk(sealed.head.sender):
                await self.memory.keep_sealed(sealed)
                await self._report_unreadable(sealed)
            return
        if not is_new:
            await self.memory.drop_sealed(sealed)
        if decrypted.fault:
            await self._remark(sealed, f"this was not taken: {decrypted.fault}")
            return
        # Strangers' messages are ignored, so they must not crowd out what others wrote.
        is_allowed = self.settings.people.may_talk(sealed.head.sender)
        if is_allowed and await self.memory.is_repeated(decrypted.twin, sealed.head.event):
            await self._remark(
                sealed, "this was not taken: the same encrypted bytes were here before, so somebody on the way repeated them"
            )
            return
        event = read_event(decrypted.raw, sealed.head.room, sealed=True)
        if event is not None:
            await self.inbox.take(event, encrypted=True, room_asks=room_asks)

    async def _report_unreadable(self, sealed: EncryptedEvent) -> None:
        """Say that a message cannot be read, once per encryption key."""
        key = text_of(table(sealed.raw.get("content")).get("session_id")) or sealed.head.event
        name = f"unreadable {sealed.head.room} {key}"
        if self.memory.get(name) is None:
            text = f"what {sealed.head.sender} wrote cannot be decrypted yet; it is kept and taken up when its key comes, or write it again"
            await self.inbox.refuse(sealed.head, text)
            await self.memory.set({name: sealed.head.event})

    async def _remark(self, sealed: EncryptedEvent, text: str) -> None:
        if self.settings.people.may_talk(sealed.head.sender):
            await self.inbox.refuse(sealed.head, text)

    async def _try_again(self) -> None:
        """Decrypt stored messages whose key may have arrived."""
        for sealed in tuple(self.memory.sealed()):
            if self._serves(sealed.head.room):
                await self._open(sealed, self.rooms.enter(sealed.head.room), is_new=False)

    async def _accept(self, rooms: Raw) -> None:
        for room, inviter in invitations(rooms, self.homeserver.account.user):
            if self.settings.serves_room(room) and self.settings.may_enter(room, inviter):
                try:
                    await self.homeserver.join(room)
                except HomeserverRefused:
                    continue


def _first_of(error: Exception) -> Exception:
    """Return the first error of concurrent tasks."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def grouped_fingerprint(fingerprint: str) -> str:
    """Return a fingerprint in groups that people can compare."""
    groups: Sequence[str] = [fingerprint[start : start + 4] for start in range(0, len(fingerprint), 4)]
    return " ".join(groups)
