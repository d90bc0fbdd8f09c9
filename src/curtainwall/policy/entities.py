"""Turns sessions and a subject's resources into Cedar entities, each with its containers as parents."""

import json
from functools import lru_cache

from curtainwall.model import (
    APPLY_CHANGES,
    CommandFacts,
    HostFacts,
    Label,
    Mode,
    PathFacts,
    Resource,
    Role,
    Subject,
    ToolEffect,
    ToolFacts,
    Workspace,
    ancestors,
    is_external,
    record,
    runs_later,
    works_on_view,
)
from curtainwall.policy.canonical import guessed_scope, host_parents, is_host, is_path, is_sound, split_remote
from curtainwall.policy.cedar import CedarQuestion, Grammar, Uid
from curtainwall.policy.lists import Lists
from curtainwall.policy.protection import is_secret_name


@record
class SessionFacts:
    """The session as a principal: who works where, in which mode, and what it has touched."""

    session: str
    agent: str
    workspace: Workspace
    mode: Mode
    channel: str
    labels: frozenset[Label]
    team: str = ""


_SENDING_ROLES = frozenset({Role.FETCH_URL, Role.SEND_URL, Role.READ_REMOTE, Role.WRITE_REMOTE, Role.USE_CREDENTIAL, Role.MESSAGE_TEAM})
_CHANGING_ROLES = frozenset({Role.WRITE_PATH, Role.DELETE_PATH, Role.SEND_URL, Role.WRITE_REMOTE, Role.RUN_COMMAND, Role.MESSAGE_TEAM})
_EVERY_OTHER = frozenset(Role) - {Role.USE_TOOL}


class Unfit(ValueError):
    """A resource is not canonical, or lacks the facts that its role needs."""


@record
class Entity:
    """A Cedar entity: its id, attributes and parents."""

    uid: Uid
    attrs: dict[str, str | int | bool]
    parents: tuple[Uid, ...] = ()


def entity_of(resource: Resource, facts: SessionFacts, lists: Lists) -> Entity:
    """Return the entity of a resource; raise `Unfit` if it could be judged wrongly."""
    value = resource.value
    match resource.role, resource.facts:
        case Role.USE_TOOL, ToolFacts(server=server, effect=effect) if value.startswith(f"{server}.") and is_sound(value):
            return Entity(("Tool", value), {"text": value, "effect": effect.value}, (("Server", server),))
        case ((Role.READ_PATH | Role.WRITE_PATH | Role.DELETE_PATH), _) if is_path(value):
            runs_later = isinstance(resource.facts, PathFacts) and resource.facts.runs_later
            return path_entity(value, facts.workspace.path, is_known_to_run_later=runs_later)
        case ((Role.FETCH_URL | Role.SEND_URL), HostFacts(host=host)) if is_host(host):
            return _host_entity(resource.facts, lists)
        case ((Role.READ_REMOTE | Role.WRITE_REMOTE), (HostFacts() | None)):
            return _remote_entity(value, resource.facts, lists)
        case Role.RUN_COMMAND, CommandFacts(program=program, parsed=parsed) if value.strip() and is_sound(value + program):
            return Entity(("Command", value), {"text": value, "parsed": parsed}, (("Program", program),) if program else ())
        case Role.USE_CREDENTIAL, None if _is_name(value):
            return Entity(("Credential", value), {})
        case Role.MESSAGE_TEAM, None if _is_name(value):
            return Entity(("Team", value), {}, _list_parents(lists.of_team(value)))
        case Role.RAISE_BUDGET, None if _is_name(value):
            return Entity(("Budget", value), {})
        case _:
            raise Unfit(f"the `{resource.role}` resource is not canonical or lacks its facts")


def path_entity(path: str, workspace: str, *, is_known_to_run_later: bool = False) -> Entity:
    """Return the entity of a canonical path; whether it runs later follows from its name, or was seen on the disk."""
    attrs: dict[str, str | int | bool] = {
        "text": path,
        "runs_later": is_known_to_run_later or runs_later(path, workspace),
        "secret_name": is_secret_name(path),
    }
    return Entity(("Path", path), attrs, tuple(("Path", parent) for parent in ancestors(path)))


