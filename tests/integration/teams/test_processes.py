"""Teams over processes: two that ask at the same moment share one conversation, and what was accepted is delivered once, whoever dies."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from curtainwall import open_teams
from curtainwall.model import MessageAccepted, PeerAnswered
from tests.support.covers import covers
from tests.support.houses import run
from tests.support.teams import LISTED, TeamHome, events_in, pair_sessions, serve_with
from tests.support.upstream import KEY, Says, upstream_beside

_ROUNDS = 50
_KILLS = 20


class Talker:
    """A process that talks to teams."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "tests.support.team_process", *words]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ})
        self.hears()

    def tell(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{line}\n")
        self.child.stdin.flush()

    def hears(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        return json.loads(self.child.stdout.readline())

    def end(self) -> None:
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()
        self.child.wait(timeout=90)


@contextmanager
def talkers(*each: tuple[str, ...]) -> Iterator[list[Talker]]:
    started: list[Talker] = []
    try:
        started += (Talker(*words) for words in each)
        yield started
    finally:
        for talker in started:
            talker.end()


@pytest.mark.timeout(300)
@covers("teams.one-conversation-for-a-pair")
def test_two_processes_that_ask_a_new_pair_at_once_share_one_conversation(team_home: TeamHome) -> None:
    script = team_home.script("backend", json.dumps({"text": "first"}), json.dumps({"text": "second"}))
    team_home.write(frontend="demo", backend=script)
    with talkers((), ()) as both:
        for number in range(_ROUNDS):
            for name, talker in zip("ab", both, strict=True):
                talker.tell(f"ask round-{number} from {name}")
            told = [talker.hears() for talker in both]
            assert sorted(it["text"] for it in told) == ["first", "second"], f"round {number}: {told}"

    async def look() -> None:
        async with open_teams() as teams:
            sessions = pair_sessions(teams)
            assert len(sessions) == _ROUNDS
            for session in sessions:
                events = events_in(teams, session)
                asked = [event.message for event in events if isinstance(event, MessageAccepted)]
                answered = [(event.answer.message, event.answer.text) for event in events if isinstance(event, PeerAnswered)]
                assert answered == list(zip(asked, ("first", "second"), strict=True))

    run(look())


@pytest.mark.timeout(300)
@covers("teams.one-conversation-for-a-pair")
def test_a_local_agent_has_one_transcript_for_each_pair_that_two_processes_begin_at_once(short_home: TeamHome, fake: Path) -> None:
    serve_with(short_home, fake, "most = 3\n", frontend="demo")
    with talkers((), ()) as both:
        for number in range(_ROUNDS):
            for name, talker in zip("ab", both, strict=True):
                talker.tell(f"ask round-{number} {name}")
            told = [talker.hears() for talker in both]
            assert {it["text"] for it in told} in ({"message 1: a", "message 2: b"}, {"message 1: b", "message 2: a"}), f"{number}: {told}"
    transcripts = list(short_home.home.glob("sessions/*/state/projects/*/*.jsonl"))
    assert len(transcripts) == len({path.parents[3] for path in transcripts}) == _ROUNDS, "no orphan"
    asked = [[line for line in path.read_text().splitlines() if '"type":"user"' in line] for path in transcripts]
    assert {len(lines) for lines in asked} == {2}


@pytest.mark.timeout(300)
@covers("teams.a-notice-is-delivered-once")
def test_what_was_accepted_is_delivered_exactly_once_whenever_the_process_is_killed(team_home: TeamHome) -> None:
    chance = random.Random(6)
    with upstream_beside() as server:
        server.will(*(Says((f"ok {number}",)) for number in range(20 * _KILLS)))
        team_home.more = LISTED + f'[models.local]\nurl = "{server.url}/v1"\nkey = "{KEY}"\n'
        team_home.write(frontend="demo", backend="local:m")
        tokens = [f"notice-{number}-{chance.randrange(10**6)}" for number in range(_KILLS)]
        with talkers(("forks",)) as (forks,):
            for token in tokens:
                forks.tell(f"notify {token}")
                pid = forks.hears()["pid"]
                # The moment is what this test is about: right after it was accepted, or while somebody works on it.
                time.sleep(chance.choice((0, 0, chance.uniform(0, 0.05))))
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            forks.tell("ask  what do you know?")
            assert forks.hears()["status"] == "done"
        said = [message for message in server.asked[-1].body["messages"] if message["role"] == "user"]
        told = [json.dumps(message) for message in said]
    assert [sum(token in text for text in told) for token in tokens] == [1] * _KILLS
    order = [next(place for place, text in enumerate(told) if token in text) for token in tokens]
    assert order == sorted(order)
