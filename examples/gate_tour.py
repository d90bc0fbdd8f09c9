"""A tour of the gate: offline, in a scratch directory, with a second process that answers.

python examples/gate_tour.py
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from curtainwall.cli.asks import card
from curtainwall.cli.screen import paint
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import Answer, ApprovalId, CallRequest, Mode, OpenSession, ReadySession, SessionId, session_stream


def title(text: str) -> None:
    print(f"\n{paint(text, 'bold')}")


def tell(text: str) -> None:
    print("\n".join(f"  {line}" for line in text.splitlines()))


def outcome(answer: Answer) -> None:
    word = answer.verdict.effect.value
    if answer.result is not None:
        because = ", ".join(answer.verdict.because)
        tell(
            f"{paint('allow', 'allow')} ({because})"
            if word == "allow"
            else f"{paint('permitted', 'allow')}: the human's answer covers {because}"
        )
        tell(f"result: {answer.result.value!r}")
    else:
        tell(f"{paint(word, word)} ({', '.join(answer.verdict.because)}): {answer.verdict.reason}")


async def curtainwall(*words: str) -> None:
    """Run the program in a process of its own, as another person on this machine would."""
    print(f"  $ curtainwall {' '.join(words)}", flush=True)
    pipe, joined = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "curtainwall", *words, stdout=pipe, stderr=joined)
    out, _ = await child.communicate()
    tell(out.decode())


class Tour:
    """One session and its guide."""

    def __init__(self, wired: GatedSessions, session: SessionId) -> None:
        self.wired = wired
        self.session = session

    def wish(self, path: str) -> asyncio.Task[Answer]:
        print(f"  the agent: filesystem.read_file {path}")
        request = CallRequest(tool="filesystem.read_file", arguments={"path": path})
        return asyncio.create_task(self.wired.gate.request(self.session, request))

    async def asked(self, besides: ApprovalId | None = None) -> ApprovalId:
        """Wait until something is asked, show the card, and return its id."""
        async with self.wired.registry.hold(self.session) as actor:
            async for recorded in self.wired.registry.feed.follow(session_stream(self.session), max(actor.seq - 1, 0)):
                await actor.catch_up(recorded.seq)
                for id_, open_ in actor.state.approvals.items():
                    if id_ != besides:
                        tell(f"{paint('ask', 'ask')}: approval {id_}")
                        tell("\n".join(f"│ {line}" for line in card(open_.asked.shown).splitlines()))
                        return id_
        raise AssertionError("the feed never ends")


async def open_session(wired: GatedSessions, workspace: Path) -> SessionId:
    session, me = SessionId(wired.registry.mint()), local_user()
    opening = OpenSession(
        by=me, session=session, name="tour", agent="guide", model="none", workspace=wired.setup.workspace_at(workspace, own=True),
        mode=Mode.DEFAULT, limits=wired.setup.limits, policy=wired.setup.policy.version,
    )  # fmt: skip
    await wired.registry.send(session, opening)
    await wired.registry.send(session, ReadySession(by=me))
    return session


async def take(scratch: Path) -> None:
    workspace, elsewhere = scratch / "workspace", scratch / "elsewhere"
    for directory in (workspace, elsewhere):
        directory.mkdir()
    (workspace / "notes.txt").write_text("bread, milk, a new lock for the gate")
    (elsewhere / "report.txt").write_text("the quarter went well")
    (elsewhere / "salaries.txt").write_text("nobody should read this by accident")
    (workspace / "link.txt").symlink_to(elsewhere / "report.txt")

    async with open_gate(load_setup()) as wired:
        tour = Tour(wired, await open_session(wired, workspace))

        title("1. Inside its own workspace a session is free.")
        outcome(await tour.wish("notes.txt"))

        title("2. Our own files, key stores and browser profiles are closed to everyone. Nothing can answer a deny.")
        outcome(await tour.wish(str(wired.setup.home.database)))

        title("3. Anything else asks a human, who may be in another process, another room, or asleep. The session waits in its log.")
        waiting = tour.wish("../elsewhere/report.txt")
        await curtainwall("approve", await tour.asked())
        outcome(await waiting)

        title("4. An answer counts for what was shown. Here the link is turned elsewhere while the human thinks.")
        waiting = tour.wish("link.txt")
        first = await tour.asked()
        (workspace / "link.txt").unlink()
        (workspace / "link.txt").symlink_to(elsewhere / "salaries.txt")
        tell("… and now link.txt leads to salaries.txt")
        await curtainwall("approve", first)
        tell("The gate looks again: this is something else by now, so the old answer is worth nothing, and it asks anew.")
        await curtainwall("deny", await tour.asked(besides=first), "--reason", "not the salaries")
        outcome(await waiting)

        title("5. All of it is in the log, each entry chained to the one before.")
        tell(" → ".join(type(recorded.event).__name__ for recorded in wired.registry.feed.read(session_stream(tour.session))))
    await curtainwall("audit", "verify")
    title("Try it yourself: `curtainwall policy explain`, `curtainwall policy rules`, `curtainwall doctor`.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="curtainwall-tour-") as scratch:
        os.environ["CURTAINWALL_HOME"] = f"{scratch}/home"
        asyncio.run(take(Path(scratch).resolve()))
