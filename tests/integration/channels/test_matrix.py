"""Matrix on a real homeserver: conversations in encrypted rooms, asks and answers, and everything that comes in between."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from curtainwall.model import (
    SYSTEM,
    AddRoute,
    ApprovalAnswered,
    MessageId,
    MessageWithdrawn,
    Route,
    SendMessage,
    SessionId,
    TurnEnded,
    TurnStarted,
    Who,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.covers import covers
from tests.support.matrix_house import Echo, Served, Unsteady, configure, heard_by_echo, process, served
from tests.support.stores import line_from
from tests.support.stores import process as store_process
from tests.support.synapse import Person, Synapse, person
from tests.support.talking import Home, home, run
from tests.support.waiting import eventually

__all__ = ["home"]


def script(home: Home, *lines: dict[str, object]) -> str:
    """Write replies for the model that plays them, and return its name."""
    path = home.root.parent / "script.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return f"script:{path}"


def writes(home: Home, name: str = "note.txt", content: str = "x") -> dict[str, object]:
    """Return a reply that wants to write a file outside of the workspace, which asks."""
    return {"tool": "filesystem.write_file", "arguments": {"path": str(home.outside / name), "content": content}}


@covers("matrix.conversation")
def test_a_conversation_in_an_encrypted_room_with_an_ask_that_an_operator_approves(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    content = "".join(f"{number}.\n" for number in range(200))
    configure(home, synapse, model=script(home, {"text": "hello **you**"}, writes(home, content=content), {"text": "it is written"}))
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served() as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            await ann.say(room, "good morning")
            reply = await ann.hears(room, wall, "hello **you**")
            assert reply.encrypted
            assert reply.source["content"]["formatted_body"] == "<p>hello <strong>you</strong></p>"
            await ann.say(room, "write it")
            card = await ann.hears(room, wall, "waits for an answer")
            approval = card.text.split()[0]
            assert "may be answered" not in card.text, "whoever is the one operator of this channel knows"
            assert not (home.outside / "note.txt").exists()
            form = str(card.source["content"]["formatted_body"])
            assert f"<p>tool: filesystem.write_file<br>wants write-path {home.outside}/note.txt (change-outside)<br>" in form
            assert "+100." not in card.text
            await ann.say(room, f"/pending {approval}")
            await ann.hears(room, wall, "+100.")
            await ann.say(room, f"/approve {approval}")
            await ann.hears(room, wall, "it is written")
            await ann.until(lambda: f"was approved by {ann.user}" in card.text)
            assert "waits for an answer" not in card.text
            assert (home.outside / "note.txt").read_text() == content
            assert here.health == ""

    run(talk())


async def ask_in(ann: Person, room: str, wall: str, words: str = "write it") -> str:
    """Say something that makes the agent ask, and return the ask's id."""
    known = {heard.event for heard in ann.heard(room, wall)}
    await ann.say(room, words)
    card = await ann.until(
        lambda: next((it for it in ann.heard(room, wall) if "waits for an answer" in it.text and it.event not in known), None)
    )
    return str(card.text.split()[0])


