"""The built-in agent: ask the model, run its programs, tell it what came of them, until it has nothing more to run."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from curtainwall.agents.builtin.calls import TurnCalls
from curtainwall.agents.builtin.compaction import Compacted, compacted, estimate
from curtainwall.agents.builtin.history import Conversation
from curtainwall.agents.builtin.instructions import Remembered, compact_instructions, digest_of, read_instructions
from curtainwall.agents.builtin.program import Parked, Programs
from curtainwall.agents.builtin.prompt import system_prompt
from curtainwall.agents.builtin.stubs import Surface, surface_of
from curtainwall.agents.builtin.talk import ITEMS, AgentSaid, Delta, Model, ModelFault, Program, Prompt, Reply
from curtainwall.facts import Masker, StreamMasker
from curtainwall.model import (
    FOLLOW_INSTRUCTIONS,
    AgentSpoke,
    AnyEvent,
    Ask,
    Basis,
    BudgetExhausted,
    CallId,
    Clock,
    CompactionSkipped,
    ContextMeasured,
    CurtainwallError,
    Digest,
    Feed,
    Gate,
    HistoryCompacted,
    Hooks,
    InstructionsPinned,
    Journal,
    Live,
    Millis,
    Mode,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NotFound,
    Place,
    PostCompact,
    PreCompact,
    ProgramFinished,
    Progress,
    SessionId,
    TextStreamed,
    ToolSpec,
    TurnAt,
    TurnId,
    TurnResult,
    TurnStatus,
    Usage,
    Workspace,
    WorkTimed,
    ordered_id,
    session_stream,
)

_KEPT_EVERY = 1.0
_KEPT_IN_MEMORY = 64
_LONGEST_RESULT = 30_000
_LONGEST_MASKED = 400_000


@dataclass(frozen=True, slots=True)
class Around:
    """Everything that the agent meets, each through its port."""

    feed: Feed
    gate: Gate
    journal: Journal
    hooks: Hooks
    clock: Clock
    masker: Masker
    programs: Programs
    model_of: Callable[[str], Model]
    tools: Callable[[], Sequence[ToolSpec]]
    remembered: Remembered
    skills: Callable[[Workspace], Sequence[tuple[str, str]]]
    """Tells the skills of a workspace by name, each with what the model may know of it."""


@dataclass(slots=True)
class _Known:
    """A session in memory: its conversation, up to an entry of its log."""

    talk: Conversation
    cursor: int = 0


class BuiltinAgent:
    """Our own agent, for any number of sessions. What it holds in memory is only there to be quick; the log knows it all."""

    def __init__(self, around: Around, threshold: float | None) -> None:
        self._around = around
        self._threshold = threshold
        self._known: OrderedDict[SessionId, _Known] = OrderedDict()
        self._surface: tuple[Sequence[ToolSpec], Surface] | None = None

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done or has to wait."""
        turn = _Turn(self._around, at, self._synced(at.session), self._seen_tools(), self._synced, self._threshold)
        try:
            result = await turn.work()
        except ModelFault as fault:
            result = TurnResult(status=TurnStatus.FAILED, failure=self._around.masker.mask_text(str(fault)))
        except asyncio.CancelledError:
            # Work that was interrupted was work.
            await _surely(turn.settle_up())
            raise
        await turn.settle_up()
        return result

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Replace older messages by a summary, or record why not."""
        at = TurnAt(session=session, turn=TurnId("between turns"))
        turn = _Turn(self._around, at, self._synced(session), self._seen_tools(), self._synced, self._threshold)
        try:
            await turn.compact("asked", instructions)
        except CurtainwallError as fault:
            await turn.record(CompactionSkipped(at=self._around.clock.now(), why=self._around.masker.mask_text(str(fault))))

    def forget(self, session: SessionId) -> None:
        """Let go of what is held in memory for a session."""
        self._known.pop(session, None)

    def last_words(self, session: SessionId) -> str:
        """Return what the agent said last."""
        return self._synced(session).talk.last_words

    def _synced(self, session: SessionId) -> _Known:
        """Return the session's conversation up to the end of its log."""
        known = self._known.pop(session, None) or _Known(Conversation(self._around.journal.load))
        self._known[session] = known
        if len(self._known) > _KEPT_IN_MEMORY:
            self._known.popitem(last=False)
        for recorded in self._around.feed.read(session_stream(session), known.cursor):
            known.talk.take(recorded.event)
            known.cursor = recorded.seq
        if known.talk.workspace is None:
            raise NotFound(f"there is no session `{session}`")
        return known

    def _seen_tools(self) -> tuple[Sequence[ToolSpec], Surface]:
        tools = self._around.tools()
        if self._surface is None or self._surface[0] != tools:
            self._surface = (tools, surface_of(tools))
        return self._surface


