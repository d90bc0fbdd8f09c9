"""The ten steps of the gate, with the real policy, the real meaning of calls and a far side that counts."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from curtainwall.model import (
    FOLLOW_INSTRUCTIONS,
    SYSTEM,
    Answer,
    AnswerApproval,
    ApprovalAsked,
    ApprovalId,
    ApprovalQuery,
    Batch,
    BlobRef,
    CallFinished,
    CallPermitted,
    CallRequest,
    ChangeMode,
    CloseSession,
    DenialsCounted,
    DropCall,
    Effect,
    GrantScope,
    HookEvent,
    HookReply,
    HookSays,
    Log,
    MessageId,
    Mode,
    Payload,
    Place,
    Prepared,
    Presence,
    SendMessage,
    SessionId,
    StreamId,
    Subject,
    ToolResult,
    TryLater,
    Who,
)
from curtainwall.runtime import SessionGate, SessionRegistry, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, BOB, FailingStore, FarSide, events, house, kinds, open_session, policy, read, run, tools, until, write


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def far(tmp_path: Path) -> FarSide:
    return FarSide(tmp_path / "far")


@asynccontextmanager
async def at_gate(workspace: Path, far: FarSide) -> AsyncGenerator[tuple[SessionRegistry, SessionId, SessionGate]]:
    """Lend a gate, with a session that works in the workspace; whatever runs is told to the far side."""
    async with house(MemoryStore(SystemClock())) as h:
        yield h, await open_session(h, workspace), SessionGate(h, tools(far))


async def asking_for(h: SessionRegistry, request: Coroutine[None, None, Answer]) -> tuple[asyncio.Task[Answer], ApprovalId]:
    """Make a call that a human is asked about, and return it with the one open ask."""
    asking = asyncio.create_task(request)
    [approval] = await until(lambda: open_asks(h))
    return asking, approval


def open_asks(h: SessionRegistry) -> list[ApprovalId]:
    return [row.approval for row in h.stores.index.approvals(ApprovalQuery())]


@covers("gate.log-act-log")
def test_an_allowed_call_is_logged_before_and_after_it_runs(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            seen: list[list[str]] = []
            far.on_run = lambda _: seen.append(kinds(h, session))
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.result == ToolResult(ok=True, value="done")
            assert seen[0][-2:] == ["CallRequested", "CallPermitted"]
            assert kinds(h, session)[-1] == "CallFinished"

    run(story())


def test_an_unknown_tool_is_denied_and_logged(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            answer = await gate.request(session, CallRequest(tool="filesystem.rm_rf", arguments={}))
            assert (answer.verdict.effect, answer.verdict.because) == (Effect.DENY, ("unknown-tool",))
            assert kinds(h, session)[-2:] == ["CallRequested", "CallDenied"]
            assert far.lines == []

    run(story())


def test_what_a_refusal_quotes_of_a_secret_is_masked_in_its_words_and_in_the_log(workspace: Path, far: FarSide) -> None:
    secret = f"ghp_{'a1B2' * 9}"

    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            gate, wanted = SessionGate(h, tools(far)), CallRequest(tool=f"filesystem.{secret}", arguments={"path": secret})
            for asked in (wanted, wanted.model_copy(update={"server": "git"})):
                answer = await gate.request(session, asked)
                assert answer.verdict.because == ("unknown-tool",)
                assert "`filesystem.[masked:" in answer.verdict.reason
                assert not [it for it in (answer, *events(h, session)) if secret in repr(it)]

    run(story())


def test_what_a_tool_that_broke_quotes_of_a_secret_is_masked_in_its_outcome_and_in_the_log(workspace: Path, far: FarSide) -> None:
    secret = f"ghp_{'a1B2' * 9}"

    def breaks(_: Prepared) -> None:
        raise RuntimeError(f"cannot sign in with {secret}")

    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            far.on_run = breaks
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.result is not None
            assert str(answer.result.value).startswith("the tool failed: RuntimeError: cannot sign in with [masked:")
            assert not [event for event in events(h, session) if secret in event.model_dump_json()]

    run(story())


@covers("agents.the-houses-own-tools-are-not-for-agents")
def test_what_only_the_house_asks_for_is_unknown_to_agents(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (_, session, gate):
            request = CallRequest(tool=FOLLOW_INSTRUCTIONS, arguments={"path": "AGENTS.md", "content": "obey"})
            assert (await gate.request(session, request)).verdict.because == ("unknown-tool",)
            answer = await gate.request(session, request.model_copy(update={"by_house": True}), wait=False)
            assert answer.waiting

    run(story())


@pytest.mark.parametrize("arguments", [None, [], "x", {"path": 1}, {"path": "a", "extra": 1}, {"path": ["a"]}, {}])
def test_arguments_that_mean_nothing_are_denied(workspace: Path, far: FarSide, arguments: object) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (_, session, gate):
            answer = await gate.request(session, CallRequest.model_construct(tool="filesystem.read_file", arguments=arguments))
            assert (answer.verdict.effect, answer.verdict.because) == (Effect.DENY, ("invalid-arguments",))
            assert far.lines == []

    run(story())


@covers("gate.ask-waits")
def test_an_ask_waits_for_a_human_and_goes_on_with_the_answer(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            asking, approval = await asking_for(h, gate.request(session, read("/etc/hostname")))
            assert far.lines == []
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            answer = await asking
            assert answer.result is not None
            assert answer.result.ok
            assert far.lines == ["filesystem.read_file /etc/hostname"]
            permit = next(event for event in events(h, session) if isinstance(event, CallPermitted))
            assert permit.answered_by == (approval,)

    run(story())


def test_a_denied_ask_does_not_run_and_says_why(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            asking, approval = await asking_for(h, gate.request(session, read("/etc/hostname")))
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=False, reason="not today"))
            answer = await asking
            assert answer.verdict.because == ("denied-by-human",)
            assert "not today" in answer.verdict.reason
            assert far.lines == []

    run(story())


def test_two_asks_are_answered_independently_in_any_order(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            one = asyncio.create_task(gate.request(session, read("/etc/hostname")))
            await until(lambda: open_asks(h))
            two = asyncio.create_task(gate.request(session, read("/etc/hosts")))
            await until(lambda: len(open_asks(h)) == 2)
            asks = {event.covers[0].value: event.approval for event in events(h, session) if isinstance(event, ApprovalAsked)}
            await h.send(session, AnswerApproval(by=ANN, approval=asks["/etc/hosts"], granted=True))
            assert (await two).result is not None
            assert not one.done()
            await h.send(session, AnswerApproval(by=ANN, approval=asks["/etc/hostname"], granted=False))
            assert (await one).result is None

    run(story())


@covers("gate.joined-calls-run-once")
def test_the_same_subject_asked_twice_runs_once_and_both_get_the_outcome(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            one, approval = await asking_for(h, gate.request(session, read("/etc/hostname")))
            two = asyncio.create_task(gate.request(session, read("/etc/hostname")))
            await until(lambda: "ApprovalJoined" in kinds(h, session))
            assert open_asks(h) == [approval]
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            first, second = await asyncio.gather(one, two)
            assert first.result == second.result == ToolResult(ok=True, value="done")
            assert len(far.lines) == 1

    run(story())


def test_a_call_that_joins_one_that_nobody_waits_for_leaves_it_as_it_is(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            parked = await gate.request(session, read("/etc/hostname"), wait=False)
            joining = asyncio.create_task(gate.request(session, read("/etc/hostname")))
            await until(lambda: "ApprovalJoined" in kinds(h, session))
            for name in ("a", "b"):
                await gate.request(session, write(workspace / name))
            joining.cancel()
            await asyncio.wait([joining])
            assert kinds(h, session).count("CallDropped") == 1, "the one that joined, and no other"
            [approval] = open_asks(h)
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            assert (await gate.resume(session, parked.call)).result == ToolResult(ok=True, value="done")

    run(story())


def test_a_call_that_waits_is_not_denied_because_another_one_is(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            waiting, approval = await asking_for(h, gate.request(session, read("/etc/hostname")))
            for _ in range(2):
                assert (await gate.request(session, CallRequest(tool="filesystem.rm_rf", arguments={}))).verdict.effect is Effect.DENY
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            assert (await waiting).result == ToolResult(ok=True, value="done")

    run(story())


def test_a_yes_to_what_cannot_be_read_any_more_is_kept_for_nothing(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/etc/hostname")

    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            parked = await gate.request(session, read(link), wait=False)
            [approval] = open_asks(h)
            link.unlink()
            link.symlink_to(link)
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            assert (await gate.resume(session, parked.call)).verdict.effect is Effect.DENY
            link.unlink()
            link.symlink_to("/etc/hostname")
            assert (await gate.request(session, read(link), wait=False)).waiting
            assert far.lines == []

    run(story())


def test_a_call_that_is_let_go_gets_the_outcome_of_no_other_call(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            waiting = asyncio.create_task(gate.request(session, read("/etc/hostname")))
            await until(lambda: open_asks(h))
            assert (await gate.request(session, write(workspace / "a"))).result == ToolResult(ok=True, value="done")
            [asked] = [event for event in events(h, session) if isinstance(event, ApprovalAsked)]
            await gate.drop(session, asked.call, "enough")
            told = await waiting
            assert (told.result, told.verdict.because, told.verdict.reason) == (None, ("call-dropped",), "enough")

    run(story())


@covers("gate.look-again")
def test_a_symlink_that_was_retargeted_while_a_human_thought_is_judged_anew_and_not_run(
    workspace: Path, far: FarSide, tmp_path: Path
) -> None:
    (tmp_path / "harmless").write_text("x")
    (tmp_path / "secret").write_text("y")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "harmless")

    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            asking, approval = await asking_for(h, gate.request(session, read(link)))
            link.unlink()
            link.symlink_to(tmp_path / "secret")
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            [again] = await until(lambda: [ask for ask in open_asks(h) if ask != approval])
            assert far.lines == []
            assert not asking.done()
            await h.send(session, AnswerApproval(by=ANN, approval=again, granted=False))
            assert (await asking).result is None
            assert far.lines == []

    run(story())


def test_a_link_that_became_a_loop_is_refused_after_the_answer(workspace: Path, far: FarSide) -> None:
    link = workspace / "link"
    link.symlink_to("/etc/hostname")

    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            asking, approval = await asking_for(h, gate.request(session, read(link)))
            link.unlink()
            link.symlink_to(link)
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            assert (await asking).verdict.because == ("invalid-arguments",)
            assert far.lines == []

    run(story())


def test_a_grant_for_the_session_answers_the_same_ask_later(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            asking, approval = await asking_for(h, gate.request(session, read("/etc/hostname")))
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True, scope=GrantScope.SESSION))
            await asking
            assert (await gate.request(session, read("/etc/hostname"))).result is not None
            [row] = h.stores.index.grants()
            await h.revoke(row.grant.id, BOB)
            assert (await gate.request(session, read("/etc/hostname"), wait=False)).waiting

    run(story())


@covers("gate.project-grant-revoked-at-once")
def test_a_grant_for_the_project_answers_in_another_session_until_it_is_revoked(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            gate = SessionGate(h, tools(far))
            one = await open_session(h, workspace, own=False)
            asking, approval = await asking_for(h, gate.request(one, write(workspace / "a")))
            await h.send(one, AnswerApproval(by=ANN, approval=approval, granted=True, scope=GrantScope.PROJECT))
            await asking
            two = await open_session(h, workspace, own=False)
            assert (await gate.request(two, write(workspace / "a"))).result is not None
            [row] = h.stores.index.grants()
            await h.revoke(row.grant.id, ANN)
            assert (await gate.request(two, write(workspace / "a"), wait=False)).waiting

    run(story())


def test_only_an_operator_may_answer_on_a_channel(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        rules = Rules(policy=policy(), operators={"matrix": frozenset({"ann"})})
        async with house(MemoryStore(SystemClock()), rules) as h:
            session = await open_session(h, workspace)
            asking, approval = await asking_for(h, SessionGate(h, tools(far)).request(session, read("/etc/hostname")))
            stranger = Who(name="eve", channel="matrix")
            with pytest.raises(Exception, match="`eve` is not an operator of `matrix`"):
                await h.send(session, AnswerApproval(by=stranger, approval=approval, granted=True))
            assert open_asks(h) == [approval]
            await h.send(session, AnswerApproval(by=Who(name="ann", channel="matrix"), approval=approval, granted=True))
            assert (await asking).result is not None

    run(story())


class Hook:
    """A hook that says what the test wants."""

    def __init__(self, reply: HookReply) -> None:
        self.reply = reply
        self.after: list[ToolResult] = []

    async def before_call(self, subject: Subject, place: Place) -> HookReply:
        return self.reply

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:
        self.after.append(result)
        return HookReply()

    async def tell(self, event: HookEvent, place: Place) -> HookReply:
        return HookReply()


def test_a_hook_can_deny_what_policy_allows(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            hook = Hook(HookReply(says=HookSays(effect="deny", hook="lint", reason="no writing on sundays")))
            answer = await SessionGate(h, tools(far), hook).request(session, write(workspace / "a"))
            assert answer.verdict.because == ("hook:lint",)
            assert far.lines == []

    run(story())


def test_a_hook_can_make_an_allowed_call_ask(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            hook = Hook(HookReply(says=HookSays(effect="ask", hook="lint", reason="look first")))
            gate = SessionGate(h, tools(far), hook)
            assert (await gate.request(session, write(workspace / "a"), wait=False)).waiting
            assert far.lines == []

    run(story())


def test_arguments_that_a_hook_rewrote_are_judged_again(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            hook = Hook(HookReply(arguments={"path": "/etc/passwd", "content": "x"}))
            answer = await SessionGate(h, tools(far), hook).request(session, write(workspace / "a"), wait=False)
            assert answer.waiting
            assert answer.verdict.because == ("change-outside",)
            assert far.lines == []

    run(story())


class Yes:
    """An approver that approves everything."""

    async def approves(self, subject: Subject, human_words: object) -> str | None:
        return "robot"


class Crash:
    """An approver that fails."""

    async def approves(self, subject: Subject, human_words: object) -> str | None:
        raise RuntimeError("oh")


def test_an_automatic_approver_can_answer_an_ask_but_not_a_denial(workspace: Path, far: FarSide, tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock()), Rules(policy=policy(protected=[tmp_path / "keys"]))) as h:
            session = await open_session(h, workspace)
            gate = SessionGate(h, tools(far), approver=Yes())
            assert (await gate.request(session, read("/etc/hostname"))).result is not None
            assert (await gate.request(session, read(tmp_path / "keys" / "k"))).verdict.because == ("protected-path",)

    run(story())


@covers("approver.sees-the-subject-and-the-humans-words")
def test_an_approver_is_told_the_subject_and_what_the_human_said(workspace: Path, far: FarSide) -> None:
    heard: list[tuple[str, object]] = []

    class Hears:
        async def approves(self, subject: Subject, human_words: object) -> str | None:
            heard.append((subject.tool, human_words))
            return None

    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            await h.send(session, SendMessage(by=ANN, message=MessageId(h.mint()), text="what is this machine called?"))
            answer = await SessionGate(h, tools(far), approver=Hears()).request(session, read("/etc/hostname"), wait=False)
            assert answer.waiting
            assert heard == [("filesystem.read_file", ("what is this machine called?",))]

    run(story())


def test_an_approver_is_not_asked_about_a_plan(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            step = {"tool": "filesystem.read_file", "arguments": {"path": "/etc/hostname"}}
            plan = CallRequest(tool="session.propose_plan", arguments={"steps": [step]})
            answer = await SessionGate(h, tools(far), approver=Yes()).request(session, plan, wait=False)
            assert answer.waiting, "it is a yes to what happens later, which a human gives"
            assert "ApprovalAnswered" not in kinds(h, session)

    run(story())


def test_an_approver_that_fails_passes_the_ask_on_and_is_told_of(workspace: Path, far: FarSide, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            answer = await SessionGate(h, tools(far), approver=Crash()).request(session, read("/etc/hostname"), wait=False)
            assert answer.waiting

    run(story())
    assert caplog.messages == ["the automatic approver failed, and the ask is left to humans: RuntimeError"]


@pytest.mark.parametrize("reply", [True, 1, ["yes"], {"decision": "approved"}, b"yes", object()])
def test_an_approver_that_returns_something_else_than_a_name_passes_the_ask_on(workspace: Path, far: FarSide, reply: object) -> None:
    class Odd:
        async def approves(self, subject: Subject, human_words: Sequence[str]) -> str | None:
            return cast("str | None", reply)

    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            answer = await SessionGate(h, tools(far), approver=Odd()).request(session, read("/etc/hostname"), wait=False)
            assert answer.waiting

    run(story())


def test_a_tool_that_raises_is_a_failed_outcome_and_the_session_goes_on(workspace: Path, far: FarSide) -> None:
    def explode(prepared: Prepared) -> None:
        raise ValueError("the disk is on fire")

    async def story() -> None:
        async with at_gate(workspace, far) as (_, session, gate):
            far.on_run = explode
            answer = await gate.request(session, write(workspace / "a"))
            assert answer.result is not None
            assert not answer.result.ok
            assert "the disk is on fire" in str(answer.result.value)
            far.on_run = None
            assert (await gate.request(session, write(workspace / "b"))).result == ToolResult(ok=True, value="done")

    run(story())


def test_calls_past_the_budget_are_denied_and_counted_rather_than_logged(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock()), Rules(policy=policy(), calls=3)) as h:
            session = await open_session(h, workspace)
            gate = SessionGate(h, tools(far))
            for number in range(3):
                await gate.request(session, write(workspace / str(number)))
            before = len(events(h, session))
            for number in range(250):
                answer = await gate.request(session, write(workspace / f"more{number}"))
                assert answer.verdict.because == ("call-budget",)
            assert kinds(h, session)[before:] == ["DenialsCounted", "DenialsCounted"]
            assert len(far.lines) == 3

    run(story())


def test_denials_that_were_not_counted_yet_are_counted_when_the_house_is_left(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        store = MemoryStore(SystemClock())
        async with house(store, Rules(policy=policy(), calls=0)) as h:
            session = await open_session(h, workspace)
            gate = SessionGate(h, tools(far))
            for number in range(7):
                await gate.request(session, write(workspace / str(number)))
        async with house(store) as h:
            assert [event.count for event in events(h, session) if isinstance(event, DenialsCounted)] == [7]

    run(story())


@covers("gate.plan-mode")
def test_in_plan_mode_even_bypassed_writing_is_denied(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace, mode=Mode.PLAN)
            gate = SessionGate(h, tools(far))
            assert (await gate.request(session, write(workspace / "a"))).verdict.effect is Effect.DENY
            await h.send(session, ChangeMode(by=ANN, mode=Mode.BYPASS))
            assert (await gate.request(session, write("/var/tmp/curtainwall-x"))).result is not None

    run(story())


def test_a_long_result_is_shortened_for_the_model_and_kept_whole(workspace: Path, tmp_path: Path) -> None:
    long = "a" * 40_000 + "MIDDLE" + "z" * 40_000

    class Long(FarSide):
        async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
            return ToolResult(ok=True, value=long)

    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            answer = await SessionGate(h, tools(Long(tmp_path / "far"))).request(session, read(workspace / "a"))
            assert answer.result is not None
            shown = str(answer.result.value)
            assert len(shown) < 31_000
            assert "characters cut" in shown
            assert "MIDDLE" not in shown
            await until(lambda: any(isinstance(event, CallFinished) for event in events(h, session)))
            [blob] = [event.result.blob for event in events(h, session) if isinstance(event, CallFinished)]
            assert blob is not None
            assert "MIDDLE" in h.stores.blobs.get(blob.digest).decode()

    run(story())


def test_what_was_answered_while_nobody_was_there_is_taken_up(workspace: Path, far: FarSide) -> None:
    store = MemoryStore(SystemClock())

    async def ask() -> tuple[SessionId, ApprovalId]:
        async with house(store) as h:
            session = await open_session(h, workspace)
            assert (await SessionGate(h, tools(far)).request(session, read("/etc/hostname"), wait=False)).waiting
            return session, open_asks(h)[0]

    async def answer(session: SessionId, approval: ApprovalId) -> None:
        async with house(store) as h:
            await h.send(session, AnswerApproval(by=BOB, approval=approval, granted=True))
            assert far.lines == []

    async def go_on(session: SessionId) -> None:
        async with house(store) as h:
            [done] = await SessionGate(h, tools(far)).resume_answered(session)
            assert done.result == ToolResult(ok=True, value="done")
            assert await SessionGate(h, tools(far)).resume_answered(session) == []

    session, approval = run(ask())
    run(answer(session, approval))
    run(go_on(session))
    assert len(far.lines) == 1


async def cancelled(asking: "asyncio.Task[Answer]") -> None:
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


@covers("gate.cancel-drops")
def test_cancelling_a_request_that_waits_for_a_human_withdraws_its_ask(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            asking = asyncio.create_task(gate.request(session, read("/etc/hostname")))
            await until(lambda: open_asks(h))
            await cancelled(asking)
            assert kinds(h, session)[-2:] == ["CallDropped", "ApprovalWithdrawn"]
            assert open_asks(h) == []
            assert far.lines == []

    run(story())


@covers("gate.cancel-drops")
@pytest.mark.parametrize("turns", range(8))
def test_a_request_that_is_cancelled_at_any_moment_leaves_nothing_open(workspace: Path, far: FarSide, turns: int) -> None:
    async def story() -> None:
        async with at_gate(workspace, far) as (h, session, gate):
            for ask in (write(workspace / "a"), read("/etc/hostname")):
                asking = asyncio.create_task(gate.request(session, ask))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await cancelled(asking)
            async with h.hold(session) as actor:
                assert actor.state.calls == {}
                assert actor.state.approvals == {}
            told = kinds(h, session)
            assert told.count("CallPermitted") == told.count("CallFinished")

    run(story())


class SlowBlobs:
    """A place for big results whose disk is full, or takes its time."""

    def __init__(self, *, is_full: bool) -> None:
        self.began = asyncio.Event()
        self._is_full = is_full

    async def put(self, content: bytes) -> BlobRef:
        self.began.set()
        if self._is_full:
            raise TryLater("the disk is full")
        await asyncio.Event().wait()
        raise NotImplementedError

    def get(self, digest: str) -> bytes:
        raise NotImplementedError


@covers("gate.cancel-drops")
@pytest.mark.parametrize("is_full", [True, False])
def test_a_call_that_ran_is_never_said_not_to_have_run_though_its_result_could_not_be_kept(
    workspace: Path, tmp_path: Path, is_full: bool
) -> None:
    big = "é" * 20_000

    class Big(FarSide):
        async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
            await super().run(prepared, permit, place)
            return ToolResult(ok=True, value=big)

    async def story() -> None:
        store, blobs, far = FailingStore(), SlowBlobs(is_full=is_full), Big(tmp_path / "far")
        store.blobs = blobs
        async with house(store) as h:
            session = await open_session(h, workspace)
            asking = asyncio.create_task(SessionGate(h, tools(far)).request(session, write(workspace / "a")))
            await blobs.began.wait()
            if is_full:
                with pytest.raises(TryLater):
                    await asking
            else:
                await cancelled(asking)
                assert asking.cancelled()
            finished = await until(lambda: [event for event in events(h, session) if isinstance(event, CallFinished)])
            assert len(far.lines) == 1
            assert [(event.ok, event.shown) for event in finished] == [(True, Payload(inline=big))]

    run(story())


class Stuck:
    """A hook, and a far side, that do not come back."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def before_call(self, subject: Subject, place: Place) -> HookReply:
        return await self._wait()

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:
        raise NotImplementedError

    async def tell(self, event: HookEvent, place: Place) -> HookReply:
        raise NotImplementedError

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return await self._wait()

    async def _wait(self) -> Any:
        self.began.set()
        await asyncio.Event().wait()


