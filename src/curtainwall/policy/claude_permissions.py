"""Translates Claude Code's permission lists into Cedar rules; what has no exact counterpart becomes stricter, and is reported."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, cast

from pydantic import JsonValue

from curtainwall.model import Broken, record
from curtainwall.policy.canonical import fault_of, is_host, is_path, is_sound

WILDCARD = None
"""In a pattern: any text, including none."""

Pattern = Sequence[str | None]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-./:,;=@+%&#~^!?<>()[]{}|$'*")


def literal(text: str) -> str:
    """Return a string literal for exactly this text; raise ValueError for a lone surrogate, which has none."""
    return f'"{_escaped(text)}"'


def pattern(parts: Pattern) -> str:
    """Return a `like` pattern; the texts match literally, even a star in them."""
    # An escape never contains a star, so every star that is left comes from the text.
    return '"' + "".join("*" if part is None else _escaped(part).replace("*", r"\*") for part in parts) + '"'


def any_of(conditions: Sequence[str]) -> str:
    """Return the disjunction of conditions as a balanced tree, so that a long list does not nest deeply; false if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else "false"
    middle = len(conditions) // 2
    return f"({any_of(conditions[:middle])} || {any_of(conditions[middle:])})"


def _escaped(text: str) -> str:
    return "".join(letter if letter in _PLAIN else _code(letter) for letter in text)


def _code(letter: str) -> str:
    if "\ud800" <= letter <= "\udfff":
        raise ValueError("half a character cannot be written")
    return f"\\u{{{ord(letter):x}}}"


_DOUBLE = "**"
_MAX_DOUBLES = 3
_NOTHING = "false"
_ALL = "true"


@record
class PatternCondition:
    """Two conditions for a pattern: `narrow` matches nothing beyond it, for allowing; `wide` matches all of it, for refusing."""

    narrow: str
    wide: str
    why: str = ""

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing could safely be allowed."""
        return self.narrow == _NOTHING


EVERYTHING = PatternCondition(_ALL, _ALL)


def unreadable(why: str) -> PatternCondition:
    """Return the condition of a pattern that we cannot understand: it allows nothing and refuses everything."""
    return PatternCondition(_NOTHING, _ALL, why)


def command_condition(text: str) -> PatternCondition:
    """Return the condition of `Bash(text)`: `git *` and `git:*` are `git` with or without arguments, other stars are any text."""
    pattern_text = text.strip()
    if pattern_text == "*":
        return EVERYTHING
    if "\\" in pattern_text:
        parts = [part for piece in re.split(r"\\.?|\*", pattern_text) for part in (piece, WILDCARD)][:-1]
        return PatternCondition(_NOTHING, f"resource.text like {pattern(parts)}", "a backslash has no exact counterpart")
    match = re.fullmatch(r"(.*?)(?::\*| \*)", pattern_text, re.DOTALL)
    if match is None:
        parts = _starred(pattern_text)
        condition = f"resource.text == {literal(pattern_text)}" if len(parts) == 1 else f"resource.text like {pattern(parts)}"
        return PatternCondition(condition, condition)
    start = _starred(match[1])
    exactly = f"resource.text == {literal(match[1])}" if len(start) == 1 else f"resource.text like {pattern(start)}"
    narrow = any_of([exactly, f"resource.text like {pattern([*start, ' ', WILDCARD])}"])
    wide = [
        narrow,
        f"resource.text like {pattern([*start, chr(9), WILDCARD])}",
        f"resource.text like {pattern([*start, chr(10), WILDCARD])}",
    ]
    if re.fullmatch(r"[A-Za-z0-9_.+/-]+", match[1]):
        wide.append(f"resource in Program::{literal(match[1])}")
    return PatternCondition(narrow, any_of(wide))


def host_condition(text: str) -> PatternCondition:
    """Return the condition of `WebFetch(text)`, such as `domain:example.com` or `domain:*.example.com`."""
    if text == "*":
        return EVERYTHING
    name = text.removeprefix("domain:").strip().lower().removesuffix(".")
    if not text.startswith("domain:"):
        return unreadable("only `domain:` can be expressed")
    if name == "*":
        return PatternCondition('resource.scope == "public"', _ALL)
    bare = name.removeprefix("*.")
    if not is_host(bare):
        return unreadable("this is no host in its plain form")
    host = f"Host::{literal(bare)}"
    below = f"resource in {host}"
    return PatternCondition(f"resource == {host}" if bare == name else f"{below} && resource != {host}", below)


def path_condition(text: str, workspace: str, home: str) -> PatternCondition:
    """Return the condition of `Read(text)` or `Edit(text)` by gitignore's rules; `//x` is absolute, `/x` and `x` start in the workspace."""
    root = workspace.rstrip("/")
    if text in ("*", _DOUBLE):
        return PatternCondition(
            f"resource in Path::{literal(workspace)}", _ALL, "as an allow it covers the workspace alone, as a deny everything"
        )
    if text.startswith("!"):
        return PatternCondition(_NOTHING, _NOTHING, "an exception from another entry is left out")
    if text.startswith("//"):
        return _below("", text[2:], anchored=True)
    if text == "~" or text.startswith("~/"):
        if home:
            return _below(home.rstrip("/"), text[2:], anchored=True)
        return PatternCondition(
            _NOTHING, _below("", text[2:], anchored=False).wide, "the home directory is not known; a deny covers every directory"
        )
    if text.startswith("/"):
        here, there = _below(root, text[1:], anchored=True), _below("", text[1:], anchored=True)
        wide = any_of([here.wide, there.wide])
        return PatternCondition(
            here.narrow, wide, here.why or "a path from `/` starts in the workspace; a deny also covers the absolute path"
        )
    plain = text.removeprefix("./")
    return _below(root, plain, anchored="/" in plain.rstrip("/") or plain != text)


