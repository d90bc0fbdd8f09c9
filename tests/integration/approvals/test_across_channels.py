"""Asks of jobs and deliveries across channels: shown in a Matrix room and in the web, answered in either, and once over `kill -9`."""

import asyncio
import hashlib
import hmac
import json
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.covers import covers
from tests.support.far_side import FarSide, post
from tests.support.ports import free_port
from tests.support.program import Program, Running
from tests.support.serving import script_of
from tests.support.synapse import Person, Synapse, person
from tests.support.talking import run
from tests.support.waiting import until
from tests.support.webs import Visit

SECRET = "a secret of more than sixteen letters"
FIRINGS = 5


@dataclass
class Everywhere:
    """A house with a room, a page, a job and a webhook, and somebody who has all of them open."""

    program: Program
    synapse: Synapse
    ann: Person
    room: str
    web_port: int
    hook_port: int
    far: FarSide
    visits: list[Visit] = field(default_factory=list[Visit])

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def wall(self) -> str:
        return self.synapse.user("wall")

    async def serve(self) -> Running:
        running = self.program.begin("serve", WALL_PASSWORD="secret", CI_SECRET=SECRET)
        # Each of these listens when it is ready, in no order of its own.
        for words in ("the web is at", "/hooks/NAME"):
            await asyncio.to_thread(running.says, words)
        return running

    def visit(self) -> Visit:
        made = Visit(self)
        self.visits.append(made)
        made.sign_in(self.program.json("web", "link")["url"])
        return made

    async def fires(self, times: int) -> None:
        """Let the job fire, in so many processes at once."""
        firing = [self.program.begin("cron", "run", "nightly") for _ in range(times)]
        assert [await asyncio.to_thread(each.code, 110) for each in firing] == [3] * times

    def deliver(self, body: bytes) -> str:
        """Deliver something, and return the session that it became."""
        proof = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={proof}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.hook_port}/hooks/ci", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["session"])

    def cards(self, origin: str) -> list[str]:
        """Return the open cards in the room that come from somewhere."""
        texts = [heard.text for heard in self.ann.heard(self.room, self.wall)]
        return [
            text for text in texts if f"waits for an answer [{origin}," in text.partition("\n")[0] and " was " not in text.split("[")[0]
        ]

    def sessions(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.program.sessions() if row["name"].startswith(name)]

    async def answers_the_rest(self, origin: str, told: set[str]) -> set[str]:
        """Approve in the room whatever is shown until nothing waits any more, and return everything that was approved."""
        async with asyncio.timeout(120):
            while await asyncio.to_thread(self.program.json, "approvals", "list"):
                await self.ann.look()
                for approval in {card.split()[0] for card in self.cards(origin)} - told:
                    told.add(approval)
                    await self.ann.say(self.room, f"/approve {approval}")
        return told

    async def are_over(self, name: str) -> list[dict[str, Any]]:
        """Wait until every session of a name is done, and return them."""
        return await asyncio.to_thread(
            until,
            lambda: (rows := self.sessions(name)) and all(row["status"] in ("ready", "closed") and row["turns"] for row in rows) and rows,
            90,
        )


@asynccontextmanager
async def everywhere(program: Program, synapse: Synapse, scratch: Path) -> AsyncGenerator[Everywhere]:
    far = FarSide()
    async with person(synapse, "ann", scratch / "ann") as ann:
        room = await ann.room(synapse.user("wall"))
        web, hook = free_port(), free_port()
        job = script_of(program.scratch / "job.jsonl", [post(f"{far.url}/slow/job"), {"text": "the job is done"}])
        delivery = script_of(program.scratch / "delivery.jsonl", [post(f"{far.url}/slow/delivery"), {"text": "it is delivered"}])
        targets = f'approval-targets = ["web", "matrix:{room}"]'
        program.configure(
            f"""
            [model]
            name = "demo"
            [channels.matrix]
            operators = ["{ann.user}"]
            [matrix]
            homeserver = "{synapse.url}"
            user = "{synapse.user("wall")}"
            password-env = "WALL_PASSWORD"
            [web]
            port = {web}
            operators = ["olga"]
            [cron.nightly]
            schedule = "0 0 29 2 *"
            instructions = "go"
            model = "{job}"
            {targets}
            [webhooks]
            listen = "127.0.0.1:{hook}"
            [webhooks.hooks.ci]
            secret-env = "CI_SECRET"
            prompt = "go"
            model = "{delivery}"
            {targets}
            """
        )
        here = Everywhere(program, synapse, ann, room, web, hook, far)
        try:
            yield here
        finally:
            for visit in here.visits:
                visit.client.close()
            far.close()