@covers("matrix.operators-alone")
def test_whoever_may_only_talk_and_whoever_is_a_stranger_answer_nothing(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    bob_may_talk = f'users = ["{synapse.user("bob")}"]'
    configure(home, synapse, model=script(home, writes(home), {"text": "it is written"}, {"text": "hello bob"}), matrix=bob_may_talk)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with (
            person(synapse, "ann", tmp_path / "ann") as ann,
            person(synapse, "bob", tmp_path / "bob") as bob,
            person(synapse, "eve", tmp_path / "eve") as eve,
            served() as here,
        ):
            room = await ann.room(wall, bob.user, eve.user)
            await bob.client.join(room)
            await eve.client.join(room)
            for user in (wall, bob.user, eve.user):
                await ann.joined(room, user)
            for other in (bob, eve):
                await other.until(lambda other=other: room in other.client.rooms)
                await other.joined(room, wall)
            approval = await ask_in(ann, room, wall)
            await bob.say(room, f"/approve {approval}")
            await ann.hears(room, wall, f"only operators may do that, and {bob.user} is none")
            await eve.say(room, "let me in")
            await ann.hears(room, wall, f"{eve.user} is not on the list")
            # Also where they were told before that nothing of theirs is taken.
            for word in (f"/approve {approval}", f"/deny {approval}", "/approve nobody", "let me in"):
                await eve.say(room, word)
            await ann.hears(room, wall, f"only operators may answer, and {eve.user} is none; `{approval}` is as open as before")
            await ann.say(room, f"/aprove {approval}")
            await ann.hears(room, wall, "there is no `/aprove`; did you mean `/approve`?")
            await ann.say_openly(room, "m.room.message", {"msgtype": "m.text", "body": f"/approve {approval}"})
            await ann.hears(room, wall, "came unencrypted into an encrypted room")
            await ann.react(room, next(it.event for it in ann.heard(room, wall) if "waits for" in it.text), "👍")
            await ann.hears(room, wall, "a sign is no answer here")
            assert not (home.outside / "note.txt").exists()
            await bob.say(room, "hello")
            await ann.say(room, f"/deny {approval} not today")
            await ann.hears(room, wall, "hello bob")
            await ann.say(room, f"/approve {approval}")
            await ann.hears(room, wall, f"already answered by `{ann.user} on matrix`: denied")
            assert sum(eve.user in it.text and "waits for" not in it.text for it in ann.heard(room, wall)) == 2
            answers = [it.event for it in here.log(room) if isinstance(it.event, ApprovalAnswered)]
            assert [(answer.granted, answer.by.name, answer.reason) for answer in answers] == [(False, ann.user, "not today")]
            assert here.accepted(room) == ["write it", "hello"]

    run(talk())


@covers("approvals.who-may-answer")
def test_a_card_says_who_may_answer_it_and_says_it_anew_where_that_changes(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    others = '[web]\noperators = ["olga"]\n[channels.desk]\noperators = ["<b>carl</b>"]\n'
    configure(home, synapse, model=script(home, writes(home), {"text": "it is written"}), matrix=others)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served() as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            approval = await ask_in(ann, room, wall)
            (card,) = [it for it in ann.heard(room, wall) if "waits for an answer" in it.text]
            assert f"\nmay be answered on matrix by {ann.user}, on web by olga, and at its machine\n" in card.text
            route = AddRoute(by=SYSTEM, route=Route(channel="desk", reference="front"))
            await here.serving.wired.registry.send(here.session_at(room), route)
            words = f"on desk by <b>carl</b>, on matrix by {ann.user}, on web by olga, and at its machine"
            await ann.until(lambda: f"\nmay be answered {words}\n" in card.text)
            assert "on desk by &lt;b&gt;carl&lt;/b&gt;, on matrix" in str(card.source["content"]["formatted_body"])
            await ann.say(room, f"/pending {approval}")
            await ann.until(lambda: sum(words in it.text for it in ann.heard(room, wall)) == 2)
            await ann.say(room, f"/deny {approval}")
            await ann.until(lambda: f"was denied by {ann.user}" in card.text)
            assert "may be answered" not in card.text
            assert "write-path" in card.text, "what was asked stays"

    run(talk())


@covers("matrix.no-answer")
def test_an_edit_and_plain_words_under_a_card_answer_nothing_and_whoever_wrote_them_is_told(
    home: Home, synapse: Synapse, tmp_path: Path
) -> None:
    configure(home, synapse, model=script(home, writes(home), {"text": "it is written"}, {"text": "you said yes"}))
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served() as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            approval = await ask_in(ann, room, wall)
            (card,) = [it for it in ann.heard(room, wall) if "waits for an answer" in it.text]
            mistyped = await ann.say(room, f"approve {approval}")
            new = {"msgtype": "m.text", "body": f"/approve {approval}"}
            for _ in range(2):
                relation = {"rel_type": "m.replace", "event_id": mistyped}
                await ann.say(room, f"* /approve {approval}", **{"m.new_content": new, "m.relates_to": relation})
            said = await ann.hears(room, wall, "a change of what was written is not taken; write it as a new message")
            assert said.source["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == mistyped
            await ann.say(room, "yes!", **{"m.relates_to": {"m.in_reply_to": {"event_id": card.event}}})
            words = f"this went to the agent as a message and answers nothing; `/approve {approval}` or `/deny {approval}` does"
            await ann.hears(room, wall, words)
            await ann.say(room, "and?", **{"m.relates_to": {"rel_type": "m.thread", "event_id": card.event}})
            again = await ann.until(lambda: next((it for it in ann.heard(room, wall) if it.thread == card.event), None))
            assert words in again.text, "whoever writes in a thread is answered there"
            assert sum("a change of" in it.text for it in ann.heard(room, wall)) == 1, "of one message it is said once"
            assert here.accepted(room) == ["write it", f"approve {approval}", "yes!", "and?"]
            await ann.say(room, f"/approve {approval}")
            await ann.hears(room, wall, "you said yes")
            known = len(ann.heard(room, wall))
            await ann.say(room, "thanks", **{"m.relates_to": {"m.in_reply_to": {"event_id": card.event}}})
            await ann.until(lambda: len(ann.heard(room, wall)) > known)
            assert sum(words in it.text for it in ann.heard(room, wall)) == 2, "under a card that is settled words are words"

    run(talk())


@covers("matrix.taken-back")
def test_a_message_that_waits_and_is_removed_by_its_author_or_an_operator_is_not_worked_on(
    home: Home, synapse: Synapse, tmp_path: Path
) -> None:
    configure(home, synapse, matrix=f'users = ["{synapse.user("bob")}"]')
    wall, goes_on = synapse.user("wall"), asyncio.Event()

    async def talk() -> None:
        async with (
            person(synapse, "ann", tmp_path / "ann") as ann,
            person(synapse, "bob", tmp_path / "bob") as bob,
            served(Echo(goes_on)) as here,
        ):
            room = await ann.room(wall, bob.user)
            await bob.client.join(room)
            await bob.until(lambda: room in bob.client.rooms)
            for one in (ann, bob):
                await one.joined(room, wall)
            # Whoever is a moderator may remove what others wrote; here that counts from operators alone.
            await ann.client.room_put_state(room, "m.room.power_levels", {"users": {ann.user: 100, bob.user: 50, wall: 0}, "redact": 50})
            begun = await ann.say(room, "begun")
            await eventually(lambda: room_is_at_work(here, room))
            said = {text: await one.say(room, text) for one, text in ((ann, "slip"), (bob, "mistake"), (bob, "spam"), (ann, "stays"))}
            await eventually(lambda: len(here.accepted(room)) == 5)
            for one, event in ((ann, said["slip"]), (bob, said["mistake"]), (ann, said["spam"]), (bob, said["stays"]), (ann, begun)):
                await one.client.room_redact(room, event)
            await ann.until(lambda: sum("taken back, and is not worked on" in it.text for it in ann.heard(room, wall)) == 3)
            late = await ann.hears(room, wall, "taken back too late: the agent works on it already")
            assert late.source["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == begun
            goes_on.set()
            await ann.hears(room, wall, "heard: stays")
            events = [it.event for it in here.log(room)]
            taken = [(event.message, event.by.name) for event in events if isinstance(event, MessageWithdrawn)]
            assert taken == [(said["slip"], ann.user), (said["mistake"], bob.user), (said["spam"], ann.user)]
            # What is over is over, and nobody is told.
            known = len(ann.heard(room, wall))
            await ann.client.room_redact(room, said["stays"])
            await ann.say(room, "the end")
            await ann.hears(room, wall, "heard: the end")
            assert len(ann.heard(room, wall)) == known + 1

    run(talk())


@covers("matrix.taken-back")
def test_what_waits_in_the_session_that_a_room_led_to_before_can_still_be_taken_back(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall, goes_on = synapse.user("wall"), asyncio.Event()

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served(Echo(goes_on)) as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            await ann.say(room, "begun")
            await eventually(lambda: room_is_at_work(here, room))
            first, slip = here.session_at(room), await ann.say(room, "slip")
            await eventually(lambda: len(here.accepted(room)) == 2)
            await ann.say(room, "/new")
            await eventually(lambda: here.session_at(room) != first)
            await ann.client.room_redact(room, slip)
            await ann.hears(room, wall, "taken back, and is not worked on")
            assert here.serving.work.desk.view(first).queue == ()

    run(talk())


def room_is_at_work(here: Served, room: str) -> bool:
    """Tell whether the agent of a room has begun a turn."""
    found = here.serving.wired.store.index.session_at(Route(channel="matrix", reference=room))
    return found is not None and any(isinstance(it.event, TurnStarted) for it in here.log(room))


@covers("matrix.told-apart")
def test_rooms_and_their_asks_can_be_told_apart_by_name_and_by_what_is_wanted(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse, model=script(home, writes(home, "first.txt"), {"text": "it is written"}))
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served() as here:
            desk = here.serving.work.desk
            rooms = [await ann.room(wall, name="Kitchen\u202e\n"), await ann.room(wall)]
            for room in rooms:
                await ann.joined(room, wall)
            approval = await ask_in(ann, rooms[0], wall)
            assert desk.view(here.session_at(rooms[0])).name == "matrix Kitchen\\u202e\\n"
            await ann.say(rooms[0], "/pending")
            listed = await ann.hears(rooms[0], wall, f"{approval} filesystem.write_file wants write-path ")
            assert f"{home.outside}/first.txt" in listed.text
            assert rooms[0] not in listed.text, "whoever is in a room need not be told its id"
            await ask_in(ann, rooms[1], wall)
            assert desk.view(here.session_at(rooms[1])).name == f"matrix {ann.user}"

    run(talk())


@covers("matrix.restart-in-an-ask")
def test_a_restart_in_the_middle_of_an_ask_loses_nothing_and_an_answer_goes_on(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse, model=script(home, {"text": "one moment"}, writes(home), {"text": "it is written"}))
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            with process(home, tmp_path / "first.log") as first:
                room = await ann.room(wall)
                await ann.joined(room, wall)
                await ann.say(room, "good morning")
                await ann.hears(room, wall, "one moment")
                approval = await ask_in(ann, room, wall)
                first.kill()
            await ann.say(room, f"/approve {approval}")
            with process(home, tmp_path / "second.log"):
                await ann.hears(room, wall, "it is written")
                await ann.until(lambda: any("was approved by" in it.text or "answered by" in it.text for it in ann.heard(room, wall)))
            said = [it.text for it in ann.heard(room, wall)]
            assert sum("one moment" in text for text in said) == 1
            assert sum("it is written" in text for text in said) == 1
            assert (home.outside / "note.txt").read_text() == "x"

    run(talk())


@covers("matrix.once-and-in-order")
def test_a_hundred_messages_in_a_burst_are_answered_in_order_and_once_beside_another_device_of_our_own(
    home: Home, synapse: Synapse, tmp_path: Path
) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")
    live, later = [f"m{number}" for number in range(100)], [f"m{number}" for number in range(100, 135)]

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, person(synapse, "wall", tmp_path / "other", "OTHER") as other:
            async with served(Echo()):
                room = await ann.room(wall)
                await ann.joined(room, wall)
                await other.until(lambda: room in other.client.rooms)
                sending = asyncio.create_task(_say_all(ann, room, live, other))
                looking = asyncio.create_task(other.until(lambda: live[-1] in heard_by_echo(other, room, wall), 120))
                await ann.until(lambda: live[-1] in heard_by_echo(ann, room, wall), 120)
                await sending
                # It was told everything, as a device of the same user is, and nobody answered it.
                await looking
                said = [it.text for it in ann.heard(room, wall) if not it.text.startswith("heard: ")]
                assert said == [f"I am the same user on another device, {number}" for number in (20, 60)]
            await _say_all(ann, room, later)
            async with served(Echo()) as again:
                await ann.until(lambda: later[-1] in heard_by_echo(ann, room, wall))
                assert heard_by_echo(ann, room, wall) == [*live, *later]
                assert again.accepted(room) == [*live, *later]

    run(talk())


async def _say_all(ann: Person, room: str, texts: Sequence[str], other: Person | None = None) -> None:
    """Write one message after the other as fast as it goes, and in between something on another device."""
    for number, text in enumerate(texts):
        await ann.say(room, text)
        if other is not None and number % 40 == 20:
            await other.say(room, f"I am the same user on another device, {number}")


@covers("matrix.asks-of-others")
def test_an_ask_of_another_session_is_answered_in_the_room_and_returns_there(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse, model=script(home, writes(home), {"text": "it is written"}))
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served() as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            wired, by = here.serving.wired, Who(name="nightly", channel="cron")
            job = await open_new(
                wired.sessions, SessionSpec(wired.setup.config.model.name, routes=(Route(channel="matrix", reference=room),)), by
            )
            await wired.registry.bind(Route(channel="cron", reference="nightly@2026-11-15"), job, by)
            here.serving.work.turns.attend(job)
            await wired.registry.send(job, SendMessage(by=by, message=MessageId("m1"), text="write it"))
            card = await ann.hears(room, wall, "waits for an answer")
            assert f"[cron: nightly, session {job}" in card.text
            await ann.say(room, f"/approve {card.text.split()[0]}")
            await ann.until(lambda: f"was approved by {ann.user}" in card.text)
            async for recorded in wired.registry.feed.follow(session_stream(job)):
                if isinstance(recorded.event, TurnEnded) and recorded.event.status == "done":
                    break
            assert (home.outside / "note.txt").read_text() == "x"
            assert not any("it is written" in it.text for it in ann.heard(room, wall))
            assert wired.store.index.session_at(Route(channel="matrix", reference=room)) is None

    run(talk())


@covers("asks.joined")
def test_an_answer_in_a_room_is_for_no_identical_ask_that_came_after_the_one_it_names(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse, model=script(home, writes(home), {"text": "it is written"}), matrix="trust-homeserver = true")
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served() as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            wired, by = here.serving.wired, Who(name="nightly", channel="cron")

            async def fires(number: int) -> SessionId:
                job = await open_new(
                    wired.sessions, SessionSpec(wired.setup.config.model.name, routes=(Route(channel="matrix", reference=room),)), by
                )
                await wired.registry.bind(Route(channel="cron", reference=f"nightly@{number}"), job, by)
                here.serving.work.turns.attend(job)
                await wired.registry.send(job, SendMessage(by=by, message=MessageId("m1"), text="write it"))
                return job

            def answered(job: SessionId) -> bool:
                return any(isinstance(it.event, ApprovalAnswered) for it in wired.registry.feed.read(session_stream(job)))

            first = await fires(1)
            card = await ann.hears(room, wall, "waits for an answer")
            jobs, ids = [first], [card.text.split()[0]]
            for number in (2, 3):
                jobs.append(await fires(number))
                await ann.until(lambda number=number: f"asked {number} times" in card.text)
                ids.append(card.text.split()[0])
                assert f"/approve {ids[-1]}" in card.text
            assert len(set(ids)) == 3
            await ann.say(room, f"/approve {ids[1]}")
            await ann.until(lambda: all(answered(job) for job in jobs[:2]))
            await ann.until(lambda: f"{ids[0]} was approved by {ann.user}" in card.text)
            rest = await ann.hears(room, wall, f"{ids[2]} waits for an answer")
            assert not answered(jobs[2])
            # A sign is about what its message was about when it was first said.
            jobs.append(await fires(4))
            await ann.until(lambda: "asked 2 times" in rest.text)
            await ann.react(room, rest.event, "👍")
            await ann.until(lambda: answered(jobs[2]))
            await ann.until(lambda: f"was approved by {ann.user}" in rest.text)
            last = await ann.until(lambda: next((it for it in ann.heard(room, wall) if it.text.split()[1:2] == ["waits"]), None))
            assert not answered(jobs[3])
            await ann.say(room, f"/deny {last.text.split()[0]}")
            await ann.until(lambda: answered(jobs[3]))

    run(talk())


@covers("matrix.a-person-as-target")
def test_asks_for_a_person_come_in_a_direct_room_that_is_made_once(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    ann_there = synapse.user("ann")
    targets = f'[approvals]\ntargets = ["matrix:{ann_there}"]\n'
    configure(home, synapse, model=script(home, writes(home), {"text": "it is written"}), matrix=targets)
    wall = synapse.user("wall")

    async def ask(here: Served) -> SessionId:
        wired = here.serving.wired
        by = Who(name="olga")
        session = await open_new(wired.sessions, SessionSpec(wired.setup.config.model.name), by)
        here.serving.work.turns.attend(session)
        await wired.registry.send(session, SendMessage(by=by, message=MessageId(f"m-{session}"), text="write it"))
        return session

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            async with served() as here:
                session = await ask(here)
                await ann.until(lambda: bool(ann.client.invited_rooms))
                (room,) = ann.client.invited_rooms
                await ann.client.join(room)
                card = await ann.hears(room, wall, "waits for an answer")
                assert card.encrypted
                await ann.say(room, f"/approve {card.text.split()[0]}")
                await ann.until(lambda: f"was approved by {ann.user}" in card.text)
                await eventually((home.outside / "note.txt").exists)
                feed = here.serving.wired.registry.feed
                await eventually(lambda: any(isinstance(it.event, TurnEnded) for it in feed.read(session_stream(session))))
            (home.outside / "note.txt").unlink()
            async with served() as here:
                await ask(here)
                again = await ann.hears(room, wall, "waits for an answer")
                await ann.say(room, f"/deny {again.text.split()[0]}")
                await ann.until(lambda: f"was denied by {ann.user}" in again.text)
                assert not ann.client.invited_rooms, "the same room serves again"

    run(talk())


@covers("matrix.as-it-comes")
def test_what_comes_slowly_is_shown_as_it_comes_and_what_is_long_goes_on_in_a_thread(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")
    long = " ".join(f"word{number}" for number in range(1_500))

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            goes_on = asyncio.Event()
            async with served(Echo(goes_on)):
                room = await ann.room(wall)
                await ann.joined(room, wall)
                await ann.say(room, "say this again, slowly, so that everybody can see how it comes and in the end is whole")
                await ann.until(lambda: any(it.text.endswith("…") for it in ann.heard(room, wall)))
                goes_on.set()
                whole = await ann.hears(room, wall, "in the end is whole")
                assert whole.changes >= 1
                assert len(ann.heard(room, wall)) == 1
            async with served(Echo()):
                await ann.say(room, long)
                await ann.hears(room, wall, "word1499")
                _, first, *rest = ann.heard(room, wall)
                assert "more characters are in the thread" in first.text
                assert {part.thread for part in rest} == {first.event}
                told = first.text.partition("\n\n… ")[0].removeprefix("heard: ") + "".join(part.text for part in rest)
                assert re.sub(r"\s", "", told) == re.sub(r"\s", "", long)

    run(talk())


@covers("matrix.tried-again")
@pytest.mark.parametrize("answers", [True, False])
def test_that_a_model_is_tried_again_is_said_once_and_in_the_end_what_came_of_it(
    answers: bool, home: Home, synapse: Synapse, tmp_path: Path
) -> None:
    configure(home, synapse)
    wall, moves = synapse.user("wall"), asyncio.Queue[str]()
    model = Unsteady(moves)

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served(model):
            room = await ann.room(wall)
            await ann.joined(room, wall)
            # It is the first thing that anybody says here: nobody listened yet when the model was tried again.
            moves.put_nowait("nobody answers")
            await ann.say(room, "how is it?")
            notice = await ann.hears(room, wall, "trying again in 7 s (2 of 6): nobody answers")
            assert notice.source["content"]["msgtype"] == "m.notice"
            moves.put_nowait("it is `busy`")
            await ann.until(lambda: "trying again in 7 s (3 of 6): it is `busy`" in notice.text)
            moves.put_nowait("" if answers else "give up")
            if answers:
                await ann.until(lambda: len(ann.heard(room, wall)) == 2)
            else:
                await ann.hears(room, wall, "the turn failed: it is gone")
            how = "the model answers again" if answers else "the model is not tried any more"
            await ann.until(lambda: notice.text == f"{how}; before: trying again in 7 s (3 of 6): it is `busy`")
            assert len(ann.heard(room, wall)) == 2
            # What passes before anybody would notice is not worth a word.
            await ann.say(room, "and now?")
            moves.put_nowait("nobody answers")
            moves.put_nowait("")
            await ann.until(lambda: len(ann.heard(room, wall)) == 3)
            assert ann.heard(room, wall)[-1].text == "I am back"

    run(talk())


@covers("matrix.tried-again")
def test_nothing_is_said_to_be_tried_again_after_a_crash_in_the_middle_of_it(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            with process(home, tmp_path / "first.log", "unsteady") as first:
                room = await ann.room(wall)
                await ann.joined(room, wall)
                await ann.say(room, "good morning")
                await ann.hears(room, wall, "I am back")
                await ann.say(room, "how is it?")
                notice = await ann.hears(room, wall, "trying again in 7 s (2 of 6): nobody answers")
                first.kill()
            async with served(Echo()):
                await ann.until(lambda: notice.text.startswith("the model "))

    run(talk())


@asynccontextmanager
async def stopped_owner(home: Path, session: SessionId) -> AsyncGenerator[int]:
    """Have another process own a session as soon as nobody does, and stop it there; yield its id, and kill it at the end."""
    for _ in range(30):
        with store_process("hold", str(home), session_stream(session)) as child:
            if await asyncio.to_thread(line_from, child) == "held":
                os.kill(child.pid, signal.SIGSTOP)
                yield child.pid
                return
    raise AssertionError("the session was never let go of")


@covers("matrix.conversation")
def test_a_session_whose_owner_is_stopped_keeps_no_other_room_from_being_heard(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served(Echo()) as here:
            rooms = [await ann.room(wall), await ann.room(wall)]
            for room in rooms:
                await ann.joined(room, wall)
                await ann.say(room, "good morning")
                await ann.hears(room, wall, "heard: good morning")
            stuck, other = rooms
            async with stopped_owner(home.root, here.session_at(stuck)) as owner:
                await ann.say(stuck, "first")
                await ann.say(stuck, "second")
                await ann.say(other, "are you there?")
                await ann.hears(other, wall, "heard: are you there?")
                holds = f"process {owner} holds session `{here.session_at(stuck)}` and has not decided yet"
                words = f"{holds}; this is kept and counts as soon as it does"
                await ann.until(lambda: sum(words in it.text for it in ann.heard(stuck, wall)) == 2)
                assert here.accepted(stuck) == ["good morning"]
            await ann.until(lambda: any("second" in it.text and "heard:" in it.text for it in ann.heard(stuck, wall)))
            assert here.accepted(stuck) == ["good morning", "first", "second"], "what was kept counts once, in its order"
            assert here.health == ""

    run(talk())
