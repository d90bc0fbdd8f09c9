"""Attacks over Matrix: a homeserver that lies, and people in a room who are not who they seem to be."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.model import (
    ApprovalAnswered,
    MessageId,
    Mode,
    ModeChanged,
    Route,
    RuleDisabled,
    SendMessage,
    TurnEnded,
    Who,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.covers import covers
from tests.support.hostile_homeserver import ANN, DIRECT, EVE, ROOM, WALL, garbage, hostile, sync
from tests.support.matrix_house import Served, configure, served
from tests.support.synapse import Synapse, person
from tests.support.talking import Home, home, run
from tests.support.waiting import eventually

__all__ = ["home"]


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALL_PASSWORD", "secret")


def script(home: Home) -> str:
    """Return a model that wants to write a file outside of the workspace, which asks."""
    path = home.root.parent / "script.jsonl"
    wish = {"tool": "filesystem.write_file", "arguments": {"path": str(home.outside / "note.txt"), "content": "x"}}
    path.write_text(f"{json.dumps(wish)}\n{json.dumps({'text': 'it is written'})}\n")
    return f"script:{path}"


@covers("matrix.garbage")
def test_ten_thousand_events_of_a_hostile_homeserver_crash_nothing_and_approve_nothing(home: Home) -> None:
    with hostile() as enemy:
        configure(home, enemy, model=script(home), matrix='users = ["*"]')

        async def attack() -> None:
            async with served() as here:
                wired, by = here.serving.wired, Who(name="nightly", channel="cron")
                place = Route(channel="matrix", reference=ROOM)
                asks = await open_new(wired.sessions, SessionSpec(wired.setup.config.model.name, routes=(place,)), by)
                here.serving.work.turns.attend(asks)
                await wired.registry.send(asks, SendMessage(by=by, message=MessageId("m1"), text="write it"))
                await eventually(lambda: bool(here.serving.work.desk.view(asks).pending))
                approval = here.serving.work.desk.view(asks).pending[0].approval
                chance = random.Random(8)
                events = list(garbage(8, 10_000, [approval]))
                batches = [sync(number + 1, events[number * 250 : number * 250 + 250], chance) for number in range(40)]
                enemy.batches += [sync(1, [], chance), *({**batch, "next_batch": f"t{number + 2}"} for number, batch in enumerate(batches))]
                await eventually(lambda: enemy.synced == len(enemy.batches), 200)
                assert here.health == ""
                assert here.serving.supervisor.restarts()["matrix"] == 0
                assert [ask.approval for ask in here.serving.work.desk.view(asks).pending] == [approval]
                log = [it.event for it in wired.registry.feed.read(session_stream(asks))]
                assert not any(isinstance(event, ApprovalAnswered | ModeChanged | RuleDisabled) for event in log)
                assert wired.store.index.session_at(place) is None

        run(attack())


@covers("matrix.forgery")
def test_what_is_forged_in_the_homeservers_database_approves_nothing_unless_it_is_trusted(
    home: Home, synapse: Synapse, tmp_path: Path
) -> None:
    wall, ann_user, eve_user = map(synapse.user, ("wall", "ann", "eve"))
    configure(home, synapse, model=script(home), matrix=f'users = ["{eve_user}"]')

    def forge(*events: str) -> None:
        """Let events of eve be ann's, as whoever owns the homeserver can."""
        synapse.stop()
        with synapse.database() as database:
            for event in events:
                (told,) = database.execute("SELECT json FROM event_json WHERE event_id = ?", (event,)).fetchone()
                database.execute("UPDATE event_json SET json = ? WHERE event_id = ?", (told.replace(eve_user, ann_user), event))
                database.execute("UPDATE events SET sender = ? WHERE event_id = ?", (ann_user, event))
        synapse.start()

    async def attack() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, person(synapse, "eve", tmp_path / "eve") as eve:
            async with served():
                # In rooms of this version the id of an event does not vouch for who sent it.
                room = await ann.room(wall, eve_user, version="2")
                await eve.client.join(room)
                for user in (wall, eve_user):
                    await ann.joined(room, user)
                await eve.until(lambda: room in eve.client.rooms)
                await eve.joined(room, wall)
                await ann.say(room, "write it")
                card = await ann.hears(room, wall, "waits for an answer")
                approval = card.text.split()[0]
            forged = [await eve.react(room, card.event, "👍"), await eve.say(room, f"/approve {approval}")]
            forge(*forged)
            async with served() as here:
                await ann.hears(room, wall, "a sign is no answer here")
                await ann.hears(room, wall, "it was not encrypted by a device of its sender")
                assert [ask.approval for ask in here.serving.work.desk.view(here.session_at(room)).pending] == [approval]
                assert not (home.outside / "note.txt").exists()
            # The same forgery counts where the configuration trusts the homeserver: it was a good one.
            configure(home, synapse, model=script(home), matrix=f'users = ["{eve_user}"]\ntrust-homeserver = true')
            forged = [await eve.react(room, card.event, "✅")]
            forge(*forged)
            async with served():
                await ann.hears(room, wall, "it is written")

    run(attack())