def _starred(text: str) -> list[str | None]:
    """Return a text as a pattern in which each star is a wildcard."""
    pieces = re.split(r"\*+", text)
    parts: list[str | None] = [pieces[0]]
    for piece in pieces[1:]:
        parts += [WILDCARD, piece]
    return parts


def _below(root: str, text: str, *, anchored: bool) -> PatternCondition:
    """Return the condition of a gitignore pattern below a root; the root `""` is `/`."""
    plain = re.sub(r"\[[^\]]*\]?|\?|\\.?", "*", text)
    segments = [segment for segment in plain.split("/") if segment not in ("", ".")]
    if ".." in segments:
        return unreadable("`..` in a pattern has no certain meaning")
    if not anchored:
        segments.insert(0, _DOUBLE)
    segments = [segment for index, segment in enumerate(segments) if segment != _DOUBLE or index == 0 or segments[index - 1] != _DOUBLE]
    wide = _wide(root, segments)
    if plain != text:
        return PatternCondition(_NOTHING, wide, "`?`, `[…]` and backslashes have no exact counterpart")
    narrow = _narrow(root, segments)
    return PatternCondition(narrow, wide, "" if narrow != _NOTHING else "this mixture of `*` and `**` has no exact counterpart")


def _narrow(root: str, segments: list[str]) -> str:
    """Return a condition that matches nothing beyond the pattern. Cedar's star crosses slashes, so use it only where that is right."""
    rest = "/".join(segments)
    inner = rest.removeprefix("**/").removesuffix("/**")
    if "*" not in inner:
        return _narrow_plain(root, inner, floats=rest.startswith("**/"), inside=rest.endswith("/**"))
    head, floats, last = rest.rpartition("**/")
    if floats and "/" not in last and last.startswith("*") and "*" not in head + last[1:]:
        return f"resource.text like {pattern([f'{root}/{head}', WILDCARD, last[1:]])}"
    if _DOUBLE in segments:
        return _NOTHING
    # Exactly as many components as the pattern has, so no star can have crossed a slash.
    deeper = [f"{root}/", *[part for _ in segments for part in (WILDCARD, "/")], WILDCARD]
    return f"(resource.text like {pattern(_starred_below(root, rest))} && !(resource.text like {pattern(deeper)}))"


