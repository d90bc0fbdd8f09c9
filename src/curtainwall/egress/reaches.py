"""What in a request would have the provider reach beyond the conversation: its own web, code and tool servers, URLs, stored things.

Tools are known by what is allowed, not by what is forbidden: one that is not known to run at the client counts as the provider's. Keys are
read without regard to case, underscores and forms of a letter, because some providers do so; no key that is read stands in two spellings.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.egress.refusal import Dialect, Refused
from curtainwall.egress.terms import Judge, Reach, ReachKind

Json = dict[str, JsonValue]

# Asked of every value of a body; `dict | list` would be made anew each time.
_NESTED: Final = (dict, list)

_CLIENT_TOOLS: Final = {
    # The last words are dates; the client runs these, or (searching among tools) nothing outside is touched.
    Dialect.ANTHROPIC: re.compile(r"custom|(?:bash|text_editor|computer|memory|tool_search_tool(?:_regex|_bm25)?)_[0-9]{8}"),
    Dialect.RESPONSES: re.compile(r"function|custom|local_shell|apply_patch|tool_search"),
    Dialect.CHAT: re.compile(r"function|custom"),
}
# Where a model's name alone can have it search.
_SEARCHING: Final = frozenset((Dialect.CHAT, Dialect.RESPONSES))
_SEARCHING_MODEL = re.compile(r"search|deep-research|:online", re.IGNORECASE)
_WORDS: Final = (
    (re.compile(r"search|fetch|web|url|browser|maps"), ReachKind.WEB),
    (re.compile(r"code|shell|interpreter|container|computer"), ReachKind.CODE),
    (re.compile(r"mcp"), ReachKind.SERVERS),
    (re.compile(r"file"), ReachKind.STORED),
)
# What those who talk like OpenAI call it.
_SEARCHES: Final[dict[str, tuple[ReachKind, bool]]] = dict.fromkeys(
    ("websearchoptions", "searchparameters", "enablesearch", "plugins"), (ReachKind.WEB, True)
)
# Keys of the body itself, and whether the request still means something without them.
_AT_THE_TOP: Final = {
    Dialect.ANTHROPIC: {"mcpservers": (ReachKind.SERVERS, True), "container": (ReachKind.CODE, True)},
    Dialect.RESPONSES: {
        "prompt": (ReachKind.STORED, False),
        "previousresponseid": (ReachKind.STORED, False),
        "conversation": (ReachKind.STORED, False),
        "background": (ReachKind.BACKGROUND, True),
        **_SEARCHES,
    },
    Dialect.CHAT: _SEARCHES,
    Dialect.GEMINI: {"cachedcontent": (ReachKind.STORED, False)},
}
_URLS: Final = frozenset(("imageurl", "fileurl", "fileuri", "videourl", "audiourl"))
_URL_PARENTS: Final = frozenset(("source", "image", "imageurl", "videourl", "audiourl", "document", "file"))
_IDS: Final = frozenset(("fileid", "containerid"))
_REFERENCE: Final = "itemreference"
_LATER_TOOLS: Final = frozenset(("toolsearchoutput", "additionaltools"))
_LONGEST_KEPT: Final = 64
_TOOL_CALLS: Final = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
# What a tool was called with, and what it returned, is the conversation itself, whatever its keys are called.
_SPOKEN: Final = {"toolcall": "input", "functioncall": "args", "functionresponse": "response"}
# Schemas: what they name is not there.
_SCHEMAS: Final = frozenset(("text", "responseformat", "outputformat", "outputconfig", "generationconfig", "metadata"))


@dataclass(frozen=True, slots=True)
class _Found:
    reach: Reach
    remove: Callable[[], None]


async def settle(body: Json, dialect: Dialect, provider: str, judge: Judge) -> tuple[Reach, ...]:
    """Have each reach of a body judged and return those that were removed from it; raise `Refused`."""
    removed: list[Reach] = []
    for found in _all(body, dialect, provider):
        reach = found.reach
        handling = await judge(reach)
        if handling == "allow":
            continue
        if handling == "refuse" or not reach.removable:
            raise Refused(403, f"`{reach.what}` at `{reach.place}` has the provider reach beyond the conversation, which is not allowed")
        found.remove()
        removed.append(reach)
    if removed:
        _tidy(body)
    return tuple(removed)


def _all(body: Json, dialect: Dialect, provider: str) -> list[_Found]:
    at_the_top, found = _AT_THE_TOP[dialect], list[_Found]()
    for (key, value), plain in zip(body.items(), _unlike(body, "the body"), strict=True):
        if (known := at_the_top.get(plain)) and value:
            kind, removable = known
            found.append(_Found(Reach(provider, kind, key, key, removable), lambda key=key: cast("None", body.pop(key, None))))
        elif plain == "tools" and value is not None:
            # Some would take one tool that stands alone.
            if not isinstance(value, list):
                raise Refused(400, f"`{key}` is no list")
            found += _tools(value, key, dialect, provider)
        elif plain in {"model", "models"} and dialect in _SEARCHING:
            found += _models(value, key, provider)
        elif plain not in _SCHEMAS and isinstance(value, _NESTED):
            if plain == "input" and dialect is Dialect.RESPONSES:
                found += _items(value, key, dialect, provider)
            _add_sources(found, value, key, plain, provider)
    return found


def _models(value: JsonValue, place: str, provider: str) -> Iterator[_Found]:
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str) and _SEARCHING_MODEL.search(name):
            yield _Found(Reach(provider, ReachKind.WEB, name[:80], place, removable=False), _nothing)


def _items(value: JsonValue, place: str, dialect: Dialect, provider: str) -> Iterator[_Found]:
    """Find what stands for an earlier item that the provider kept (it says so, or says nothing but which), and tools that come later."""
    for at, item in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(item, dict):
            continue
        here = f"{place}[{at}]"
        kind = _of(item, "type")
        plain = _plain(kind) if isinstance(kind, str) else ""
        if plain == _REFERENCE or (not plain and _of(item, "role") is None and _of(item, "id")):
            yield _Found(Reach(provider, ReachKind.STORED, "item_reference", here, removable=False), _nothing)
        elif plain in _LATER_TOOLS and isinstance(tools := _of(item, "tools"), list):
            yield from _tools(tools, f"{here}.tools", dialect, provider)


def _tools(tools: list[JsonValue], place: str, dialect: Dialect, provider: str) -> Iterator[_Found]:
    for at, tool in enumerate(tools):
        here = f"{place}[{at}]"
        if not isinstance(tool, dict):
            raise Refused(400, f"`{here}` is no tool")
        _unlike(tool, f"`{here}`")
        if dialect is Dialect.GEMINI:
            for key in list(tool):
                if _plain(key) != "functiondeclarations":
                    removal = _removal(tools, tool, key)
                    yield _Found(Reach(provider, _kind_of(key), key[:80], f"{here}.{key[:80]}", removable=True), removal)
            continue
        kind = _of(tool, "type")
        inner = _of(tool, "tools")
        if kind == "namespace" and isinstance(inner, list):
            yield from _tools(inner, f"{here}.tools", dialect, provider)
        elif not _runs_at_the_client(tool, kind, dialect):
            said = kind[:80] if isinstance(kind, str) else "a tool without a type"
            yield _Found(Reach(provider, _kind_of(said), said, here, removable=True), _removal(tools, tool))


def _runs_at_the_client(tool: Json, kind: JsonValue, dialect: Dialect) -> bool:
    if kind is None:
        return dialect is Dialect.ANTHROPIC
    if not isinstance(kind, str):
        return False
    if kind == "shell" and dialect is Dialect.RESPONSES:
        environment = _of(tool, "environment")
        return environment is None or (isinstance(environment, dict) and _of(environment, "type") == "local")
    return _CLIENT_TOOLS[dialect].fullmatch(kind) is not None


def _add_sources(found: list[_Found], value: Json | list[JsonValue], place: str, parent: str, provider: str) -> None:
    """Find what is to be fetched or taken from store in messages; how deep this goes is bounded where bodies are parsed."""
    if isinstance(value, list):
        for at, inner in enumerate(value):
            if isinstance(inner, _NESTED):
                _add_sources(found, inner, f"{place}[{at}]", parent, provider)
        return
    plains = [_plain(key) for key in value]
    kind = _one(value, plains, "type")
    spoken = _SPOKEN.get("toolcall" if isinstance(kind, str) and kind in _TOOL_CALLS else parent)
    for (key, inner), plain in zip(value.items(), plains, strict=True):
        if plain == spoken:
            continue
        if isinstance(inner, str):
            fetched = plain in _URLS or (plain in {"url", "uri"} and parent in _URL_PARENTS)
            if fetched and inner[:5].lower() != "data:":
                found.append(_Found(Reach(provider, ReachKind.URL, inner[:200], _within(place, key), removable=False), _nothing))
            elif plain in _IDS and inner:
                found.append(_Found(Reach(provider, ReachKind.STORED, key[:80], _within(place, key), removable=False), _nothing))
        elif isinstance(inner, _NESTED):
            _add_sources(found, inner, _within(place, key), plain, provider)


def _within(place: str, key: str) -> str:
    return f"{place}.{key[:80]}"


def _removal(tools: list[JsonValue], tool: Json, key: str | None = None) -> Callable[[], None]:
    def remove() -> None:
        if key is not None:
            del tool[key]
            if tool:
                return
        tools[:] = [other for other in tools if other is not tool]

    return remove


def _nothing() -> None:
    """Remove nothing: it cannot be."""


def _tidy(body: Json) -> None:
    """Take away what only made sense with the tools that are gone."""
    for key in [key for key in body if _plain(key) == "tools" and not body[key]]:
        del body[key]
    if not any(_plain(key) == "tools" for key in body):
        for key in [key for key in body if _plain(key) in {"toolchoice", "toolconfig"}]:
            del body[key]


def _kind_of(words: str) -> ReachKind:
    plain = words.lower()
    return next((kind for pattern, kind in _WORDS if pattern.search(plain)), ReachKind.OTHER)


def _unlike(value: Json, what: str) -> list[str]:
    """Return the plain keys of an object in which each stands once; raise `Refused`."""
    plains = [_plain(key) for key in value]
    if len(set(plains)) != len(plains):
        raise Refused(400, f"a key stands in {what} in two spellings")
    return plains


def _of(value: Json, plain: str) -> JsonValue:
    return _one(value, [_plain(key) for key in value], plain)


def _one(value: Json, plains: list[str], plain: str) -> JsonValue:
    """Return what stands under a key in whatever spelling; raise `Refused` where that is two things."""
    count = plains.count(plain)
    if count > 1:
        raise Refused(400, f"the key `{plain}` stands in one object in two spellings")
    return list(value.values())[plains.index(plain)] if count else None


def _plain(key: str) -> str:
    # Long ones are nobody's, and would be kept.
    return _plain_short(key) if len(key) <= _LONGEST_KEPT else _in_plain_letters(key)


def _in_plain_letters(key: str) -> str:
    if not key.isascii():
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", key).casefold())
    return key.replace("_", "").replace("-", "").lower()


_plain_short = lru_cache(4096)(_in_plain_letters)