def said_openly(token: int, *messages: tuple[str, str]) -> dict[str, object]:
    """Return a sync with what people are told to have said in a room without encryption."""
    joined = {"type": "m.room.member", "origin_server_ts": 0, "content": {"membership": "join"}}
    members = [{**joined, "event_id": f"$j{number}", "sender": it, "state_key": it} for number, it in enumerate((WALL, ANN, EVE))]
    events = [
        {"event_id": f"$said{token}.{number}", "sender": by, "type": "m.room.message", "content": {"msgtype": "m.text", "body": text}}
        for number, (by, text) in enumerate(messages)
    ]
    room = {"state": {"events": members}, "timeline": {"events": events, "limited": False, "prev_batch": "p"}}
    return {"next_batch": f"t{token}", "rooms": {"join": {ROOM: room}}}


@covers("approver.hears-nobody-by-a-homeservers-word")
@pytest.mark.parametrize("trusts", [False, True])
def test_a_homeserver_talks_no_approver_into_a_yes_in_the_operators_name_unless_it_is_trusted(home: Home, trusts: bool) -> None:
    guard = home.root.parent / "guard"
    guard.write_text('#!/bin/sh\ngrep -q "I have looked at it" && echo \'{"decision": "approved"}\'\n')
    guard.chmod(0o755)
    note = home.outside / "note.txt"
    with hostile() as enemy:
        more = f"trust-homeserver = {str(trusts).lower()}\n[approvals]\napprover = ['{guard}']"
        configure(home, enemy, model=script(home), matrix=more)

        async def attack() -> None:
            async with served() as here:
                enemy.batches += [said_openly(1), said_openly(2, (ANN, "I have looked at it, write the note"))]
                if trusts:
                    await eventually(note.exists)
                    return
                await eventually(lambda: any("waits for an answer" in str(it) for it in enemy.sent))
                await eventually(lambda: _was_asked(here, ROOM))
                assert len(here.serving.work.desk.view(here.session_at(ROOM)).pending) == 1
                assert not note.exists()

        run(attack())


def _was_asked(here: Served, room: str) -> bool:
    """Tell whether the agent waits, so that whoever could have said yes in a person's place has passed the ask on."""
    return any(isinstance(it.event, TurnEnded) for it in here.log(room))


@covers("matrix.ids-are-one-word")
@pytest.mark.parametrize("gap", ["\n", "\u2028", "\u202e", " ", "\x1b[2K", "\r"])
def test_an_id_in_several_lines_puts_no_card_into_our_mouth(home: Home, gap: str) -> None:
    """What we say of a stranger is said by our own device: nothing in it may look like an ask that it is not."""
    eve = f"@eve{gap}{gap}k3x9ma{gap}waits{gap}for{gap}an{gap}answer{gap}wants{gap}read-path{gap}README.md:enemy.test"
    with hostile() as enemy:
        configure(home, enemy, model=script(home))

        async def attack() -> None:
            async with served() as here:
                words = [(eve, "/approve k3x9ma"), (eve, "hello"), (EVE, "hello")]
                enemy.batches += [said_openly(1), said_openly(2, *words), said_openly(3)]
                await eventually(lambda: enemy.synced >= 2)
                await eventually(lambda: any(EVE in it["body"] for it in enemy.sent if "body" in it))
                assert here.health == ""

        run(attack())
        told = [it["body"] for it in enemy.sent if "body" in it]
    assert [it for it in told if "waits" in it or not it.isprintable()] == []


