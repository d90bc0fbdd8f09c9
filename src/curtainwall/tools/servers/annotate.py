"""Proposing roles for a stranger's tools, from their names, schemas and hints, for a human to read. Where in doubt, the stricter."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from pydantic import JsonValue

from curtainwall.model import Meaning, Role, ToolEffect
from curtainwall.tools.servers.offered import Offered
from curtainwall.tools.servers.spec import ToolRoles

Kind = Literal["path", "url", "remote", "command"]

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_READS: Final = frozenset(
    """
    browse check compare count describe diff directory download echo fetch find get grep head info inspect list log lookup open peek ping
    preview query read retrieve search show simulate stat status sum summarize tail test tree view
    """.split()
)
_DELETES: Final = frozenset({"delete", "remove", "rm", "unlink", "trash"})
_MOVES: Final = frozenset({"move", "rename", "mv"})
_CHANGES: Final = _DELETES | _MOVES | frozenset(
    """
    add append apply assign checkout commit convert copy create drop edit format init insert install make merge mkdir modify patch put
    rebase replace reset restore revert save set start stash stop store switch sync tag toggle touch truncate uninstall update upsert write
    """.split()
)  # fmt: skip
_SENDS: Final = frozenset("deploy notify pay post publish purchase push reply send share submit tweet upload".split())
_RUNS: Final = frozenset("bash call command eval evaluate exec execute invoke kill run script shell spawn terminal".split())

_PATH_WORDS: Final = frozenset(
    "cwd dir directories directory file filename filenames filepath files folder folders path paths root".split()
)
_ENDS: Final = frozenset("dest destination dst from source src target to".split())
_URL_WORDS: Final = frozenset("endpoint href link uri uris url urls webhook".split())
_REMOTE_WORDS: Final = frozenset({"remote", "repository", "clone"})
_COMMAND_WORDS: Final = frozenset({"bash", "cmd", "code", "command", "commands", "script", "shell"})


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is proposed for one tool, and what a human should look at before taking it."""

    tool: str
    roles: ToolRoles
    notes: tuple[str, ...] = ()


def propose(tool: Offered, *, trusted: bool) -> Proposal:
    """Return what roles a tool's arguments probably play; raise `Broken` for a tool whose schema cannot be used."""
    schema = tool.schema
    properties = cast("Mapping[str, JsonValue]", schema.get("properties") or {})
    required = schema.get("required")
    verbs = words_of(tool.name)
    kinds: dict[str, Kind] = {name: kind for name, told in properties.items() if (kind := kind_of(name, told, verbs)) is not None}
    notes = [f"`{name}` is not plain text; nothing in it can be judged" for name, told in properties.items() if _hides_something(told)]
    effect = _effect(tool, verbs, set(kinds.values()), trusted=trusted)
    meanings: list[Meaning] = []
    if "command" in kinds.values() and trusted:
        notes.append("it runs commands outside any sandbox, so it gets no roles and every call asks")
    elif effect is ToolEffect.EXECUTE and "command" not in kinds.values():
        notes.append("it runs something, and no argument says what, so it gets no roles and every call asks")
    else:
        # A relative path in one argument may start from the repository in another, which must then come first.
        base = next(
            (name for name, kind in kinds.items() if kind == "path" and {"repo", "repository", "root", "cwd"} & words_of(name)), None
        )
        for name in sorted(kinds, key=lambda one: one != base):
            roles = _roles(kinds[name], name, effect, verbs)
            default = cast("dict[str, JsonValue]", properties[name]).get("default")
            is_optional = not (isinstance(required, list) and name in required)
            meanings.append(
                Meaning(
                    argument=name,
                    roles=roles,
                    default=default if isinstance(default, str) and default and is_optional else None,
                    within=base if kinds[name] == "path" and base not in {None, name} else None,
                    follows=not (Role.DELETE_PATH in roles or verbs & _MOVES),
                )
            )
            if is_optional and default is None and kinds[name] == "path":
                notes.append(f"`{name}` may be left out; if the server then uses a directory of its own choice, set `default`")
    if effect not in {ToolEffect.INSPECT, ToolEffect.EXECUTE} and not meanings:
        notes.append("no argument says what it does, so every call asks")
    if tool.hint("readOnlyHint") and effect is not ToolEffect.INSPECT:
        notes.append("the server claims that it only reads; its name or arguments say otherwise")
    return Proposal(tool.name, ToolRoles(effect, tuple(meanings)), tuple(notes))


def words_of(name: str) -> frozenset[str]:
    """Return the words that a name is made of: `repoPath`, `repo_path` and `repo-path` are `repo` and `path`."""
    return frozenset(word.lower() for word in _WORDS.findall(name))


