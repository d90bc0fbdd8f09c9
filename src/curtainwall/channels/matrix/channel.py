"""The Matrix channel: one session per room, heard and answered over one device of one user."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from curtainwall.channels.matrix.asks import RoomAsks
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
from curtainwall.model import Broken, CurtainwallError, Marks, TryLater

_LONGEST_TOKEN: Final = 4_096
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

_OTHER_KEYS: Final = (
    "the homeserver knows device `{device}` of `{user}` with other keys than those in `{directory}`, so nobody could talk to it: "
    "put the old ones back, or set another `device` under `[matrix]`"
)

_CORRECT_IT: Final = "it is not tried again: correct it, and restart `curtainwall serve` or change `[matrix]`"

FindAccount = Callable[[], Awaitable[Account]]
"""Finds out who we are on the homeserver, with the secret that goes with it."""


@dataclass(frozen=True, slots=True)
class MatrixSettings:
    """What the configuration says besides who we are: with whom, where, whose devices, and how fast."""

    people: People
    rooms: frozenset[str] = frozenset()
    pinned: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    pace: ReplyPace = field(default_factory=ReplyPace)
    wait: int = 25

    def may_enter(self, room: str, inviter: str) -> bool:
        """Tell whether an invitation is taken: into a room of the list, or, without a list, from an operator."""
        return room in self.rooms if self.rooms else self.people.may_control(inviter)

    def serves_room(self, room: str) -> bool:
        """Tell whether what is said in a room concerns us."""
        return room.startswith("!") and is_one_word(room) and (not self.rooms or room in self.rooms)

    @property
    def wanted(self) -> Mapping[str, object]:
        """What the homeserver should send, and no more than that."""
        nothing: dict[str, object] = {"not_types": ["*"]}
        rooms: dict[str, object] = {"rooms": sorted(self.rooms)} if self.rooms else {}
        state = {"types": ["m.room.member", "m.room.encryption", "m.room.name"], "lazy_load_members": True}
        return {
            "presence": nothing,
            "account_data": nothing,
            "room": {**rooms, "timeline": TIMELINE, "state": state, "ephemeral": nothing, "account_data": nothing},
        }


@dataclass(frozen=True, slots=True)
class MatrixPorts:
    """What the channel is given by the house."""

    doors: RoomRouter
    places: AskPlaces
    line: ChannelPorts
    marks: Marks
    log_places: LogPlaces


class MatrixChannel:
    """The channel as a service: it runs until cancelled, and says how it is."""

    def __init__(self, find_account: FindAccount, terms: MatrixSettings, house: MatrixPorts, report: MatrixReport) -> None:
        self._find_account = find_account
        self._terms = terms
        self._house = house
        self._memory = Memory(house.marks, terms.people.own)
        self._report = report
        self._trouble = "it has not reached the homeserver yet"

    @property
    def name(self) -> str:
        """What people call it."""
        return "matrix"

    def health(self) -> str:
        """Return what is wrong, or nothing."""
        return self._trouble

    async def run(self) -> None:
        """Hear and answer until cancelled."""
        quiet_library()
        try:
            await self._run_as(await self._find_account())
        except LoginRefused as fault:
            await self._give_up(f"{fault}; {_CORRECT_IT}")
        except ExceptionGroup as faults:
            raise _first_of(faults) from faults

    async def _give_up(self, why: str) -> None:
        """Say why we are not let in, also to whoever looks later, and wait until another takes our place."""
        self._report(why, is_trouble=True)
        self._trouble = why
        await self._memory.keep_not_let_in(why)
        await asyncio.Event().wait()

    async def _run_as(self, account: Account) -> None:
        house, terms = self._house, self._terms
        with account.locked():
            async with open_homeserver(account) as homeserver:
                await self._memory.keep_not_let_in("")
                await self._memory.tidy()
                sealing = DeviceKeys(homeserver.client, terms.pinned)
                self._report(f"this is {account.user}, device {account.device}, fingerprint {grouped_fingerprint(sealing.fingerprint)}")
                if await homeserver.fingerprint() not in (None, sealing.fingerprint):
                    raise Broken(_OTHER_KEYS.format(device=account.device, user=account.user, directory=account.directory))
                outbox = MatrixOutbox(homeserver, sealing, self._memory)
                hearing = RoomInbox(house.doors, house.line, terms.people, outbox, self._memory, house.log_places)
                async with asyncio.TaskGroup() as tasks:
                    operators = sorted(terms.people.operators)
                    rooms = Rooms(house.doors, house.line, outbox, self._memory, terms.pace, operators, tasks)
                    tasks.create_task(rooms.follow(), name="rooms that lead elsewhere")
                    left = DepartedRooms(house.places, self._memory, account.user, self._report)
                    ear = _SyncLoop(homeserver, sealing, outbox, hearing, rooms, left, self._memory, terms)
                    await self._listen(ear)

    async def _listen(self, ear: "_SyncLoop") -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                await ear.hear()
            except (TryLater, ClientError, TimeoutError, LocalProtocolError) as fault:
                # Nothing is lost: what was not taken in whole is asked for again.
                words = str(fault) or type(fault).__name__
                if words != self._trouble:
                    self._report(words)
                self._trouble = words
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except HomeserverRefused as fault:
                raise Broken(str(fault)) from fault
            else:
                self._trouble, pause = "", _FIRST_PAUSE


@dataclass(slots=True)
class _SyncLoop:
    """One look at a time at what is new; what a look brought is done before it counts as heard."""

    homeserver: Homeserver
    sealing: DeviceKeys
    outbox: MatrixOutbox
    hearing: RoomInbox
    rooms: Rooms
    left: DepartedRooms
    memory: Memory
    terms: MatrixSettings
    is_first: bool = True
    _heard: list[str] = field(default_factory=list[str])

    async def hear(self) -> None:
        """Take in what is new, whole, and remember that it is.

        INVARIANT: the token is kept after everything that came with it is done. A crash before that brings it again, under the same ids.
        """
        since = self.memory.get("token")
        # The library knows no rooms after a restart, so their state is wanted once again.
        told = await self.homeserver.sync(since, self.terms.wanted, wait=0 if self.is_first else self.terms.wait, whole=self.is_first)
        token = text_of(told.get("next_batch"), _LONGEST_TOKEN)
        if token is None:
            raise TryLater("the homeserver's answer makes no sense")
        keys_came = await self.sealing.take(told)
        await self.sealing.maintain()
        found = table(told.get("rooms"))
        for room, info in table(found.get("join")).items():
            if self.terms.serves_room(room):
                await self._read_room(room, table(info), since)
        for room, info in table(found.get("leave")).items():
            was_in = self.rooms.leave(room)
            if self.terms.serves_room(room):
                await self.left.leave(room, table(info), was_in=was_in)
        await self.left.look()
        if keys_came or self.is_first:
            await self._try_again()
        await self.hearing.sum_up(token)
        await self._accept(found)
        await self.memory.settle()
        await self.memory.set({"token": token, **stale_names(self._heard, self.memory)})
        self._heard.clear()
        self.is_first = False

    async def _read_room(self, room: str, info: Raw, since: str | None) -> None:
        await self.left.come_back(room)
        asking = self.rooms.enter(room)
        if (called := room_name(info)) is not None:
            self.hearing.called[room] = called
        try:
            missed = await events_since(self.homeserver, room, info, since, self.homeserver.account.user)
        except HomeserverRefused:
            # We were sent out of the room meanwhile.
            return
        if missed.cut:
            text = f"more was written here than can be read at once; of what came before the last {MOST} messages nothing was taken"
            words = RoomMessage(text, notice=True)
            await retry(lambda: self.outbox.say(room, f"{room} cut {since}", words), tries=3)
        for raw in missed.events:
            await self._take(raw, room, asking)

    async def _take(self, raw: Raw, room: str, asking: RoomAsks) -> None:
        event = read_event(raw, room)
        if event is None or event.head.sender == self.homeserver.account.user:
            return
        self._heard.append(event.head.event)
        try:
            if isinstance(event, EncryptedEvent):
                await self._open(event, asking, is_new=True)
            else:
                await self.hearing.take(event, encrypted=self.sealing.is_encrypted(room), asking=asking)
        except (CurtainwallError, ClientError, OSError, TimeoutError):
            raise
        except Exception as fault:  # noqa: BLE001 - one event that we are not up to must not keep all others from being heard
            await self.hearing.refuse(event.head, f"this was not taken: a fault of ours, {type(fault).__name__}")

    async def _open(self, sealed: EncryptedEvent, asking: RoomAsks, *, is_new: bool) -> None:
        opened = await self.sealing.open(sealed)
        if opened is None:
            if is_new and self.terms.people.may_talk(sealed.head.sender):
                await self.memory.keep_sealed(sealed)
                await self._report_unreadable(sealed)
            return
        if not is_new:
            await self.memory.drop_sealed(sealed)
        if opened.fault:
            await self._remark(sealed, f"this was not taken: {opened.fault}")
            return
        # Nothing of strangers is taken, and however much they write, it must not crowd out what others wrote.
        is_taken = self.terms.people.may_talk(sealed.head.sender)
        if is_taken and await self.memory.is_repeated(opened.twin, sealed.head.event):
            await self._remark(
                sealed, "this was not taken: the same encrypted bytes were here before, so somebody on the way repeated them"
            )
            return
        event = read_event(opened.raw, sealed.head.room, sealed=True)
        if event is not None:
            await self.hearing.take(event, encrypted=True, asking=asking)

    async def _report_unreadable(self, sealed: EncryptedEvent) -> None:
        """Say that something cannot be read, once for everything that was encrypted with the same key."""
        key = text_of(table(sealed.raw.get("content")).get("session_id")) or sealed.head.event
        name = f"unreadable {sealed.head.room} {key}"
        if self.memory.get(name) is None:
            text = f"what {sealed.head.sender} wrote cannot be decrypted yet; it is kept and taken up when its key comes, or write it again"
            await self.hearing.refuse(sealed.head, text)
            await self.memory.set({name: sealed.head.event})

    async def _remark(self, sealed: EncryptedEvent, text: str) -> None:
        if self.terms.people.may_talk(sealed.head.sender):
            await self.hearing.refuse(sealed.head, text)

    async def _try_again(self) -> None:
        """Open what could not be opened before, where its key has come."""
        for sealed in tuple(self.memory.sealed()):
            if self.terms.serves_room(sealed.head.room):
                await self._open(sealed, self.rooms.enter(sealed.head.room), is_new=False)

    async def _accept(self, found: Raw) -> None:
        for room, inviter in invitations(found, self.homeserver.account.user):
            if self.terms.serves_room(room) and self.terms.may_enter(room, inviter):
                try:
                    await self.homeserver.join(room)
                except HomeserverRefused:
                    continue


def _first_of(fault: Exception) -> Exception:
    """Return what went wrong first among things that ran side by side."""
    while isinstance(fault, ExceptionGroup):
        fault = cast("ExceptionGroup[Exception]", fault).exceptions[0]
    return fault


def grouped_fingerprint(fingerprint: str) -> str:
    """Return a fingerprint in groups that people can compare."""
    groups: Sequence[str] = [fingerprint[start : start + 4] for start in range(0, len(fingerprint), 4)]
    return " ".join(groups)
