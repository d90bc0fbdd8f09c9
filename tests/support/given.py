"""Given, when, then for the pure core: what happened, what someone wants, and what comes of it, under the rules that ship."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import JsonValue

from curtainwall.model import (
    PROPOSE_PLAN,
    SYSTEM,
    AnswerApproval,
    AnyCommand,
    AnyEvent,
    ApprovalId,
    CallId,
    CommandFacts,
    CommandRefused,
    Digest,
    FinishCall,
    GrantGiven,
    GrantId,
    GrantScope,
    HookSays,
    HostFacts,
    Label,
    LabelSource,
    Limits,
    MessageAccepted,
    MessageId,
    Mode,
    Moment,
    Payload,
    PermitId,
    ProceedCall,
    RequestCall,
    Resource,
    Role,
    Scope,
    SessionId,
    SessionOpened,
    SessionReady,
    Subject,
    SubjectKind,
    ToolEffect,
    ToolFacts,
    TurnId,
    TurnStarted,
    Who,
    Workspace,
    subject_digest,
)
from curtainwall.policy import Lists, Protection, load, shipped
from curtainwall.session import Rules, SessionState, decide, decide_by_log, evolve, fold, is_decided_by_log

NOW = 1_700_000_000_000
SEED = bytes(range(16))
SESSION = SessionId("s1")
TURN = TurnId("t1")

ANN = Who(name="ann")
BOB = Who(name="bob")
OLGA = Who(name="olga", channel="matrix")
"""An operator of the channel `matrix`."""
EVE = Who(name="eve", channel="matrix")
"""Someone who is in the room and no operator."""

OWN = Workspace(path="/srv/own", own=True)
PROJECT = Workspace(path="/srv/project", own=False)

POLICY = load(shipped(), lists=Lists(hosts=("docs.python.org",)), protection=Protection(never=("/home/ann/.ssh",)))
RULES = Rules(policy=POLICY, operators={"matrix": frozenset({"olga"})})

SENSITIVE = Label("sensitive")

_SHORT = 100


def moment(at: int = NOW, logged: int = 0) -> Moment:
    """Return a moment that mints the same ids in every run."""
    return Moment(at=at, seed=SEED, logged=logged)


# Subjects, the way facts would make them


def subject(
    tool: str, effect: ToolEffect, *resources: Resource, kind: SubjectKind = SubjectKind.TOOL_CALL, **arguments: str | int | list[str]
) -> Subject:
    """Return a subject with the tool itself as its first resource and an honest digest."""
    server = tool.partition(".")[0]
    itself = Resource(role=Role.USE_TOOL, value=tool, facts=ToolFacts(server=server, effect=effect))
    every = (itself, *resources)
    digest = subject_digest(kind, tool, arguments, every)
    return Subject(kind=kind, tool=tool, effect=effect, raw=arguments, canonical=arguments, resources=every, digest=digest)


def path(role: Role, value: str) -> Resource:
    return Resource(role=role, value=value)


def read(*paths: str) -> Subject:
    resources = (path(Role.READ_PATH, each) for each in paths)
    return subject("filesystem.read_multiple_files", ToolEffect.INSPECT, *resources, paths=list(paths))


def write(where: str, content: str = "x") -> Subject:
    return subject("filesystem.write_file", ToolEffect.MODIFY, path(Role.WRITE_PATH, where), path=where, content=content)


def move(source: str, destination: str) -> Subject:
    resources = (path(Role.READ_PATH, source), path(Role.DELETE_PATH, source), path(Role.WRITE_PATH, destination))
    return subject("filesystem.move_file", ToolEffect.MODIFY, *resources, source=source, destination=destination)


def delete(where: str) -> Subject:
    return subject("filesystem.delete_file", ToolEffect.MODIFY, path(Role.DELETE_PATH, where), path=where)


def host(role: Role, name: str, scope: Scope = Scope.PUBLIC) -> Resource:
    return Resource(role=role, value=f"https://{name}", facts=HostFacts(host=name, port=443, secure=True, scope=scope))


def fetch(name: str, page: str = "/") -> Subject:
    return subject("fetch.get", ToolEffect.SEND, host(Role.FETCH_URL, name), url=f"https://{name}{page}")


def fetch_with_key(name: str, credential: str) -> Subject:
    key = Resource(role=Role.USE_CREDENTIAL, value=credential)
    return subject("fetch.get", ToolEffect.SEND, host(Role.FETCH_URL, name), key, url=f"https://{name}/", credential=credential)


def push(remote: str) -> Subject:
    return subject("git.push", ToolEffect.SEND, Resource(role=Role.WRITE_REMOTE, value=remote), remote=remote)


def run(command: str) -> Subject:
    facts = CommandFacts(program=command.split(maxsplit=1)[0], parsed=True)
    return subject("shell.run", ToolEffect.EXECUTE, Resource(role=Role.RUN_COMMAND, value=command, facts=facts), command=command)


def raise_of(budget: str, amount: int) -> Subject:
    wanted = Resource(role=Role.RAISE_BUDGET, value=budget)
    return subject("session.request_budget", ToolEffect.MODIFY, wanted, what=budget, amount=amount)


def plan(*steps: Subject) -> Subject:
    """Return the proposal of these calls, as the tools make it."""
    bare = subject(PROPOSE_PLAN, ToolEffect.INSPECT)
    canonical: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "digest": step.digest} for step in steps]}
    raw: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "arguments": dict(step.raw)} for step in steps]}
    digest = subject_digest(bare.kind, bare.tool, canonical, bare.resources)
    told = {"raw": raw, "canonical": canonical, "digest": digest, "steps": steps, "masked": any(step.masked for step in steps)}
    return bare.model_copy(update=told)


def changed(was: Subject) -> Subject:
    """Return the subject as it is after the world moved under it: the same words, another meaning."""
    return was.model_copy(update={"digest": Digest("0" * 64)})


@dataclass(frozen=True)
class Wish:
    """A call under a name, with the ids that it will get in a deterministic world."""

    call: CallId
    subject: Subject
    turn: TurnId | None = None
    hook: HookSays | None = None

    @property
    def approval(self) -> ApprovalId:
        return moment().approval_id(f"{self.call}:0")

    @property
    def next_approval(self) -> ApprovalId:
        """Return the id under which the call is asked for the second time."""
        return moment().approval_id(f"{self.call}:1")

    @property
    def permit(self) -> PermitId:
        return self.permit_at(NOW)

    def permit_at(self, at: int) -> PermitId:
        return moment(at).permit_id(self.call)

    @property
    def kept(self) -> GrantId:
        """Return the id of the one-time grant that keeps an answer nobody took up."""
        return moment().grant_id(self.call)

    @property
    def grant(self) -> GrantId:
        """Return the id of the grant that an answer with a scope gives."""
        return moment().grant_id(self.approval)

    def again(self, call: str) -> "Wish":
        return replace(self, call=CallId(call))


def wish(call: str, what: Subject, turn: TurnId | None = None, hook: HookSays | None = None) -> Wish:
    return Wish(CallId(call), what, turn, hook)


# What happened, as events; and what was wanted and followed, as commands


def opened(workspace: Workspace = OWN, mode: Mode = Mode.DEFAULT, limits: Limits | None = None, by: Who = ANN) -> SessionOpened:
    return SessionOpened(
        at=NOW,
        session=SESSION,
        name="a session",
        agent="builtin",
        model="demo",
        channel=by.channel,
        workspace=workspace,
        mode=mode,
        limits=limits or Limits(),
        policy=POLICY.version,
        by=by,
    )


def ready(workspace: Workspace = OWN, mode: Mode = Mode.DEFAULT, limits: Limits | None = None) -> tuple[AnyEvent, ...]:
    return (opened(workspace, mode, limits), SessionReady(at=NOW))


def turn_running(turn: TurnId = TURN) -> tuple[AnyEvent, ...]:
    message = MessageId(f"m-{turn}")
    return (
        MessageAccepted(at=NOW, message=message, text="please", by=ANN),
        TurnStarted(at=NOW, turn=turn, messages=(message,)),
    )


def asked(what: Wish) -> RequestCall:
    return RequestCall(by=SYSTEM, call=what.call, subject=what.subject, turn=what.turn, hook=what.hook)


requested = asked
"""The same command under another name, for calls that are not asked for."""


def answer(what: Wish, *, granted: bool = True, by: Who = ANN, scope: GrantScope = GrantScope.ONCE, reason: str = "") -> AnswerApproval:
    return AnswerApproval(by=by, approval=what.approval, granted=granted, scope=scope, reason=reason)


def proceed(what: Wish, subject: Subject | None = None) -> ProceedCall:
    return ProceedCall(by=SYSTEM, call=what.call, subject=subject or what.subject)


def finished(what: Wish, *, at: int = NOW) -> FinishCall:
    return FinishCall(by=SYSTEM, call=what.call, permit=what.permit_at(at), ok=True, result=Payload(inline="done"))


def source(label: str, origin: str = "elsewhere", call: str | None = None) -> LabelSource:
    return LabelSource(label=Label(label), origin=origin, call=None if call is None else CallId(call))


# The three words


@dataclass(frozen=True)
class Like:
    """An event of a type of which only some fields matter."""

    kind: type
    fields: Mapping[str, Any]

    def fits(self, event: AnyEvent) -> bool:
        return type(event) is self.kind and all(_get(event, name) == value for name, value in self.fields.items())


def like(kind: type, **fields: Any) -> Like:
    """Return what fits an event with these fields; `verdict__because` looks inside."""
    return Like(kind, fields)


def _get(value: Any, name: str) -> Any:
    for part in name.split("__"):
        value = getattr(value, part)
    return value


@dataclass(frozen=True)
class Situation:
    """A session at one point of its log, and the rules that hold there."""

    log: tuple[AnyEvent, ...] = ()
    rules: Rules = RULES
    at: int = NOW
    logged: int = 0
    state: SessionState = field(default_factory=SessionState)

    def under(self, **rules: Any) -> "Situation":
        """Go on under rules that are different in something."""
        return replace(self, rules=replace(self.rules, **rules))

    def later(self, millis: int) -> "Situation":
        """Go on some time later."""
        return replace(self, at=self.at + millis)

    def holding(self, logged: int) -> "Situation":
        """Go on with a log of so many bytes."""
        return replace(self, logged=logged)

    def happened(self, *steps: "AnyEvent | AnyCommand | Iterable[Any]") -> "Situation":
        """Go on after more events, or commands that were followed."""
        here = self
        for step in steps:
            if isinstance(step, (tuple, list)):
                here = here.happened(*step)
            elif hasattr(step, "at"):
                here = here.after((step,))
            else:
                here = here.after(decide(here.state, step, here.rules, moment(here.at, here.logged)))
        return here

    def when(self, command: AnyCommand) -> "Outcome":
        """Let someone want something."""
        outcome = self._decided(decide, command, self.rules)
        if is_decided_by_log(command):
            alone = self._decided(decide_by_log, command)
            assert (alone.events, str(alone.refusal)) == (outcome.events, str(outcome.refusal)), "the rules made a difference"
        return outcome

    def _decided(self, how: Callable[..., tuple[AnyEvent, ...]], command: AnyCommand, *rules: Rules) -> "Outcome":
        before = deepcopy(self.state)
        try:
            events = how(self.state, command, *rules, moment(self.at, self.logged))
        except CommandRefused as refusal:
            assert self.state == before, "a refusal changed the state"
            return Outcome(self, (), refusal)
        assert self.state == before, "deciding changed the state"
        return Outcome(self, events, None)

    def after(self, events: tuple[AnyEvent, ...]) -> "Situation":
        # As the actor does: a grant for the project stands in the project's own log.
        own = tuple(event for event in events if not is_for_project(event))
        grants = {event.grant.id: event.grant for event in events if isinstance(event, GrantGiven) and is_for_project(event)}
        rules = self.rules.with_project_grants({**self.rules.project_grants, **grants})
        state = self.state
        for event in own:
            state = evolve(state, event)
        assert state == fold(own, self.state), "evolving and folding differ"
        if len(self.log) < _SHORT:
            assert state == fold((*self.log, *own)), "going on and starting anew differ"
        return replace(self, log=(*self.log, *own), rules=rules, state=state)


def is_for_project(event: AnyEvent) -> bool:
    return isinstance(event, GrantGiven) and event.grant.scope is GrantScope.PROJECT


@dataclass(frozen=True)
class Outcome:
    """What came of a command."""

    before: Situation
    events: tuple[AnyEvent, ...]
    refusal: CommandRefused | None

    def then(self, *expected: "AnyEvent | type | Like") -> Situation:
        """Expect exactly these events: whole, by type, or by some of their fields."""
        if self.refusal is not None:
            pytest.fail(f"refused ({self.refusal.code}): {self.refusal}")
        assert len(self.events) == len(expected), f"expected {len(expected)} events: {list(self.events)}"
        for event, wanted in zip(self.events, expected, strict=True):
            if isinstance(wanted, Like):
                assert wanted.fits(event), f"{event!r} is not like {wanted}"
            elif isinstance(wanted, type):
                assert type(event) is wanted
            else:
                assert event == wanted
        return self.before.after(self.events)

    def then_nothing(self) -> Situation:
        """Expect that the command is fine and changes nothing."""
        return self.then()

    def then_refused(self, words: str, kind: type[CommandRefused] = CommandRefused) -> Situation:
        """Expect a refusal that says these words, is of this very type, and leaves the state as it was."""
        assert self.refusal is not None, f"expected a refusal, got {list(self.events)}"
        assert words in str(self.refusal)
        assert type(self.refusal) is kind
        return self.before


def given(*steps: "AnyEvent | AnyCommand | Iterable[Any]") -> Situation:
    """Start from what happened: events, or commands that were followed."""
    return Situation().happened(*steps)
