"""What is measured with: a house on disk, its shipped policy, and conversations of a known size."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from curtainwall.facts import Masker
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Batch,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    Digest,
    Effect,
    Finding,
    Limits,
    MessageAccepted,
    MessageId,
    Millis,
    Mode,
    ModelRequested,
    ModelResponded,
    OpenSession,
    Payload,
    PermitId,
    ReadySession,
    Resource,
    Role,
    RuleId,
    SessionId,
    SessionOpened,
    SessionReady,
    Subject,
    SubjectKind,
    TextStreamed,
    ToolEffect,
    ToolFacts,
    TurnEnded,
    TurnId,
    TurnStarted,
    TurnStatus,
    Usage,
    Verdict,
    Who,
    Workspace,
    Write,
    ordered_id,
    session_stream,
    subject_digest,
)
from curtainwall.policy import Lists, Protection, load, shipped
from curtainwall.runtime import SessionFolds, SessionRegistry, Stores, SystemClock
from curtainwall.session import Rules, lift
from curtainwall.store import SqliteStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools

YOU = Who(name="ann")
CLOCK = SystemClock()
BORN: Millis = 1_760_000_000_000

_SAID = (
    "Please look through the parser module and tell me which of its functions are still used by the importer; "
    "the ones that are not can go, but keep whatever the command line needs, and say why for each. "
)
_ANSWERED = (
    "I read `parser.py` and `importer.py`. Three functions are still called: `read_header`, `split_rows` and `to_record`. "
    "`guess_delimiter` is only reached from the old command line, which `cli/main.py` no longer imports, so it can go. "
    "`strip_bom` looks unused, but `read_header` calls it through the table of filters at the top of the file; I would keep it. "
    "The tests for `guess_delimiter` should be deleted with it. Shall I make the change and run the tests afterwards? "
)


def text_of(number: int, body: str, size: int) -> str:
    """Return a text of a size that no other number has."""
    return f"{number}: {body * (size // len(body) + 1)}"[:size]


def said(number: int) -> str:
    """Return what a person says: 200 letters."""
    return text_of(number, _SAID, 200)


def answered(number: int) -> str:
    """Return what an agent answers: 800 letters."""
    return text_of(number, _ANSWERED, 800)


def name_of(number: int, at: Millis = BORN) -> str:
    """Return a time-ordered id as the house would mint it, the same one for the same number."""
    return ordered_id(at + number, number.to_bytes(5, "big"))


def opened(session: SessionId, workspace: str, at: Millis = BORN) -> tuple[AnyEvent, ...]:
    """Return the events with which a session begins."""
    return (
        SessionOpened(
            at=at,
            session=session,
            name=f"session {session}",
            agent="builtin",
            model="demo",
            channel="local",
            workspace=Workspace(path=workspace, own=True),
            mode=Mode.DEFAULT,
            limits=Limits(),
            policy=Digest("0" * 64),
            by=YOU,
        ),
        SessionReady(at=at),
    )


def turn(number: int, at: Millis = BORN) -> tuple[AnyEvent, ...]:
    """Return one turn of plain talk: four events, two messages."""
    turn, message, at = TurnId(name_of(2 * number)), MessageId(name_of(2 * number + 1)), at + number
    return (
        MessageAccepted(at=at, message=message, text=said(number), by=YOU),
        TurnStarted(at=at, turn=turn, messages=(message,)),
        AgentSpoke(at=at, turn=turn, text=answered(number)),
        TurnEnded(at=at, turn=turn, status=TurnStatus.DONE),
    )


def working_turn(number: int, workspace: str) -> tuple[AnyEvent, ...]:
    """Return one turn of work: a request to the model, a call through the gate, streamed text, twelve events in all."""
    told, began, spoke, ended = turn(number)
    assert isinstance(began, TurnStarted)
    at, request, call = BORN + number, f"r{number}", CallId(name_of(number))
    resources = (
        Resource(role=Role.USE_TOOL, value="filesystem.read_file", facts=ToolFacts(server="filesystem", effect=ToolEffect.INSPECT)),
        Resource(role=Role.READ_PATH, value=f"{workspace}/src/part-{number}.py"),
    )
    arguments = {"path": f"{workspace}/src/part-{number}.py"}
    digest = subject_digest(SubjectKind.TOOL_CALL, "filesystem.read_file", arguments, resources)
    subject = Subject(
        tool="filesystem.read_file", effect=ToolEffect.INSPECT, raw=arguments, canonical=arguments, resources=resources, digest=digest
    )
    rules = (RuleId("known-tool"), RuleId("workspace-free"))
    findings = tuple(Finding(resource=place, effect=Effect.ALLOW, because=(rule,)) for place, rule in enumerate(rules))
    verdict = Verdict(effect=Effect.ALLOW, because=rules, reason="the session's own workspace is free", findings=findings)
    permit = PermitId(name_of(number))
    text = Payload(inline=answered(number))
    return (
        told,
        began,
        ModelRequested(at=at, turn=began.turn, request=request, base=None, added=Payload(inline=said(number)), model="demo"),
        ModelResponded(
            at=at, turn=began.turn, request=request, raw=text, normalised=text, usage=Usage(input_tokens=300, output_tokens=200)
        ),
        CallRequested(at=at, call=call, subject=subject, turn=began.turn),
        CallPermitted(at=at, call=call, permit=permit, digest=digest, verdict=verdict),
        CallFinished(at=at, call=call, permit=permit, ok=True, result=Payload(inline=answered(number))),
        *(TextStreamed(at=at, turn=began.turn, text=answered(number)[part * 200 : part * 200 + 200]) for part in range(3)),
        spoke,
        ended,
    )


async def write_session(store: Stores, session: SessionId, events: Iterator[AnyEvent]) -> int:
    """Write a session's events in big batches and return how many there are."""
    stream, seq = session_stream(session), store.log.head(session_stream(session))
    while batch := tuple(islice(events, 1_000)):
        await store.log.append(Batch((Write(stream, seq, batch),)))
        seq += len(batch)
    return seq


