"""`start --repo`: the clone before a task, through the gate like every call, and what happens where a human is asked about it."""

from dataclasses import dataclass

from curtainwall.channels.terminal import Line, Telling, leave, until_settled
from curtainwall.cli.screen import note
from curtainwall.compose.gate import Wired
from curtainwall.model import (
    GIT_CLONE,
    HERE,
    Answer,
    AnswerApproval,
    ApprovalAnswered,
    CallFinished,
    CallId,
    CallRequest,
    CallRequested,
    CommandRefused,
    NotFound,
    SessionId,
    Who,
    session_stream,
)
from curtainwall.session import inert

_DENIED = "whoever started this task has every ask denied (--on-ask deny)"


@dataclass(frozen=True, slots=True)
class Cloning:
    """The clone of one session, and how its user is told."""

    wired: Wired
    line: Line
    session: SessionId
    by: Who
    task: str | None
    telling: Telling

    async def begin(self, url: str) -> int | None:
        """Clone a repository into the workspace; return an exit code where that has to wait for somebody."""
        note(f"cloning {inert(url)}")
        request = CallRequest(tool=GIT_CLONE, arguments={"url": url, "path": HERE})
        return await self._come_to(await self.wired.gate.request(self.session, request, wait=False))

    async def go_on(self) -> int | None:
        """Go on with a clone that was asked for before the session was left; return an exit code where it still waits.

        The task was meant for the repository: where nothing came of the clone, it is asked for again, and raised why it is denied.
        """
        # It comes before the first turn; a later call of the same tool is the agent's own, and its agent goes on with it.
        if self.line.desk.view(self.session).turns or self._uncloned() is None:
            return None
        async with self.wired.house.hold(self.session) as actor:
            waiting = [call for call, it in actor.state.calls.items() if it.turn is None and it.subject.tool == GIT_CLONE]
        for call in waiting:
            if (code := await self._come_to(await self.wired.gate.go_on(self.session, call))) is not None:
                return code
        if (url := self._uncloned()) is None:
            return None
        note("the repository was not cloned when the session began, so that is asked for again; a session without --repo does without it")
        return await self.begin(url)

    def _uncloned(self) -> str | None:
        """Return the repository that the session should have begun with, where that was asked for and nothing came of it."""
        wanted: dict[CallId, str] = {}
        for event in (recorded.event for recorded in self.line.feed.read(session_stream(self.session))):
            match event:
                case CallRequested(turn=None, subject=subject) if subject.tool == GIT_CLONE and subject.raw.get("path") == HERE:
                    wanted[event.call] = str(subject.raw.get("url"))
                case CallFinished(ok=True) if event.call in wanted:
                    return None
                case _:
                    continue
        return next(reversed(wanted.values()), None)

    async def _come_to(self, answer: Answer) -> int | None:
        while answer.waiting:
            ask = next((it for it in self.line.desk.view(self.session).pending if it.call == answer.call), None)
            if ask is not None and self.telling.on_ask == "park":
                return await leave(self.line, self.session, self.by, self.task, self.telling, interrupted=False)
            if ask is not None and self.telling.on_ask == "deny":
                no = AnswerApproval(by=self.by, approval=ask.approval, granted=False, reason=_DENIED)
                await self.line.desk.send(self.session, no)
            elif ask is not None and not await until_settled(self.line, self.session, self.by, ask, self.telling):
                return await leave(self.line, self.session, self.by, self.task, self.telling, interrupted=True)
            answer = await self._answered(answer.call)
        if answer.result is None or not answer.result.ok:
            if answer.result is None:
                raise CommandRefused(f"the repository was not cloned: {inert(answer.verdict.reason)}")
            raise CommandRefused(f"the repository was not cloned: {inert(str(answer.result.value))}; {self._again()}")
        return None

    async def _answered(self, call: CallId) -> Answer:
        try:
            return await self.wired.gate.go_on(self.session, call)
        except NotFound:
            # A no closes the call, and the log says whose it was.
            events = [it.event for it in self.line.feed.read(session_stream(self.session))]
            said = next((it for it in reversed(events) if isinstance(it, ApprovalAnswered)), None)
            why = "nobody answered in time" if said is None else f"denied by {said.by.name}{f': {said.reason}' if said.reason else ''}"
            raise CommandRefused(f"the repository was not cloned: {inert(why)}; {self._again()}") from None

    def _again(self) -> str:
        return f"`curtainwall start --resume {self.session}{' TASK' if self.task else ''}` asks for it again"
