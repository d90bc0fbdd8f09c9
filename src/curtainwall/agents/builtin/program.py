"""Runs one program of the agent, from its start or its last wait, to its end or its next wait."""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, cast

from pydantic import JsonValue
from pydantic_monty import (
    AsyncFunctionSnapshot,
    AsyncFutureSnapshot,
    AsyncMontySession,
    AsyncNameLookupSnapshot,
    ExternalExceptionData,
    ExternalReturnValue,
    MontyComplete,
    MontyError,
    MontyRuntimeError,
    MontySyntaxError,
)

from curtainwall.agents.builtin.language_model import Program
from curtainwall.agents.builtin.program_output import PRELUDE, PrintedOutput, read_json, render_fault, value_size, with_value_printed
from curtainwall.agents.builtin.snapshots import PendingCall, ProgramSnapshot, SnapshotSeal
from curtainwall.agents.builtin.stubs import ToolStubs
from curtainwall.agents.builtin.workers import Workers
from curtainwall.model import Broken, CallId, Journal, Presence, Save, SavedProgram, SessionId, record

SLEEP = "system.async_sleep"
_MIB = 1024 * 1024
_BIGGEST = 16 * _MIB
# During a call that takes longer, the worker is free for other sessions.
_HOLD = 0.25
_LONG = 256 * 1024
_LONGEST_ARGUMENTS = 8_000_000
_LONGEST_NAP = 60
_MOST_OPEN = 256


@record
class CallReturned:
    """A call returned a value."""

    value: JsonValue


@record
class CallRaised:
    """A call failed; the program sees this exception."""

    kind: Literal["PermissionError", "RuntimeError", "TypeError", "MemoryError"]
    message: str


@record
class CallWaits:
    """A human is being asked; there is no result yet."""

    call: CallId


CallReply = CallReturned | CallRaised | CallWaits


class ProgramCalls(Protocol):
    """The calls that one program can make."""

    @property
    def presence(self) -> Presence:
        """Tells, if the program is cancelled, whether the agent has left."""
        ...

    def acts(self, tool: str) -> bool:
        """Tell whether a tool does more than read."""
        ...

    def mint(self) -> CallId:
        """Return an id for the next call."""
        ...

    async def request(self, pending: PendingCall, save: Save) -> CallReply:
        """Make a call."""
        ...

    def knows(self, call: CallId) -> bool:
        """Tell whether the log has a call; otherwise it never ran."""
        ...

    def first_of(self, call: CallId) -> CallId:
        """Return the open call whose approval this one has joined, or the call itself."""
        ...

    async def settle(self, pending: PendingCall) -> CallReply:
        """Return the outcome of a call made before a wait; run it if it was granted meanwhile."""
        ...

    async def drop(self, call: CallId) -> None:
        """Record that nobody waits for a call any more."""
        ...


@record
class ProgramDone:
    """The program is over; the text is for the model."""

    text: str
    ok: bool


@record
class ProgramParked:
    """The program waits for humans and occupies no worker."""

    waits_for: tuple[CallId, ...]


@record
class _Resting:
    """The program waits for slow calls; meanwhile others can use the worker."""

    dump: bytes
    numbers: tuple[int, ...]


@record
class _Saved:
    """A saved program, and the step at which it was saved."""

    step: int
    snapshot: ProgramSnapshot


class _IsWrong(Exception):
    """The checker found type errors before the program changed anything."""


_Snapshot = MontyComplete | AsyncFunctionSnapshot | AsyncNameLookupSnapshot | AsyncFutureSnapshot


class ProgramRunner:
    """Runs programs, all with the same workers, seal and journal."""

    def __init__(self, workers: Workers, seal: SnapshotSeal, journal: Journal) -> None:
        self.workers = workers
        self.seal = seal
        self.journal = journal

    async def run(
        self, session: SessionId, program: Program, surface: ToolStubs, calls: ProgramCalls, saved: SavedProgram | None = None
    ) -> ProgramDone | ProgramParked:
        """Run a program of a session from its beginning, or from where it was saved."""
        about = f"{session}:{program.id}"
        snapshot = None if saved is None else self.seal.open(self.journal.load(saved.state), f"{about}:{saved.step}")
        if snapshot is not None and snapshot.code is not None:
            program = Program(id=program.id, code=snapshot.code)
        checked = self.workers.checkers.start(session, program.code, surface.stubs)
        run = _Run(self, about, program, surface, calls, checked, self.seal.way_out(about))
        try:
            return await run.run(None if saved is None or snapshot is None else _Saved(saved.step, snapshot))
        except _IsWrong as wrong:
            await run.give_up()
            return ProgramDone(
                f"{run.prints.text}The program was stopped before it changed anything, because its types are wrong:\n{wrong}", ok=False
            )
        except BaseException:
            await run.give_up()
            raise
        finally:
            self.workers.checkers.leave(checked)