async def write_talk(store: Stores, session: SessionId, workspace: str, messages: int) -> int:
    """Write a session of plain talk with so many messages (half of them the agent's) and return how many events it has."""
    events = (event for number in range(messages // 2) for event in turn(number))
    begun = await write_session(store, session, iter(opened(session, workspace)))
    return max(begun, await write_session(store, session, events))


def open_store(home: Path) -> SqliteStore:
    """Open a store as the program does."""
    return SqliteStore.open(home, CLOCK, decode=lift)


@asynccontextmanager
async def open_house(home: Path) -> AsyncGenerator[SessionRegistry]:
    """Lend a house on disk with the shipped policy."""
    rules = shipped_rules(home)
    async with (
        open_store(home) as store,
        SessionRegistry(store, CLOCK, lambda: rules, folds=SessionFolds(store.log, store.snapshots)) as house,
    ):
        yield house


def shipped_rules(home: Path) -> Rules:
    """Return the shipped policy, with our own home protected as the program protects it."""
    return Rules(policy=load(shipped(), lists=Lists(), protection=Protection(never=(str(home),))))


def native_tools(home: Path) -> NativeTools:
    """Return the native tools; nothing of them runs."""
    return NativeTools(Catalogue(NATIVE_TOOLS), home=str(home), masker=Masker(b"bench" * 8))


async def open_session(house: SessionRegistry, workspace: Path) -> SessionId:
    """Open a session in a workspace of its own."""
    session = SessionId(house.mint())
    place = Workspace(path=str(workspace), own=True)
    version = house.rules().policy.version
    wish = OpenSession(
        by=YOU,
        session=session,
        name="bench",
        agent="builtin",
        model="demo",
        workspace=place,
        mode=Mode.DEFAULT,
        limits=Limits(),
        policy=version,
    )
    await house.send(session, wish)
    await house.send(session, ReadySession(by=YOU))
    return session
