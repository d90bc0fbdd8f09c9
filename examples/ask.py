"""One wish at the gate, asked in one process and taken up in another: a small program that the tests kill, answer and resume.

    python examples/ask.py --workspace DIR --far FILE TOOL ARGUMENTS     open a session and ask; `--wait` waits for the answer
    python examples/ask.py --resume SESSION --far FILE                   take up what was answered meanwhile

The tools behind the gate do nothing but append a line to FILE, the far side, so that every effect can be counted there.
It prints one JSON document per line; the exit code is 3 while an approval is open.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from curtainwall.compose.ask_files import ask_files_of
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    Answer,
    ApprovalAsked,
    CallPermitted,
    CallRequest,
    Mode,
    OpenSession,
    Place,
    Prepared,
    ReadySession,
    SessionId,
    ToolResult,
    session_stream,
)
from curtainwall.tools import NATIVE_TOOLS

PARKED = 3


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def far_side(path: Path):
    """Return runners that leave one line for each call that really ran."""

    async def run(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        with path.open("a") as file:
            file.write(json.dumps({"tool": prepared.subject.tool, **prepared.arguments}) + "\n")
        return ToolResult(ok=True, value="done")

    return {spec.full_name: run for spec in NATIVE_TOOLS}


async def open_session(wired: GatedSessions, workspace: Path, *, own: bool) -> SessionId:
    session, setup, me = SessionId(wired.registry.mint()), wired.setup, local_user()
    setup.home.session(session).prepare()
    opening = OpenSession(
        by=me, session=session, name="one wish", agent="example", model="none", workspace=setup.workspace_at(workspace, own=own),
        mode=Mode.DEFAULT, limits=setup.limits, policy=setup.policy.version,
    )  # fmt: skip
    await wired.registry.send(session, opening)
    await wired.registry.send(session, ReadySession(by=me))
    return session


async def tell_asks(wired: GatedSessions, session: SessionId) -> None:
    """Say which approvals are asked, as they come."""
    async for recorded in wired.registry.feed.follow(session_stream(session)):
        if isinstance(recorded.event, ApprovalAsked):
            say(approval=recorded.event.approval)


async def settled(wired: GatedSessions, session: SessionId) -> None:
    """Wait until no approval of the session is open."""
    async with wired.registry.hold(session) as actor:
        async for _ in wired.registry.feed.follow(session_stream(session), max(actor.seq - 1, 0)):
            if not actor.state.approvals:
                return


def report(answer: Answer) -> None:
    result = answer.result.value if answer.result else None
    say(call=answer.call, effect=answer.verdict.effect, because=list(answer.verdict.because), waiting=answer.waiting, result=result)


async def main(options: argparse.Namespace) -> int:
    async with open_gate(load_setup(), far_side(options.far)) as wired:
        session = SessionId(options.resume) if options.resume else await open_session(wired, options.workspace, own=not options.project)
        say(session=session)
        # The session stays ours while we wait, so that its answers come to us.
        async with wired.registry.hold(session) as actor, ask_files_of(wired, session):
            say(open=[*actor.state.approvals])
            if options.tool:
                request = CallRequest(tool=options.tool, arguments=json.loads(options.arguments))
                if not options.wait:
                    report(await wired.gate.request(session, request, wait=False))
                    return PARKED if actor.state.approvals else 0
                telling = asyncio.create_task(tell_asks(wired, session))
                report(await wired.gate.request(session, request))
                telling.cancel()
            elif options.wait:
                await settled(wired, session)
            for answer in await wired.gate.resume_answered(session):
                report(answer)
            return PARKED if actor.state.approvals else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", nargs="?")
    parser.add_argument("arguments", nargs="?", default="{}")
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--project", action="store_true", help="the workspace is a project that the user named")
    parser.add_argument("--resume")
    parser.add_argument("--far", type=Path, required=True)
    parser.add_argument("--wait", action="store_true", help="wait for the answer")
    sys.exit(asyncio.run(main(parser.parse_args())))
