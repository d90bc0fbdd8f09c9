"""One turn of the built-in agent: model requests and program runs, each recorded before and after."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from curtainwall.agents.builtin.calls import TurnCalls
from curtainwall.agents.builtin.compaction import CompactedHistory, estimate_items, estimate_tokens, plan_compaction
from curtainwall.agents.builtin.history import ConversationHistory
from curtainwall.agents.builtin.language_model import (
    ITEMS,
    AgentMessage,
    ConversationItem,
    LanguageModel,
    ModelFault,
    ModelReply,
    Program,
    ProgramOutcome,
    Prompt,
)
from curtainwall.agents.builtin.program import ProgramDone, ProgramParked, ProgramRunner
from curtainwall.agents.builtin.prompt import (
    ABSENT,
    INSTRUCTION_FILES,
    InstructionDigests,
    compact_instructions,
    instructions_digest,
    read_instructions,
    system_prompt,
)
from curtainwall.agents.builtin.reply_stream import ReplyStream
from curtainwall.agents.builtin.stubs import ToolStubs
from curtainwall.facts import Masker, contains_mask
from curtainwall.model import (
    FOLLOW_INSTRUCTIONS,
    AgentSpoke,
    Answer,
    AnyEvent,
    Basis,
    Broken,
    CallRequest,
    Clock,
    CompactionSkipped,
    ContextMeasured,
    Digest,
    Feed,
    Gate,
    HistoryCompacted,
    Hooks,
    InstructionsPinned,
    Journal,
    Live,
    Millis,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Place,
    PostCompact,
    PreCompact,
    ProgramFinished,
    Progress,
    SessionId,
    TextStreamed,
    ToolSpec,
    TryLater,
    TurnAt,
    TurnResult,
    TurnStatus,
    Workspace,
    WorkTimed,
    ordered_id,
    record,
)

_LONGEST_RESULT = 30_000
_LONGEST_MASKED = 400_000
_LEAST_GROWTH = 0.1
"""The share of the context that a turn has to add before its history is compacted again."""
_LOST_CODE = (
    "The program was not run and changed nothing: the process that was given it ended, and the log does not keep a value in it that looks "
    "like a secret. Write the program again."
)


@record
class BuiltinPorts:
    """The ports and settings that the agent works with."""

    feed: Feed
    gate: Gate
    journal: Journal
    hooks: Hooks
    clock: Clock
    masker: Masker
    programs: ProgramRunner
    model_of: Callable[[str], LanguageModel]
    tools: Callable[[], Sequence[ToolSpec]]
    remembered: InstructionDigests
    skills: Callable[[Workspace], Sequence[tuple[str, str]]]
    """Returns the skills of a workspace: each one's name and its description for the model."""
    hosts: Callable[[SessionId], str]
    """Returns text for the model about the hosts that a session may fetch from freely."""


@dataclass(slots=True)
class CachedSession:
    """A session in memory: its conversation, up to an entry of its log."""

    history: ConversationHistory
    cursor: int = 0


@record
class Held:
    """A turn's access to its session in memory."""

    sync: Callable[[SessionId], CachedSession]
    """Returns the session up to the end of its log."""
    unpacked: Callable[[SessionId], AbstractContextManager[None]]
    """Keeps its conversation unpacked while it is in use; others may be packed before and afterwards."""


