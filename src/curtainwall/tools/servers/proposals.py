"""Propose roles for an untrusted server's tools from names and schemas, for a human to review. If in doubt, choose the stricter.

The tables say which words count. A server's hints are only claims: they can make a proposal stricter but never looser. A tool that does
more than inspect and has no roles asks on every call, so an ambiguous tool gets no roles.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, cast

from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.model import Meaning, Role, ToolEffect, record
from curtainwall.tools.servers.offered import OfferedTool
from curtainwall.tools.servers.spec import ToolRoles

Kind = Literal["path", "url", "remote", "command", "doubt"]
ToolAction = Literal["read", "fetch", "make", "edit", "delete", "move", "change", "send", "run"]

_READ, _WRITE, _DELETE = Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH

_ACTIONS: Final[Mapping[str, ToolAction]] = {
    word: deed
    for deed, words in cast(
        "dict[ToolAction, str]",
        {
            # These alone make a tool an inspection, and only as its first word.
            "read": "count describe find get list read search view",
            "fetch": "clone download fetch pull",
            "make": "create init make mkdir save touch write",
            "edit": "append edit format insert modify overwrite patch prepend replace truncate update upsert",
            "delete": "delete erase remove rid rm trash unlink",
            "move": "move mv rename",
            "change": """
                accept activate add allow apply approve archive assign authorize ban block cancel change checkout clean clear close commit
                complete configure confirm connect convert copy deactivate decline destroy disable disconnect dismiss drop duplicate empty
                enable enqueue export fill fix flush fork generate grant hide import increment install join kill leave link lock login
                logout mark merge migrate mount mute open pause persist pin play prune purge put reboot rebase redeem refund register
                reject release reload renew repair reset resolve restart restore resume retry revert revoke rollback rotate schedule set
                shutdown sign stage start stash stop store subscribe suspend swap switch sync tag terminate toggle transfer unblock
                uninstall unlock unsubscribe upgrade use vote wipe withdraw
            """,
            "send": """
                book buy charge deploy email forward invite mail message notify order pay post publish purchase push reply send share
                submit tweet upload
            """,
            "run": "bash call command eval evaluate exec execute invoke launch run script shell spawn terminal trigger",
        },
    ).items()
    for word in words.split()
}
# In the plural, or in an argument, these are things rather than actions: `list_commits`, `start_date`, `sort_order`.
_ALSO_THINGS: Final = frozenset(
    """
    block book call change charge checkout clone command commit copy count deploy download drop edit email empty fetch file find fork format
    get import export invite link list lock login mail mark merge message mount move open order patch pay pin play post pull purchase
    push put read release reply reset run schedule script search set share shell sign stage start stash stop store switch tag terminal
    transfer trash trigger tweet update upgrade upload use view vote
    """.split()
)
_JOINS: Final = frozenset({"and", "or", "then", "plus"})

_PATHS: Final = frozenset(
    "cwd dir directories directory filepath filepaths filename filenames folder folders file files path paths".split()
)
_ENDS: Final = frozenset("dest destination dst from source src target to".split())
_FILES: Final = frozenset("dir directory file files folder link path symlink".split())
_BASES: Final = frozenset("cwd repo repository root".split())
_URLS: Final = frozenset("href uri uris url urls".split())
_REMOTES: Final = frozenset({"remote", "repository"})
_COMMANDS: Final = frozenset("bash cmd command commands script shell".split())
# Words that may or may not name something outside: with one of them present, no proposal is certain.
_DOUBTFUL: Final = frozenset(
    "address callback code domain endpoint expression host hostname javascript js link python root server sql statement webhook".split()
)
_DOUBTFUL_IN_WORDS: Final = frozenset("command javascript sql".split())
# After the name of a place, these turn it into something else: a `file_id` is an id. Other words leave a doubt: a `path_prefix`.
_PLACES: Final = frozenset("dir directory file filepath folder path".split())
_OPAQUE: Final = frozenset(
    """
    bytes checksum content contents count data date description encoding ext extension extensions filter format glob hash id ids index
    key kind language length limit max min mode number offset only owner pattern patterns permissions query regex sha size sizes status
    text time title token type types uuid version
    """.split()
)
_SENT_ALONG: Final = frozenset("body data form headers json method payload".split())

_PATH_ROLES: Final[Mapping[ToolAction | None, tuple[Role, ...]]] = {
    "read": (_READ,),
    "make": (_WRITE,),
    "edit": (_READ, _WRITE),
    "delete": (_DELETE,),
    "move": (_READ, _WRITE, _DELETE),
    None: (_READ, _WRITE, _DELETE),
}
_MOVED_FROM: Final = (_READ, _DELETE)
_MOVED_TO: Final = (_WRITE,)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@record
class Proposal:
    """The proposed roles for one tool, and notes that a human should read before accepting them."""

    tool: str
    roles: ToolRoles
    notes: tuple[str, ...] = ()


def propose_roles(tool: OfferedTool, *, trusted: bool, server: str = "") -> Proposal:
    """Return the probable roles of a tool's arguments; raise `Broken` if its schema is unusable."""
    properties = cast("Mapping[str, JsonValue]", tool.schema.get("properties") or {})
    words = name_words(tool.name)
    words = words[1:] if words[1:] and words[:1] == name_words(server) else words
    kinds: dict[str, Kind] = {name: kind for name, schema in properties.items() if (kind := argument_kind(name, schema, words)) is not None}
    doubts = [name for name, kind in kinds.items() if kind == "doubt"]
    action = _only_action(words)
    effect, note = _effect(tool, words, action, kinds, trusted=trusted)
    notes = [f"{quoted(name)} may name something outside or not, so nothing is judged and every call asks" for name in doubts]
    notes += [note] if note else []
    meanings: tuple[Meaning, ...] = ()
    if "command" in kinds.values() and trusted:
        notes.append("it runs commands outside any sandbox, so it gets no roles and every call asks")
    elif effect is ToolEffect.EXECUTE and "command" not in kinds.values():
        notes.append("it runs something, and no argument says what, so it gets no roles and every call asks")
    elif not doubts:
        is_sure = action != "read" or effect is not ToolEffect.MODIFY
        meanings = tuple(_meanings(tool, properties, kinds, words, action if is_sure else None))
        notes += [
            f"{quoted(meaning.argument)} may be left out; if the server then uses a directory of its own choice, set `default`"
            for meaning in meanings
            if meaning.default is None and kinds[meaning.argument] == "path" and _may_be_left_out(tool, meaning.argument)
        ]
        if effect is not ToolEffect.INSPECT and not meanings:
            notes.append("no argument says what it does, so every call asks")
    if tool.hint("readOnlyHint") and effect is not ToolEffect.INSPECT:
        notes.append("the server claims that it only reads; a claim alone counts for nothing")
    return Proposal(tool.name, ToolRoles(effect, meanings), tuple(notes))