def _narrow_plain(root: str, inner: str, *, floats: bool, inside: bool) -> str:
    place = f"{root}/{inner}".rstrip("/") or "/"
    entity = f"Path::{literal(place)}"
    conditions = [f"(resource in {entity} && resource != {entity})" if inside else f"resource in {entity}"]
    if floats:
        conditions.append(f"resource.text like {pattern([f'{root}/', WILDCARD, f'/{inner}/', WILDCARD])}")
        if not inside:
            conditions.append(f"resource.text like {pattern([f'{root}/', WILDCARD, f'/{inner}'])}")
    return any_of(conditions)


def _wide(root: str, segments: list[str]) -> str:
    """Return a condition that matches all of the pattern: each `**/` may be empty, and a match may be a directory."""
    if segments.count(_DOUBLE) > _MAX_DOUBLES:
        return _ALL
    forms: list[list[str]] = [[]]
    for segment in segments:
        extended = [[*form, segment] for form in forms]
        forms = [*forms, *extended] if segment == _DOUBLE else extended
    conditions: list[str] = []
    for form in forms:
        parts = _starred_below(root, "/".join(form)) if form else [root]
        conditions += [f"resource.text like {pattern(parts)}", f"resource.text like {pattern([*parts, '/', WILDCARD])}"]
    return any_of(list(dict.fromkeys(conditions)))


def _starred_below(root: str, rest: str) -> list[str | None]:
    # The characters of the root match literally, even stars.
    parts = _starred(f"/{rest}")
    return [root + str(parts[0]), *parts[1:]]


ListName = Literal["allow", "ask", "deny"]