@dataclass(slots=True)
class BuiltinTurn:
    """The work on one turn, or on a summary between two."""

    around: BuiltinPorts
    at: TurnAt
    known: CachedSession
    tools: tuple[Sequence[ToolSpec], ToolStubs]
    held: Held
    threshold: float | None
    written: dict[str, str] = field(default_factory=dict[str, str])
    """The programs of the last reply as the model wrote them, by id; the log has them masked."""
    skills: Sequence[tuple[str, str]] = ()
    hosts: str = ""
    began: Millis = 0
    compacted_at: int | None = None
    """Tokens in the context after the turn last tried to compact its history."""

    def __post_init__(self) -> None:
        self.began = self.around.clock.elapsed()

    @property
    def talk(self) -> ConversationHistory:
        """Return the conversation up to the end of the log."""
        return self.known.history

    async def work(self) -> TurnResult:
        """Work until the model has nothing more to run, or the turn has to wait."""
        await self._pin_instructions()
        assert self.talk.workspace is not None
        self.skills = await asyncio.to_thread(self.around.skills, self.talk.workspace)
        self.hosts = self.around.hosts(self.at.session)
        model = self.around.model_of(self.talk.model)
        calls = self._calls()
        has_compacted = False
        while True:
            parked = await self._run_programs(calls)
            if parked is not None:
                return TurnResult(status=TurnStatus.WAITING, waits_for=parked.waits_for)
            if calls.stopped is not None:
                return TurnResult(status=TurnStatus.INTERRUPTED, failure=f"stopped by a hook: {calls.stopped}")
            if not self.talk.new and isinstance(self.talk.held.last, AgentMessage):
                return TurnResult(status=TurnStatus.DONE)
            if self.talk.exhausted:
                return TurnResult(status=TurnStatus.WAITING, failure="a budget is used up; `/budget` shows and raises it")
            if self._needs_compaction(model):
                await self.compact("threshold", "")
                self.compacted_at = self._used()
                # The summary may have used up a budget.
                continue
            try:
                await self._ask(model)
            except ModelFault as fault:
                if fault.kind != "overflow" or has_compacted:
                    raise
                has_compacted = True
                if not await self.compact("overflow", ""):
                    raise

    async def record(self, *events: Progress) -> Sequence[AnyEvent]:
        """Record events and take them in."""
        happened = await self.around.journal.record(self.at.session, events)
        self.known = self.held.sync(self.at.session)
        return happened

    async def settle_up(self) -> None:
        """Record how long the work took."""
        worked = (self.around.clock.elapsed() - self.began) / 1000
        await self.record(WorkTimed(at=self.around.clock.now(), seconds=max(0.0, worked)))

    async def compact(self, trigger: str, instructions: str) -> bool:
        """Replace older messages with a summary and tell whether that succeeded; if not, record why."""
        now = self.around.clock.now
        place = self._place()
        occasion = PreCompact(trigger="manual" if trigger == "asked" else "auto", custom_instructions=instructions or None)
        blocked = (await self.around.hooks.tell(occasion, place)).blocked
        if blocked is not None:
            await self.record(CompactionSkipped(at=now(), why=f"a hook says no: {blocked}"))
            return False
        model = self.around.model_of(self.talk.model)
        pinned = "\n".join(filter(None, (compact_instructions(text) for _, text in self.talk.pinned.values())))
        before = self._used()
        # Only while the request is built, which holds its own text: the conversation may be packed while the model writes.
        with self.held.unpacked(self.at.session):
            # Results belong to programs in the history: they are summarised, or stay, together.
            results, unsent = self._unsent()
            plan = plan_compaction(
                (*self.talk.items, *results),
                model.context_size,
                "\n".join(filter(None, (instructions, pinned))),
                keeps_step=trigger == "threshold",
            )
        if plan is None:
            await self.record(CompactionSkipped(at=now(), why="there is nothing that a summary could replace"))
            return False
        self.around.journal.publish(self.at.session, Live(kind="doing", text="summarising older messages"))
        try:
            reply = await self._converse(model, plan.prompt, purpose="summary")
        except ModelFault as fault:
            await self.record(CompactionSkipped(at=now(), why=self.around.masker.mask_text(str(fault))))
            return False
        done = plan.with_summary(reply.message.text)
        if done is None:
            await self.record(CompactionSkipped(at=now(), why="the summary was empty"))
            return False
        await self._keep_summary(trigger, before, done, unsent if results else None)
        await self.around.hooks.tell(PostCompact(trigger=occasion.trigger, compact_summary=done.summary), place)
        return True

    def _unsent(self) -> tuple[tuple[ConversationItem, ...], tuple[ConversationItem, ...]]:
        """Return the results that the model has not been sent, and everything else that it has not been sent."""
        count = sum(isinstance(item, ProgramOutcome) for item in self.talk.new)
        return tuple(self.talk.new[:count]), tuple(self.talk.new[count:])

    async def _keep_summary(self, trigger: str, before: int, done: CompactedHistory, unsent: tuple[ConversationItem, ...] | None) -> None:
        """Record a shorter history; `unsent` is what the model has not been sent yet, if the summary covers some of that."""
        content = {"summary": done.summary, "replaced": done.replaced, "items": ITEMS.dump_python(done.items, mode="json")}
        if unsent is not None:
            content["new"] = ITEMS.dump_python(unsent, mode="json")
        now, after = self.around.clock.now(), estimate_tokens(self.talk.system) + estimate_items(done.items)
        event = HistoryCompacted.model_validate(
            {
                "at": now,
                "trigger": trigger,
                "before": before,
                "after": after,
                "upto": self.known.cursor,
                "summary": (await self.around.journal.keep(content)).model_dump(),
            }
        )
        size = self.around.model_of(self.talk.model).context_size
        await self.record(event, ContextMeasured(at=now, used=after, size=size, measured=False))

    async def _pin_instructions(self) -> None:
        """Pin the instruction files of the workspace.

        Files that exist before the agent has acted are the user's. Files that appear or change later count only after approval, since the
        agent, or something it fetched, may have written them. INVARIANT: other sessions follow a text only after a human approved exactly
        that text; a mode, a rule or an automatic approver lets only this session follow it.
        """
        workspace, remembered = self.talk.workspace, self.around.remembered
        assert workspace is not None
        is_untouched = not self.talk.has_acted
        files = tuple(read_instructions(workspace))
        if is_untouched and not workspace.own:
            # Other sessions work in a project too: the next one must not take what they leave there for the user's.
            for name in set(INSTRUCTION_FILES) - {file.path for file in files}:
                if remembered.known(workspace.path, name) is None:
                    remembered.remember(workspace.path, name, ABSENT)
        for file in files:
            text = self.around.masker.mask_text(file.text)
            digest = instructions_digest(text)
            pinned = self.talk.pinned.get(file.path)
            last = pinned[0] if pinned else remembered.known(workspace.path, file.path)
            if pinned and last == digest:
                continue
            is_users = last == digest or (last is None and is_untouched)
            answer = None if is_users else await self._ask_to_follow(file.path, text, digest)
            if is_users or (answer is not None and answer.by_human):
                remembered.remember(workspace.path, file.path, digest)
            elif remembered.known(workspace.path, file.path) is None:
                # Otherwise the next session would take it for the user's.
                remembered.remember(workspace.path, file.path, ABSENT)
            if is_users or answer is not None:
                payload = await self.around.journal.keep(text)
                await self.record(InstructionsPinned(at=self.around.clock.now(), path=file.path, digest=digest, text=payload))

    async def _ask_to_follow(self, path: str, text: str, digest: Digest) -> Answer | None:
        """Ask, once, whether new or changed instructions count, and return the answer if it is yes.

        This does not wait for the answer: until then the old instructions count, or none.
        """
        call = self.talk.following.get((path, digest))
        if call is None:
            request = CallRequest(tool=FOLLOW_INSTRUCTIONS, arguments={"path": path, "content": text}, turn=self.at.turn, by_house=True)
            answer = await self.around.gate.request(self.at.session, request, wait=False, presence=self.at.presence)
        elif call in self.talk.refused:
            return None
        else:
            answer = await self.around.gate.resume(self.at.session, call)
        return answer if answer.result is not None and answer.result.ok else None

    async def _run_programs(self, calls: TurnCalls) -> ProgramParked | None:
        """Run the model's programs one after the other; stop if one has to wait."""
        while self.talk.programs:
            program, saved = self.talk.programs[0], self.talk.saved
            going_on = saved if saved is not None and saved.program == program.id else None
            calls.talk = self.talk
            code = self.written.get(program.id, program.code)
            if going_on is None and program.id not in self.written and contains_mask(program.code):
                # The log has it masked, and a mask must never run in place of the real value.
                ended = ProgramDone(_LOST_CODE, ok=False)
            else:
                as_written = Program(id=program.id, code=code)
                ended = await self.around.programs.run(self.at.session, as_written, self.tools[1], calls, going_on)
            if isinstance(ended, ProgramParked):
                return ended
            text = f"{ended.text}\n{calls.context}" if calls.context else ended.text
            calls.context = ""
            # Cut twice: masking a huge text would take long, and the second cut keeps only text that the first left intact.
            shown = await self.around.journal.keep(_cut(self.around.masker.mask_text(_cut(text, _LONGEST_MASKED))) or "(no output)")
            now = self.around.clock.now()
            await self.record(ProgramFinished(at=now, turn=self.at.turn, program=program.id, ok=ended.ok, shown=shown))
        return None

    async def _ask(self, model: LanguageModel) -> None:
        """Ask the model for its next reply and record it."""
        workspace = self.talk.workspace
        assert workspace is not None
        pinned = {path: text for path, (_, text) in self.talk.pinned.items()}
        system = system_prompt(workspace, self.tools[1].stubs, pinned, self.skills, self.hosts)
        items = (*self.talk.items, *self.talk.new)
        prompt = Prompt(system, items, replies=self.talk.replies)
        used = self._used() if self.talk.used is not None else estimate_tokens(system) + estimate_items(items)
        with self.held.unpacked(self.at.session):
            await self._converse(model, prompt, purpose="turn", estimate=used)

    async def _converse(self, model: LanguageModel, prompt: Prompt, purpose: str, estimate: int = 0) -> ModelReply:
        """Make one request; record it before it is sent, and then the complete or partial reply."""
        now, turn = self.around.clock.now, self.at.turn
        request = ordered_id(now(), self.around.clock.entropy(5))
        requested = await self._requested(request, model, prompt, purpose)
        if purpose == "turn":
            await self.record(requested, ContextMeasured(at=now(), used=estimate, size=model.context_size, measured=False))
        else:
            await self.record(requested)
        stream = ReplyStream(
            self.around.masker, keep=self._keep_piece, show=self._show if purpose == "turn" else None, again=self._report_retry
        )
        try:
            reply = await stream.reply(model, prompt)
        except ModelFault as fault:
            failure = self.around.masker.mask_text(str(fault))
            failed = ModelFailed(at=now(), turn=turn, request=request, failure=failure, usage=stream.used(prompt))
            await self.record(*self._pieces(stream.rest()), failed)
            raise
        except asyncio.CancelledError:
            failed = ModelFailed(at=now(), turn=turn, request=request, failure="interrupted", usage=stream.used(prompt))
            await write_uninterrupted(self.record(*self._pieces(stream.rest()), failed))
            raise
        if purpose == "turn":
            self.written.clear()
            self.written.update({program.id: program.code for program in reply.message.programs})
        reply = self._masked(reply)
        usage = reply.usage
        try:
            raw = await self.around.journal.keep(reply.raw)
            normalised = await self.around.journal.keep(reply.message.model_dump(mode="json"))
        except (TryLater, Broken, asyncio.CancelledError) as fault:
            # The tokens were used all the same.
            failure = "interrupted" if isinstance(fault, asyncio.CancelledError) else f"the reply could not be kept: {fault}"
            with suppress(TryLater, Broken):
                await write_uninterrupted(self.record(ModelFailed(at=now(), turn=turn, request=request, failure=failure, usage=usage)))
            raise
        events: list[Progress] = [
            ModelResponded(at=now(), turn=turn, request=request, raw=raw, normalised=normalised, usage=usage, stop_reason=reply.stop_reason)
        ]
        if purpose == "turn":
            used = usage.input_tokens + usage.output_tokens
            if reply.message.text:
                events.append(AgentSpoke(at=now(), turn=turn, text=reply.message.text))
            is_measured = usage.tokens_basis is Basis.MEASURED
            events.append(ContextMeasured(at=now(), used=used, size=model.context_size, measured=is_measured))
        await self.record(*events)
        return reply

    def _show(self, text: str) -> None:
        self.around.journal.publish(self.at.session, Live(kind="text", text=text, turn=self.at.turn))

    def _report_retry(self, text: str) -> None:
        self.around.journal.publish(self.at.session, Live(kind="again", text=self.around.masker.mask_text(text), turn=self.at.turn))

    async def _keep_piece(self, text: str) -> None:
        await self.record(*self._pieces(text))

    def _pieces(self, text: str) -> tuple[TextStreamed, ...]:
        return (TextStreamed(at=self.around.clock.now(), turn=self.at.turn, text=text),) if text else ()

    async def _requested(self, request: str, model: LanguageModel, prompt: Prompt, purpose: str) -> ModelRequested:
        """Return the event of a request: a reference to the previous one, plus what was added."""
        is_new = purpose == "summary" or self.talk.request is None
        added = prompt.items if is_new else self.talk.new
        content = {"items": ITEMS.dump_python(tuple(added), mode="json")}
        if is_new or prompt.system != self.talk.system:
            content["system"] = prompt.system
        return ModelRequested.model_validate(
            {
                "at": self.around.clock.now(),
                "turn": self.at.turn,
                "request": request,
                "base": None if is_new else self.talk.request,
                "added": (await self.around.journal.keep(content)).model_dump(),
                "model": model.name,
                "purpose": purpose,
            }
        )

    def _masked(self, reply: ModelReply) -> ModelReply:
        """Return the reply with its secrets masked, including those that a model invents or repeats.

        Its programs still run as written, from memory and from sealed snapshots.
        """
        mask = self.around.masker
        message = reply.message
        programs = tuple(Program(id=program.id, code=mask.mask_text(program.code)) for program in message.programs)
        clean = AgentMessage(text=mask.mask_text(message.text), programs=programs, kept=mask.mask_json(message.kept))
        return ModelReply(clean, mask.mask_json(reply.raw), reply.usage, reply.stop_reason)

    def _calls(self) -> TurnCalls:
        around, session = self.around, self.at.session
        return TurnCalls(
            at=self.at,
            gate=around.gate,
            journal=around.journal,
            clock=around.clock,
            masker=around.masker,
            talk=self.talk,
            effects={tool.full_name: tool.effect for tool in self.tools[0]},
            sync=lambda: self.held.sync(session).history,
        )

    def _place(self) -> Place:
        assert self.talk.workspace is not None
        return Place(session=self.at.session, workspace=self.talk.workspace, mode=self.talk.mode)

    def _used(self) -> int:
        """Return an estimate of the tokens in the next request."""
        tokens = self.talk.used
        if tokens is None:
            tokens = estimate_tokens(self.talk.system) + estimate_items(self.talk.items)
        return tokens + estimate_items(self.talk.new)

    def _needs_compaction(self, model: LanguageModel) -> bool:
        """Tell whether the next request would pass the threshold, and a summary can be expected to help."""
        threshold = self.talk.threshold if self.talk.threshold_set else self.threshold
        used, size = self._used(), model.context_size
        if threshold is None or used < threshold * size:
            return False
        return self.compacted_at is None or used - self.compacted_at >= _LEAST_GROWTH * size


async def write_uninterrupted(writing: Coroutine[None, None, object]) -> None:
    """Finish writing even if cancelled repeatedly; the caller must pass the cancellation on."""
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
