"""Long and many: the log grows by what was said and no more, a fold of it is the live conversation, and who waits holds nothing."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import curtainwall
from curtainwall.agents.builtin import BuiltinAgent
from curtainwall.agents.builtin.history import ConversationHistory
from curtainwall.compose.agents import RunningAgents, run_agents
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.compose.store import open_store
from curtainwall.config.agents import BUILTIN
from curtainwall.host.home import find_home
from curtainwall.host.user import local_user
from curtainwall.library.session import Session
from curtainwall.model import (
    AnswerApproval,
    ApprovalAsked,
    HistoryCompacted,
    MessageId,
    SendMessage,
    SessionId,
    TurnEnded,
    TurnStatus,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.operations.replay import ReplayReport, replay_session
from tests.support.covers import covers
from tests.support.talking import Held, Home, Playing, of, playing, run, runs, until
from tests.support.waiting import eventually, is_gone
from tests.support.workers import descendants

TURNS = 200
PARKED = 50


def logged(session: Session) -> int:
    """Return how many bytes the session's log and all blobs have."""
    entries = session._work.wired.store.log.read(session_stream(session.id))
    blobs = (path for path in (session._work.wired.setup.home.root / "blobs").rglob("*") if path.is_file())
    return sum(len(entry.payload) for entry in entries) + sum(path.stat().st_size for path in blobs)


def replayed(session: curtainwall.Session) -> ReplayReport:
    with open_store(find_home()) as store:
        return replay_session(store, session.id)


def see_that_the_log_makes_the_live_conversation(session: Session) -> ConversationHistory:
    """Return the conversation folded anew; it equals the one that the agent holds."""
    work = session._work
    folded = ConversationHistory(work.journal.load)
    for recorded in session.timeline():
        folded.take(recorded.event)
    agent = work.agents._workers[BUILTIN]
    assert isinstance(agent, BuiltinAgent)
    live = agent._synced(session.id).history
    assert (folded.items, folded.new, folded.system) == (live.items, live.new, live.system)
    assert (folded.request, folded.replies, folded.used, folded.programs) == (live.request, live.replies, live.used, live.programs)
    assert (folded.turn, folded.last_words, folded.pinned, folded.calls) == (live.turn, live.last_words, live.pinned, live.calls)
    return folded


@covers("agents.the-log-grows-with-what-is-said")
def test_two_hundred_turns_cost_the_same_each_and_the_log_makes_the_live_conversation(home: Home) -> None:
    home.configure("[limits]\nsteps = 1_000\ntokens = 1_000_000_000\n")
    model = playing(*(line for n in range(TURNS) for line in (runs(f"print({n}, 'x' * 200)"), f"answer {n} {'y' * 200}")))

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            sizes = [logged(session)]
            for n in range(TURNS):
                assert (await session.send(f"question {n} {'z' * 200}")).text.startswith(f"answer {n} ")
                if n % 10 == 9:
                    sizes.append(logged(session))
            grown = [after - before for before, after in pairwise(sizes)]
            # The first stretch holds the system prompt; from then on only what is new is written.
            early, late = sum(grown[1:4]) / 3, sum(grown[-3:]) / 3
            assert late < early * 1.1, grown
            folded = see_that_the_log_makes_the_live_conversation(session)
            assert len(folded.items) == TURNS * 4
            assert (folded.items, folded.replies) == ([*model.prompts[-1].items, folded.items[-1]], TURNS * 2)
            assert replayed(session).violations == ()

    run(main())


@covers("agents.replay-finds-nothing-broken")
def test_replay_finds_no_broken_promise_after_compaction_fork_reset_and_interruption(home: Home) -> None:
    held = Held("half an ans")
    outside = f'await filesystem.write_file(path="{home.outside}/a", content="1")'
    model = playing(
        runs('await filesystem.write_file(path="a", content="1")'), "one", "two", held, runs(outside), "three", "forked", "fresh"
    )

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            for text in ("a", "b"):
                await session.send(text)
            sending = asyncio.create_task(session.send("c"))
            await held.shown.wait()
            await session.interrupt()
            await sending
            await session.send("d")
            await session.interrupt()
            await session.compact("briefly")
            await until(session, HistoryCompacted)
            assert (await session.send("e")).text == "three"
            fork = await session.fork()
            assert (await fork.send("f")).text == "forked"
            reset = await fork.reset()
            assert (await reset.send("g")).text == "fresh"
            for each in (session, fork, reset):
                see_that_the_log_makes_the_live_conversation(each)
                found = replayed(each)
                assert (found.violations, found.status) == ((), "ready")
            assert model.heard == ["human: g"]
            await session.close()
            assert replayed(session).violations == ()

    run(main())


@asynccontextmanager
async def office(model: Playing) -> AsyncGenerator[RunningAgents]:
    """Return one process's agents, for any number of sessions."""
    async with (
        open_gate(load_setup()) as wired,
        run_agents(wired, lambda _: model, SessionSpec(model.name)) as work,
    ):
        yield work


async def stopped(work: RunningAgents, session: SessionId, status: TurnStatus) -> None:
    async for recorded in work.wired.registry.feed.follow(session_stream(session)):
        if isinstance(recorded.event, TurnEnded) and recorded.event.status is status:
            return


@covers("agents.parked-sessions-hold-no-worker")
def test_fifty_sessions_wait_for_humans_without_a_worker_and_all_go_on_at_once(home: Home) -> None:
    home.configure("[code]\nworkers = 2\n")
    outside = 'await filesystem.write_file(path="OUT/" + "s", content="1")\n"written"'.replace("OUT", str(home.outside))
    model = playing(*[runs(outside)] * PARKED)

    async def main() -> None:
        by = local_user()
        async with office(model) as work:
            sessions = [await open_new(work.wired.sessions, SessionSpec(model.name), by) for _ in range(PARKED)]
            for n, session in enumerate(sessions):
                await work.desk.send(session, SendMessage(by=by, message=MessageId(f"m{n}"), text=f"go {n}"))
                work.turns.attend(session)
            await asyncio.gather(*(stopped(work, session, TurnStatus.WAITING) for session in sessions))
            # No more than the pool of two and a checker, each at most three processes of a sandbox.
            await eventually(lambda: sum(not is_gone(pid) for pid in set(descendants(os.getpid()))) <= 3 * 3)
            asks = {session: of(ApprovalAsked, work.wired.registry.feed.read(session_stream(session))) for session in sessions}
            assert all(len(asked) == 1 for asked in asks.values())
            answers = (
                work.desk.send(session, AnswerApproval(by=by, approval=asked[0].approval, granted=True)) for session, asked in asks.items()
            )
            await asyncio.gather(*answers)
            await asyncio.gather(*(stopped(work, session, TurnStatus.DONE) for session in sessions))
            assert all(work.desk.view(session).status == "ready" for session in sessions)

    run(main())
    assert len(model.prompts) == 2 * PARKED
    assert Path(home.outside, "s").read_text() == "1"
