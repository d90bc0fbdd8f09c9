"""Ctrl-C while the program closes, pressed in a real process."""

import signal
import subprocess
import sys

import pytest

CLOSES = """
import asyncio, sys
from curtainwall.channels.terminal.exit import hold_interrupts

async def main():
    hold_interrupts()
    print("closing", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("closed", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def closing() -> "subprocess.Popen[str]":
    program = subprocess.Popen([sys.executable, "-c", CLOSES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "closing\n"
    return program


def test_an_interrupt_does_not_break_into_what_is_being_closed(closing: "subprocess.Popen[str]") -> None:
    closing.send_signal(signal.SIGINT)
    out, _ = closing.communicate("go on\n", timeout=60)
    assert (closing.returncode, out) == (0, "closed\n")


def test_more_interrupts_end_it_at_once(closing: "subprocess.Popen[str]") -> None:
    # Two that come at the same time are one to the kernel.
    while closing.poll() is None:
        closing.send_signal(signal.SIGINT)
    out, _ = closing.communicate(timeout=60)
    assert (closing.returncode, out) == (130, "")
