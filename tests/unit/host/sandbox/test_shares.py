import asyncio
from dataclasses import dataclass, field

import pytest

from curtainwall.host import MIB, ShareLimits, Shares, limits_of_this_machine
from curtainwall.host.sandbox.shares import CommandPlace, SandboxUsage

LIMITS = ShareLimits(
    session_commands=2, commands=3, session_memory=100 * MIB, memory=150 * MIB, session_processes=10, processes=15
)  # fmt: skip


@dataclass
class Sandbox:
    """A family that uses what a test says."""

    usage: SandboxUsage
    exact: SandboxUsage | None = None
    killed: list[str | None] = field(default_factory=list)

    def weigh(self) -> None:
        self.usage = self.exact or self.usage

    def kill(self, why: str | None = None) -> None:
        self.killed.append(why)


async def soon() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_session_never_has_more_places_than_its_own_and_others_get_theirs() -> None:
    async def story() -> None:
        shares = Shares(LIMITS)
        got: list[tuple[str, CommandPlace]] = []

        async def take(session: str) -> None:
            got.append((session, await shares.of(session).take_place()))

        tasks = [asyncio.create_task(take(session)) for session in "aaaabb"]
        await soon()
        assert [session for session, _ in got] == ["a", "a", "b"]
        for _, place in got[:2]:
            place.free()
            place.free()
        await soon()
        assert [session for session, _ in got] == ["a", "a", "b", "a", "b"], "a third one of `a` has to wait for one of its own"
        while len(got) < 6:
            next(place for _, place in got if place.is_held).free()
            await soon()
        for _, place in got:
            place.free()
        await asyncio.gather(*tasks)
        assert not (await shares.of("c").take_place()).free()

    asyncio.run(story())


def test_places_go_round_among_sessions_that_wait() -> None:
    async def story() -> None:
        shares = Shares(ShareLimits(session_commands=1, commands=1))
        order: list[str] = []

        async def work(session: str) -> None:
            place = await shares.of(session).take_place()
            order.append(session)
            await soon()
            place.free()

        await asyncio.gather(*(work(session) for session in "aaaabc"))
        assert order.index("c") <= 3
        assert sorted(order) == [*"aaaabc"]

    asyncio.run(story())


def test_a_wait_that_is_cancelled_leaves_its_turn_to_the_next() -> None:
    async def story() -> None:
        shares = Shares(ShareLimits(session_commands=1, commands=1))
        first = await shares.of("a").take_place()
        tasks = [asyncio.create_task(shares.of("a").take_place()) for _ in range(3)]
        await soon()
        tasks[0].cancel()
        await soon()
        first.free()
        # Given and cancelled in the same moment.
        tasks[1].cancel()
        (await tasks[2]).free()
        assert all(task.cancelled() for task in tasks[:2])
        (await shares.of("b").take_place()).free()

    asyncio.run(story())


def test_a_session_has_one_part_also_where_somebody_held_it_while_nothing_was_in_use() -> None:
    async def story() -> None:
        shares = Shares(ShareLimits(session_commands=2, commands=8))
        early = shares.of("a")
        (await shares.of("a").take_place()).free()
        places = [await shares.of("a").take_place() for _ in range(2)]
        waiting = asyncio.create_task(early.take_place())
        await soon()
        assert not waiting.done(), "both places of the session are taken"
        places[0].free()
        (await waiting).free()
        places[1].free()

    asyncio.run(story())


def test_the_biggest_of_a_session_that_uses_too_much_is_ended() -> None:
    shares = Shares(LIMITS)
    small, big, other = (Sandbox(SandboxUsage(2, size * MIB)) for size in (40, 70, 39))
    for session, sandbox in (("a", small), ("a", big), ("b", other)):
        shares.of(session).add(sandbox)
    shares.end_what_is_too_much(shares.of("b"))
    assert not other.killed
    shares.end_what_is_too_much(shares.of("a"))
    assert [len(one.killed) for one in (small, big, other)] == [0, 1, 0]
    assert "this session together used more than 100 MiB" in str(big.killed)


def test_where_all_use_too_much_the_session_that_uses_most_pays() -> None:
    shares = Shares(LIMITS)
    sandboxes = {name: Sandbox(SandboxUsage(1, size * MIB)) for name, size in (("a", 30), ("b", 95), ("c", 40))}
    for name, sandbox in sandboxes.items():
        shares.of(name).add(sandbox)
    shares.end_what_is_too_much(shares.of("a"))
    assert [name for name, sandbox in sandboxes.items() if sandbox.killed] == ["b"]
    crowd = [Sandbox(SandboxUsage(8)), Sandbox(SandboxUsage(8))]
    shares = Shares(LIMITS)
    for name, sandbox in zip("ab", crowd, strict=True):
        shares.of(name).add(sandbox)
    shares.end_what_is_too_much(shares.of("a"))
    assert sum(len(one.killed) for one in crowd) == 1


def test_memory_that_processes_share_counts_once() -> None:
    shares = Shares(LIMITS)
    sandbox = Sandbox(SandboxUsage(2, 300 * MIB), exact=SandboxUsage(2, 60 * MIB))
    shares.of("a").add(sandbox)
    shares.end_what_is_too_much(shares.of("a"))
    assert not sandbox.killed
    shares.of("a").remove(sandbox)
    assert shares.of("a").usage == SandboxUsage()


@pytest.mark.parametrize("part", ["commands", "memory", "processes"])
def test_by_default_a_session_has_a_part_and_no_more(part: str) -> None:
    limits = limits_of_this_machine()
    assert 0 < getattr(limits, f"session_{part}") <= getattr(limits, part)
