"""A walk over the syntax tree of a shell text, which believes the tree only where it cannot be otherwise.

The tree is tree-sitter's and its grammar is not bash. Each leaf must hold what such a leaf may hold, nothing but blanks may lie between
leaves, a node of a kind unknown here is a fault. A fault makes its command, or a draft of its own, count as not parsed.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

from tree_sitter import Node

from curtainwall.facts.shell.launchers import may_set
from curtainwall.facts.shell.words import Word, is_sound_leaf, read_word, source_of

_MAX_DEPTH = 150

# A line that goes on in the next joins words, unless there is a real blank as well.
_BLANKS = re.compile(rb"(?:\\\n)*(?:[ \t\n](?:\\\n)*)+")
_BLANKS_IN_LINE = re.compile(rb"(?:\\\n)*(?:[ \t](?:\\\n)*)+")
_ARITHMETIC = re.compile(r"\$\(\([0-9+\-*/% ()]*\)\)")
_DELIMITER = re.compile(r"""(['"]?)([A-Za-z0-9_.+-]+)\1""")
_LIVE = re.compile(r"`|\$[A-Za-z0-9_({\[?#@*!$'\"-]")
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
    """A command while the walk goes on; without words, it is something that is no command and still may change what runs."""

    source: str
    words: tuple[Word, ...] = ()
    sound: bool = True


@dataclass(slots=True)
class Walk:
    """What was found: drafts in the order written, files that the shell opens, names that the text itself gives a meaning."""

    source: bytes
    drafts: list[Draft] = field(default_factory=list[Draft])
    redirects: list[tuple[Literal["read", "write", "append"], str]] = field(
        default_factory=list[tuple[Literal["read", "write", "append"], str]]
    )
    defined: set[str] = field(default_factory=set[str])
    own: dict[int, Draft] = field(default_factory=dict[int, Draft])
    """Drafts made before their node was reached."""
    relative: list[tuple[Draft | None, Node]] = field(default_factory=list[tuple[Draft | None, Node]])
    """Redirections whose target depends on the current directory."""

    def draft(self, node: Node, *words: Word) -> Draft:
        """Add a draft."""
        made = Draft(source_of(node, self.source), words)
        self.drafts.append(made)
        return made

    def fault(self, owner: Draft | None, node: Node) -> None:
        """Note that bash may read this node differently."""
        if owner is None:
            self.draft(node)
        else:
            owner.sound = False


def walk(root: Node, source: bytes) -> Walk | None:
    """Return what a syntax tree without errors holds; None if it is nested too deeply, or is not of the whole text."""
    found = Walk(source)
    stack: list[tuple[Node, Draft | None, int]] = [(root, None, 0)]
    while stack:
        node, owner, depth = stack.pop()
        if depth > _MAX_DEPTH:
            return None
        children = node.children
        if not children:
            _leaf(found, node, owner)
            continue
        if not _is_tight(source, node, children):
            found.fault(owner, node)
        for child, its_owner in reversed(_visit(found, node, children, owner)):
            stack.append((child, its_owner, depth + 1))
    if any(draft.words and draft.words[0].value in ("cd", "pushd", "popd", None) for draft in found.drafts):
        for owner, node in found.relative:
            found.fault(owner, node)
    whole = not (source[: root.start_byte] + source[root.end_byte :]).strip()
    return found if whole else None


def _is_tight(source: bytes, node: Node, children: list[Node]) -> bool:
    """Say whether nothing but blanks lies between the children, and no blank where it would matter."""
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


def _leaf(found: Walk, node: Node, owner: Draft | None) -> None:
    text = source_of(node, found.source)
    match node.type:
        case "comment":
            before = found.source[node.start_byte - 1 : node.start_byte]
            sound = "\n" not in text and (node.start_byte == 0 or before in b" \t\n;&|()")
        case "test_operator":
            opening = owner.words[0].value if owner and owner.words else None
            sound = text not in _EVALUATES.get(opening or "", ())
        case kind:
            sound = is_sound_leaf(kind, text)
    if not sound:
        found.fault(owner, node)


def _visit(found: Walk, node: Node, children: list[Node], owner: Draft | None) -> list[tuple[Node, Draft | None]]:
    """Note what a node means and return the children to visit, each with the draft that it belongs to."""
    match node.type:
        case "command":
            draft = found.own.pop(node.id, None) or found.draft(node)
            draft.words = _words_of(draft, children, found.source)
            return [(child, draft) for child in children]
        case "redirected_statement":
            body = node.child_by_field_name("body")
            if body is not None and body.type == "command":
                owner = found.own[body.id] = found.draft(body)
            return [(child, owner) for child in children]
        case "file_redirect":
            _redirect(found, node, children, owner)
        case "heredoc_redirect":
            if not _heredoc_is_sound(found.source, children):
                found.fault(owner, node)
            return [(child, owner if child.type in ("heredoc_body", "file_redirect") else None) for child in children]
        case "variable_assignment":
            if owner is None:
                owner = found.draft(node)
            owner.sound = False
        case "declaration_command" | "unset_command":
            rest = [Word(None, source_of(child, found.source)) for child in children[1:]]
            owner = found.draft(node, Word(children[0].type, children[0].type), *rest)
            owner.sound = False
        case "test_command":
            opening, closing = children[0], children[-1]
            inside = found.source[opening.end_byte : closing.end_byte].decode().strip()
            owner = found.draft(node, Word(opening.type, opening.type), Word(None, inside))
            owner.sound = len(children) == 3 and (children[1].type in _WORDS or children[1].type in _STRUCTURE)
        case "function_definition":
            name = node.child_by_field_name("name")
            found.defined.add("" if name is None else read_word(name, found.source).value or "")
            return [(child, None) for child in children if child != name]
        case "for_statement":
            variable = node.child_by_field_name("variable")
            if variable is None or not may_set(source_of(variable, found.source)):
                found.fault(None, node)
        case "c_style_for_statement":
            found.fault(None, node)
        case "compound_statement" if children[0].type == "((":
            owner = found.draft(node)
        case "command_substitution" | "process_substitution":
            # Inside backticks a backslash hides what runs from the grammar.
            if children[0].type == "`" and "\\" in source_of(node, found.source):
                found.fault(owner, node)
            return [(child, None) for child in children]
        case "arithmetic_expansion":
            if not _ARITHMETIC.fullmatch(source_of(node, found.source)):
                found.fault(owner, node)
        case "expansion":
            if not all(child.is_named or child.type in _SAFE_EXPANSIONS for child in children):
                found.fault(owner, node)
        case kind:
            if kind not in _STRUCTURE:
                found.fault(owner, node)
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


def _redirect(found: Walk, node: Node, children: list[Node], owner: Draft | None) -> None:
    """Note the file that a redirection opens; a copied descriptor and a process substitution open none."""
    targets = node.children_by_field_name("destination")
    operator = next((child.type for child in children if not child.is_named), "")
    if operator in ("<&-", ">&-") and not targets:
        return
    if len(targets) != 1 or operator not in (*_OPENS, "<&"):
        found.fault(owner, node)
        return
    target = targets[0]
    word = read_word(target, found.source)
    if operator in ("<&", ">&") and target.type == "number":
        return
    if target.type == "process_substitution" and operator != "<&":
        return
    source = word.source
    path = source if re.fullmatch(r"~(?:/[A-Za-z0-9_./,@%+=-]*)?", source) else word.value
    if path is None or operator == "<&" or _DEVICE.match(path) or not path:
        found.fault(owner, node)
        return
    if path != source and path.startswith("~"):
        path = "./" + path
    if not path.startswith(("/", "~")):
        found.relative.append((owner, node))
    found.redirects.append((_OPENS[operator], path))


def _heredoc_is_sound(source: bytes, children: list[Node]) -> bool:
    """Say whether a here-document starts and ends where bash would have it, and holds no expansion that the tree does not show."""
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
    bare: list[bytes] = []
    at = first
    for child in body.children:
        if child.type != "heredoc_content":
            bare.append(source[at : child.start_byte])
            at = max(at, child.end_byte)
    bare.append(source[at:line_start])
    return not any(_LIVE.search(re.sub(r"\\.", "", text.decode())) for text in bare)
