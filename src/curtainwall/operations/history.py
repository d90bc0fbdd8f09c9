"""The history of accepted changes: steps that people take back and apply again, each as a call at the gate that they answer themselves."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    APPLY_CHANGES,
    TAKES_BACK,
    AnswerApproval,
    BadCall,
    Blobs,
    CallFinished,
    CallRequest,
    ChangeSet,
    CloseSession,
    CommandRefused,
    CurtainwallError,
    FileKind,
    Gate,
    Mode,
    NotFound,
    Payload,
    Place,
    ProjectFiles,
    ReopenSession,
    SessionId,
    ShownFile,
    StepsAsked,
    TryLater,
    ViewContents,
    Who,
    record,
    session_stream,
)
from curtainwall.operations.presented import describe, file_words
from curtainwall.operations.reversal import Obstacle, after, paths_of, reverse
from curtainwall.operations.sessions import Sessions
from curtainwall.runtime.results import load
from curtainwall.session import AcceptedStep, SessionState, StepHistory, change_steps, quoted_path, visible
from curtainwall.tools.changes import load_changes, manifest_of

_PATIENCE_SECONDS: Final = 10.0
_PAUSE: Final = 0.1
_MOST_NAMED: Final = 20
_MOST_LINES: Final = 400
# In one process, one after the other.
_TURNS: "WeakValueDictionary[SessionId, asyncio.Lock]" = WeakValueDictionary()


@record
class PlannedStep:
    """One step that would be taken back or applied again, exactly as it would be written."""

    step: AcceptedStep
    takes_back: str
    changes: ChangeSet
    because: str
    summary: str
    files: tuple[ShownFile, ...]
    lines: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]


@record
class PlannedSteps:
    """What undo or redo would do, for a person who confirms it. `code` stands for exactly this."""

    session: SessionId
    asked: StepsAsked
    steps: tuple[PlannedStep, ...]

    @property
    def code(self) -> str:
        """Return a short text that changes with anything that would be written."""
        parts = (f"{step.takes_back} {step.changes.digest}" for step in self.steps)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


@record
class StepOutcome:
    """How taking a step back, or applying it again, ended."""

    number: int
    is_done: bool
    words: str


def steps_of(sessions: Sessions, session: SessionId) -> StepHistory:
    """Return the steps of a session from its log."""
    feed = sessions.registry.feed
    return change_steps((recorded.event for recorded in feed.read(session_stream(session))), load_outcome(sessions.store.blobs))


def load_outcome(blobs: Blobs) -> Callable[[Payload], JsonValue]:
    """Return what loads the outcomes of calls."""

    def loaded(payload: Payload) -> JsonValue:
        return load(payload, blobs)

    return loaded


class ChangeHistory:
    """Takes accepted changes back and applies them again, in the sessions of this process. Fills `ChangeSteps`."""

    def __init__(self, sessions: Sessions, gate: Gate, files: ProjectFiles, contents: ViewContents, masker: Masker) -> None:
        self._sessions = sessions
        self._registry = sessions.registry
        self._gate = gate
        self._files = files
        self._contents = contents
        self._masker = masker

    async def move(self, session: SessionId, by: Who, steps: StepsAsked, code: str = "") -> str:
        """Return what would be written and the code that confirms it; with that code, write it and return how that ended."""
        plan = await self.plan(session, by, steps)
        if not code:
            confirmation = f"/{'redo' if steps.redo else 'undo'} {f'{steps.count} ' * (steps.count > 1)}{'force ' * steps.force}{plan.code}"
            return "\n".join((*plan_lines(plan), f"nothing is done yet; `{confirmation}` does exactly this"))
        if code != plan.code:
            raise CommandRefused("this is the code of something else; the project or the session may have changed since it was shown")
        return self._masker.mask_text("\n".join(outcome_words(plan, outcome) for outcome in await self.carry_out(plan, by)))

    async def plan(self, session: SessionId, by: Who, asked: StepsAsked) -> PlannedSteps:
        """Return what would be done, and change nothing; raise if a file is no longer as it was left, unless forced."""
        async with self._held(session):
            return await self._plan(session, by, asked)

    async def carry_out(self, plan: PlannedSteps, by: Who) -> tuple[StepOutcome, ...]:
        """Do what a person has confirmed; raise if it would not be exactly that any more."""
        async with self._held(plan.session):
            now = await self._plan(plan.session, by, plan.asked)
            if now.code != plan.code:
                raise CommandRefused("the project or the session has changed since this was shown; nothing was done, look at it again")
            state = self._sessions.state(plan.session)
            if state.closed is None:
                return await self._apply(now, by)
            await self._registry.send(plan.session, ReopenSession(by=by))
            try:
                return await self._apply(now, by)
            finally:
                # If somebody has begun something in it meanwhile, it stays open.
                with suppress(CommandRefused):
                    await self._registry.send(plan.session, CloseSession(by=by, reason=state.closed, at_rest=True))

    async def _plan(self, session: SessionId, by: Who, asked: StepsAsked) -> PlannedSteps:
        state = self._sessions.state(session)
        rules = self._sessions.terms().rules.of_session(state.opened)
        rules.require_operator(by, "take changes back")
        _require_rest(state)
        if state.applying is not None:
            # INVARIANT: whoever repeats a command that was killed means the same step, not one more.
            half_done = state.calls[state.applying].subject.canonical.get("because", "applies what was accepted")
            await self._gate.resume(session, state.applying)
            raise CommandRefused(f"what a process had left half done was finished just now ({half_done}); nothing else was done")
        for call in [call for call, it in state.calls.items() if TAKES_BACK in it.subject.canonical]:
            # A process ended before its answer came; what would be done is worked out anew.
            await self._gate.drop(session, call, "it was not answered before the process ended")
        steps = steps_of(self._sessions, session)
        chosen = steps.to_redo(asked.count) if asked.redo else steps.to_undo(asked.count)
        if len(chosen) < asked.count or asked.count < 1:
            raise CommandRefused(_too_few(len(chosen), redo=asked.redo))
        return await asyncio.to_thread(self._compare, state, chosen, asked)

    def _compare(self, state: SessionState, chosen: Sequence[AcceptedStep], asked: StepsAsked) -> PlannedSteps:
        session, place, redo = _opened(state), _place(state), asked.redo
        wanted = [self._wanted(step, state.workspace.path, redo=redo) for step in chosen]
        project = self._files.present(place, paths_of(*(changes for _, changes in wanted)))
        planned: list[PlannedStep] = []
        for step, (takes_back, changes) in zip(chosen, wanted, strict=True):
            reversal = reverse(changes, project, force=asked.force)
            if reversal.obstacles and not asked.force:
                raise CommandRefused(_obstacle_words(step, reversal.obstacles, redo=redo))
            if not reversal.changes.changes:
                raise CommandRefused(f"nothing of step {step.number} can be {_done(redo)}: {_named(reversal.obstacles)}")
            self._require_contents(session, step, reversal.changes)
            because = f"{'applies again' if redo else 'takes back'} step {step.number}"
            description = describe(reversal.changes, self._contents, session, self._masker)
            described = tuple(description.described())
            lines = tuple(line for change in described for line in (file_words(change.file), *(f"  {visible(it)}" for it in change.lines)))
            files = tuple(change.file for change in described)
            planned.append(PlannedStep(step, takes_back, reversal.changes, because, description.summary, files, lines, reversal.obstacles))
            project = after(project, reversal.changes)
        return PlannedSteps(session=session, asked=asked, steps=tuple(planned))

    def _wanted(self, step: AcceptedStep, project: str, *, redo: bool) -> tuple[str, ChangeSet]:
        """Return the call that is taken back, and the inverse of exactly what it applied."""
        last = step.undone if redo and step.undone is not None else step.accepted
        applied = last.applied(self._manifest(last.changes, project))
        inverse = applied.inverse()
        if redo:
            leading_out = {change.path for change in self._manifest(step.accepted.changes, project).changes if change.leads_out}
            marked = (change.model_copy(update={"leads_out": change.path in leading_out}) for change in inverse.changes)
            inverse = inverse.model_copy(update={"changes": tuple(marked)})
        return last.call, inverse

    def _manifest(self, digest: str, project: str) -> ChangeSet:
        try:
            return load_changes(self._sessions.store.blobs, digest, project)
        except BadCall as fault:
            raise CommandRefused(str(fault)) from fault

    def _require_contents(self, session: SessionId, step: AcceptedStep, changes: ChangeSet) -> None:
        """Refuse what could only be done in part, because a content is gone."""
        needed = {
            change.after.digest: change.path
            for change in changes.changes
            if change.after is not None and change.after.kind in {FileKind.FILE, FileKind.LINK} and change.after.digest
        }
        missing = self._files.missing(session, needed.keys())
        if missing:
            paths = ", ".join(f"`{visible(quoted_path(needed[digest]))}`" for digest in sorted(missing)[:_MOST_NAMED])
            raise CommandRefused(f"what files of step {step.number} held is missing or damaged in the session's directory: {paths}")

    async def _apply(self, plan: PlannedSteps, by: Who) -> tuple[StepOutcome, ...]:
        outcomes: list[StepOutcome] = []
        for planned in plan.steps:
            outcomes.append(await self._apply_step(plan.session, planned, by))
            if not outcomes[-1].is_done:
                break
        return tuple(outcomes)

    async def _apply_step(self, session: SessionId, planned: PlannedStep, by: Who) -> StepOutcome:
        stored = await self._sessions.store.blobs.put(manifest_of(planned.changes))
        arguments: dict[str, JsonValue] = {
            "changes": stored.digest,
            TAKES_BACK: planned.takes_back,
            "because": planned.because,
            # In modes that ask nobody, nothing else in the log would say who it was.
            "asked_by": str(by),
        }
        request = CallRequest(tool=APPLY_CHANGES, arguments=arguments, by_house=True)
        answer = await self._gate.request(session, request, wait=False)
        if answer.waiting:
            asked = self._sessions.state(session).calls[answer.call].approval
            assert asked is not None
            # All files by name: they were all shown, also where a card has no room for them.
            only = tuple(change.path for change in planned.changes.changes)
            try:
                await self._registry.send(session, AnswerApproval(by=by, approval=asked, granted=True, only=only))
            except CurtainwallError:
                await self._gate.drop(session, answer.call, "its answer was refused")
                raise
            answer = await self._gate.resume(session, answer.call)
        if answer.result is None:
            return StepOutcome(planned.step.number, False, answer.verdict.reason)
        feed = self._registry.feed.read(session_stream(session))
        finished = next(it.event for it in feed if isinstance(it.event, CallFinished) and it.event.call == answer.call)
        outcome = load(finished.result, self._sessions.store.blobs)
        words = str(outcome.get("outcome", "")) if isinstance(outcome, dict) else str(outcome)
        return StepOutcome(planned.step.number, answer.result.ok, words)

    @asynccontextmanager
    async def _held(self, session: SessionId) -> AsyncGenerator[None]:
        """Hold the session; another process releases it unless its agent works there."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        async with _TURNS.setdefault(session, asyncio.Lock()):
            while True:
                try:
                    hold = self._registry.hold(session)
                    break
                except TryLater:
                    _require_rest(self._sessions.state(session))
                    if asyncio.get_running_loop().time() > deadline:
                        raise
                    self._registry.want(session)
                    await self._registry.until_free(session_stream(session), _PAUSE)
            async with hold as actor:
                if actor.state.opened is None:
                    raise NotFound(f"there is no session `{session}`")
                yield