@dataclass(slots=True)
class _Turn:
    around: Around
    at: TurnAt
    known: _Known
    tools: tuple[Sequence[ToolSpec], Surface]
    sync: Callable[[SessionId], _Known]
    threshold: float | None
    unwritten: list[Progress] = field(default_factory=list[Progress])
    """What can wait until something else is written."""
    skills: Sequence[tuple[str, str]] = ()
    is_exhausted: bool = False
    began: Millis = 0

    def __post_init__(self) -> None:
        self.began = self.around.clock.now()

    @property
    def talk(self) -> Conversation:
        return self.known.talk

    async def work(self) -> TurnResult:
        await self._pin_instructions()
        assert self.talk.workspace is not None
        self.skills = await asyncio.to_thread(self.around.skills, self.talk.workspace)
        model = self.around.model_of(self.talk.model)
        if not self.at.resumed and self._is_full(model):
            await self.compact("threshold", "")
        calls = self._calls()
        has_compacted = False
        while True:
            parked = await self._run_programs(calls)
            if parked is not None:
                return TurnResult(status=TurnStatus.WAITING, waits_for=parked.waits_for)
            if calls.stopped is not None:
                return TurnResult(status=TurnStatus.INTERRUPTED, failure=f"stopped by a hook: {calls.stopped}")
            if not self.talk.new and self.talk.items and isinstance(self.talk.items[-1], AgentSaid):
                return TurnResult(status=TurnStatus.DONE)
            if self.is_exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure="a budget is used up; `/budget` shows and raises it")
            try:
                await self._ask(model)
            except ModelFault as fault:
                if fault.kind != "overflow" or has_compacted:
                    raise
                has_compacted = True
                if not await self.compact("overflow", ""):
                    raise

    async def record(self, *events: Progress) -> Sequence[AnyEvent]:
        """Write down what happened, with what could wait until now, and take it in."""
        everything = (*self.unwritten, *events)
        self.unwritten = []
        happened = await self.around.journal.record(self.at.session, everything)
        self.is_exhausted = self.is_exhausted or any(isinstance(event, BudgetExhausted) for event in happened)
        self.known = self.sync(self.at.session)
        return happened

    async def settle_up(self) -> None:
        """Write down how long the work took, and whatever was not written yet."""
        worked = (self.around.clock.now() - self.began) / 1000
        await self.record(WorkTimed(at=self.around.clock.now(), seconds=max(0.0, worked)))

    async def compact(self, trigger: str, instructions: str) -> bool:
        """Replace older messages by a summary and tell whether that was done; the reason why not is recorded."""
        now = self.around.clock.now
        place = self._place()
        wish = PreCompact(trigger="manual" if trigger == "asked" else "auto", custom_instructions=instructions or None)
        blocked = (await self.around.hooks.tell(wish, place)).blocked
        if blocked is not None:
            await self.record(CompactionSkipped(at=now(), why=f"a hook says no: {blocked}"))
            return False
        model = self.around.model_of(self.talk.model)
        pinned = "\n".join(filter(None, (compact_instructions(text) for _, text in self.talk.pinned.values())))
        before = self._used()
        made = compacted(self.talk.items, model.context_size, "\n".join(filter(None, (instructions, pinned))))
        if made is None:
            await self.record(CompactionSkipped(at=now(), why="there is nothing that a summary could replace"))
            return False
        self.around.journal.say(self.at.session, Live(kind="doing", text="summarising older messages"))
        try:
            reply = await self._converse(model, made.prompt, purpose="summary")
        except ModelFault as fault:
            await self.record(CompactionSkipped(at=now(), why=self.around.masker.mask_text(str(fault))))
            return False
        done = made.with_summary(reply.said.text)
        if done is None:
            await self.record(CompactionSkipped(at=now(), why="the summary was empty"))
            return False
        await self._keep_summary(trigger, before, done)
        await self.around.hooks.tell(PostCompact(trigger=wish.trigger, compact_summary=done.summary), place)
        return True

    async def _keep_summary(self, trigger: str, before: int, done: Compacted) -> None:
        told = {"summary": done.summary, "replaced": done.replaced, "items": ITEMS.dump_python(done.items, mode="json")}
        event = HistoryCompacted.model_validate(
            {
                "at": self.around.clock.now(),
                "trigger": trigger,
                "before": before,
                "after": estimate(self.talk.system) + sum(estimate(item.model_dump_json()) for item in done.items),
                "upto": self.known.cursor,
                "summary": (await self.around.journal.keep(told)).model_dump(),
            }
        )
        await self.record(event)

    async def _pin_instructions(self) -> None:
        """Take in what the workspace tells agents. What has changed since it was last gone by counts only after a yes."""
        workspace = self.talk.workspace
        assert workspace is not None
        for found in read_instructions(workspace):
            text = self.around.masker.mask_text(found.text)
            digest = digest_of(text)
            pinned = self.talk.pinned.get(found.path)
            last = pinned[0] if pinned else self.around.remembered.known(workspace.path, found.path)
            if pinned and last == digest:
                continue
            if last in (None, digest) or await self._may_follow(found.path, text, digest):
                kept = await self.around.journal.keep(text)
                self.around.remembered.remember(workspace.path, found.path, digest)
                await self.record(InstructionsPinned(at=self.around.clock.now(), path=found.path, digest=digest, text=kept))

    async def _may_follow(self, path: str, text: str, digest: Digest) -> bool:
        """Ask, once, whether changed instructions count. Nobody waits for the answer: until then it is the old ones, or none."""
        call = self.talk.following.get((path, digest))
        if call is None:
            ask = Ask(tool=FOLLOW_INSTRUCTIONS, arguments={"path": path, "content": text}, turn=self.at.turn, by_house=True)
            answer = await self.around.gate.request(self.at.session, ask, wait=False)
        elif call in self.talk.refused:
            return False
        else:
            answer = await self.around.gate.go_on(self.at.session, call)
        return answer.result is not None and answer.result.ok

    async def _run_programs(self, calls: TurnCalls) -> Parked | None:
        """Run what the model wants to run, one program after the other; stop where one has to wait."""
        while self.talk.programs:
            program, saved = self.talk.programs[0], self.talk.saved
            going_on = saved if saved is not None and saved.program == program.id else None
            calls.talk = self.talk
            about = f"{self.at.session}:{program.id}"
            ended = await self.around.programs.run(about, program, self.tools[1], calls, going_on)
            if isinstance(ended, Parked):
                return ended
            text = f"{ended.text}\n{calls.context}" if calls.context else ended.text
            calls.context = ""
            # Cut twice: masking a flood would take long, and what the second cut keeps lies well inside what the first one left whole.
            shown = await self.around.journal.keep(_cut(self.around.masker.mask_text(_cut(text, _LONGEST_MASKED))) or "(no output)")
            now = self.around.clock.now()
            await self.record(ProgramFinished(at=now, turn=self.at.turn, program=program.id, ok=ended.ok, shown=shown))
        return None

    async def _ask(self, model: Model) -> None:
        """Ask the model for its next reply and write down what came."""
        workspace = self.talk.workspace
        assert workspace is not None
        system = system_prompt(workspace, self.tools[1].stubs, {path: text for path, (_, text) in self.talk.pinned.items()}, self.skills)
        items = (*self.talk.items, *self.talk.new)
        prompt = Prompt(system, items, replies=self.talk.replies)
        await self._converse(model, prompt, purpose="turn")

    async def _converse(self, model: Model, prompt: Prompt, purpose: str) -> Reply:
        """Make one request: written down before it goes out, and again with what came back, in whole or in part."""
        now, turn = self.around.clock.now, self.at.turn
        request = ordered_id(now(), self.around.clock.entropy(5))
        await self.record(await self._requested(request, model, prompt, purpose))
        heard = _Heard(self, purpose)
        try:
            reply = await heard.reply(model, prompt)
        except ModelFault as fault:
            words = self.around.masker.mask_text(str(fault))
            failed = ModelFailed(at=now(), turn=turn, request=request, failure=words, usage=heard.used(prompt))
            await self.record(*heard.rest(), failed)
            raise
        except asyncio.CancelledError:
            failed = ModelFailed(at=now(), turn=turn, request=request, failure="interrupted", usage=heard.used(prompt))
            await _surely(self.record(*heard.rest(), failed))
            raise
        reply = self._masked(reply)
        usage = reply.usage
        events: list[Progress] = [
            ModelResponded(
                at=now(),
                turn=turn,
                request=request,
                raw=await self.around.journal.keep(reply.raw),
                normalised=await self.around.journal.keep(reply.said.model_dump(mode="json")),
                usage=usage,
                stop_reason=reply.stop_reason,
            )
        ]
        if purpose == "turn":
            used = usage.input_tokens + usage.output_tokens
            if reply.said.text:
                events.append(AgentSpoke(at=now(), turn=turn, text=reply.said.text))
            is_measured = usage.tokens_basis is Basis.MEASURED
            events.append(ContextMeasured(at=now(), used=used, size=model.context_size, measured=is_measured))
        await self.record(*events)
        return reply

    async def _requested(self, request: str, model: Model, prompt: Prompt, purpose: str) -> ModelRequested:
        """Return the event of a request: the one before it, plus what was added."""
        is_new = purpose == "summary" or self.talk.request is None
        added = prompt.items if is_new else self.talk.new
        told = {"items": ITEMS.dump_python(tuple(added), mode="json")}
        if is_new or prompt.system != self.talk.system:
            told["system"] = prompt.system
        return ModelRequested.model_validate(
            {
                "at": self.around.clock.now(),
                "turn": self.at.turn,
                "request": request,
                "base": None if is_new else self.talk.request,
                "added": (await self.around.journal.keep(told)).model_dump(),
                "model": model.name,
                "purpose": purpose,
            }
        )

    def _masked(self, reply: Reply) -> Reply:
        """Return the reply as everyone sees it; a secret that a model makes up or repeats is masked where it enters."""
        mask = self.around.masker
        said = reply.said
        programs = tuple(Program(id=program.id, code=mask.mask_text(program.code)) for program in said.programs)
        clean = AgentSaid(text=mask.mask_text(said.text), programs=programs, kept=mask.mask_json(said.kept))
        return Reply(clean, mask.mask_json(reply.raw), reply.usage, reply.stop_reason)

    def _calls(self) -> TurnCalls:
        around, session = self.around, self.at.session
        return TurnCalls(
            session=session,
            turn=self.at.turn,
            gate=around.gate,
            talk=self.talk,
            effects={tool.full_name: tool.effect for tool in self.tools[0]},
            new_call=lambda: CallId(ordered_id(around.clock.now(), around.clock.entropy(5))),
            say=lambda live: around.journal.say(session, live),
            sync=lambda: self.sync(session).talk,
        )

    def _place(self) -> Place:
        assert self.talk.workspace is not None
        return Place(session=self.at.session, workspace=self.talk.workspace, mode=Mode.DEFAULT)

    def _used(self) -> int:
        """Return how many tokens the next request will have, as far as that can be told before it is made."""
        known = self.talk.used
        if known is None:
            known = estimate(self.talk.system) + sum(estimate(item.model_dump_json()) for item in self.talk.items)
        return known + sum(estimate(item.model_dump_json()) for item in self.talk.new)

    def _is_full(self, model: Model) -> bool:
        threshold = self.talk.threshold if self.talk.threshold_set else self.threshold
        return threshold is not None and self._used() >= threshold * model.context_size


