"""A server that misbehaves in every way we could think of: a call comes to a clean end, and the next one works."""

import asyncio
import json
import os
import re
import resource
from pathlib import Path

import pytest

from curtainwall.model import CallFinished, CallRequest
from curtainwall.tools.runners import progress_to
from curtainwall.tools.servers import CannotStart
from curtainwall.tools.servers.client import ServerLost
from tests.support.covers import covers
from tests.support.houses import events, run, until
from tests.support.servers import bad_server, desk, place_at, review, servers_at

pytestmark = pytest.mark.usefixtures("bubblewrap")


@covers("servers.any-answer-is-an-outcome")
def test_whatever_a_server_answers_an_outcome_comes_of_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            assert await at.value("bad.echo", text="hello") == "hello"
            assert await at.value("bad.garbage") == "after the garbage"
            assert await at.value("bad.wrong_ids") == "right"
            assert "refused the call: no[31m, I will not" in await at.failure("bad.refuse")
            assert await at.failure("bad.fail") == "it went wrong"
            assert "its answer is no answer" in await at.failure("bad.nonsense")
            picture = await at.value("bad.picture")
            assert isinstance(picture, list)
            assert (picture[0]["type"], picture[0]["bytes"], picture[1]) == ("image", 5, "a picture")
            assert len(str(await at.value("bad.big", size=100_000))) < 100_000
            # The outcome of a look is in the log a moment after its answer.
            await until(lambda: any(isinstance(event, CallFinished) and event.result.blob for event in events(at.house, at.session)))
            assert await at.value("bad.echo", text="still here") == "still here"

    run(story())