@pytest.mark.timeout(400)
@covers("cron.asks-cross-channels")
def test_five_firings_are_one_card_in_the_room_and_in_the_web_and_a_kill_loses_and_repeats_nothing(
    program: Program, synapse: Synapse, tmp_path: Path
) -> None:
    async def talk() -> None:
        async with everywhere(program, synapse, tmp_path) as here:
            ann, room = here.ann, here.room
            running = await here.serve()
            await ann.joined(room, here.wall)
            await ann.say(room, "good morning")
            await ann.until(lambda: here.ann.heard(room, here.wall))
            (own,) = await here.are_over("matrix")
            before = program("sessions", "export", own["id"]).stdout
            await here.fires(FIRINGS)
            card = await ann.until(lambda: next((text for text in here.cards("cron: nightly") if f"asked {FIRINGS} times" in text), None))
            approval = card.split()[0]
            visit = here.visit()
            inbox = visit.get("/").text
            assert (inbox.count('<article class="card"'), inbox.count("cron: nightly")) == (1, 1)
            assert f"asked {FIRINGS} times" in inbox
            running.kill_everything()
            running = await here.serve()
            # Answered in the room; the far side has heard of it, and has not said a word, when everything is killed again.
            await ann.say(room, f"/approve {approval}")
            await asyncio.to_thread(until, lambda: here.far.hits["/slow/job"], 90)
            running.kill_everything()
            here.far.hurry.set()
            running = await here.serve()
            # Whatever the kill kept the answer from reaching is asked about once more, under an id of its own.
            told = await here.answers_the_rest("cron: nightly", {approval})
            rows = await here.are_over("nightly")
            assert len(rows) == FIRINGS
            await ann.until(lambda: not here.cards("cron: nightly"))
            shown = [heard for heard in ann.heard(room, here.wall) if "cron: nightly" in heard.text]
            assert len(shown) == len(told), "one card, however often it was asked and started"
            logs = [program("sessions", "export", row["id"]).stdout for row in rows]
            permits = sum(log.count('"CallPermitted"') for log in logs)
            assert sum(log.count('"ApprovalAnswered"') for log in logs) == FIRINGS
            assert here.far.hits["/slow/job"] <= permits == FIRINGS
            assert sum(log.count('"CallFinished"') + log.count('"CallLost"') for log in logs) == FIRINGS
            late = here.visit().post(f"/asks/{rows[0]['id']}/{_asked(logs[0])}", answer="once")
            assert late.status_code == 409
            assert "already answered by" in late.text
            assert f"{ann.user} on matrix" in late.text
            assert program("sessions", "export", own["id"]).stdout == before, "the room's own session is untouched"
            running.kill_everything()

    run(talk(), 380)


def _asked(log: str) -> str:
    (found,) = [json.loads(line)["event"]["approval"] for line in log.splitlines() if '"ApprovalAsked"' in line]
    return str(found)


@pytest.mark.timeout(300)
@covers("webhook.asks-cross-channels")
def test_an_ask_of_a_delivery_is_shown_in_the_room_answered_in_the_web_and_run_once_over_a_kill(
    program: Program, synapse: Synapse, tmp_path: Path
) -> None:
    async def talk() -> None:
        async with everywhere(program, synapse, tmp_path) as here:
            ann, room = here.ann, here.room
            running = await here.serve()
            await ann.joined(room, here.wall)
            session = here.deliver(b'{"build": 7}')
            card = await ann.until(lambda: next(iter(here.cards("webhook: ci")), None))
            approval = card.split()[0]
            running.kill_everything()
            running = await here.serve()
            assert here.deliver(b'{"build": 7}') == session, "the same delivery, also after a kill"
            visit = here.visit()
            assert "webhook: ci" in visit.get("/").text
            assert visit.post(f"/asks/{session}/{approval}", answer="once").status_code in (200, 303)
            await asyncio.to_thread(until, lambda: here.far.hits["/slow/delivery"], 90)
            running.kill_everything()
            here.far.hurry.set()
            running = await here.serve()
            await here.are_over("webhook")
            await ann.say(room, f"/approve {approval}")
            await ann.hears(room, here.wall, "already answered by `olga on web`: granted")
            assert here.far.hits["/slow/delivery"] == 1
            assert len(here.sessions("webhook")) == 1
            running.kill_everything()

    run(talk(), 280)


@pytest.mark.timeout(300)
@covers("teams.a-sensitive-answer-asks")
def test_a_teams_answer_from_a_secret_is_asked_about_in_its_teams_room_alone_and_leaves_after_a_yes_there(
    program: Program, synapse: Synapse, tmp_path: Path
) -> None:
    async def story() -> None:
        async with person(synapse, "ann", tmp_path / "ann") as ann:
            room, wall = await ann.room(synapse.user("wall")), synapse.user("wall")
            text = f'''
                [channels.matrix]
                operators = ["{ann.user}"]
                [matrix]
                homeserver = "{synapse.url}"
                user = "{wall}"
                password-env = "WALL_PASSWORD"
                [lists]
                teams = ["*"]
                '''
            for team, colour in (("backend", "blue"), ("data", "green")):
                (program.scratch / team).mkdir()
                (program.scratch / team / ".env").write_text(f"COLOUR={colour}\n")
                reads = {"code": "print(await filesystem.read_file(path='.env'))"}
                model = script_of(program.scratch / f"{team}.jsonl", [reads, {"text": f"it is {colour}"}])
                text += f'[teams.{team}]\nproject = "{program.scratch / team}"\nmodel = "{model}"\n'
            program.configure(text.replace("[teams.data]", f'approval-target = "matrix:{room}"\n[teams.data]'))
            running = program.begin("serve", WALL_PASSWORD="secret")
            await ann.joined(room, wall)
            elsewhere = await asyncio.to_thread(program, "teams", "ask", "--timeout", "1s", "data", "which colour?", fails=True)
            assert elsewhere.returncode == 3
            asking = program.begin("teams", "ask", "--timeout", "4m", "backend", "which colour?")
            card = await ann.until(lambda: next((heard.text for heard in ann.heard(room, wall) if "it is blue" in heard.text), None))
            assert asking.out == ""
            await ann.say(room, f"/approve {card.split()[0]}")
            assert (await asyncio.to_thread(asking.code, 90), asking.out) == (0, "it is blue\n")
            (other,) = await asyncio.to_thread(until, lambda: program.json("approvals", "list"))
            told = [heard.text for heard in ann.heard(room, wall)]
            assert not any("green" in each or other["id"] in each for each in told), "a team without a target asks nowhere"
            running.kill_everything()

    run(story(), 280)