_ENTRY = re.compile(r"([A-Za-z_][A-Za-z0-9_.*-]*)(?:\((.*)\))?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_RELATIVE = re.compile(r"\w+\((?!//|~|!)")
_IMPORT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# The shell reports its directory as read; an entry for `Bash` decides about its commands.
_IN_SHELL = 'context.tool == "shell.run"'
_NATIVE = any_of([f"resource in Server::{literal(name)}" for name in ("filesystem", "fetch", "git", "shell", "session")])
_PROGRAMS = (
    "a deny or ask for a command holds for its program under any path, and for what known launchers run (`env`, `sudo`, `xargs`, `sh -c`, "
    "`find -exec`); it does not hold for a copy or link of it under another name, nor for what another program runs by itself, such as "
    "`python -c`, `make` or a script"
)
_MAX_TITLE = 80
_MAX_SPELT = 3


@record
class ImportedRules:
    """Rules as Cedar text, and what was left out or made stricter, in sentences."""

    cedar_text: str
    notes: tuple[str, ...]


@record
class _Family:
    """Tools of Claude Code that map to the same roles: those that an allow opens, and those that an ask or deny closes."""

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


@record
class _Entry:
    """One parsed entry of a list."""

    listed: ListName
    text: str
    family: _Family
    reach: PatternCondition


def import_permissions(settings: JsonValue, *, workspace: str, home: str = "", name: str = "claude") -> ImportedRules:
    """Return rules that are never looser than Claude Code's `permissions`; raise `Broken` if they cannot be read at all.

    The ids of the rules begin with `name`, so that several imports can exist side by side.
    """
    if not is_path(workspace) or (home and not is_path(home)):
        raise Broken("workspace and home must be whole canonical paths")
    if not _IMPORT_NAME.fullmatch(name):
        raise Broken(f"`{name}` cannot name an import; write small letters, digits and single dashes, such as `claude-work`")
    lists, notes = _lists(settings)
    entries: list[_Entry] = []
    for listed, texts in lists.items():
        for text in texts:
            entry = _parse_entry(listed, text, lambda argument: path_condition(argument, workspace, home))
            entries.append(entry)
            notes.extend(_notes_on(entry))
    if any(entry.family in (_READS, _EDITS) and _RELATIVE.match(entry.text.strip()) for entry in entries):
        notes.insert(0, f"patterns without `//` or `~/` start in `{workspace}`, and hold for no other directory")
    if any(entry.family is _READS and entry.listed == "deny" for entry in entries):
        notes.append("a deny for reading binds the file tools; a shell command still sees whatever the workspace holds")
    if any(entry.family is _COMMANDS and entry.listed != "allow" for entry in entries):
        notes.append(_PROGRAMS)
    return ImportedRules("\n".join([*_rules(entries, name), *_remainder(entries, name)]), tuple(dict.fromkeys(notes)))


def _lists(settings: JsonValue) -> tuple[dict[ListName, list[str]], list[str]]:
    if not isinstance(settings, dict):
        raise Broken("Claude Code settings are a JSON object; give the whole file or its `permissions`")
    permissions = settings.get("permissions", settings)
    if not isinstance(permissions, dict):
        raise Broken("`permissions` must be a JSON object with `allow`, `ask` and `deny`")
    lists: dict[ListName, list[str]] = {}
    for name in ("allow", "ask", "deny"):
        texts = permissions.get(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) and is_sound(text) for text in texts):
            raise Broken(f"`permissions.{name}` must be a list of strings")
        lists[name] = cast("list[str]", texts)
    imported_keys = {"allow", "ask", "deny", "permissions"}
    ignored = sorted(name for name in permissions if name not in imported_keys)
    return lists, [
        f"`{name}` is not imported; modes and directories are set in our own config" for name in ignored if permissions is not settings
    ]


def _parse_entry(listed: ListName, text: str, path: Callable[[str], PatternCondition]) -> _Entry:
    match = _ENTRY.fullmatch(text.strip())
    if text.strip() == "*":
        return _Entry(listed, text, _TOOLS, unreadable("a star for every tool does nothing in today's Claude Code"))
    if match is None:
        return _malformed_entry(listed, text)
    name, argument = match[1], match[2] or ""
    if name.startswith("mcp__"):
        return _Entry(listed, text, _TOOLS, _tool_condition(name, argument))
    family = _FAMILIES.get(name)
    readers = {_COMMANDS: command_condition, _READS: path, _EDITS: path, _FETCHES: host_condition}
    if family is not None and match[2] is not None and not argument.strip():
        return _malformed_entry(listed, text)
    if family is not None:
        return _Entry(listed, text, family, EVERYTHING if match[2] is None else readers[family](argument))
    return _Entry(listed, text, _TOOLS, _foreign_condition(name))


def _malformed_entry(listed: ListName, text: str) -> _Entry:
    """Return the entry for a malformed text; as a deny it closes everything its tool does, if we can at least tell the tool."""
    name = _NAME.match(text.strip())
    if name is None and listed != "allow":
        raise Broken(f"`{text}` in `permissions.{listed}` cannot be read, so nobody knows what it should refuse; correct it")
    family = _FAMILIES.get(name[0], _TOOLS) if name else _TOOLS
    wide = "true" if family is not _TOOLS or name is None else _foreign_condition(name[0]).wide
    return _Entry(listed, text, family, PatternCondition("false", wide, "it is not of the form `Tool` or `Tool(pattern)`"))


def _tool_condition(name: str, argument: str) -> PatternCondition:
    server, _, tool = name.removeprefix("mcp__").partition("__")
    why = "a pattern behind an MCP tool has no counterpart" if argument else ""
    if not server or "*" in server or fault_of("Server", server):
        return PatternCondition("false", f"!{_NATIVE}", why or "this is no server's name; a deny covers every server")
    if not tool or tool == "*":
        condition = f"resource in Server::{literal(server)}"
    elif "*" in tool or fault_of("Tool", f"{server}.{tool}"):
        parts = [part for piece in tool.split("*") for part in (piece, WILDCARD)][:-1]
        condition = f"resource.text like {pattern([f'{server}.', *parts])}"
    else:
        condition = f"resource == Tool::{literal(f'{server}.{tool}')}"
        return PatternCondition("false" if why else condition, _any_spelling(server, tool), why)
    return PatternCondition("false" if why else condition, condition, why)


def _any_spelling(server: str, tool: str) -> str:
    """Return a condition for every tool that Claude Code spells this way: it writes `_` for all but letters, digits, `_` and `-`."""
    head, *rest = tool.split("_")
    spellings = [f"{server}.{head}"]
    if len(rest) > _MAX_SPELT:
        parts = [part for piece in rest for part in (WILDCARD, piece)]
        return f"resource.text like {pattern([spellings[0], *parts])}"
    for piece in rest:
        spellings = [f"{start}{letter}{piece}" for start in spellings for letter in "_./"]
    return any_of([f"resource.text == {literal(text)}" for text in spellings])


def _foreign_condition(name: str) -> PatternCondition:
    parts = [part for piece in name.split("*") for part in (piece, WILDCARD)][:-1]
    return PatternCondition(
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
    """Yield what an entry that closes commands does not catch, although a reader might expect it to."""
    match = _ENTRY.fullmatch(entry.text.strip())
    program, _, rest = (match[2] or "" if match else "").strip().partition(" ")
    if rest.strip("* "):
        yield f"{entry.listed} `{entry.text}` goes by the words as written: with other options, or in another order, it is not caught"
    if "/" in program.rstrip(":*"):
        yield f"{entry.listed} `{entry.text}` holds for that path alone, as written; name the program to have it caught under any path"


def _rules(entries: list[_Entry], name: str) -> Iterator[str]:
    for number, entry in enumerate(entries, start=1):
        head = f'@id("{name}-{entry.listed}-{number}") @title({literal(_title(entry))}) @reason("imported from Claude Code")'
        if entry.listed == "allow" and not entry.reach.is_empty:
            yield f"{head}\npermit (principal, {_actions(entry.family.opened)}, resource)\nwhen {{ {_allow_condition(entry)} }};\n"
        elif entry.listed != "allow":
            unless = "" if entry.listed == "deny" else "\nunless { context.approved }"
            yield f"{head}\nforbid (principal, {_actions(entry.family.closed)}, resource)\nwhen {{ {entry.reach.wide} }}{unless};\n"


def _remainder(entries: list[_Entry], name: str) -> Iterator[str]:
    """Yield the rules for everything that no entry names, which asks; a command that cannot be parsed counts as a listed one."""
    for listed, unless in (("deny", ""), ("ask", "\nunless { context.approved }")):
        if any(entry.listed == listed and entry.family is _COMMANDS for entry in entries):
            head = f'@id("{name}-{listed}-unparsed") @title("Commands that cannot be parsed may hide what a list names")'
            yield f'{head}\nforbid (principal, action == Action::"run-command", resource)\nwhen {{ !resource.parsed }}{unless};\n'
    opened: Mapping[_Family, list[str]] = {family: [] for family in (_COMMANDS, _READS, _EDITS, _FETCHES, _TOOLS)}
    for entry in entries:
        if entry.listed == "allow" and not entry.reach.is_empty:
            opened[entry.family].append(_allow_condition(entry))
    for family, conditions in opened.items():
        if family is _READS and not any(entry.family is _READS and entry.listed == "allow" for entry in entries):
            continue
        extra = {_TOOLS: [_NATIVE], _READS: [_IN_SHELL]}.get(family, [])
        yield _asking_rule(f"{name}-unlisted-{family.name}", family.opened, any_of([*conditions, *extra]))
    yield _asking_rule(f"{name}-unlisted-delete", ("delete-path",), "false")


def _asking_rule(name: str, roles: tuple[str, ...], reached: str) -> str:
    head = f'@id("{name}") @title("What the allow list does not name asks") @reason("imported from Claude Code")'
    return f"{head}\nforbid (principal, {_actions(roles)}, resource)\nunless {{ context.approved || {reached} }};\n"


def _allow_condition(entry: _Entry) -> str:
    return f"({entry.family.guard} && {entry.reach.narrow})" if entry.family.guard else f"({entry.reach.narrow})"


def _actions(roles: tuple[str, ...]) -> str:
    return f"action in [{', '.join(f'Action::{literal(role)}' for role in roles)}]"


def _title(entry: _Entry) -> str:
    cut = entry.text if len(entry.text) <= _MAX_TITLE else f"{entry.text[:_MAX_TITLE]}…"
    return f"{entry.listed} {cut}"
