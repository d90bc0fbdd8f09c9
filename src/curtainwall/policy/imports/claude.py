"""Claude Code's permission lists as Cedar rules: what cannot be said exactly is said more strictly, and reported."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import JsonValue

from curtainwall.model import Broken
from curtainwall.policy.canonical import fault_of, is_path, is_sound
from curtainwall.policy.cedartext import WILDCARD, any_of, literal, pattern
from curtainwall.policy.imports.claude_patterns import EVERYTHING, Reach, command_reach, host_reach, path_reach, unreadable

Listed = Literal["allow", "ask", "deny"]

_ENTRY = re.compile(r"([A-Za-z_][A-Za-z0-9_.*-]*)(?:\((.*)\))?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_RELATIVE = re.compile(r"\w+\((?!//|~|!)")
_IMPORT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# The shell names its directory as read, and an entry for `Bash` decides about its commands.
_IN_SHELL = 'context.tool == "shell.run"'
_NATIVE = any_of([f"resource in Server::{literal(name)}" for name in ("filesystem", "fetch", "git", "shell", "session")])
_PROGRAMS = (
    "a deny or ask for a command holds for its program under any path, and for what known launchers run (`env`, `sudo`, `xargs`, `sh -c`, "
    "`find -exec`); it does not hold for a copy or link of it under another name, nor for what another program runs by itself, such as "
    "`python -c`, `make` or a script"
)
_LONGEST_TITLE = 80
_MOST_SPELT = 3


@dataclass(frozen=True, slots=True)
class Imported:
    """Rules as Cedar text, and what was left out or made stricter, in sentences."""

    cedar_text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Family:
    """Tools of Claude Code that mean one thing here: the roles that an allow opens, and those that an ask or deny closes."""

    name: str
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    guard: str = ""


_COMMANDS = _Family("command", ("run-command",), ("run-command",), r'resource.parsed && !(resource.text like "*\n*")')
_READS = _Family("read", ("read-path",), ("read-path",))
_EDITS = _Family("edit", ("write-path",), ("write-path", "delete-path"))
_FETCHES = _Family("fetch", ("fetch-url",), ("fetch-url", "send-url"))
_TOOLS = _Family("tool", ("use-tool",), ("use-tool",))

_FAMILIES = {
    "Bash": _COMMANDS,
    **dict.fromkeys(("Read", "Glob", "Grep", "LS", "NotebookRead"), _READS),
    **dict.fromkeys(("Edit", "Write", "MultiEdit", "NotebookEdit"), _EDITS),
    "WebFetch": _FETCHES,
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a list, understood as far as it can be."""

    listed: Listed
    text: str
    family: _Family
    reach: Reach


def import_permissions(settings: JsonValue, *, workspace: str, home: str = "", name: str = "claude") -> Imported:
    """Return rules that are never looser than Claude Code's `permissions`; raise `Broken` where they cannot be read at all.

    The name is what their ids begin with, so that several imports can stand side by side.
    """
    if not is_path(workspace) or (home and not is_path(home)):
        raise Broken("workspace and home must be whole canonical paths")
    if not _IMPORT_NAME.fullmatch(name):
        raise Broken(f"`{name}` cannot name an import; write small letters, digits and single dashes, such as `claude-work`")
    lists, notes = _lists(settings)
    entries: list[_Entry] = []
    for listed, texts in lists.items():
        for text in texts:
            entry = _understood(listed, text, lambda told: path_reach(told, workspace, home))
            entries.append(entry)
            notes.extend(_notes_on(entry))
    if any(entry.family in (_READS, _EDITS) and _RELATIVE.match(entry.text.strip()) for entry in entries):
        notes.insert(0, f"patterns without `//` or `~/` start in `{workspace}`, and hold for no other directory")
    if any(entry.family is _READS and entry.listed == "deny" for entry in entries):
        notes.append("a deny for reading binds the file tools; a shell command still sees whatever the workspace holds")
    if any(entry.family is _COMMANDS and entry.listed != "allow" for entry in entries):
        notes.append(_PROGRAMS)
    return Imported("\n".join([*_rules(entries, name), *_remainder(entries, name)]), tuple(dict.fromkeys(notes)))