def plan_lines(plan: PlannedSteps) -> list[str]:
    """Return what a plan would do, for people: each step with its files, and the differences."""
    lines: list[str] = []
    for planned in plan.steps:
        lines.append(visible(f"{planned.because}: {planned.summary}"))
        lines += (f"  left alone: {_obstacle_line(it)}" for it in planned.obstacles if not it.is_forcible)
        lines += (f"  overwritten: {_obstacle_line(it)}" for it in planned.obstacles if it.is_forcible)
        shown = planned.lines[:_MOST_LINES]
        lines += (f"  {line}" for line in shown)
        if len(shown) < len(planned.lines):
            lines += (f"  {file_words(file)}" for file in planned.files if file_words(file) not in shown)
            lines.append(f"  …[{len(planned.lines) - len(shown)} more lines of these differences are not shown]…")
    return lines


def outcome_words(plan: PlannedSteps, outcome: StepOutcome) -> str:
    """Return how one step ended, for people."""
    words = f"was {_done(plan.asked.redo)}: " if outcome.is_done else ""
    return visible(f"step {outcome.number} {words}{outcome.words}" if words else f"step {outcome.number}: {outcome.words}")


def step_lines(steps: StepHistory) -> list[str]:
    """Return the list of a session's steps, the newest last."""
    return [f"step {step.number}: {step_status(step)}" for step in steps.steps]