def children_reaped() -> int:
    """Return how much memory the children of this process touched that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


@covers("servers.large-answers-hold-nobody-up")
def test_an_answer_with_a_million_values_is_read_in_another_process_and_passed_on_without_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            before = children_reaped()
            assert await at.value("bad.many", values=1_000) == {"content": "many", "structured": {"v": [1] * 1_000}}
            assert children_reaped() == before, "what is small is read here"
            told = await at.value("bad.many", values=1_000_000)
            assert told == {"content": "many", "structured": "[… 1000002 values, left out: at most 20000 are passed on …]"}
            assert children_reaped() > before
            parts = await at.value("bad.many", values=50_000, parts=True)
            assert isinstance(parts, list)
            assert (len(parts), parts[-1]) == (1_000, "[… 49001 more parts left out …]")
            assert await at.value("bad.echo", text="," * 25_000) == "," * 25_000, "commas in a text are a text"

    run(story())


@covers("servers.large-answers-hold-nobody-up")
def test_a_message_with_too_many_values_ends_its_server_and_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            assert "it sent a message of more than 200000 values" in await at.failure("bad.many", values=1_000_000, elsewhere=True)
            assert await at.value("bad.echo", text="after") == "after"

    run(story())


@pytest.mark.parametrize(
    ("tool", "why"), [("flood", "it floods us"), ("huge", "a line of more than 8 MiB"), ("die", "these are my last words")]
)
@covers("servers.restarted")
def test_a_server_that_is_lost_fails_its_call_and_the_next_one_works(tool: str, why: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            assert await at.value("bad.echo", text="before") == "before"
            told = await at.failure(f"bad.{tool}")
            assert "died during the call, which may have had its effect" in told
            assert why in told
            assert await at.value("bad.echo", text="after") == "after"

    run(story())


@covers("servers.timeouts")
def test_a_call_without_an_answer_ends_at_its_time_and_an_answer_that_comes_too_late_is_dropped(tmp_path: Path) -> None:
    async def story() -> None:
        spec = bad_server(timeout=1.0)
        async with desk(tmp_path, *await review(tmp_path, spec)) as at:
            assert "did not answer within 1 seconds" in await at.failure("bad.hang")
            # This one waits to be told that it is cancelled, and answers then.
            assert "did not answer within 1 seconds" in await at.failure("bad.late")
            for number in range(3):
                assert await at.value("bad.echo", text=str(number)) == str(number)
            assert await at.value("bad.count_cancelled") == "2"

    run(story())


@covers("servers.cancellation")
def test_a_call_that_nobody_wants_any_more_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            call = asyncio.create_task(at.call("bad.late"))
            await until(lambda: any(type(event).__name__ == "CallPermitted" for event in events(at.house, at.session)))
            await at.value("bad.echo", text="it is on its way")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await at.value("bad.echo", text="next") == "next"
            assert await at.value("bad.count_cancelled") == "1"

    run(story())


@covers("servers.canonical-arguments")
def test_a_server_gets_what_was_judged_and_not_what_was_written(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            (at.workspace / "real").mkdir()
            (at.workspace / "link").symlink_to("real")
            assert await at.value("bad.show_path", path="link/../link/x") == str(at.workspace / "real" / "x")

    run(story())


@covers("servers.progress")
def test_progress_is_heard_by_whoever_waits(tmp_path: Path) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            with progress_to(lambda *told: heard.append(told)):
                answer = await at.gate.request(at.session, CallRequest(tool="bad.progress", arguments={}))
            assert answer.result is not None
            assert answer.result.value == "done"

    run(story())
    assert heard == [(1, 3, "step[2J 1"), (2, 3, "step[2J 2"), (3, 3, "step[2J 3")]


@covers("servers.asked-for-nothing")
def test_a_server_that_asks_us_for_something_gets_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            told = await at.value("bad.ask_us")
            heard = json.loads(str(told))
            assert heard["roots/list"] == {"roots": []}
            assert heard["elicitation/create"] == {"action": "decline"}
            assert "declined" in heard["sampling/createMessage"]["message"]
            assert heard["ping"] == {}
            assert heard["who/knows"]["code"] == -32601

    run(story())


def test_a_server_of_the_newer_protocol_alone_is_understood(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server("bad", "--modern"))) as at:
            assert await at.value("bad.echo", text="modern") == "modern"

    run(story())


def test_a_server_that_crashes_at_once_says_why_and_is_not_tried_over_and_over(tmp_path: Path) -> None:
    async def story() -> None:
        (spec,) = await review(tmp_path, bad_server())
        crashing = bad_server("bad", "--crash", tools=spec.tools)
        async with desk(tmp_path, crashing) as at:
            told = ""
            for _ in range(6):
                told = await at.failure("bad.echo", text="x")
                if "in a row" in told:
                    break
                assert "I cannot start: the moon is full" in told
            assert re.search(r"failed \d times in a row; it is tried again in \d seconds", told)

    run(story())


def test_what_a_server_complains_about_is_kept_masked_and_bounded(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9

    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            await at.value("bad.complain", text=f"my token is {secret} you know")
            for _ in range(40):
                await at.value("bad.complain", text="z" * 120_000)
            await until((tmp_path / "logs" / "server-bad.log.1").exists)

    run(story())
    written = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert sorted(written) == ["server-bad.log", "server-bad.log.1"]
    assert all(len(text) <= 1_200_000 for text in written.values())
    assert all(secret not in text for text in written.values())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "logs").iterdir())


def test_secrets_in_results_are_masked(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9

    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server(write=("{workspace}",)))) as at:
            (at.workspace / "key").write_text(f"key {secret}")
            told = await at.value("bad.read_file", path="key")
            assert secret not in str(told)
            assert "[masked:" in str(told)

    run(story())


def test_a_server_per_session_and_one_for_all(tmp_path: Path) -> None:
    async def story() -> None:
        specs = await review(tmp_path, bad_server("own"), bad_server("shared", shared=True))
        servers = servers_at(tmp_path, *specs)
        one, two = (place_at(tmp_path, name) for name in ("s1", "s2"))
        try:
            async with servers.supervisor.using("own", one) as first, servers.supervisor.using("own", two) as second:
                assert first is not second
            async with servers.supervisor.using("shared", one) as first, servers.supervisor.using("shared", two) as second:
                assert first is second
            async with servers.supervisor.using("own", one) as mine:
                pass
            await servers.leave(one.session)
            assert mine.is_lost
            with pytest.raises(ServerLost, match="it was stopped"):
                await mine.list_tools()
            async with servers.supervisor.using("own", two) as other:
                assert not other.is_lost
        finally:
            await servers.close()
        with pytest.raises(CannotStart, match="being stopped"):
            async with servers.supervisor.using("own", one):
                pass

    run(story())
    assert os.listdir(tmp_path / "servers")


def test_calls_of_one_session_run_at_once_and_answers_are_not_crossed(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, bad_server())) as at:
            texts = [f"text {number}" for number in range(100)]
            assert await asyncio.gather(*(at.value("bad.echo", text=text) for text in texts)) == texts

    run(story())
