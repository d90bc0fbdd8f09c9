"""The forms of words that ask for a change: files written, changed, moved, deleted."""

import re
from typing import Final

from curtainwall.agents.builtin.models.demo import steps
from curtainwall.agents.builtin.models.demo.forms import FormRule, Found, one, rule
from curtainwall.agents.builtin.models.demo.names import NamedThing, NameReader

_WITH: Final = (
    "(with|containing|saying|having|holding|reading|that says|that contains|that reads|which says|which contains|which reads) "
    "[[the|a|just the|only the] (content|contents|text|line|word|words|string)]"
)
_TEXT: Final = "[[the|a|this|another] [new] (text|line|word|words|string|content|contents|sentence|note) [saying|that says|reading]]"
_FILE: Final = "[a|an|the] [new|empty|text|small|short|new text|new empty] [file|document] [called|named|at]"
_DIRECTORY: Final = "(directory|folder|dir|subdirectory|subfolder|directories|folders)"


def _write(reader: NameReader, found: re.Match[str]) -> Found:
    path, text = reader.path(found["path"]), reader.text(found["text"])
    return one(steps.write(path, text) if path and text is not None else None)


def _empty(reader: NameReader, found: re.Match[str]) -> Found:
    named = reader.named(found["path"])
    return one(steps.create(named.path) if named and named.likely and not named.directory and "*" not in named.path else None)


def _append(reader: NameReader, found: re.Match[str]) -> Found:
    path, text = reader.path(found["path"]), reader.text(found["text"])
    return one(steps.append(path, text) if path and text is not None else None)


def _add(reader: NameReader, found: re.Match[str]) -> Found:
    """Append, where plain words are added to what may be no file at all."""
    path, text = reader.likely_path(found["path"]), reader.text(found["text"])
    return one(steps.append(path, text) if path and text is not None else None)


def _replace(reader: NameReader, found: re.Match[str]) -> Found:
    named, old, new = reader.paths(found["path"]), reader.text(found["old"]), reader.text(found["new"])
    return tuple(steps.replace(each.path, old, new) for each in named) if named and old and new is not None else None


def _remove_text(reader: NameReader, found: re.Match[str]) -> Found:
    path, old = reader.path(found["path"]), reader.quoted(found["old"])
    return one(steps.replace(path, old, "") if path and old else None)


def _directories(reader: NameReader, found: re.Match[str]) -> Found:
    named = reader.paths(found["path"])
    return tuple(steps.make_directory(each.path) for each in named) if named else None


def _delete(reader: NameReader, found: re.Match[str]) -> Found:
    named = reader.paths(found["path"])
    return tuple(steps.delete(each.path) for each in named) if named and not any(each.path == "." for each in named) else None


def _into(reader: NameReader, source: str, words: str) -> str | None:
    """Return where a file goes: into what is called a directory it goes under its own name."""
    named: NamedThing | None = reader.named(words)
    if named is None or "*" in named.path:
        return None
    if not named.directory:
        return named.path
    return f"{named.path.rstrip('/')}/{source.rstrip('/').rpartition('/')[2]}"


def _move(reader: NameReader, found: re.Match[str]) -> Found:
    source = reader.path(found["source"])
    destination = _into(reader, source, found["destination"]) if source else None
    return one(steps.move(source, destination) if source and destination else None)


def _rename(reader: NameReader, found: re.Match[str]) -> Found:
    """A new name without a directory stays in the old one's directory."""
    source, new = reader.path(found["source"]), reader.path(found["destination"])
    if not source or not new:
        return None
    parent = source.rpartition("/")[0]
    return (steps.move(source, f"{parent}/{new}" if parent and "/" not in new else new),)


def _copy(reader: NameReader, found: re.Match[str]) -> Found:
    source = reader.path(found["source"])
    destination = _into(reader, source, found["destination"]) if source else None
    return one(steps.copy(source, destination) if source and destination else None)


RULES: Final[tuple[FormRule, ...]] = (
    rule(f"(create|make|add) [me] [a|an|the] [new|empty|new empty] {_DIRECTORY} [called|named] {{path}}", _directories),
    rule("mkdir [-p] {path}", _directories),
    rule(f"(create|make) [a|an|the] [new|empty] {{path:word}} {_DIRECTORY}", _directories),
    rule(f"(append|add|write) {_TEXT} {{text}} (to|at|in) the (end|bottom) of {{path}}", _append),
    rule(f"append {_TEXT} {{text*}} (to|into|onto) {{path}}", _append),
    rule(f"append (to|into) {{path:word}}[:] {_TEXT} {{text}}", _append),
    rule(f"add {_TEXT} {{text*}} (to|into) {{path}}", _add),
    rule(
        "(replace|change|substitute|swap) [all|every|each|the] [occurrences of|word|words|text|string] {old} "
        "(with|by|to|into|for) {new*} (in|inside|within|throughout) {path}",
        _replace,
    ),
    rule("in {path:word}[,] (replace|change|substitute) [all|every] [occurrences of] {old} (with|by|to|into) {new*}", _replace),
    rule("(remove|delete|erase) [the] [text|word|words|line|string] {old:word} (from|in) {path}", _remove_text),
    rule("(delete|remove|erase|unlink|rm|rm -f|get rid of|trash) [the file|the files|file|files] {path}", _delete),
    rule("rename [the file|the directory|the folder] {source} (to|as|into) {destination}", _rename),
    rule("(move|mv) [the file] {source} (to|into|in|under|inside) {destination}", _move),
    rule("mv {source:word} {destination:word}", _move),
    rule("(copy|cp|duplicate) [the file] {source} (to|into|as|in|under|inside) {destination}", _copy),
    rule("cp {source:word} {destination:word}", _copy),
    rule(
        f"(create|make|write|add|generate|start|put) [me] {_FILE} {{path:word}}[,] [file] {_WITH}[:] {{text}} [in it|inside|in there]",
        _write,
    ),
    rule(f"(overwrite|fill) {{path}} with {_TEXT} {{text}}", _write),
    rule(f"(write|save|put|store|type|enter) (to|into|in) {{path:word}}[:] {_TEXT} {{text}}", _write),
    rule(f"(write|save|put|store|type|place|echo) {_TEXT} {{text*}} (to|into|in|as|onto|inside|under) {{path}}", _write),
    rule("(write|save) {path:word}: {text}", _write),
    rule("touch {path}", _empty),
    rule("(create|make|add) [me] [a|an|the] [new|empty|blank|text|new empty] file [called|named] {path:word}", _empty),
    rule("create {path:word}", _empty),
)