def step_status(step: AcceptedStep) -> str:
    """Return the state of a step in words."""
    if step.undone is not None:
        part = " in part" if step.undone.left_alone else ""
        return f"taken back{part}{'' if step.can_redo else ', cannot be applied again'}"
    return "applied in part" if step.accepted.left_alone or step.accepted.only is not None else "applied"


def _require_rest(state: SessionState) -> None:
    """Refuse while an agent works or a turn waits: its changes may be under review."""
    if state.turn is not None and not state.turn_waits:
        raise CommandRefused("the agent is working in this session; interrupt it, or wait until its turn ends")
    if state.turn is not None:
        raise CommandRefused("a turn of this session waits for an answer; answer it, or interrupt it")
    if state.queue:
        raise CommandRefused("a message waits in this session; interrupt it, or wait until its turn ends")


def _opened(state: SessionState) -> SessionId:
    assert state.opened is not None
    return state.opened.session


def _place(state: SessionState) -> Place:
    """Return the place of a session's view, in which it worked whatever its mode is by now."""
    return replace(state.place, mode=Mode.REVIEW)


def _done(redo: bool) -> str:
    return "applied again" if redo else "taken back"


def _too_few(count: int, *, redo: bool) -> str:
    if not count:
        return f"there is nothing that could be {_done(redo)}"
    return f"there {'is' if count == 1 else 'are'} only {count} {'step' if count == 1 else 'steps'} that could be {_done(redo)}"


def _obstacle_line(obstacle: Obstacle) -> str:
    return f"`{visible(quoted_path(obstacle.path))}`: {visible(obstacle.why)}"


def _named(obstacles: Sequence[Obstacle]) -> str:
    first = "; ".join(map(_obstacle_line, obstacles[:_MOST_NAMED]))
    return f"{first}; and {len(obstacles) - _MOST_NAMED} more" if len(obstacles) > _MOST_NAMED else first


def _obstacle_words(step: AcceptedStep, obstacles: Sequence[Obstacle], *, redo: bool) -> str:
    return f"step {step.number} cannot simply be {_done(redo)}; nothing was done. {_named(obstacles)}. `--force` shows what would be lost"
