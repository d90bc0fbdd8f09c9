"""An agent with a real shell in a real sandbox, which exchanges what the user trusted: what was looked at is what runs."""

import asyncio
import shlex
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.facts import Masker
from curtainwall.model import HookReply, Mode
from curtainwall.tools.hooks import HookSettings, HookSurroundings, HookTrust, Pins, UserHooks, workspace_hooks
from tests.support.covers import covers
from tests.support.hook_seams import Seam, bring, said
from tests.support.hooking import ENVIRON, call, command, shell
from tests.support.machines import Machine

pytestmark = pytest.mark.usefixtures("bubblewrap")

GUARD = 'set -e\n. "$(dirname "$0")/lib/words.sh"\necho "the guard, $WORD" >&2\nexit 2'
TRUE_WORDS = "the guard, as trusted"


@pytest.fixture(params=[Mode.ACCEPT_EDITS, Mode.BYPASS])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    """A project with a hook that was trusted, and the mark that an exchanged one would leave outside the sandbox."""
    made = Machine.at(tmp_path, own=False, mode=request.param)
    (made.workspace / ".claude").mkdir()
    (made.workspace / "scripts" / "lib").mkdir(parents=True)
    shell(made.workspace / "scripts" / "check", GUARD)
    (made.workspace / "scripts" / "lib" / "words.sh").write_text("WORD='as trusted'\n")
    bring(made.workspace, command("./scripts/check"))
    return made


def trusted(machine: Machine) -> Pins:
    pins = Pins(machine.root / "house" / "pins.json")
    pins.set(str(machine.workspace), workspace_hooks(machine.workspace, {}).digest)
    return pins


def fired(machine: Machine, pins: Pins, then: Callable[[], object] = lambda: None) -> HookReply:
    """Fire the hooks; between the look and the run, whatever an agent does has time to end."""

    def acted() -> None:
        agent = threading.Thread(target=then)
        agent.start()
        agent.join(60)

    hooks = UserHooks(HookSettings(), HookSurroundings(Masker(b"k" * 32), Seam(ENVIRON, acted)), pins)
    return asyncio.run(hooks.before_call(call("filesystem.read_file"), machine.place))


def evil(machine: Machine) -> str:
    return f"touch {shlex.quote(str(machine.root / 'escaped'))}; WORD=exchanged"


def planted(machine: Machine, path: str) -> str:
    """Return what an agent says in its shell to put something else at a path."""
    script = f"#!/bin/sh\n{evil(machine)}\n"
    return f"printf %s {shlex.quote(script)} > fresh && chmod +x fresh && mv fresh {path}"


SWAPS: dict[str, Callable[[Machine], str]] = {
    "the-program": lambda machine: planted(machine, "scripts/check"),
    "its-bytes": lambda machine: f"echo {shlex.quote(evil(machine))} > scripts/check",
    "a-file-that-it-reads": lambda machine: planted(machine, "scripts/lib/words.sh"),
    "the-directory-of-that-by-a-link": lambda machine: (
        f"mkdir other && {planted(machine, 'other/words.sh')} && mv scripts/lib old && ln -s ../other scripts/lib"
    ),
    "the-directory-by-a-link": lambda machine: f"mkdir other && {planted(machine, 'other/check')} && mv scripts old && ln -s other scripts",
    "the-program-by-a-link": lambda machine: f"{planted(machine, 'evil')} && ln -sf ../evil scripts/check",
    "the-directory-in-between": lambda machine: f"mv scripts old && mkdir scripts && {planted(machine, 'scripts/check')}",
}


@covers("hooks.what-was-looked-at-runs")
@pytest.mark.parametrize("swap", SWAPS)
def test_what_an_agent_exchanges_with_its_shell_between_the_look_and_the_run_does_not_run(machine: Machine, swap: str) -> None:
    pins, done = trusted(machine), list[object]()
    reply = fired(machine, pins, lambda: done.append(machine.out(f"{SWAPS[swap](machine)} && echo exchanged")))
    assert done == ["exchanged\n"], "the agent did it"
    assert said(reply) == TRUE_WORDS
    assert not (machine.root / "escaped").exists()
    assert workspace_hooks(machine.workspace, pins.all()).trust is HookTrust.CHANGED


