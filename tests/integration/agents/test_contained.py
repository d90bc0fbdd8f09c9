"""Programs that never end, take everything or want out: contained, explained to the model, and the session works on."""

import pytest

import curtainwall
from curtainwall.model import CallFinished, ProgramFinished, TurnStatus, WorkTimed
from tests.support.covers import covers
from tests.support.talking import Home, of, playing, run, runs

SMALL = "[code]\nseconds = 1\nmemory = 32\ncalls = 50\n"

ENDLESS = {
    "loops": ("while True:\n    pass", "TimeoutError: feed time limit exceeded"),
    "loops inside": ("sum(n for n in range(10**15))", "limit exceeded"),
    "allocates": ("x = []\nwhile True:\n    x.append('a' * 100_000)", "MemoryError: memory limit exceeded"),
    "allocates at once": ("'a' * 10**12", "MemoryError: memory limit exceeded"),
    "counts too high": ("print(len(str(9**10**9)))", "Error"),
    "prints": ("while True:\n    print('spam ' * 100)", "TimeoutError: feed time limit exceeded"),
    "recurses": ("def f(n):\n    return f(n + 1)\nf(0)", "RecursionError"),
    "nests": ("x = []\nfor _ in range(10**7):\n    x = [x]\nx", ""),
    "calls": ("for _ in range(100_000):\n    await filesystem.list_directory(path='.')", "suspension"),
    "calls at once": (
        "import asyncio\nawait asyncio.gather(*[filesystem.list_directory(path='.') for _ in range(100_000)])",
        "",
    ),
    "sleeps": (
        "import asyncio\nawait asyncio.gather(*[asyncio.sleep(60) for _ in range(100)])",
        "sleep limit exceeded",
    ),
}

OUT = {
    "imports os": ("import os\nos.system('id')", "has no attribute 'system'"),
    "reads the environment": ("import os\nprint(os.environ['HOME'])", "not supported"),
    "asks the environment": ("import os\nprint(os.getenv('HOME'))", "not supported"),
    "imports subprocess": ("import subprocess", "No module named 'subprocess'"),
    "imports by name": ("__import__('os').system('id')", "NameError"),
    "imports a socket": ("import socket", "No module named 'socket'"),
    "imports urllib": ("import urllib.request", "No module named 'urllib'"),
    "imports ctypes": ("import ctypes", "No module named 'ctypes'"),
    "imports us": ("import curtainwall", "No module named 'curtainwall'"),
    "opens a file": ("print(open('/etc/passwd').read())", "PermissionError"),
    "opens by path": ("from pathlib import Path\nprint(Path('/etc/passwd').read_text())", "PermissionError"),
    "lists by path": ("from pathlib import Path\nprint([str(p) for p in Path('/').iterdir()])", "PermissionError"),
    "writes by path": ("from pathlib import Path\nPath('/tmp/out').write_text('x')", "PermissionError"),
    "climbs classes": ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
    "climbs frames": ("def f():\n    pass\nf.__globals__", "AttributeError"),
    "calls the gate with nonsense": ("await _call(1, 2, 3)", "is not defined"),
    "calls a tool that is not there": ("await shell.anything()", "anything"),
    "calls past a wait": ("await filesystem.read_file(path='../../../keys/mask')", "PermissionError"),
}


@pytest.mark.parametrize("which", ENDLESS)
@covers("agents.programs-are-limited")
def test_a_program_without_an_end_is_ended_and_the_model_is_told_why(home: Home, which: str) -> None:
    code, why = ENDLESS[which]
    home.configure(SMALL)
    model = playing(runs(code), runs("1 + 1"), "still here")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("go")
            assert (reply.status, reply.text) == (TurnStatus.DONE, "still here")
            ended, after = of(ProgramFinished, session.timeline())
            assert after.ok
            assert not ended.ok or which == "nests"
            assert len(of(CallFinished, session.timeline())) <= 51

    run(main())
    first, second = model.results
    assert why in first
    assert len(first) < 31_000
    assert second == "2"


@pytest.mark.parametrize("which", OUT)
@covers("agents.programs-reach-nothing-but-tools")
def test_a_program_that_wants_out_meets_an_error_and_the_session_works_on(home: Home, which: str) -> None:
    code, why = OUT[which]
    home.configure(SMALL)
    model = playing(runs(code), runs("1 + 1"), "still here")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            reply = await session.send("go")
            assert (reply.status, reply.text) == (TurnStatus.DONE, "still here")

    run(main())
    assert why in model.results[0]
    assert "root:" not in model.results[0]
    assert model.results[1] == "2"


def test_a_sleep_that_the_program_does_not_wait_for_ends_with_it(home: Home) -> None:
    code = "import asyncio\nawait asyncio.gather(asyncio.sleep(59), filesystem.read_file(path='nothing'))"
    model = playing(runs(code), "woken")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("go")).text == "woken"
            # The interpreter sleeps ten seconds at a time.
            assert of(WorkTimed, session.timeline())[0].seconds < 9

    run(main())
    assert "RuntimeError" in model.results[0]


@covers("agents.programs-are-limited")
def test_a_reply_full_of_endless_programs_ends_as_well(home: Home) -> None:
    home.configure(SMALL)
    model = playing(runs(*["while True:\n    pass"] * 3), "phew")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("go")).text == "phew"

    run(main())
    assert all("TimeoutError" in result for result in model.results)


@covers("agents.programs-are-limited")
def test_the_same_change_over_and_over_is_stopped_and_said(home: Home) -> None:
    code = 'for n in range(40):\n    await filesystem.write_file(path="a", content="1")'
    model = playing(runs(code), "stopped")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            assert (await session.send("go")).text == "stopped"
            assert len(of(CallFinished, session.timeline())) < 40
            assert "loop_detection" in [told.kind for told in session.diagnostics()]

    run(main())
    assert "repeated-call" in model.results[0]
