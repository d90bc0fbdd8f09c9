"""Words of a shell command, and the value that bash would give each, if the text alone tells."""

import re
import shlex

from tree_sitter import Node

from curtainwall.model import record

_PLAIN = re.compile(r"[A-Za-z0-9_./,:@%+=^-]+")
_NEVER_QUOTED = frozenset({"[", "[[", "{}"})
_GLOB = "*?["
_META = frozenset("$`;&|<>()'\" \t\n")
_IN_STRING = re.compile(r'\\([$`"\\\n])')
_BARE_DOLLAR = re.compile(r"\$[A-Za-z0-9_({\[?#@*!$'\"-]")
_NAME = re.compile(r"[A-Za-z0-9_?#@*!$-]+")
_STARTS_AS_NAME = re.compile(r"[A-Za-z0-9/.]")

# Leaves that may hold any text, because bash does not read it as code. (The walker checks comments and here-documents.)
_INERT = frozenset({"comment", "heredoc_start", "heredoc_content", "heredoc_body", "heredoc_end"})
_NAMES = frozenset({"number", "variable_name", "special_variable_name", "file_descriptor", "test_operator"})


@record
class Word:
    """One word of a command.

    `value` is None if the text does not determine it. `loose` is true if such a word might become several words, or an option.
    """

    value: str | None
    source: str
    loose: bool = False

    @property
    def text(self) -> str:
        """The word in canonical form: quoted if it must be, or as written if its value is unknown."""
        return self.source if self.value is None or self.value in _NEVER_QUOTED else shlex.quote(self.value)


def read_word(node: Node, text: bytes) -> Word:
    """Return the word of a node."""
    source = source_of(node, text)
    value = _literal(node, text)
    if value is not None:
        return Word(value, source)
    if node.type == "string":
        is_firm = bool(_STARTS_AS_NAME.match(source, 1))
    else:
        # A pattern is never split, and what it matches starts with the same characters.
        is_firm = node.type == "word" and bool(_STARTS_AS_NAME.match(source)) and "{" not in source
    return Word(None, source, loose=not is_firm)


def source_of(node: Node, text: bytes) -> str:
    """Return a node's part of the original text; the parser saw a changed one (see `commands`)."""
    return text[node.start_byte : node.end_byte].decode()


def is_sound_leaf(kind: str, text: str) -> bool:
    """Tell whether a leaf of the syntax tree holds only what such a leaf may hold; if not, bash would read the text differently."""
    match kind:
        case "word":
            return bool(_PLAIN.fullmatch(text)) or _unescaped(text) is not None
        case "string_content":
            rest = re.sub(r"\\.", "", text, flags=re.DOTALL)
            return '"' not in rest and "`" not in rest and not _BARE_DOLLAR.search(rest)
        case "raw_string":
            return len(text) >= 2 and text[0] == text[-1] == "'" and "'" not in text[1:-1]
        case "ansi_c_string":
            return bool(re.fullmatch(r"\$'(?:[^'\\]|\\.)*'", text, flags=re.DOTALL))
        case "regex" | "extglob_pattern":
            return not any(letter in text for letter in "$`()'\"\\\n;&|<>")
        case _ if kind in _NAMES:
            return bool(_NAME.fullmatch(text))
        case _:
            return kind in _INERT or kind == text


def _literal(node: Node, source: bytes) -> str | None:
    match node.type:
        case "word" | "number":
            text = source_of(node, source)
            if _PLAIN.fullmatch(text):
                return text
            plain = _unescaped(text)
            return None if plain is None or plain[1] else plain[0]
        case "raw_string":
            return source_of(node, source)[1:-1]
        case "string":
            if any(child.type not in ('"', "string_content") for child in node.children):
                return None
            return _IN_STRING.sub(lambda match: match[1].strip("\n"), source_of(node, source)[1:-1])
        case "concatenation":
            if source_of(node, source) == "{}":
                return "{}"
            parts = [_literal(child, source) for child in node.children]
            text = "".join(part for part in parts if part is not None)
            return text if None not in parts else None
        case _:
            return None


def _unescaped(text: str) -> tuple[str, bool] | None:
    """Return an unquoted word without backslashes, and whether bash would expand it; None if it cannot be one word."""
    out: list[str] = []
    expands = False
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            if position + 1 == len(text):
                return None
            out.append(text[position + 1].strip("\n"))
            position += 2
            continue
        if letter in _META or (letter == "#" and position == 0):
            return None
        expands = expands or letter in _GLOB or letter in "~{}!"
        out.append(letter)
        position += 1
    return "".join(out), expands and text != "{}"