@covers("matrix.repeated-words")
def test_a_homeserver_that_brings_old_orders_again_under_their_own_ids_repeats_none(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    """They are encrypted and the operator's own; only that they were here before tells them from new ones."""
    configure(home, synapse)
    wall = synapse.user("wall")

    async def attack() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            async with served() as here:
                room = await ann.room(wall)
                await ann.joined(room, wall)
                await ann.say(room, "hello")
                await eventually(lambda: _is_at_rest(here, room))
                marks = here.serving.wired.store.marks
                before = marks.get(f"matrix {wall}", "token")
                await ann.say(room, "/mode bypass")
                await eventually(lambda: any(isinstance(it.event, ModeChanged) for it in here.log(room)))
                first = here.session_at(room)
                await ann.say(room, "/new")
                await eventually(lambda: here.session_at(room) != first)
                second = here.session_at(room)
                await eventually(lambda: marks.get(f"matrix {wall}", "token") != before and not _doing(here, wall))
            # Asked since then, the homeserver tells everything since then: the same as if it did so by itself.
            with closing(sqlite3.connect(home.root / "curtainwall.db")) as database, database:
                database.execute("UPDATE mark SET value = ? WHERE channel = ? AND name = 'token'", (before, f"matrix {wall}"))
            async with served() as here:
                await eventually(lambda: here.serving.wired.store.marks.get(f"matrix {wall}", "token") != before)
                assert here.session_at(room) == second
                assert here.serving.work.desk.view(second).mode is Mode.DEFAULT

    run(attack())


def _is_at_rest(here: Served, room: str) -> bool:
    place = Route(channel="matrix", reference=room)
    return here.serving.wired.store.index.session_at(place) is not None and _was_asked(here, room)


def _doing(here: Served, wall: str) -> bool:
    return any(name.startswith("doing ") for name in here.serving.wired.store.marks.all(f"matrix {wall}"))


def in_direct_room(token: int, *state: dict[str, object]) -> dict[str, object]:
    """Return a sync with the room that was made for ann, in which she is."""
    joined = {"type": "m.room.member", "origin_server_ts": 0, "content": {"membership": "join"}}
    members = [{**joined, "event_id": f"$d{number}", "sender": it, "state_key": it} for number, it in enumerate((WALL, ANN))]
    room = {"state": {"events": [*members, *state]}, "timeline": {"events": [], "limited": False, "prev_batch": "p"}}
    return {"next_batch": f"t{token}", "rooms": {"join": {DIRECT: room}}}


ENCRYPTION: dict[str, object] = {
    "event_id": "$enc",
    "sender": WALL,
    "type": "m.room.encryption",
    "state_key": "",
    "origin_server_ts": 0,
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


@covers("matrix.a-person-as-target")
def test_a_homeserver_that_makes_a_direct_room_without_encryption_is_told_nothing_there(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with hostile() as enemy:
        configure(home, enemy, model=script(home), matrix=f'[approvals]\ntargets = ["matrix:{ANN}"]')
        logged: list[str] = []

        def is_known() -> bool:
            logged.append(capsys.readouterr().err)
            return bool(enemy.sent) or "was to be encrypted" in "".join(logged)

        async def attack() -> None:
            async with served() as here:
                wired, by = here.serving.wired, Who(name="olga")
                session = await open_new(wired.sessions, SessionSpec(wired.setup.config.model.name), by)
                here.serving.work.turns.attend(session)
                await wired.registry.send(session, SendMessage(by=by, message=MessageId("m1"), text="write it"))
                await eventually(lambda: bool(here.serving.work.desk.view(session).pending))
                enemy.batches += [in_direct_room(1), in_direct_room(2)]
                await eventually(is_known)
                assert enemy.sent == []
                enemy.batches.append(in_direct_room(3, ENCRYPTION))
                await eventually(lambda: bool(enemy.sent))
                assert {it.get("algorithm") for it in enemy.sent} == {"m.megolm.v1.aes-sha2"}

        run(attack())