class _Heard:
    """One reply while it comes: shown as it comes, and kept about every second."""

    def __init__(self, turn: _Turn, purpose: str) -> None:
        self._turn = turn
        self._is_shown = purpose == "turn"
        self._masker = StreamMasker(turn.around.masker)
        self._unkept = ""
        self._shown = 0

    async def reply(self, model: Model, prompt: Prompt) -> Reply:
        """Return the whole reply."""
        keeping = asyncio.create_task(self._keep_on())
        try:
            async with aclosing(model.reply(prompt)) as pieces:
                async for piece in pieces:
                    match piece:
                        case Delta():
                            self._show(self._masker.feed(piece.text))
                        case Reply():
                            self._show(self._masker.finish())
                            return piece
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))
        raise ModelFault("rejected", f"`{model.name}` ended without a reply")

    def used(self, prompt: Prompt) -> Usage:
        """Return what a request that was cut off has probably used: all of the prompt and what was shown, once anything was."""
        if not self._shown:
            return Usage()
        sent = estimate(prompt.system) + sum(estimate(item.model_dump_json()) for item in prompt.items)
        return Usage(
            input_tokens=sent, output_tokens=estimate("x" * self._shown), tokens_basis=Basis.ESTIMATED, dollars_basis=Basis.UNKNOWN
        )

    def rest(self) -> tuple[Progress, ...]:
        """Return what was shown and is not kept yet, where no whole reply will come."""
        text = f"{self._unkept}{self._masker.finish()}"
        self._unkept = ""
        return (self._piece(text),) if text and self._is_shown else ()

    def _show(self, text: str) -> None:
        self._shown += len(text)
        if text and self._is_shown:
            self._turn.around.journal.say(self._turn.at.session, Live(kind="text", text=text))
            self._unkept += text

    async def _keep_on(self) -> None:
        """Keep what was shown, about every second, also while nothing more comes."""
        while True:
            await asyncio.sleep(_KEPT_EVERY)
            if self._unkept:
                kept, self._unkept = self._unkept, ""
                writing = asyncio.ensure_future(self._turn.record(self._piece(kept)))
                try:
                    await asyncio.shield(writing)
                except asyncio.CancelledError:
                    # What was taken out is told nowhere else, so it is written to its end.
                    await asyncio.wait((writing,))
                    raise

    def _piece(self, text: str) -> TextStreamed:
        return TextStreamed(at=self._turn.around.clock.now(), turn=self._turn.at.turn, text=text)


async def _surely(writing: Coroutine[None, None, object]) -> None:
    """Write something down to its end, however often somebody wants to stop meanwhile; whoever calls this passes their wish on."""
    task = asyncio.ensure_future(writing)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))
    task.result()


def _cut(text: str, longest: int = _LONGEST_RESULT) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n…[{len(text) - 2 * half} characters cut; print a part to see more]…\n{text[-half:]}"