def _lists(settings: JsonValue) -> tuple[dict[Listed, list[str]], list[str]]:
    if not isinstance(settings, dict):
        raise Broken("Claude Code settings are a JSON object; give the whole file or its `permissions`")
    permissions = settings.get("permissions", settings)
    if not isinstance(permissions, dict):
        raise Broken("`permissions` must be a JSON object with `allow`, `ask` and `deny`")
    lists: dict[Listed, list[str]] = {}
    for name in ("allow", "ask", "deny"):
        given = permissions.get(name, [])
        if not isinstance(given, list) or not all(isinstance(text, str) and is_sound(text) for text in given):
            raise Broken(f"`permissions.{name}` must be a list of strings")
        lists[name] = cast("list[str]", given)
    known = {"allow", "ask", "deny", "permissions"}
    ignored = sorted(name for name in permissions if name not in known)
    return lists, [
        f"`{name}` is not imported; modes and directories are set in our own config" for name in ignored if permissions is not settings
    ]


def _understood(listed: Listed, text: str, path: Callable[[str], Reach]) -> _Entry:
    found = _ENTRY.fullmatch(text.strip())
    if text.strip() == "*":
        return _Entry(listed, text, _TOOLS, unreadable("a star for every tool does nothing in today's Claude Code"))
    if found is None:
        return _garbled(listed, text)
    name, told = found[1], found[2] or ""
    if name.startswith("mcp__"):
        return _Entry(listed, text, _TOOLS, _tool_reach(name, told))
    family = _FAMILIES.get(name)
    readers = {_COMMANDS: command_reach, _READS: path, _EDITS: path, _FETCHES: host_reach}
    if family is not None and found[2] is not None and not told.strip():
        return _garbled(listed, text)
    if family is not None:
        return _Entry(listed, text, family, EVERYTHING if found[2] is None else readers[family](told))
    return _Entry(listed, text, _TOOLS, _foreign_reach(name))


def _garbled(listed: Listed, text: str) -> _Entry:
    """Return an entry with something wrong in it; as a deny it closes all that its tool does, where at least the tool can be told."""
    name = _NAME.match(text.strip())
    if name is None and listed != "allow":
        raise Broken(f"`{text}` in `permissions.{listed}` cannot be read, so nobody knows what it should refuse; correct it")
    family = _FAMILIES.get(name[0], _TOOLS) if name else _TOOLS
    wide = "true" if family is not _TOOLS or name is None else _foreign_reach(name[0]).wide
    return _Entry(listed, text, family, Reach("false", wide, "it is not of the form `Tool` or `Tool(pattern)`"))


def _tool_reach(name: str, told: str) -> Reach:
    server, _, tool = name.removeprefix("mcp__").partition("__")
    why = "a pattern behind an MCP tool has no counterpart" if told else ""
    if not server or "*" in server or fault_of("Server", server):
        return Reach("false", f"!{_NATIVE}", why or "this is no server's name; a deny covers every server")
    if not tool or tool == "*":
        condition = f"resource in Server::{literal(server)}"
    elif "*" in tool or fault_of("Tool", f"{server}.{tool}"):
        parts = [part for piece in tool.split("*") for part in (piece, WILDCARD)][:-1]
        condition = f"resource.text like {pattern([f'{server}.', *parts])}"
    else:
        condition = f"resource == Tool::{literal(f'{server}.{tool}')}"
        return Reach("false" if why else condition, _any_spelling(server, tool), why)
    return Reach("false" if why else condition, condition, why)


def _any_spelling(server: str, tool: str) -> str:
    """Return a condition for every tool that Claude Code calls so: it writes `_` for each letter that is no letter, digit, `_` or `-`."""
    head, *rest = tool.split("_")
    spellings = [f"{server}.{head}"]
    if len(rest) > _MOST_SPELT:
        parts = [part for piece in rest for part in (WILDCARD, piece)]
        return f"resource.text like {pattern([spellings[0], *parts])}"
    for piece in rest:
        spellings = [f"{start}{letter}{piece}" for start in spellings for letter in "_./"]
    return any_of([f"resource.text == {literal(text)}" for text in spellings])