@pytest.mark.parametrize("swap", SWAPS)
def test_what_an_agent_exchanged_before_the_look_does_not_run_either_and_a_human_is_asked(machine: Machine, swap: str) -> None:
    pins = trusted(machine)
    assert said(fired(machine, pins)) == TRUE_WORDS
    machine.out(SWAPS[swap](machine))
    reply = fired(machine, pins)
    assert reply.says is not None
    assert (reply.says.effect, reply.says.hook) == ("ask", "workspace-changed")
    assert not (machine.root / "escaped").exists()


@pytest.mark.parametrize("swap", SWAPS)
def test_each_exchange_would_run_outside_if_the_line_were_run_as_it_is_written(machine: Machine, swap: str) -> None:
    """The counter-check: where a line says that a program is to be run where it lies, the same swaps do get out."""
    bring(machine.workspace, command("sh -c ./scripts/check"))
    fired(machine, trusted(machine), lambda: machine.out(SWAPS[swap](machine)))
    assert (machine.root / "escaped").exists()


SWAPPING = """
import os
n = 0
while not os.path.exists("stop"):
    for target in ("bad", "good"):
        os.symlink(target, "next")
        os.replace("next", "scripts")
    n += 1
    if n == 1000:
        open("going", "w").close()
print(n)
"""


def test_an_agent_that_exchanges_without_end_never_gets_a_turn(tmp_path: Path) -> None:
    """A race that is seen to have happened: the shell exchanges all the time, and the hook is fired all the time."""
    machine = Machine.at(tmp_path, own=False, mode=Mode.ACCEPT_EDITS)
    for name in (".claude", "good", "bad"):
        (machine.workspace / name).mkdir()
    shell(machine.workspace / "good" / "check", "echo the guard >&2; exit 2")
    shell(machine.workspace / "bad" / "check", evil(machine))
    (machine.workspace / "scripts").symlink_to("good")
    bring(machine.workspace, command("./scripts/check"))
    pins = trusted(machine)
    (machine.workspace / "swap.py").write_text(SWAPPING)
    swaps: list[int] = []
    agent = threading.Thread(target=lambda: swaps.append(int(machine.out("/usr/bin/python3 swap.py"))))
    agent.start()
    hooks = UserHooks(HookSettings(), HookSurroundings(Masker(b"k" * 32), ENVIRON), pins)

    async def fire() -> dict[str, int]:
        said = {"deny": 0, "ask": 0}
        async with asyncio.timeout(50):
            while min(said.values()) < 20 or not (machine.workspace / "going").exists():
                reply = await hooks.before_call(call("filesystem.read_file"), machine.place)
                assert reply.says is not None
                said[reply.says.effect] += 1
                assert reply.says.effect == "ask" or reply.says.reason == "the guard"
        return said

    try:
        counted = asyncio.run(fire())
    finally:
        (machine.workspace / "stop").touch()
        agent.join(60)
    assert swaps[0] >= 1000, "it was exchanged meanwhile"
    assert min(counted.values()) >= 20, "it was seen in both states"
    assert not (machine.root / "escaped").exists()


def test_an_agent_reaches_neither_the_copies_nor_the_pins(machine: Machine) -> None:
    pins = trusted(machine)
    assert said(fired(machine, pins)) == TRUE_WORDS
    copies = [path for path in (machine.root / "house" / "pinned").rglob("*") if path.is_file()]
    assert len(copies) == 3, "the program, what it reads, and the lock"
    for path in (*copies, machine.root / "house" / "pins.json"):
        assert machine.sh(f"echo exchanged > {shlex.quote(str(path))}")["exit_code"] != 0
    assert said(fired(machine, pins)) == TRUE_WORDS
