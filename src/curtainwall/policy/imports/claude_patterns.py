"""What a pattern of a Claude Code permission reaches, as a Cedar condition: once never too much, once never too little."""

import re
from dataclasses import dataclass

from curtainwall.policy.canonical import is_host
from curtainwall.policy.cedartext import WILDCARD, any_of, literal, pattern

_DOUBLE = "**"
_MOST_DOUBLES = 3
_NOTHING = "false"
_ALL = "true"


@dataclass(frozen=True, slots=True)
class Reach:
    """A pattern twice: `narrow` holds for nothing beyond it and is for allowing, `wide` for all of it and is for refusing."""

    narrow: str
    wide: str
    why: str = ""

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing that could safely be allowed."""
        return self.narrow == _NOTHING


EVERYTHING = Reach(_ALL, _ALL)


def unreadable(why: str) -> Reach:
    """Return the reach of what cannot be understood: it allows nothing and refuses everything."""
    return Reach(_NOTHING, _ALL, why)


def command_reach(text: str) -> Reach:
    """Return what `Bash(text)` reaches: `git *` and `git:*` are `git` with or without arguments, other stars are any text."""
    told = text.strip()
    if told == "*":
        return EVERYTHING
    if "\\" in told:
        parts = [part for piece in re.split(r"\\.?|\*", told) for part in (piece, WILDCARD)][:-1]
        return Reach(_NOTHING, f"resource.text like {pattern(parts)}", "a backslash has no exact counterpart")
    found = re.fullmatch(r"(.*?)(?::\*| \*)", told, re.DOTALL)
    if found is None:
        parts = _starred(told)
        same = f"resource.text == {literal(told)}" if len(parts) == 1 else f"resource.text like {pattern(parts)}"
        return Reach(same, same)
    start = _starred(found[1])
    exactly = f"resource.text == {literal(found[1])}" if len(start) == 1 else f"resource.text like {pattern(start)}"
    narrow = any_of([exactly, f"resource.text like {pattern([*start, ' ', WILDCARD])}"])
    wide = [
        narrow,
        f"resource.text like {pattern([*start, chr(9), WILDCARD])}",
        f"resource.text like {pattern([*start, chr(10), WILDCARD])}",
    ]
    if re.fullmatch(r"[A-Za-z0-9_.+/-]+", found[1]):
        wide.append(f"resource in Program::{literal(found[1])}")
    return Reach(narrow, any_of(wide))


def host_reach(text: str) -> Reach:
    """Return what `WebFetch(text)` reaches: `domain:example.com`, `domain:*.example.com`."""
    if text == "*":
        return EVERYTHING
    name = text.removeprefix("domain:").strip().lower().removesuffix(".")
    if not text.startswith("domain:"):
        return unreadable("only `domain:` can be expressed")
    if name == "*":
        return Reach('resource.scope == "public"', _ALL)
    bare = name.removeprefix("*.")
    if not is_host(bare):
        return unreadable("this is no host in its plain form")
    host = f"Host::{literal(bare)}"
    below = f"resource in {host}"
    return Reach(f"resource == {host}" if bare == name else f"{below} && resource != {host}", below)


def path_reach(text: str, workspace: str, home: str) -> Reach:
    """Return what `Read(text)` or `Edit(text)` reaches, by gitignore's rules; `//x` is absolute, `/x` and `x` start in the workspace."""
    root = workspace.rstrip("/")
    if text in ("*", _DOUBLE):
        return Reach(f"resource in Path::{literal(workspace)}", _ALL, "as an allow it covers the workspace alone, as a deny everything")
    if text.startswith("!"):
        return Reach(_NOTHING, _NOTHING, "an exception from another entry is left out")
    if text.startswith("//"):
        return _below("", text[2:], anchored=True)
    if text == "~" or text.startswith("~/"):
        if home:
            return _below(home.rstrip("/"), text[2:], anchored=True)
        return Reach(_NOTHING, _below("", text[2:], anchored=False).wide, "the home directory is not known; a deny covers every directory")
    if text.startswith("/"):
        here, there = _below(root, text[1:], anchored=True), _below("", text[1:], anchored=True)
        wide = any_of([here.wide, there.wide])
        return Reach(here.narrow, wide, here.why or "a path from `/` starts in the workspace; a deny also covers the absolute path")
    plain = text.removeprefix("./")
    return _below(root, plain, anchored="/" in plain.rstrip("/") or plain != text)


def _starred(text: str) -> list[str | None]:
    """Return a text as a pattern in which each star is a wildcard."""
    pieces = re.split(r"\*+", text)
    parts: list[str | None] = [pieces[0]]
    for piece in pieces[1:]:
        parts += [WILDCARD, piece]
    return parts


def _below(root: str, text: str, *, anchored: bool) -> Reach:
    """Return the reach of a gitignore pattern below a root; the root `""` is `/`."""
    plain = re.sub(r"\[[^\]]*\]?|\?|\\.?", "*", text)
    segments = [segment for segment in plain.split("/") if segment not in ("", ".")]
    if ".." in segments:
        return unreadable("`..` in a pattern has no certain meaning")
    if not anchored:
        segments.insert(0, _DOUBLE)
    segments = [segment for at, segment in enumerate(segments) if segment != _DOUBLE or at == 0 or segments[at - 1] != _DOUBLE]
    wide = _wide(root, segments)
    if plain != text:
        return Reach(_NOTHING, wide, "`?`, `[…]` and backslashes have no exact counterpart")
    narrow = _narrow(root, segments)
    return Reach(narrow, wide, "" if narrow != _NOTHING else "this mixture of `*` and `**` has no exact counterpart")


def _narrow(root: str, segments: list[str]) -> str:
    """Return a condition that holds for nothing beyond the pattern. Cedar's star crosses slashes, so it must stand where that is right."""
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
    found = [f"(resource in {entity} && resource != {entity})" if inside else f"resource in {entity}"]
    if floats:
        found.append(f"resource.text like {pattern([f'{root}/', WILDCARD, f'/{inner}/', WILDCARD])}")
        if not inside:
            found.append(f"resource.text like {pattern([f'{root}/', WILDCARD, f'/{inner}'])}")
    return any_of(found)


def _wide(root: str, segments: list[str]) -> str:
    """Return a condition that holds for all of the pattern: each `**/` may be empty, and what is matched may be a directory."""
    if segments.count(_DOUBLE) > _MOST_DOUBLES:
        return _ALL
    forms: list[list[str]] = [[]]
    for segment in segments:
        kept = [[*form, segment] for form in forms]
        forms = [*forms, *kept] if segment == _DOUBLE else kept
    found: list[str] = []
    for form in forms:
        parts = _starred_below(root, "/".join(form)) if form else [root]
        found += [f"resource.text like {pattern(parts)}", f"resource.text like {pattern([*parts, '/', WILDCARD])}"]
    return any_of(list(dict.fromkeys(found)))


def _starred_below(root: str, rest: str) -> list[str | None]:
    # The root's own letters mean themselves, stars included.
    parts = _starred(f"/{rest}")
    return [root + str(parts[0]), *parts[1:]]