def is_judged(subject: Subject) -> bool:
    """Tell whether another resource of the call shows what the tool does: where it sends, what it changes, which command it runs.

    INVARIANT: an external tool does not become harmless because a call omits the argument that says what it changes.
    """
    return any(resource.role in _roles_that_show(subject) for resource in subject.resources)


def _roles_that_show(subject: Subject) -> frozenset[Role]:
    match subject.effect:
        case ToolEffect.SEND:
            return _SENDING_ROLES
        case ToolEffect.MODIFY if is_external(subject.tool):
            return _CHANGING_ROLES
        case ToolEffect.EXECUTE if is_external(subject.tool):
            return frozenset({Role.RUN_COMMAND})
        case _:
            # Our own tools change nothing beyond what their arguments say: a dry run of `filesystem.edit_file` only reads.
            return _EVERY_OTHER


def question(entity: Entity, action: str, facts: SessionFacts, grammar: Grammar) -> CedarQuestion:
    """Return the question to Cedar about one entity; raise ValueError if it does not fit the schema."""
    described = {"uid": _uid_json(entity.uid), "attrs": entity.attrs, "parents": [_uid_json(parent) for parent in entity.parents]}
    entities = grammar.entities(f"[{_session_json(facts)},{json.dumps(described)}]")
    return CedarQuestion(("Session", facts.session), action, entity.uid, entities)


def surroundings(facts: SessionFacts, tool: str) -> dict[str, object]:
    """Return the context that all resources of a call share.

    INVARIANT: a call counts as one on a view only if it is known to work there. Tools of servers do not, and applying changes is about the
    project itself.
    """
    view = works_on_view(facts.workspace, facts.mode) and tool != APPLY_CHANGES and not is_external(tool)
    return {"tool": tool, "mode": facts.mode.value, "view": view, "channel": facts.channel, "labels": sorted(facts.labels)}


@lru_cache(maxsize=256)
def _session_json(facts: SessionFacts) -> str:
    if not is_path(facts.workspace.path):
        raise Unfit("the workspace is not canonical")
    parents = [("Agent", facts.agent), ("Team", facts.team)]
    workspace = {"__entity": _uid_json(("Path", facts.workspace.path))}
    described = {
        "uid": _uid_json(("Session", facts.session)),
        "attrs": {"workspace": workspace, "own": facts.workspace.own},
        "parents": [_uid_json(uid) for uid in parents if uid[1]],
    }
    return json.dumps(described)


def _host_entity(facts: HostFacts, lists: Lists) -> Entity:
    attrs: dict[str, str | int | bool] = {"scope": facts.scope.value, "port": facts.port, "secure": facts.secure}
    parents = tuple(("Host", parent) for parent in host_parents(facts.host))
    return Entity(("Host", facts.host), attrs, (*parents, *_list_parents(lists.of_host(facts.host, facts.port, facts.scope.value))))


def _remote_entity(value: str, facts: HostFacts | None, lists: Lists) -> Entity:
    """Return the entity of a remote; without facts about its host, only a name that looks public counts as public."""
    split = split_remote(value)
    if split is None or (facts is not None and facts.host != split[0]):
        raise Unfit("the remote is not canonical")
    host, parts = split
    scope = guessed_scope(host) if facts is None else facts.scope.value
    authority = value.partition("/")[0]
    parents = [("Remote", "/".join((authority, *parts[:end]))) for end in range(1, len(parts))]
    hosts = [("Host", name) for name in (host, *host_parents(host))]
    return Entity(("Remote", value), {"scope": scope}, (*parents, *hosts, *_list_parents(lists.of_remote(value, scope))))


def _list_parents(lists: tuple[str, ...]) -> tuple[Uid, ...]:
    return tuple(("List", name) for name in lists)


def _is_name(text: str) -> bool:
    return bool(text.strip()) and is_sound(text)


def _uid_json(uid: Uid) -> dict[str, str]:
    return {"type": uid[0], "id": uid[1]}