def name_words(name: str) -> tuple[str, ...]:
    """Split a name into words: `repoPath`, `repo_path` and `repo-path` are `repo` and `path`."""
    return tuple(word.lower() for word in _WORDS.findall(name))


def argument_kind(name: str, schema: JsonValue, tool: tuple[str, ...]) -> Kind | None:
    """Return what an argument of a tool with these words in its name probably names, or None if it names nothing outside.

    The last word counts: a `file_id` is an id.
    """
    fields = schema if isinstance(schema, dict) else {}
    words = name_words(name)
    if fields.get("enum") is not None or "const" in fields:
        return None
    if not _may_hold_text(fields):
        return None
    kind = _kind_by_words(words, fields, tool)
    if kind is not None:
        return kind if _is_text(fields) else "doubt"
    return "doubt" if not words or _hides_something(schema) else None


def _kind_by_words(words: tuple[str, ...], fields: Mapping[str, JsonValue], tool: tuple[str, ...]) -> Kind | None:
    last, present = words[-1] if words else "", frozenset(words)
    description = fields.get("description")
    described = frozenset(name_words(description)) if isinstance(description, str) else frozenset[str]()
    if last in _COMMANDS:
        return "command"
    if fields.get("format") in {"uri", "url", "uri-reference"} or last in _URLS:
        return "remote" if {"clone", "push", "pull"} & {*tool} else "url"
    if last in _PATHS or (last in _BASES and "path" in described):
        return "path"
    if last in _ENDS and (_FILES & {*tool} or {"path", "filepath"} & described):
        return "path"
    if last in _REMOTES and ("url" in described or {"clone", "push", "pull", "fetch"} & {*tool}):
        return "remote"
    if (
        described & {"path", "filepath", "filename"}
        and not present & {"pattern", "glob", "id"}
        and not described & {"pattern", "glob", "exclude"}
    ):
        return "path"
    if described & _DOUBTFUL_IN_WORDS or (present & _PLACES and last not in _OPAQUE):
        return "doubt"
    # A `country_code` is a code, a `code` may be a program.
    return "doubt" if last in _DOUBTFUL and (last != "code" or len(words) == 1 or present & {"source", "python", "js", "shell"}) else None


def _is_text(fields: Mapping[str, JsonValue]) -> bool:
    """Tell whether an argument is text or a list of texts, possibly left empty."""
    for keyword in ("anyOf", "oneOf", "allOf"):
        branches = fields.get(keyword)
        if isinstance(branches, list):
            return any(isinstance(branch, dict) and _is_text(branch) for branch in branches)
    kind = fields.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    items = fields.get("items")
    return "string" in kinds or ("array" in kinds and isinstance(items, dict) and _is_text(items))


def _may_hold_text(fields: Mapping[str, JsonValue]) -> bool:
    kind = fields.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return not all(each in ("boolean", "integer", "number", "null") for each in kinds)


