"""Short words for policy tests: a session, a call, a policy."""

from collections.abc import Sequence
from functools import cache

from curtainwall.model import (
    CommandFacts,
    Digest,
    HostFacts,
    Label,
    Mode,
    Resource,
    Role,
    Scope,
    Subject,
    SubjectKind,
    ToolEffect,
    ToolFacts,
    Workspace,
)
from curtainwall.policy import Lists, Policy, Protection, RuleSource, SessionFacts, load, shipped

NO_LISTS = Lists()
NO_PATHS = Protection()


@cache
def policy(rules: str = "", lists: Lists = NO_LISTS, protection: Protection = NO_PATHS) -> Policy:
    """Return the shipped policy and some rules of a user's; loaded once for all tests."""
    return load((*shipped(), *([RuleSource("mine.cedar", rules, user=True)] if rules else [])), lists=lists, protection=protection)


def session(workspace: str = "/w", *, own: bool = True, mode: Mode = Mode.DEFAULT, labels: Sequence[str] = ()) -> SessionFacts:
    """Return a session's facts."""
    return SessionFacts("s1", "builtin", Workspace(path=workspace, own=own), mode, "terminal", frozenset(map(Label, labels)))


def tool(name: str = "test.tool", effect: ToolEffect = ToolEffect.INSPECT) -> Resource:
    """Return a tool as a resource."""
    return Resource(role=Role.USE_TOOL, value=name, facts=ToolFacts(server=name.partition(".")[0], effect=effect))


def call(*resources: Resource, name: str = "test.tool", effect: ToolEffect = ToolEffect.INSPECT) -> Subject:
    """Return a tool call that touches these resources."""
    return subject(tool(name, effect), *resources, name=name, effect=effect)


def subject(
    *resources: Resource, name: str = "test.tool", effect: ToolEffect = ToolEffect.INSPECT, kind: SubjectKind = SubjectKind.TOOL_CALL
) -> Subject:
    """Return a subject of exactly these resources."""
    return Subject(kind=kind, tool=name, effect=effect, raw={}, canonical={}, resources=resources, digest=Digest("d"))


def read(path: str) -> Resource:
    """Return a path that is read."""
    return Resource(role=Role.READ_PATH, value=path)


def write(path: str) -> Resource:
    """Return a path that is written."""
    return Resource(role=Role.WRITE_PATH, value=path)


def url(host: str, role: Role = Role.FETCH_URL, scope: Scope = Scope.PUBLIC, port: int = 443) -> Resource:
    """Return a place on the network."""
    return Resource(role=role, value=f"https://{host}", facts=HostFacts(host=host, port=port, secure=True, scope=scope))


def command(text: str, *, parsed: bool = True) -> Resource:
    """Return one simple command."""
    return Resource(role=Role.RUN_COMMAND, value=text, facts=CommandFacts(program=text.partition(" ")[0], parsed=parsed))


def plain(role: Role, value: str) -> Resource:
    """Return a resource without facts."""
    return Resource(role=role, value=value)
