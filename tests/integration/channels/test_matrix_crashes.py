"""Matrix and what goes wrong on the way: crashes, keys that come late, homeservers that slow down or go away."""

import asyncio
import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from curtainwall.compose.doctor import examine
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.home import find_home
from curtainwall.model import AnswerApproval, ApprovalId, ApprovalQuery, CallRequest, Route, SessionId, ShownAt, Who
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.covers import covers
from tests.support.matrix_house import Echo, Served, configure, halting, heard_by_echo, process, served
from tests.support.synapse import Person, Synapse, person
from tests.support.talking import Home, home, run
from tests.support.waiting import eventually

__all__ = ["home"]


async def after_a_first_word(ann: Person, wall: str, text: str = "first") -> str:
    """Return a room in which the house, which is gone by now, has answered once."""
    async with served(Echo()):
        room = await ann.room(wall)
        await ann.joined(room, wall)
        await ann.say(room, text)
        await ann.hears(room, wall, f"heard: {text}")
    return room


@covers("matrix.once-and-in-order")
def test_kill_9_at_any_moment_loses_no_message_and_answers_none_twice(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            with process(home, tmp_path / "wall.log", "echo"):
                room = await ann.room(wall)
                await ann.joined(room, wall)
            number = 0
            for pause in (0.0, 0.2):
                with process(home, tmp_path / "wall.log", "echo") as running:
                    await ann.say(room, f"m{number}")
                    # It is killed while it takes in what comes, right after it answered something.
                    await ann.until(lambda number=number: f"m{number}" in heard_by_echo(ann, room, wall))
                    for _ in range(4):
                        number += 1
                        await ann.say(room, f"m{number}")
                    await asyncio.sleep(pause)
                    running.kill()
                number += 1
            with process(home, tmp_path / "wall.log", "echo"):
                await ann.say(room, "last")
                await ann.until(lambda: "last" in heard_by_echo(ann, room, wall))
            assert heard_by_echo(ann, room, wall) == [*(f"m{each}" for each in range(number)), "last"]

    run(talk())


@covers("matrix.once-and-in-order")
def test_kill_9_in_the_middle_of_a_burst_of_a_hundred_loses_none_and_answers_none_twice(
    home: Home, synapse: Synapse, tmp_path: Path
) -> None:
    configure(home, synapse)
    wall, burst = synapse.user("wall"), [f"m{number}" for number in range(100)]

    async def say_all(ann: Person, room: str) -> None:
        for text in burst:
            await ann.say(room, text)

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            with process(home, tmp_path / "wall.log", "echo") as running:
                room = await ann.room(wall)
                await ann.joined(room, wall)
                sending = asyncio.create_task(say_all(ann, room))
                await ann.until(lambda: len(heard_by_echo(ann, room, wall)) >= 20)
                assert not sending.done(), "it is killed while they come"
                running.kill()
            with process(home, tmp_path / "wall.log", "echo"):
                await ann.until(lambda: burst[-1] in heard_by_echo(ann, room, wall), 120)
                await sending
            assert heard_by_echo(ann, room, wall) == burst

    run(talk())


@covers("matrix.once-and-in-order")
def test_a_stop_before_any_thing_that_the_channel_remembers_loses_nothing_and_repeats_nothing(
    home: Home, synapse: Synapse, tmp_path: Path
) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            room = await after_a_first_word(ann, wall)
            for after in range(9):
                await ann.say(room, f"m{after}")
                async with halting(home, after, Echo()) as marks:
                    await asyncio.wait_for(marks.halted.wait(), 60)
            async with served(Echo()):
                await ann.say(room, "last")
                await ann.until(lambda: "last" in heard_by_echo(ann, room, wall))
            assert heard_by_echo(ann, room, wall) == ["first", *(f"m{after}" for after in range(9)), "last"]

    run(talk())


async def asked(room: str) -> tuple[SessionId, ApprovalId]:
    """Let a job ask for something that is shown in a room, while nobody serves."""
    nightly = Who(name="nightly", channel="cron")
    async with open_gate(load_setup()) as wired:
        session = await open_new(
            wired.sessions, SessionSpec("demo", agent="nobody", routes=(Route(channel="matrix", reference=room),)), nightly
        )
        await wired.gate.request(session, CallRequest(tool="filesystem.read_file", arguments={"path": "/etc/hostname"}), wait=False)
        return session, wired.store.index.approvals(ApprovalQuery(session=session))[0].approval


@covers("matrix.once-and-in-order")
def test_a_card_that_is_settled_while_the_room_catches_up_does_not_look_open(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            async with served():
                room = await ann.room(wall)
                await ann.joined(room, wall)
            _, approval = await asked(room)
            async with served():
                card = await ann.hears(room, wall, f"{approval} waits for an answer")
            # The next one has shown it, and does not follow what becomes of it yet.
            async with halting(home, 0, named="asked") as marks:
                await asyncio.wait_for(marks.halted.wait(), 60)
                await ann.say(room, f"/approve {approval}")
                await ann.hears(room, wall, f"approved once: {approval}")
                marks.resumed.set()
                await ann.until(lambda: card.text.startswith(f"{approval} was approved by {ann.user}"))

    run(talk())


@covers("matrix.once-and-in-order")
def test_a_card_of_which_nothing_was_remembered_does_not_look_open_once_it_is_settled(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def approved(session: SessionId, approval: ApprovalId) -> None:
        async with open_gate(load_setup()) as wired:
            await wired.registry.send(session, AnswerApproval(by=Who(name="ann"), approval=approval, granted=True))

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            async with served():
                room = await ann.room(wall)
                await ann.joined(room, wall)
            # Before it is said, after it is said, and after it is known under which name it was said.
            for named, after, is_said in (("asked", 0, False), ("sent card", 0, True), ("asked", 1, True)):
                session, approval = await asked(room)
                async with halting(home, after, named=named) as marks:
                    await asyncio.wait_for(marks.halted.wait(), 60)
                await approved(session, approval)
                if is_said:
                    card = await ann.hears(room, wall, f"{approval} waits for an answer")
                    async with served():
                        await ann.until(lambda card=card: card.text.startswith("already answered by `ann`: granted"))
            assert not [it.text for it in ann.heard(room, wall) if not it.text.startswith("already answered by `ann`: granted")]

    run(talk())


@covers("matrix.late-keys")
def test_what_cannot_be_decrypted_is_said_and_taken_up_when_its_key_comes(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            room = await after_a_first_word(ann, wall)
            ann.client.invalidate_outbound_session(room)
            await ann.say(room, "second")
            with synapse.database() as database:
                rows = database.execute("SELECT message_json FROM device_inbox WHERE user_id = ?", (wall,)).fetchall()
                database.execute("DELETE FROM device_inbox WHERE user_id = ?", (wall,))
            keys = [told for (row,) in rows if (told := json.loads(row))["type"] == "m.room.encrypted"]
            assert keys
            async with served(Echo()) as here:
                await ann.hears(room, wall, "cannot be decrypted yet")
                assert here.accepted(room) == ["first"]
            async with served(Echo()) as here:
                for number, told in enumerate(keys):
                    path = f"{synapse.url}/_matrix/client/v3/sendToDevice/m.room.encrypted/again{number}"
                    body = {"messages": {wall: {"WALL": told["content"]}}}
                    headers = {"Authorization": f"Bearer {ann.client.access_token}"}
                    assert ann.client.client_session is not None
                    async with ann.client.client_session.put(path, json=body, headers=headers) as response:
                        assert response.status == 200
                await ann.hears(room, wall, "heard: second")
                assert here.accepted(room) == ["first", "second"]
                event = next(it for it in ann.heard(room, ann.user) if it.text == "second")
                assert await _raw(ann, room, event.event)

    run(talk())


async def _raw(ann: Person, room: str, event: str) -> dict[str, object]:
    path = f"{ann.client.homeserver}/_matrix/client/v3/rooms/{quote(room)}/event/{quote(event)}"
    assert ann.client.client_session is not None
    async with ann.client.client_session.get(path, headers={"Authorization": f"Bearer {ann.client.access_token}"}) as response:
        return await response.json()


@covers("matrix.repeated-bytes")
def test_encrypted_bytes_that_are_sent_again_are_not_taken_again(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            room = await after_a_first_word(ann, wall, "pay the bill")
            (said,) = ann.heard(room, ann.user)
            content = (await _raw(ann, room, said.event))["content"]
            async with served(Echo()) as here:
                assert isinstance(content, dict)
                await ann.say_openly(room, "m.room.encrypted", content)
                await ann.hears(room, wall, "somebody on the way repeated them")
                assert here.accepted(room) == ["pay the bill"]

    run(talk())


@covers("matrix.patience")
def test_a_homeserver_that_slows_us_down_or_goes_away_is_waited_for(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")
    with synapse.database() as database:
        database.execute("INSERT INTO ratelimit_override (user_id, messages_per_second, burst_count) VALUES (?, 2, 2)", (wall,))

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann, served(Echo()) as here:
            room = await ann.room(wall)
            await ann.joined(room, wall)
            for number in range(5):
                await ann.say(room, f"/help approve\n{number}")
            await ann.until(lambda: len(ann.heard(room, wall)) == 5)
            await asyncio.to_thread(synapse.stop)
            await eventually(lambda: "cannot be reached" in here.health)
            await asyncio.to_thread(synapse.start)
            await ann.say(room, "are you there")
            await ann.hears(room, wall, "heard: are you there")
            await eventually(lambda: here.health == "")

    run(talk())


@covers("matrix.named-devices")
def test_only_named_devices_of_a_user_count_and_are_sent_keys(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as phone, person(synapse, "ann", tmp_path / "desk", "DESK") as desk:
            assert phone.client.olm is not None
            fingerprint = phone.client.olm.account.identity_keys["ed25519"]
            configure(home, synapse, matrix=f'devices = ["{phone.user} {fingerprint}"]')
            async with served(Echo()) as here:
                room = await phone.room(wall)
                await phone.joined(room, wall)
                await desk.until(lambda: room in desk.client.rooms)
                await desk.joined(room, wall)
                await desk.say(room, "from the desk")
                await phone.hears(room, wall, "device `DESK` is none of those that the configuration names")
                await phone.say(room, "from the phone")
                await phone.hears(room, wall, "heard: from the phone")
                assert here.accepted(room) == ["from the phone"]
                await desk.until(lambda: sum(event.sender == wall for _, event in desk.unread) >= 2)
                assert desk.heard(room, wall) == []

    run(talk())


@covers("matrix.lost-keys")
def test_a_device_whose_keys_are_lost_is_not_served_and_what_to_do_is_said(home: Home, synapse: Synapse, tmp_path: Path) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            room = await after_a_first_word(ann, wall)
            shutil.rmtree(home.root / "matrix")
            async with served(Echo()) as here:
                await eventually(lambda: "knows device `WALL`" in here.health)
                assert "set another `device`" in here.health
            config = home.root / "config.toml"
            config.write_text(config.read_text().replace('device = "WALL"', 'device = "WALL2"'))
            async with served(Echo()):
                await ann.until(lambda: any(device.id == "WALL2" for device in ann.client.device_store.active_user_devices(wall)))
                await ann.say(room, "second")
                await ann.hears(room, wall, "heard: second")

    run(talk())


def told_by_doctor() -> str:
    """Return what `doctor` says of Matrix."""
    (finding,) = (one for one in examine(find_home()) if one.name == "matrix")
    return finding.what


@covers("matrix.not-let-in")
@pytest.mark.parametrize("password", ["wrong", None])
def test_a_password_that_is_wrong_or_not_set_is_not_tried_again_and_what_to_do_is_said_until_it_is_right(
    home: Home, synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], password: str | None
) -> None:
    configure(home, synapse)
    wall = synapse.user("wall")
    if password is None:
        monkeypatch.delenv("WALL_PASSWORD")
    else:
        monkeypatch.setenv("WALL_PASSWORD", password)
    why = f"does not let `{wall}` in" if password else "the environment variable `WALL_PASSWORD` is not set"

    async def see(here: Served) -> None:
        await eventually(lambda: why in here.health)
        assert "restart `curtainwall serve` or change `[matrix]`" in here.health
        assert here.serving.supervisor.restarts()["matrix"] == 0, "it waits rather than being started again and again"

    async def is_refused() -> None:
        async with served(Echo()) as here:
            await see(here)

    async def talk() -> None:
        async with served(Echo()) as here, person(synapse, "ann", tmp_path / "ann") as ann:
            await see(here)
            monkeypatch.setenv("RIGHT_PASSWORD", "secret")
            config = home.root / "config.toml"
            config.write_text(config.read_text().replace("WALL_PASSWORD", "RIGHT_PASSWORD"))
            room = await ann.room(wall)
            await ann.joined(room, wall)
            await ann.say(room, "are you there")
            await ann.hears(room, wall, "heard: are you there")
            assert here.health == ""

    run(is_refused())
    assert capsys.readouterr().err.count("warning: matrix: ") == 1
    assert why in told_by_doctor()
    run(talk())
    assert told_by_doctor() == "nothing is known to be wrong"


@covers("matrix.left-rooms")
@pytest.mark.parametrize("how", ["kick", "ban", "kick while nobody serves"])
def test_asks_are_not_shown_in_a_room_that_we_were_sent_out_of_until_we_are_invited_again(
    home: Home, synapse: Synapse, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    wish = {"tool": "filesystem.write_file", "arguments": {"path": str(home.outside / "note.txt"), "content": "x"}}
    (tmp_path / "script.jsonl").write_text(f"{json.dumps(wish)}\n{json.dumps({'text': 'it is written'})}\n")
    others = '[web]\noperators = ["olga"]'
    configure(home, synapse, model=f"script:{tmp_path / 'script.jsonl'}", matrix=others)
    wall = synapse.user("wall")

    def shown(here: Served, room: str) -> list[str]:
        return [card.may_answer for card in here.serving.board(ShownAt("matrix", room)).cards()]

    async def send_out(ann: Person, room: str) -> None:
        await (ann.client.room_ban if how == "ban" else ann.client.room_kick)(room, wall, "for\nnow")

    async def talk() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            async with served() as here:
                room = await ann.room(wall)
                await ann.joined(room, wall)
                await ann.say(room, "write it")
                await ann.hears(room, wall, "waits for an answer")
                assert len(shown(here, room)) == 1
                if "while" not in how:
                    await send_out(ann, room)
                    await eventually(lambda: not shown(here, room))
            if "while" in how:
                await send_out(ann, room)
            async with served() as here:
                await eventually(lambda: not shown(here, room))
                (card,) = here.serving.board().cards()
                assert card.may_answer == "may be answered on web by olga, and at its machine"
                # Whatever is opened with that room as its place does not count on it either.
                by, place = Who(name="nightly", channel="cron"), Route(channel="matrix", reference=room)
                later = await open_new(here.serving.wired.sessions, SessionSpec("demo", routes=(place,)), by)
                await eventually(lambda: place not in here.serving.wired.sessions.state(later).routes)
            told = f"we are no longer in `{room}`: {'banned' if how == 'ban' else 'sent out'} by {ann.user} (for\\nnow)"
            assert told in capsys.readouterr().err
            found = await asyncio.to_thread(told_by_doctor)
            assert f"we are no longer in `{room}` " in found
            assert "asks of 2 sessions are not shown there" in found
            async with served() as here:
                if how == "ban":
                    await ann.client.room_unban(room, wall)
                await ann.client.room_invite(room, wall)
                await eventually(lambda: len(shown(here, room)) == 1)
                await eventually(lambda: place in here.serving.wired.sessions.state(later).routes)
                await ann.joined(room, wall)
                await ann.say(room, f"/approve {card.approval}")
                await ann.hears(room, wall, "it is written")
            assert await asyncio.to_thread(told_by_doctor) == "nothing is known to be wrong"

    run(talk())