def _hides_something(schema: JsonValue) -> bool:
    """Tell whether an object inside an argument has keys that sound like a path, an address or a command."""
    if not isinstance(schema, dict):
        return False
    inner = schema.get("properties")
    properties = cast("dict[str, JsonValue]", inner) if isinstance(inner, dict) else {}
    if any(argument_kind(name, part, ()) is not None for name, part in properties.items()):
        return True
    branches = [part for keyword in ("anyOf", "oneOf", "allOf") for part in cast("list[JsonValue]", schema.get(keyword) or [])]
    return any(_hides_something(part) for part in (*branches, schema.get("items")))


def _action(word: str) -> ToolAction | None:
    """Return the action that a word of a tool's name denotes; `deletes` is `delete`, but `commits` are things."""
    if word in _ACTIONS:
        return _ACTIONS[word]
    return _ACTIONS.get(word[:-1]) if word.endswith("s") and word[:-1] not in _ALSO_THINGS else None


def _only_action(words: tuple[str, ...]) -> ToolAction | None:
    """Return the action of a tool by its first word, or None if it names none or another word names a different one."""
    first = _action(words[0]) if words else None
    # A pull request is a thing.
    others = {action for word in words[1:] if (action := _action(word)) is not None and word not in {"fetch", "pull"}} - {first}
    return None if others or _JOINS & {*words} else first


def _effect(
    tool: OfferedTool, words: tuple[str, ...], action: ToolAction | None, kinds: Mapping[str, Kind], *, trusted: bool
) -> tuple[ToolEffect, str]:
    """Return the strongest effect of a tool, and a note for a human about how it was inferred."""
    actions = {_action(word) for word in words}
    if "command" in kinds.values() or "run" in actions:
        return ToolEffect.EXECUTE, ""
    if "send" in actions or {"url", "remote"} & {*kinds.values()}:
        return ToolEffect.SEND, ""
    if trusted:
        return ToolEffect.SEND, "it runs outside any sandbox and can send whatever it is given"
    if action != "read" or "doubt" in kinds.values():
        return ToolEffect.MODIFY, ""
    objection = _against_inspection(tool)
    if objection:
        return ToolEffect.MODIFY, f"its name says that it reads, and {objection}"
    return ToolEffect.INSPECT, f"`inspect` is a guess from {quoted(words[0])} in its name; make sure that it only reads"


def _against_inspection(tool: OfferedTool) -> str:
    """Return the evidence against a name that says a tool only reads, or an empty text."""
    if tool.hint("readOnlyHint") is False:
        return "the server says that it does more"
    if tool.hint("destructiveHint"):
        return "the server says that it destroys"
    first = next(iter(name_words(tool.description)), "")
    if _action(first) not in {None, "read", "fetch"}:
        return f"its description begins with {quoted(first)}"
    for name in cast("Mapping[str, JsonValue]", tool.schema.get("properties") or {}):
        verbs = [word for word in name_words(name) if word not in _ALSO_THINGS and _action(word) not in {None, "read", "fetch"}]
        if verbs:
            return f"its argument {quoted(name)} says `{verbs[0]}`"
    return ""


def _meanings(
    tool: OfferedTool, properties: Mapping[str, JsonValue], kinds: Mapping[str, Kind], words: tuple[str, ...], action: ToolAction | None
) -> Iterator[Meaning]:
    # A relative path in one argument may start from the repository in another, which must then come first.
    base = next((name for name, kind in kinds.items() if kind == "path" and _BASES & {*name_words(name)}), None)
    for name in sorted(kinds, key=lambda argument: argument != base):
        roles = _roles(kinds[name], name, words, action, properties)
        default = cast("dict[str, JsonValue]", properties[name]).get("default")
        yield Meaning(
            argument=name,
            roles=roles,
            default=default if isinstance(default, str) and default and _may_be_left_out(tool, name) else None,
            within=base if kinds[name] == "path" and base not in {None, name} else None,
            follows=action not in {"delete", "move"},
        )


def _may_be_left_out(tool: OfferedTool, argument: str) -> bool:
    required = tool.schema.get("required")
    return not (isinstance(required, list) and argument in required)


def _roles(
    kind: Kind, name: str, tool: tuple[str, ...], action: ToolAction | None, properties: Mapping[str, JsonValue]
) -> tuple[Role, ...]:
    match kind:
        case "command":
            return (Role.RUN_COMMAND,)
        case "url":
            sends_data = any(_SENT_ALONG & {*name_words(other)} for other in properties)
            return (Role.FETCH_URL,) if action in {"read", "fetch"} and not sends_data else (Role.SEND_URL,)
        case "remote":
            return (Role.READ_REMOTE,) if action in {"read", "fetch"} else (Role.WRITE_REMOTE,)
        case _:
            last = name_words(name)[-1]
            if action == "move" and last in {"source", "src", "from"}:
                return _MOVED_FROM
            if action == "move" and last in {"destination", "dest", "dst", "to", "target"}:
                return _MOVED_TO
            if tool[:1] == ("copy",) and len({_action(word) for word in tool} - {None}) == 1:
                return (_WRITE,) if last in {"destination", "dest", "dst", "to", "target"} else (_READ, _WRITE)
            return _PATH_ROLES.get(action, _PATH_ROLES[None])
