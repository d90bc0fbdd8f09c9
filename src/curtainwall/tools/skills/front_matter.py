"""The head of a SKILL.md: a few lines of YAML that a stranger may have written.

INVARIANT: the length is bounded before anything is parsed, tokens and depth while it is. No value is constructed, so every field is
the text that was written; anchors, aliases and tags are refused.
"""

from functools import lru_cache
from typing import Any, Final, cast

import yaml

from curtainwall.tools.skills.folders import MAIN, Unusable

_LONGEST: Final = 4 * 1024
_MOST_TOKENS: Final = 500
_DEEPEST: Final = 8
_LONGEST_PROBLEM: Final = 100
_FIELDS: Final = frozenset({"name", "description"})


class _Composer(yaml.SafeLoader):
    """PyYAML's parser in Python, and not the faster one in C: the bytes are a stranger's, and this is our own process."""

    def fetch_more_tokens(self) -> None:
        """Read on, within bounds: the time for a token grows with how deep it is."""
        if self.flow_level + len(self.indents) > _DEEPEST:
            raise _fault(self, f"nested deeper than {_DEEPEST} levels")
        if self.tokens_taken + len(self.tokens) > _MOST_TOKENS:
            raise _fault(self, "too many fields")
        super().fetch_more_tokens()  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node, if it contains no alias, anchor or tag."""
        event = cast("Any", self.peek_event())  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _fault(event, "anchors and aliases are not allowed")
        if event.tag is not None:
            raise _fault(event, "tags are not allowed")
        return super().compose_node(parent, index)


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return `name` and `description`, each on one line, and the body; raise `Unusable` with the line. Other fields are not read."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise Unusable(f"its {MAIN} does not begin with a line `---`")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise Unusable(f"the head of its {MAIN} has no end, a second line `---`")
    head = "\n".join(lines[1:end])
    if len(head) > _LONGEST:
        raise Unusable(f"the head of its {MAIN} is longer than {_LONGEST} characters")
    fields = _fields(head)
    if isinstance(fields, str):
        raise Unusable(fields)
    return fields, "\n".join(lines[end + 1 :]).lstrip("\n")


# All skills are looked at before each turn, and most heads are the same as the last time.
@lru_cache(maxsize=256)
def _fields(head: str) -> dict[str, str] | str:
    """Return the fields, or why there are none."""
    try:
        root = _Composer(head).get_single_node()
        return {} if root is None else _known(root)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line, problem = mark.line if mark else 0, fault.problem or ""
    except yaml.reader.ReaderError as fault:
        line, problem = head.count("\n", 0, fault.position), "a character that YAML does not allow"
    except (ValueError, OverflowError):
        # PyYAML hands escapes such as `\UFFFFFFFF` to Python as they are.
        line, problem = 0, "a number or an escape that is out of range"
    hint = "; put the text in quotes" if problem.startswith("mapping values") else ""
    # The head begins in the second line of the file.
    return f"{MAIN}, line {line + 2}: {problem[:_LONGEST_PROBLEM]}{hint}"


def _known(root: yaml.Node) -> dict[str, str]:
    if not isinstance(root, yaml.MappingNode):
        raise _fault(root, "expected `key: value`")
    fields: dict[str, str] = {}
    keys: set[str] = set()
    for key, value in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _fault(key, "a key must be a word")
        if key.value in keys:
            raise _fault(key, f"`{key.value}` is there twice")
        keys.add(key.value)
        if key.value in _FIELDS:
            if not isinstance(value, yaml.ScalarNode):
                raise _fault(value, f"`{key.value}` must be a text")
            fields[key.value] = " ".join(value.value.split())
            # An escape can be half of a surrogate pair, which no file or terminal takes.
            fields[key.value].encode()
    return fields


def _fault(at: yaml.Node | yaml.Event | _Composer, problem: str) -> yaml.MarkedYAMLError:
    mark = cast("Any", at).get_mark() if isinstance(at, _Composer) else at.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
