"""What `execute_code` costs once everything is warm: checked, confined and durable, beside the interpreter alone."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pydantic_monty import AsyncFunctionSnapshot, AsyncFutureSnapshot, AsyncMonty, AsyncNameLookupSnapshot, MontyComplete

from bench.agents import AtOnce, at_work, runs
from bench.measuring import Figure, Rounds, Seconds, Side, Target, clock, interleave
from curtainwall.agents.builtin import ProgramRunner, SnapshotSeal, Workers
from curtainwall.agents.builtin.calls import TurnCalls
from curtainwall.agents.builtin.history import ConversationHistory
from curtainwall.agents.builtin.language_model import Program
from curtainwall.agents.builtin.program import ProgramDone
from curtainwall.agents.builtin.stubs import stubs_for
from curtainwall.compose.agents import RunningAgents, code_limits, worker_launcher
from curtainwall.host.user import local_user
from curtainwall.model import SYSTEM, MessageId, SendMessage, SessionId, StartTurn, TurnAt, TurnId
from curtainwall.operations.open import open_new

_EACH = 40
_PLAIN = "total = 0\nfor number in range(100):\n    total += number * number\nprint(total)\ntotal"
_READS = 'text = await filesystem.read_file(path="notes.txt")\nprint(len(text))'
_WRITES = 'told = await filesystem.write_file(path="out-NUMBER.txt", content="bread")\nprint(told)'
_BARE_CALL = 'text = await read_file("notes.txt")\nprint(len(text))'
_NOTES = "bread, milk, a new lock for the gate\n" * 20


async def programs(home: Path) -> list[Figure]:
    """Run small programs: one that only computes, one that reads a file through the gate, one that writes one."""
    async with AsyncExitStack() as stack:
        work, wanted = await stack.enter_async_context(at_work(home, AtOnce(lambda prompt: runs(_PLAIN, prompt))))
        pool = await stack.enter_async_context(AsyncMonty(min_processes=1))
        setup = work.wired.setup
        session = await open_new(work.wired.sessions, wanted, local_user())
        (setup.home.session(session).workspace / "notes.txt").write_text(_NOTES, encoding="utf-8")
        workers = await stack.enter_async_context(_kept(Workers(lambda: worker_launcher(setup), code_limits(setup))))

        async def settled() -> None:
            # A check goes on beside a program that does not need its verdict; the next program must not have to pay for it.
            await workers.checkers.check(session, "None", surface.stubs)

        surface = stubs_for(work.wired.tools.listing())
        run = await _runner(work, ProgramRunner(workers, SnapshotSeal(b"bench" * 8), work.journal), session)

        async def alone() -> None:
            async with pool.checkout() as worker:
                await worker.feed_run(_PLAIN, print_callback=_unheard)

        async def alone_with_a_call() -> None:
            async with pool.checkout() as worker:
                await _driven(await worker.feed_start(_BARE_CALL, print_callback=_unheard))

        took = await interleave(
            {
                "plain": _side(lambda: run(_PLAIN), settled),
                "bare": _side(alone, settled),
                "reads": _side(lambda: run(_READS), settled),
                "bare call": _side(alone_with_a_call, settled),
                "writes": _side(lambda: run(_WRITES), settled),
            }
        )
    return _figures(took)


@asynccontextmanager
async def _kept(workers: Workers) -> AsyncGenerator[Workers]:
    try:
        yield workers
    finally:
        await workers.close()


async def _runner(work: RunningAgents, ours: ProgramRunner, session: SessionId) -> Callable[[str], Awaitable[None]]:
    """Return what runs a program as a turn of this session does: in a turn, with the real gate and the real checker."""
    house, turn = work.wired.registry, TurnId(work.wired.registry.mint())
    await house.send(session, SendMessage(by=local_user(), message=MessageId(house.mint()), text="go"))
    await house.send(session, StartTurn(by=SYSTEM, turn=turn))
    tools = work.wired.tools.listing()
    surface = stubs_for(tools)
    talk = ConversationHistory(work.journal.load)
    calls = TurnCalls(
        at=TurnAt(session=session, turn=turn),
        gate=work.wired.gate,
        journal=work.journal,
        clock=house.clock,
        masker=work.wired.masker,
        talk=talk,
        effects={tool.full_name: tool.effect for tool in tools},
        sync=lambda: talk,
    )

    async def run(code: str) -> None:
        name = house.mint()
        # Another file each time: the same change over and over is what the breaker is for.
        program = Program(id=name, code=code.replace("NUMBER", name))
        ended = await ours.run(session, program, surface, calls)
        assert isinstance(ended, ProgramDone)
        assert ended.ok, ended.text

    return run


def _unheard(_stream: str, _text: str) -> None:
    """Let a program print to nobody."""


async def _driven(snapshot: MontyComplete | AsyncFunctionSnapshot | AsyncNameLookupSnapshot | AsyncFutureSnapshot) -> None:
    """Answer whatever a program waits for at once, until it is over."""
    while not isinstance(snapshot, MontyComplete):
        match snapshot:
            case AsyncNameLookupSnapshot():
                snapshot = await snapshot.resume()
            case AsyncFunctionSnapshot():
                snapshot = await snapshot.resume({"future": ...})
            case AsyncFutureSnapshot():
                snapshot = await snapshot.resume({number: {"return_value": _NOTES} for number in snapshot.pending_call_ids})


def _side(work: Callable[[], Awaitable[None]], settled: Callable[[], Awaitable[None]]) -> Side:
    async def run(_: int) -> Sequence[Seconds]:
        took: list[Seconds] = []
        for _ in range(_EACH):
            began = clock()
            await work()
            took.append(clock() - began)
            await settled()
        return took

    return run


def _figures(took: dict[str, Rounds]) -> list[Figure]:
    bare, bare_call = "bare interpreter, unchecked and unconfined", "bare pause and resume, not durable"
    rows = (
        ("execute_code, warm", "plain", "bare", bare, 3.0, "a program without calls: worker lent, run, and type-checked beside it"),
        (
            "execute_code with one call",
            "reads",
            "bare call",
            bare_call,
            5.0,
            "the same with `filesystem.read_file` through the gate: judged, two commits, run for real",
        ),
        (
            "execute_code with one write",
            "writes",
            "bare call",
            bare_call,
            5.0,
            "the same with `filesystem.write_file`: types are in before the permit, the program is saved with it, and the file is synced",
        ),
    )
    return [
        Figure(name, took[side].p50 * 1e3, "ms", took[peer].p50 * 1e3, beside, took[side].to(took[peer]), Target(limit), note)
        for name, side, peer, beside, limit, note in rows
    ]