def kind_of(name: str, told: JsonValue, verbs: frozenset[str]) -> Kind | None:
    """Return what an argument probably names, from its name, format and description."""
    about = told if isinstance(told, dict) else {}
    if not _is_text(about):
        return None
    words = words_of(name)
    description = about.get("description")
    said = words_of(description) if isinstance(description, str) else frozenset[str]()
    if about.get("enum") is not None or "const" in about:
        return None
    if words & _COMMAND_WORDS:
        return "command"
    if about.get("format") in {"uri", "url", "uri-reference"} or words & _URL_WORDS:
        return "remote" if verbs & {"clone", "push", "pull"} and words & {"url", "repo", "repository", "remote"} else "url"
    if words & _PATH_WORDS or ("repo" in words and "path" in said):
        return "path"
    if words & _ENDS and (verbs & (_MOVES | {"copy", "file", "link", "symlink"}) or said & _PATH_WORDS):
        return "path"
    if words & _REMOTE_WORDS and ("url" in said or verbs & {"clone", "push", "pull", "fetch"}):
        return "remote"
    if said & {"path", "filepath", "filename"} and not said & {"pattern", "glob", "exclude"} and "pattern" not in words:
        return "path"
    return None


def _is_text(about: Mapping[str, JsonValue]) -> bool:
    """Tell whether an argument is text or a list of texts, possibly left empty."""
    for keyword in ("anyOf", "oneOf", "allOf"):
        branches = about.get(keyword)
        if isinstance(branches, list):
            return any(isinstance(one, dict) and _is_text(one) for one in branches)
    kind = about.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    items = about.get("items")
    return "string" in kinds or ("array" in kinds and isinstance(items, dict) and _is_text(items))


def _hides_something(told: JsonValue) -> bool:
    """Tell whether an object inside an argument has keys that sound like a path, an address or a command."""
    if not isinstance(told, dict):
        return False
    inner = told.get("properties")
    named = cast("dict[str, JsonValue]", inner) if isinstance(inner, dict) else {}
    if any(kind_of(name, part, frozenset()) is not None for name, part in named.items()):
        return True
    branches = [part for keyword in ("anyOf", "oneOf", "allOf") for part in cast("list[JsonValue]", told.get(keyword) or [])]
    return any(_hides_something(part) for part in (*named.values(), *branches, told.get("items")))


def _effect(tool: Offered, verbs: frozenset[str], kinds: set[Kind], *, trusted: bool) -> ToolEffect:
    """Return what a tool does at most: a claim to do little counts only where nothing speaks against it."""
    if "command" in kinds or verbs & _RUNS:
        return ToolEffect.EXECUTE if "command" in kinds or not tool.hint("readOnlyHint") else ToolEffect.INSPECT
    reads = tool.hint("readOnlyHint") is True or (tool.hint("readOnlyHint") is None and bool(verbs & _READS))
    # A sandbox has no network; a server outside it sends whatever it is asked, unless it says that it does not.
    reaches_out = tool.hint("openWorldHint") is not False if trusted else tool.hint("openWorldHint") is True
    if verbs & _SENDS or kinds & {"url", "remote"} or reaches_out:
        return ToolEffect.SEND
    if verbs & _CHANGES and not (tool.hint("readOnlyHint") and verbs & _READS):
        return ToolEffect.MODIFY
    return ToolEffect.INSPECT if reads else ToolEffect.MODIFY


def _roles(kind: Kind, name: str, effect: ToolEffect, verbs: frozenset[str]) -> tuple[Role, ...]:
    reads = bool(verbs & _READS) and not verbs & (_CHANGES | _SENDS)
    match kind:
        case "command":
            return (Role.RUN_COMMAND,)
        case "url":
            return (Role.FETCH_URL,) if reads else (Role.SEND_URL,)
        case "remote":
            return (Role.WRITE_REMOTE,) if "push" in verbs or not (reads or verbs & {"clone", "pull"}) else (Role.READ_REMOTE,)
        case "path":
            words = words_of(name)
            if effect is ToolEffect.INSPECT or (effect is not ToolEffect.MODIFY and reads):
                return (Role.READ_PATH,)
            if verbs & _DELETES:
                return (Role.DELETE_PATH,)
            if words & {"source", "src", "from"}:
                return (Role.READ_PATH, Role.DELETE_PATH) if verbs & _MOVES else (Role.READ_PATH, Role.WRITE_PATH)
            if words & {"destination", "dest", "dst", "to"} or verbs & {"create", "mkdir", "write", "save", "make", "init"}:
                return (Role.WRITE_PATH,)
            return (Role.READ_PATH, Role.WRITE_PATH)