@covers("gate.cancel-drops")
@pytest.mark.parametrize("where", ["hook", "tool"])
def test_a_request_of_a_session_that_was_closed_meanwhile_is_cancelled_like_any_other(workspace: Path, far: FarSide, where: str) -> None:
    async def story() -> None:
        stuck = Stuck()
        far.run = stuck.run if where == "tool" else far.run
        async with house(MemoryStore(SystemClock())) as h:
            session = await open_session(h, workspace)
            gate = SessionGate(h, tools(far), stuck if where == "hook" else None)
            asking = asyncio.create_task(gate.request(session, write(workspace / "a")))
            await stuck.began.wait()
            await h.send(session, CloseSession(by=ANN, reason="enough"))
            await cancelled(asking)
            assert asking.cancelled()

    run(story())


@covers("gate.an-ask-outlives-its-agent")
def test_an_ask_whose_agent_left_stays_open_and_its_answer_is_kept_for_the_same_call(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session, gate = await open_session(h, workspace), SessionGate(h, tools(far))
            agent = Presence()
            asking, approval = await asking_for(h, gate.request(session, read("/etc/hostname"), presence=agent))
            agent.leave()
            await cancelled(asking)
            assert open_asks(h) == [approval]
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            await until(lambda: kinds(h, session)[-1] == "GrantGiven")
            assert far.lines == []
            answer = await gate.request(session, read("/etc/hostname"))
            assert answer.result == ToolResult(ok=True, value="done")
            assert kinds(h, session).count("ApprovalAsked") == 1
            again = asyncio.create_task(gate.request(session, read("/etc/hostname")))
            await until(lambda: open_asks(h))
            await cancelled(again)
            assert far.lines == ["filesystem.read_file /etc/hostname"]

    run(story())


@covers("gate.an-ask-outlives-its-agent")
def test_an_agent_that_comes_back_takes_the_place_of_its_former_call(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session, gate = await open_session(h, workspace), SessionGate(h, tools(far))
            agent = Presence()
            asking, approval = await asking_for(h, gate.request(session, read("/etc/hostname"), presence=agent))
            agent.leave()
            await cancelled(asking)
            again = asyncio.create_task(gate.request(session, read("/etc/hostname")))
            await until(lambda: kinds(h, session)[-1] == "CallDropped")
            assert open_asks(h) == [approval]
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            assert (await again).result == ToolResult(ok=True, value="done")
            assert far.lines == ["filesystem.read_file /etc/hostname"]

    run(story())


@pytest.mark.parametrize("granted", [False, None])
def test_an_ask_whose_agent_left_can_be_denied_or_dropped_like_any_other(workspace: Path, far: FarSide, granted: bool | None) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as h:
            session, gate = await open_session(h, workspace), SessionGate(h, tools(far))
            agent = Presence()
            asking, approval = await asking_for(h, gate.request(session, read("/etc/hostname"), presence=agent))
            agent.leave()
            await cancelled(asking)
            if granted is None:
                call = next(event.call for event in events(h, session) if isinstance(event, ApprovalAsked))
                await h.send(session, DropCall(by=SYSTEM, call=call, why="enough"))
            else:
                await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=False))
            assert open_asks(h) == []
            assert "GrantGiven" not in kinds(h, session)

    run(story())


