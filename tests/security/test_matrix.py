"""Attacks over Matrix: a homeserver that lies, and people in a room who are not who they seem to be."""

import json
import random
from pathlib import Path

import pytest

from curtainwall.app.openings import Wanted, open_new
from curtainwall.model import ApprovalAnswered, MessageId, ModeChanged, Route, RuleDisabled, SendMessage, Who, session_stream
from tests.support.covers import covers
from tests.support.hostile_homeserver import ROOM, garbage, hostile, sync
from tests.support.matrix_house import configure, served
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
                asks = await open_new(wired, Wanted(wired.setup.config.model.name, routes=(place,)), by)
                here.serving.work.turns.attend(asks)
                await wired.house.send(asks, SendMessage(by=by, message=MessageId("m1"), text="write it"))
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
                log = [it.event for it in wired.house.feed.read(session_stream(asks))]
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
