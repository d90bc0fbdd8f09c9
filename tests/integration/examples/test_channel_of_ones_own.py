"""The example of a channel, as a real process that people talk to over TCP, and that is killed now and then."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.repository import ROOT
from tests.support.waiting import until


class Caller:
    """Somebody at the other end of the line."""

    def __init__(self, port: int, name: str, word: str, place: str = "kitchen") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._lines = self._socket.makefile("r", encoding="utf-8", newline="\n")
        self.say(f"{name} {word} {place}")

    def say(self, line: str) -> None:
        self._socket.sendall(f"{line}\n".encode())

    def hears(self, pattern: str) -> re.Match[str]:
        """Wait for a line, past whatever else comes."""
        seen: list[str] = []
        for line in self._lines:
            seen.append(line)
            if found := re.match(pattern, line.rstrip("\n")):
                return found
        raise AssertionError(f"the line ended without {pattern!r}: {seen}")

    def hangs_up(self) -> None:
        self._lines.close()
        self._socket.close()


class Example:
    """The example at work."""

    def __init__(self, program: Program) -> None:
        self.child = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "tcp_chat.py"), "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=program.workspace,
            env={**program.environ, "TCP_CHAT_PEOPLE": "ann=wonderland bob=builder"},
        )  # fmt: skip
        program.started.append(self.child)
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline().rpartition(" ")[2])

    @contextmanager
    def call(self, name: str = "ann", word: str = "wonderland", place: str = "kitchen") -> Iterator[Caller]:
        caller = Caller(self.port, name, word, place)
        yield caller
        caller.hangs_up()

    def is_killed(self) -> None:
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait()


@pytest.fixture
def chatty(program: Program) -> Program:
    program.configure('[model]\nname = "demo"\n[channels.tcp]\noperators = ["ann"]\n')
    return program


@covers("chat.durable", "chat.once")
def test_a_message_is_taken_once_and_a_reply_told_once_over_a_kill(chatty: Program) -> None:
    first = Example(chatty)
    with first.call() as ann:
        ann.say("1 write a file pond.txt that says: frogs")
        ann.hears("= 1 taken")
        reply = ann.hears("< (\\S+) .")[1]
        ann.say("2 //note that this is talk")
        ann.hears("= 2 taken")
        last = ann.hears("< (\\S+) .")[1]
    (row,) = chatty.sessions()
    assert (row["channel"], row["name"]) == ("tcp", "tcp kitchen")
    first.is_killed()
    second = Example(chatty)
    with second.call() as ann:
        ann.say("1 write a file pond.txt that says: frogs")
        ann.hears("= 1 again")
        ann.say("3 read the file pond.txt")
        said = ann.hears("< (\\S+) (.*)")
        if said[1] == last:  # the kill was faster than the note that it was told
            said = ann.hears("< (\\S+) (.*)")
        assert said[1] not in (reply, last), "what was told before is not told again"
    # Of a turn in which the agent speaks twice the kill may have been faster than the second message's.
    until(lambda: chatty.sessions()[0]["turns"] == 3)


@covers("chat.operators")
def test_a_stranger_may_talk_and_nothing_else_and_a_wrong_word_not_even_that(chatty: Program) -> None:
    example = Example(chatty)
    with example.call("ann", "guess") as nobody:
        nobody.hears("! who are you")
    with example.call("bob", "builder") as bob:
        bob.say("1 read /etc/hostname")
        approval = bob.hears("\\? /approve (\\w+) or /deny")[1]
        for number, words in enumerate((f"/approve {approval}", "/mode bypass", "/new", "/disable read-outside", "/rules", "/nonsense"), 2):
            bob.say(f"{number} {words}")
            bob.hears("! `bob` is not an operator of `tcp`")
        assert chatty.open_approval() == approval
        with example.call() as ann:
            ann.hears(f"\\? /approve {approval}")
            ann.say(f"1 /approve {approval}")
            ann.hears(f"- approved once: {approval}")
            bob.hears(f"\\? {approval} was granted by ann on tcp")
            ann.say(f"2 /deny {approval}")
            ann.hears("! already answered by `ann on tcp`: granted at")
            bob.hears("< ")


@covers("chat.places")
def test_words_that_go_to_another_session_take_the_place_along(chatty: Program) -> None:
    example = Example(chatty)
    with example.call() as ann:
        ann.say("1 hello there")
        ann.hears("< ")
        ann.say("2 /new upstairs")
        other = ann.hears("- session (\\w+)")[1]
        ann.hears("= 2 taken")
        ann.say("3 read /etc/hostname")
        ann.hears(f"\\? \\[tcp: kitchen, session {other} `upstairs`\\]")
        approval = ann.hears("\\? /approve (\\w+)")[1]
        first = next(row["id"] for row in chatty.sessions() if row["id"] != other)
        ann.say(f"4 /resume {first}")
        ann.hears("= 4 taken")
        # Asks of a session that was left behind are still shown here, and answered from here.
        ann.say(f"5 /deny {approval} not now")
        ann.hears(f"- denied: {approval}")
        ann.say("6 /session")
        ann.hears(f"- .*{first}")