def _foreign_reach(name: str) -> Reach:
    parts = [part for piece in name.split("*") for part in (piece, WILDCARD)][:-1]
    return Reach(
        "false", f"resource.text like {pattern([WILDCARD, '.', *parts])}", "there is no such tool here; a deny covers any tool of that name"
    )


def _notes_on(entry: _Entry) -> Iterator[str]:
    if entry.listed == "allow" and entry.reach.is_empty:
        yield f"allow `{entry.text}` is left out and asks: {entry.reach.why}"
    elif entry.reach.why:
        yield f"{entry.listed} `{entry.text}` is imported more strictly: {entry.reach.why}"
    if entry.family is _COMMANDS and entry.listed != "allow":
        yield from _limits_of(entry)


def _limits_of(entry: _Entry) -> Iterator[str]:
    """Yield what an entry that closes commands does not catch, though somebody might expect it to."""
    found = _ENTRY.fullmatch(entry.text.strip())
    program, _, rest = (found[2] or "" if found else "").strip().partition(" ")
    if rest.strip("* "):
        yield f"{entry.listed} `{entry.text}` goes by the words as written: with other options, or in another order, it is not caught"
    if "/" in program.rstrip(":*"):
        yield f"{entry.listed} `{entry.text}` holds for that path alone, as written; name the program to have it caught under any path"


def _rules(entries: list[_Entry], name: str) -> Iterator[str]:
    for number, entry in enumerate(entries, start=1):
        head = f'@id("{name}-{entry.listed}-{number}") @title({literal(_title(entry))}) @reason("imported from Claude Code")'
        if entry.listed == "allow" and not entry.reach.is_empty:
            yield f"{head}\npermit (principal, {_actions(entry.family.opened)}, resource)\nwhen {{ {_opened(entry)} }};\n"
        elif entry.listed != "allow":
            unless = "" if entry.listed == "deny" else "\nunless { context.approved }"
            yield f"{head}\nforbid (principal, {_actions(entry.family.closed)}, resource)\nwhen {{ {entry.reach.wide} }}{unless};\n"


def _remainder(entries: list[_Entry], name: str) -> Iterator[str]:
    """Yield what holds for all that no entry names: it asks; and a command that cannot be parsed is taken for what is refused."""
    for listed, unless in (("deny", ""), ("ask", "\nunless { context.approved }")):
        if any(entry.listed == listed and entry.family is _COMMANDS for entry in entries):
            head = f'@id("{name}-{listed}-unparsed") @title("Commands that cannot be parsed may hide what a list names")'
            yield f'{head}\nforbid (principal, action == Action::"run-command", resource)\nwhen {{ !resource.parsed }}{unless};\n'
    opened: Mapping[_Family, list[str]] = {family: [] for family in (_COMMANDS, _READS, _EDITS, _FETCHES, _TOOLS)}
    for entry in entries:
        if entry.listed == "allow" and not entry.reach.is_empty:
            opened[entry.family].append(_opened(entry))
    for family, conditions in opened.items():
        if family is _READS and not any(entry.family is _READS and entry.listed == "allow" for entry in entries):
            continue
        beside = {_TOOLS: [_NATIVE], _READS: [_IN_SHELL]}.get(family, [])
        yield _asking(f"{name}-unlisted-{family.name}", family.opened, any_of([*conditions, *beside]))
    yield _asking(f"{name}-unlisted-delete", ("delete-path",), "false")


def _asking(name: str, roles: tuple[str, ...], reached: str) -> str:
    head = f'@id("{name}") @title("What the allow list does not name asks") @reason("imported from Claude Code")'
    return f"{head}\nforbid (principal, {_actions(roles)}, resource)\nunless {{ context.approved || {reached} }};\n"


def _opened(entry: _Entry) -> str:
    return f"({entry.family.guard} && {entry.reach.narrow})" if entry.family.guard else f"({entry.reach.narrow})"


def _actions(roles: tuple[str, ...]) -> str:
    return f"action in [{', '.join(f'Action::{literal(role)}' for role in roles)}]"


def _title(entry: _Entry) -> str:
    cut = entry.text if len(entry.text) <= _LONGEST_TITLE else f"{entry.text[:_LONGEST_TITLE]}…"
    return f"{entry.listed} {cut}"