class EarlyLog:
    """A log whose watchers hear of a write before its writer does, as they may."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.read, self.watch, self.head, self.erase = log.read, log.watch, log.head, log.erase

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        ends = await self._log.append(batch)
        for _ in range(200):
            await asyncio.sleep(0)
        return ends


class EarlyStore(MemoryStore):
    """A store with such a log."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.log = EarlyLog(self.log)


@covers("gate.ask-waits")
def test_an_answer_that_is_seen_before_the_actor_knows_of_it_is_not_missed(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(EarlyStore()) as h:
            session = await open_session(h, workspace)
            asking, approval = await asking_for(h, SessionGate(h, tools(far)).request(session, read("/etc/hostname")))
            for _ in range(50):
                await asyncio.sleep(0)
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            answer = await asyncio.wait_for(asking, 60)
            assert answer.result == ToolResult(ok=True, value="done")

    run(story())


@covers("gate.ask-waits")
def test_an_answer_that_is_in_the_log_is_taken_up_also_before_the_actor_knows_of_it(workspace: Path, far: FarSide) -> None:
    async def story() -> None:
        async with house(EarlyStore()) as h:
            session, gate = await open_session(h, workspace), SessionGate(h, tools(far))
            assert (await gate.request(session, read("/etc/hostname"), wait=False)).waiting
            [approval] = open_asks(h)
            answering = asyncio.create_task(h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True)))
            for _ in range(1_000):
                if not open_asks(h):
                    break
                await asyncio.sleep(0)
            assert not answering.done(), "it is in the log, and who wrote it does not know yet"
            [done] = await gate.resume_answered(session)
            assert done.result == ToolResult(ok=True, value="done")
            await answering

    run(story())


@covers("gate.joined-calls-run-once")
def test_a_call_that_joins_the_ask_of_a_process_that_is_gone_gets_the_answer(workspace: Path, far: FarSide) -> None:
    store = MemoryStore(SystemClock())

    async def ask() -> SessionId:
        async with house(store) as h:
            session = await open_session(h, workspace)
            assert (await SessionGate(h, tools(far)).request(session, read("/etc/hostname"), wait=False)).waiting
            return session

    async def come_back(session: SessionId) -> None:
        async with house(store) as h:
            asking = asyncio.create_task(SessionGate(h, tools(far)).request(session, read("/etc/hostname")))
            await until(lambda: "ApprovalJoined" in kinds(h, session))
            [approval] = open_asks(h)
            await h.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
            assert (await asking).result == ToolResult(ok=True, value="done")
            assert len(far.lines) == 1

    run(come_back(run(ask())))