@dataclass(slots=True)
class _Run:
    programs: ProgramRunner
    about: str
    """Identifies the session and the program permanently."""
    program: Program
    surface: ToolStubs
    calls: ProgramCalls
    checked: "asyncio.Task[str]"
    way_out: str
    prints: PrintedOutput = field(default_factory=PrintedOutput)
    step: int = 0
    open_: dict[int, PendingCall] = field(default_factory=dict[int, PendingCall])
    """Calls whose result the program has not received, by the interpreter's number."""
    tasks: dict[int, asyncio.Task[CallReply]] = field(default_factory=dict[int, "asyncio.Task[CallReply]"])
    sizes: dict[CallId, int] = field(default_factory=dict[CallId, int])
    """How big the results are that the program has not received."""

    async def run(self, saved: "_Saved | None") -> ProgramDone | ProgramParked:
        resting: _Resting | None = None
        try:
            while True:
                async with self._lent(is_new=saved is None and resting is None) as worker:
                    stopped = await self._stretch(worker, saved, resting)
                if isinstance(stopped, ProgramParked):
                    return stopped
                if stopped is None:
                    break
                resting = stopped
                # Tasks that wait for a human count as done in this run.
                if running := [task for number in resting.numbers if not (task := self.tasks[number]).done()]:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        except MontyError as fault:
            await self._let_rest_end()
            return ProgramDone(f"{self.prints.text}{await self._render_fault(fault)}", ok=False)
        await self._let_rest_end()
        return ProgramDone(self.prints.text.rstrip("\n"), ok=True)

    async def _stretch(
        self, worker: AsyncMontySession, saved: "_Saved | None", resting: "_Resting | None"
    ) -> "ProgramParked | _Resting | None":
        """Run in one worker until the program is over, is parked, or waits so long that others should have the worker."""
        if resting is not None:
            snapshot = await self._loaded(worker, resting.dump)
        else:
            snapshot = await (self._start(worker) if saved is None else self._restore(worker, saved))
        while not isinstance(snapshot, MontyComplete):
            following = await self._follow(snapshot)
            if isinstance(following, ProgramParked | _Resting):
                return following
            snapshot = following
        return None

    async def give_up(self) -> None:
        """Abandon every open call; if the agent has only left, approvals stay open for the human."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        if not self.calls.presence.has_left:
            await self._drop_open()

    def _lent(self, *, is_new: bool) -> AbstractAsyncContextManager[AsyncMontySession]:
        workers = self.programs.workers
        if not is_new:
            return workers.lend()
        return workers.lend_with(f"{PRELUDE}{self.surface.prelude_for(self.program.code, self.way_out)}")

    async def _start(self, worker: AsyncMontySession) -> _Snapshot:
        return await worker.feed_start(with_value_printed(self.program.code), print_callback=self.prints.take)

    async def _restore(self, worker: AsyncMontySession, saved: "_Saved") -> _Snapshot:
        """Load a saved program. Settle the calls that the log has; make the others, which never ran."""
        snapshot = saved.snapshot
        self.step = saved.step
        self.prints.restore(snapshot.prints)
        self.open_ = dict(snapshot.pending)
        numbers = {pending.call: number for number, pending in snapshot.pending.items()}
        # Calls that share one approval share one outcome, and only the first of them runs.
        firsts = {number: numbers.get(self.calls.first_of(pending.call), number) for number, pending in snapshot.pending.items()}
        for number in (number for number, first in firsts.items() if number == first):
            self.tasks[number] = asyncio.create_task(await self._taken_up(snapshot.pending[number], snapshot.dump))
        self.tasks = {number: self.tasks[first] for number, first in firsts.items()}
        return await self._loaded(worker, snapshot.dump)

    async def _loaded(self, worker: AsyncMontySession, dump: bytes) -> _Snapshot:
        try:
            return await worker.load_snapshot(dump, print_callback=self.prints.take)
        except (MontyError, RuntimeError, ValueError) as fault:
            raise Broken(f"a saved program cannot be taken up again: {fault}") from None

    async def _taken_up(self, pending: PendingCall, dump: bytes) -> Coroutine[None, None, CallReply]:
        """Return the coroutine that continues a call that was open at the wait."""
        if not pending.tool:
            return _at_once(CallRaised("TypeError", "the call could not be made"))
        if pending.tool == SLEEP:
            return _slept(pending)
        if self.calls.knows(pending.call):
            return self._settle(pending)
        return self._request(pending, self._saver(dump))

    async def _follow(
        self, snapshot: AsyncFunctionSnapshot | AsyncNameLookupSnapshot | AsyncFutureSnapshot
    ) -> "_Snapshot | ProgramParked | _Resting":
        """Give the program what it waits for, and run it to its next wait."""
        match snapshot:
            case AsyncNameLookupSnapshot():
                return await snapshot.resume()
            case AsyncFutureSnapshot():
                replies = await self._replies(snapshot.pending_call_ids)
                if replies is None:
                    return _Resting(snapshot.dump(), tuple(snapshot.pending_call_ids))
                if not replies:
                    return ProgramParked(tuple(self.open_[number].call for number in snapshot.pending_call_ids))
                return await snapshot.resume({number: _reply_value(reply) for number, reply in replies.items()})
            case AsyncFunctionSnapshot() if snapshot.function_name in (self.way_out, SLEEP):
                if snapshot.call_id not in self.tasks:
                    await self._call(snapshot)
                return await snapshot.resume({"future": ...})
            case AsyncFunctionSnapshot(function_name="system.sleep"):
                return await snapshot.resume(await _sleep_result(snapshot.args))
            case AsyncFunctionSnapshot():
                return await snapshot.resume_auto()

    async def _call(self, snapshot: AsyncFunctionSnapshot) -> None:
        """Start a call, with a snapshot of the program right before it."""
        number = snapshot.call_id
        try:
            tool, arguments = (SLEEP, _nap(snapshot.args)) if snapshot.function_name == SLEEP else _parse_call(snapshot.args)
        except TypeError as fault:
            self._answer_at_once(number, CallRaised("TypeError", str(fault)))
            return
        pending = self.open_[number] = PendingCall(self.calls.mint(), tool, arguments)
        if tool == SLEEP:
            self.tasks[number] = asyncio.create_task(_slept(pending))
            return
        if len(self.open_) > _MOST_OPEN:
            reason = f"a program makes at most {_MOST_OPEN} calls at once; gather them in smaller groups"
            self._answer_at_once(number, CallRaised("RuntimeError", reason))
            return
        dump = snapshot.dump()
        size = len(dump) + sum(value_size(dict(each.arguments)) for each in self.open_.values())
        if size > _BIGGEST:
            reason = f"the program and its open calls hold {size // _MIB} MiB; to make a call they must hold less than {_BIGGEST // _MIB}"
            self._answer_at_once(number, CallRaised("MemoryError", reason))
            return
        self.tasks[number] = asyncio.create_task(self._request(pending, self._saver(dump)))

    def _answer_at_once(self, number: int, reply: CallRaised) -> None:
        self.open_[number] = PendingCall(CallId(""), "", {})
        self.tasks[number] = asyncio.create_task(_at_once(reply))

    async def _request(self, pending: PendingCall, save: Save) -> CallReply:
        if self.calls.acts(pending.tool) and (wrong := await asyncio.shield(self.checked)):
            raise _IsWrong(wrong)
        return self._bounded(pending, await self.calls.request(pending, save))

    async def _settle(self, pending: PendingCall) -> CallReply:
        return self._bounded(pending, await self.calls.settle(pending))

    def _bounded(self, pending: PendingCall, reply: CallReply) -> CallReply:
        """Return a reply, or an error in its place if too much waits for the program already: it need not take what it asks for."""
        if not isinstance(reply, CallReturned):
            return reply
        size = value_size(reply.value)
        if (held := size + sum(self.sizes.values())) > _BIGGEST:
            reason = f"the call was made, but results that wait for the program would hold {held // _MIB} MiB, more than {_BIGGEST // _MIB}"
            return CallRaised("MemoryError", f"{reason}; read parts, or make fewer calls at once")
        self.sizes[pending.call] = size
        return reply

    def _saver(self, dump: bytes) -> Save:
        """Return a function that seals and stores the program in its current state, if that is needed."""
        # INVARIANT: a later place in the program has a higher number, whichever reaches the log first.
        self.step += 1
        step, snapshot = self.step, ProgramSnapshot(dump, self.prints.saved, dict(self.open_), self.program.code)

        async def save() -> SavedProgram:
            close = partial(self.programs.seal.close, snapshot, f"{self.about}:{step}")
            sealed = close() if len(dump) < _LONG else await asyncio.to_thread(close)
            return SavedProgram(program=self.program.id, step=step, state=await self.programs.journal.keep(sealed))

        return save

    async def _replies(self, numbers: list[int]) -> dict[int, CallReturned | CallRaised] | None:
        """Return the replies to calls that the program waits for; none if all wait for humans, None if it takes a while."""
        while True:
            replies: dict[int, CallReturned | CallRaised] = {}
            for number in numbers:
                if self.tasks[number].done() and not isinstance(reply := self.tasks[number].result(), CallWaits):
                    replies[number] = reply
            running = [self.tasks[number] for number in numbers if not self.tasks[number].done()]
            if replies or not running:
                for number in replies:
                    self.sizes.pop(self.open_[number].call, None)
                    del self.tasks[number], self.open_[number]
                return replies
            done, _ = await asyncio.wait(running, timeout=_HOLD, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return None

    async def _let_rest_end(self) -> None:
        """Wait for calls that the program did not await, and drop those with open approvals: nobody would use the answer."""
        for number, pending in self.open_.items():
            if pending.tool == SLEEP:
                self.tasks[number].cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        await self._drop_open()

    async def _drop_open(self) -> None:
        for pending in self.open_.values():
            if pending.tool not in ("", SLEEP):
                await self.calls.drop(pending.call)

    async def _render_fault(self, fault: MontyError) -> str:
        text = render_fault(fault)
        if isinstance(fault, MontyRuntimeError | MontySyntaxError):
            wrong = await asyncio.shield(self.checked)
            return f"{text}\nThe type checker says:\n{wrong}" if wrong else text
        return text


async def _at_once(reply: CallReply) -> CallReply:
    return reply


async def _slept(pending: PendingCall) -> CallReturned:
    await asyncio.sleep(float(cast("float", pending.arguments["seconds"])))
    return CallReturned(None)


async def _sleep_result(arguments: tuple[object, ...]) -> ExternalReturnValue | ExternalExceptionData:
    """Sleep along with the whole program, and return the result of its call."""
    try:
        return _reply_value(await _slept(PendingCall(CallId(""), SLEEP, _nap(arguments))))
    except TypeError as fault:
        return _reply_value(CallRaised("TypeError", str(fault)))


def _nap(arguments: tuple[object, ...]) -> dict[str, JsonValue]:
    seconds = arguments[0] if arguments else 0
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_NAP:
        raise TypeError(f"a program sleeps for at most {_LONGEST_NAP} seconds at a time")
    return {"seconds": float(seconds)}


def _parse_call(arguments: tuple[object, ...]) -> tuple[str, dict[str, JsonValue]]:
    """Return the tool and its arguments, without those that are None."""
    tool, written = arguments if len(arguments) == 2 else ("", None)
    if not isinstance(tool, str) or not isinstance(written, str):
        raise TypeError("a call takes a tool and its arguments")
    if len(written) > _LONGEST_ARGUMENTS:
        raise TypeError(f"the arguments of {tool} have {len(written)} characters, more than {_LONGEST_ARGUMENTS}; send less at a time")
    parsed = read_json(written)
    if not isinstance(parsed, dict):
        raise TypeError("the arguments of a call have names")
    return tool, {name: value for name, value in parsed.items() if value is not None}


def _reply_value(reply: CallReturned | CallRaised) -> ExternalReturnValue | ExternalExceptionData:
    if isinstance(reply, CallReturned):
        return {"return_value": reply.value}
    return {"exc_type": reply.kind, "message": reply.message}
