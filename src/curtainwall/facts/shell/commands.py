"""Splits shell text that an agent wrote into its commands and redirections.

A pattern never allows a command that cannot be parsed: `parsed` is false whenever something other than the named program might run.

The syntax tree is tree-sitter's, and its grammar differs from bash. So each leaf must hold only what such a leaf may hold, only blanks may
lie between leaves, and a node of an unknown kind is a fault. A fault makes its command, or else a separate draft, count as not parsed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.facts.shell.launchers import is_launcher, launch, may_set
from curtainwall.facts.shell.words import Word, is_sound_leaf, read_word, source_of
from curtainwall.model import record

_MAX_DEPTH = 150

# A continued line joins words, unless there is a real blank as well.
_BLANKS = re.compile(rb"(?:\\\n)*(?:[ \t\n](?:\\\n)*)+")
_BLANKS_IN_LINE = re.compile(rb"(?:\\\n)*(?:[ \t](?:\\\n)*)+")
_ARITHMETIC = re.compile(r"\$\(\([0-9+\-*/% ()]*\)\)")
_DELIMITER = re.compile(r"""(['"]?)([A-Za-z0-9_.+-]+)\1""")
_EXPANSION = re.compile(r"`|\$[A-Za-z0-9_({\[?#@*!$'\"-]")
_DEVICE = re.compile(r"/dev/(?:tcp|udp)/")
_SAFE_EXPANSIONS = frozenset({"${", "}", ":-", "-", ":+", "+", ":?", "?", "#", "##", "%", "%%", "/", "//", "^", "^^", ",", ",,"})
# In `[[`, bash evaluates both sides of these as arithmetic, which can run commands; `-v` does so in `[` as well.
_EVALUATES = {"[": frozenset({"-v", "-R", "-a", "-o"}), "[[": frozenset({"-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"})}
_OPENS: dict[str, Literal["read", "write", "append"]] = {
    "<": "read", ">": "write", ">|": "write", "&>": "write", ">&": "write", ">>": "append", "&>>": "append",
}  # fmt: skip

_STRUCTURE = frozenset(
    (
        "program list pipeline subshell compound_statement if_statement elif_clause else_clause while_statement do_group case_statement "
        "case_item negated_command command_name string concatenation command_substitution process_substitution binary_expression "
        "unary_expression parenthesized_expression heredoc_body herestring_redirect array simple_expansion brace_expression"
    ).split()
)
# A line break between the parts of these would start another command.
_ONE_LINE = frozenset(
    "command declaration_command unset_command variable_assignment file_redirect herestring_redirect test_command".split()
)
_TIGHT = frozenset({"concatenation", "simple_expansion"})
_WORDS = frozenset("word number string raw_string ansi_c_string concatenation simple_expansion expansion command_substitution $".split())


@dataclass(slots=True)
class Draft:
    """A command under construction; without words, it is something that is not a command but may change what runs."""

    source: str
    words: tuple[Word, ...] = ()
    sound: bool = True


@dataclass(slots=True)
class Walk:
    """The results of walking a tree: drafts in the order written, files that the shell opens, names that the text defines."""

    source: bytes
    drafts: list[Draft] = field(default_factory=list[Draft])
    redirects: list[tuple[Literal["read", "write", "append"], str]] = field(
        default_factory=list[tuple[Literal["read", "write", "append"], str]]
    )
    defined: set[str] = field(default_factory=set[str])
    own: dict[int, Draft] = field(default_factory=dict[int, Draft])
    """Drafts created before their node was reached."""
    relative: list[tuple[Draft | None, Node]] = field(default_factory=list[tuple[Draft | None, Node]])
    """Redirections whose target depends on the current directory."""

    def draft(self, node: Node, *words: Word) -> Draft:
        """Add a draft."""
        draft = Draft(source_of(node, self.source), words)
        self.drafts.append(draft)
        return draft

    def fault(self, owner: Draft | None, node: Node) -> None:
        """Record that bash may read this node differently."""
        if owner is None:
            self.draft(node)
        else:
            owner.sound = False


def walk(root: Node, source: bytes) -> Walk | None:
    """Walk a syntax tree without errors; None if it is nested too deeply, or does not cover the whole text."""
    result = Walk(source)
    stack: list[tuple[Node, Draft | None, int]] = [(root, None, 0)]
    while stack:
        node, owner, depth = stack.pop()
        if depth > _MAX_DEPTH:
            return None
        children = node.children
        if not children:
            _check_leaf(result, node, owner)
            continue
        if not _is_tight(source, node, children):
            result.fault(owner, node)
        for child, its_owner in reversed(_visit(result, node, children, owner)):
            stack.append((child, its_owner, depth + 1))
    if any(draft.words and draft.words[0].value in ("cd", "pushd", "popd", None) for draft in result.drafts):
        for owner, node in result.relative:
            result.fault(owner, node)
    is_whole = not (source[: root.start_byte] + source[root.end_byte :]).strip()
    return result if is_whole else None


def _is_tight(source: bytes, node: Node, children: list[Node]) -> bool:
    """Tell whether only blanks lie between the children, and none where it would matter."""
    kind = node.type
    if kind in ("string", "heredoc_body", "heredoc_redirect"):
        return True
    blanks = _BLANKS_IN_LINE if kind in _ONE_LINE else _BLANKS
    before = children[0]
    for child in children[1:]:
        start, end = before.end_byte, child.start_byte
        if start == end:
            # Two words of a command that touch are one word to bash.
            if kind == "command" and _is_word(before) and _is_word(child):
                return False
        elif kind in _TIGHT or not blanks.fullmatch(source, start, end):
            return False
        before = child
    return True


def _is_word(node: Node) -> bool:
    return node.type in _WORDS or node.type in ("command_name", "process_substitution")


def _check_leaf(result: Walk, node: Node, owner: Draft | None) -> None:
    text = source_of(node, result.source)
    match node.type:
        case "comment":
            before = result.source[node.start_byte - 1 : node.start_byte]
            sound = "\n" not in text and (node.start_byte == 0 or before in b" \t\n;&|()")
        case "test_operator":
            opening = owner.words[0].value if owner and owner.words else None
            sound = text not in _EVALUATES.get(opening or "", ())
        case kind:
            sound = is_sound_leaf(kind, text)
    if not sound:
        result.fault(owner, node)


def _visit(result: Walk, node: Node, children: list[Node], owner: Draft | None) -> list[tuple[Node, Draft | None]]:
    """Record what a node means and return the children to visit, each with the draft that it belongs to."""
    match node.type:
        case "command":
            draft = result.own.pop(node.id, None) or result.draft(node)
            draft.words = _words_of(draft, children, result.source)
            return [(child, draft) for child in children]
        case "redirected_statement":
            body = node.child_by_field_name("body")
            if body is not None and body.type == "command":
                owner = result.own[body.id] = result.draft(body)
            return [(child, owner) for child in children]
        case "file_redirect":
            _record_redirect(result, node, children, owner)
        case "heredoc_redirect":
            if not _heredoc_is_sound(result.source, children):
                result.fault(owner, node)
            return [(child, owner if child.type in ("heredoc_body", "file_redirect") else None) for child in children]
        case "variable_assignment":
            if owner is None:
                owner = result.draft(node)
            owner.sound = False
        case "declaration_command" | "unset_command":
            rest = [Word(None, source_of(child, result.source)) for child in children[1:]]
            owner = result.draft(node, Word(children[0].type, children[0].type), *rest)
            owner.sound = False
        case "test_command":
            opening, closing = children[0], children[-1]
            inside = result.source[opening.end_byte : closing.end_byte].decode().strip()
            owner = result.draft(node, Word(opening.type, opening.type), Word(None, inside))
            owner.sound = len(children) == 3 and (children[1].type in _WORDS or children[1].type in _STRUCTURE)
        case "function_definition":
            name = node.child_by_field_name("name")
            result.defined.add("" if name is None else read_word(name, result.source).value or "")
            return [(child, None) for child in children if child != name]
        case "for_statement":
            variable = node.child_by_field_name("variable")
            if variable is None or not may_set(source_of(variable, result.source)):
                result.fault(None, node)
        case "c_style_for_statement":
            result.fault(None, node)
        case "compound_statement" if children[0].type == "((":
            owner = result.draft(node)
        case "command_substitution" | "process_substitution":
            # Inside backticks a backslash hides what runs from the grammar.
            if children[0].type == "`" and "\\" in source_of(node, result.source):
                result.fault(owner, node)
            return [(child, None) for child in children]
        case "arithmetic_expansion":
            if not _ARITHMETIC.fullmatch(source_of(node, result.source)):
                result.fault(owner, node)
        case "expansion":
            if not all(child.is_named or child.type in _SAFE_EXPANSIONS for child in children):
                result.fault(owner, node)
        case kind:
            if kind not in _STRUCTURE:
                result.fault(owner, node)
    return [(child, owner) for child in children]


def _words_of(draft: Draft, children: list[Node], source: bytes) -> tuple[Word, ...]:
    words: list[Word] = []
    for child in children:
        match child.type:
            case "command_name":
                words.append(read_word(child.children[0], source) if child.child_count == 1 else Word(None, source_of(child, source)))
            case "variable_assignment":
                draft.sound = False
            case "file_redirect" | "herestring_redirect":
                pass
            case "$":
                words.append(Word("$", "$"))
            case kind:
                words.append(read_word(child, source) if kind in _WORDS else Word(None, source_of(child, source), loose=True))
    return tuple(words)


def _record_redirect(result: Walk, node: Node, children: list[Node], owner: Draft | None) -> None:
    """Record the file that a redirection opens; a copied descriptor and a process substitution open none."""
    targets = node.children_by_field_name("destination")
    operator = next((child.type for child in children if not child.is_named), "")
    if operator in ("<&-", ">&-") and not targets:
        return
    if len(targets) != 1 or operator not in (*_OPENS, "<&"):
        result.fault(owner, node)
        return
    target = targets[0]
    word = read_word(target, result.source)
    if operator in ("<&", ">&") and target.type == "number":
        return
    if target.type == "process_substitution" and operator != "<&":
        return
    source = word.source
    path = source if re.fullmatch(r"~(?:/[A-Za-z0-9_./,@%+=-]*)?", source) else word.value
    if path is None or operator == "<&" or _DEVICE.match(path) or not path:
        result.fault(owner, node)
        return
    if path != source and path.startswith("~"):
        path = "./" + path
    if not path.startswith(("/", "~")):
        result.relative.append((owner, node))
    result.redirects.append((_OPENS[operator], path))


def _heredoc_is_sound(source: bytes, children: list[Node]) -> bool:
    """Tell whether a here-document starts and ends where bash sees it, and holds no expansion that the tree does not show."""
    parts = {child.type: child for child in children}
    start, body, end = parts.get("heredoc_start"), parts.get("heredoc_body"), parts.get("heredoc_end")
    if start is None or body is None or end is None or any(child.type in _WORDS for child in children):
        return False
    name = _DELIMITER.fullmatch(source_of(start, source))
    first = source.find(b"\n", start.end_byte) + 1
    if name is None or not 0 < first <= body.start_byte or source[first : body.start_byte].strip():
        return False
    line_start = source.rfind(b"\n", 0, end.start_byte) + 1
    line_end = source.find(b"\n", end.start_byte)
    last = source[line_start : line_end if line_end >= 0 else len(source)].decode()
    lines = source[first:line_start].decode().split("\n")[:-1]
    if children[0].type == "<<-":
        lines, last = [line.lstrip("\t") for line in lines], last.lstrip("\t")
    if last != name[2] or name[2] in lines:
        return False
    if name[1]:
        return body.child_count == 0
    if any(re.search(r"(?<!\\)(?:\\\\)*\\\Z", line) for line in lines):
        return False
    plain_texts: list[bytes] = []
    position = first
    for child in body.children:
        if child.type != "heredoc_content":
            plain_texts.append(source[position : child.start_byte])
            position = max(position, child.end_byte)
    plain_texts.append(source[position:line_start])
    return not any(_EXPANSION.search(re.sub(r"\\.", "", text.decode())) for text in plain_texts)


_BASH = Language(tree_sitter_bash.language())

_MAX_BYTES = 65_536
_MAX_NESTING = 4
_MAX_LAUNCHERS = 8
# The parser's error recovery takes time quadratic in these.
_MAX_METACHARACTERS = 2_000
_METACHARACTERS = re.compile(r"[|&;<>(){}\[\]$`!#*=]")
# NUL, and characters that only some programs treat as a space or a line break.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u0085\u2028\u2029]")
# The grammar's scanner looks characters up in a table of 256 and can crash on others. To bash they are ordinary characters of a word, like
# the slash, and replacing them byte for byte keeps all offsets; the words themselves are read from the original text.
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_PROGRAM = re.compile(r"[A-Za-z0-9_./+:@,-]+|\[\[?")


@record
class Redirect:
    """A file that the shell opens for a command; the target is a literal path as the agent wrote it."""

    kind: Literal["read", "write", "append"]
    target: str


@record
class ShellCommand:
    """One simple command.

    `text` has single spaces and quotes only where needed. `program` is the word that runs, never its basename. `parsed` is false if
    something else might run. `words` is the whole argument list if every word is literal, else empty.
    """

    text: str
    program: str
    parsed: bool
    words: tuple[str, ...] = ()


@record
class Script:
    """The contents of a shell text: at least one command, and the files that redirections open."""

    commands: tuple[ShellCommand, ...]
    redirects: tuple[Redirect, ...] = ()


def parse_script(text: object) -> Script:
    """Return every command and every redirection in a shell text, as `bash -c` would run it."""
    if not isinstance(text, str):
        raise Unclear(f"a command must be a string, not {quoted(text)}")
    if not text.strip():
        raise Unclear("the command is empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Unclear(f"the command {quoted(text)} is not valid text") from None
    return (_script(text, 0) if size <= _MAX_BYTES else None) or _unparsed(text)


def _unparsed(text: str) -> Script:
    return Script((ShellCommand(text=text, program="", parsed=False),))


def _script(text: str, nesting: int) -> Script | None:
    """Analyse a shell text; None if that is impossible."""
    if nesting > _MAX_NESTING or _CONTROL.search(text) or len(_METACHARACTERS.findall(text)) > _MAX_METACHARACTERS:
        return None
    source = text.encode()
    # A new parser for each text is cheaper than a lock, and safe in any thread.
    root = Parser(_BASH).parse(_NOT_ASCII.sub(b"/", source)).root_node
    result = None if root.has_error else walk(root, source)
    if result is None:
        return None
    commands: list[ShellCommand] = []
    redirects = [Redirect(kind, target) for kind, target in result.redirects]
    for draft in result.drafts:
        for command, script in _commands_of(draft, result.defined):
            commands.append(command)
            if script is not None:
                inner = _script(script, nesting + 1) or _unparsed(script)
                commands.extend(inner.commands)
                redirects.extend(inner.redirects)
    return Script(tuple(commands) or _unparsed(text).commands, tuple(redirects))


def _commands_of(draft: Draft, defined: set[str]) -> Iterator[tuple[ShellCommand, str | None]]:
    """Yield a draft as a command, then what it launches, each with the shell text that it would run, if any."""
    words, sound, extended = draft.words, draft.sound, False
    if not words:
        yield ShellCommand(text=draft.source, program="", parsed=False), None
    for _ in range(_MAX_LAUNCHERS):
        if not words:
            return
        program = words[0].value
        if program is None or not _PROGRAM.fullmatch(program):
            program, sound = "", False
        launched = launch(words)
        # If a program gets more words than are written, and could treat them as a command, it may run anything.
        known = launched.known and program not in defined and not (extended and is_launcher(program))
        values = tuple(word.value for word in words if word.value is not None)
        text = " ".join(word.text for word in words)
        yield ShellCommand(text, program, parsed=sound and known, words=values if len(values) == len(words) else ()), launched.script
        words, sound, extended = launched.argv, sound and not launched.disturbed, extended or launched.extended
    yield ShellCommand(text=" ".join(word.text for word in words), program="", parsed=False), None
