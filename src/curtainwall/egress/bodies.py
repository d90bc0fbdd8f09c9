"""Request bodies: parsed strictly, and searched for anything that makes the provider act beyond the conversation.

Tools are matched against an allowlist: one that is not known to run at the client counts as the provider's. Case, underscores and Unicode
forms in keys are ignored, because some providers ignore them; no key may appear in two spellings.
"""

import asyncio
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.egress.ports import EgressBounds, Judge, ProviderAction, ProviderActionKind
from curtainwall.egress.refusals import Dialect, Refused
from curtainwall.model import record

_FEW_PARTS: Final = 5_000
# Asked of every value of a body; `dict | list` would be made anew each time.
_NESTED: Final = (dict, list)
# Bigger bodies are parsed in a thread, so that they do not block other sessions.
_SMALL: Final = 256 * 1024
# An unterminated string matches all the rest; otherwise each of its quotes would be tried again.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class _DuplicateKey(ValueError):
    """A key appears twice in one object."""


async def parse_body(body: bytes, bounds: EgressBounds) -> dict[str, JsonValue]:
    """Parse a body as one JSON object; raise `Refused`."""
    if len(body) <= _SMALL:
        return _parse(body, bounds)
    return await asyncio.to_thread(_parse, body, bounds)


def _parse(body: bytes, bounds: EgressBounds) -> dict[str, JsonValue]:
    if (parts := _parts_of(body)) > bounds.parts:
        raise Refused(413, f"the body has {parts} values, more than {bounds.parts}")
    try:
        # Given bytes, the decoder might guess UTF-16 or UTF-32.
        document: JsonValue = _DECODER.decode(body.decode())
    except _DuplicateKey:
        raise Refused(400, "a key stands twice in one object of the body") from None
    except RecursionError:
        raise Refused(400, f"the body is nested deeper than {bounds.depth}") from None
    except ValueError:
        raise Refused(400, "the body is not JSON as it should be") from None
    if not isinstance(document, dict):
        raise Refused(400, "the body is not a JSON object")
    # Most bodies have fewer brackets than levels are allowed.
    if body.count(b"[") + body.count(b"{") > bounds.depth:
        _require_flat(document, bounds.depth)
    return document


def render_body(document: dict[str, JsonValue]) -> bytes:
    """Serialize the object as a body."""
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise Refused(400, "the body holds a number that JSON cannot say") from None


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise _DuplicateKey
    return unique


def _no_constant(word: str) -> JsonValue:
    raise ValueError(word)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _parts_of(body: bytes) -> int:
    rough = body.count(b",") + body.count(b"[") + body.count(b"{")
    if rough <= _FEW_PARTS:
        return rough
    bare = _STRING.sub(b"", body)
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def _require_flat(document: dict[str, JsonValue], depth: int) -> None:
    level: list[JsonValue] = [document]
    for _ in range(depth):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else cast("list[JsonValue]", value))
            if isinstance(inner, _NESTED)
        ]
        if not level:
            return
    raise Refused(400, f"the body is nested deeper than {depth}")


Json = dict[str, JsonValue]

# Asked of every value of a body; `dict | list` would be made anew each time.

_CLIENT_TOOLS: Final = {
    # The digits are dates. The client runs these tools, or (tool search) they touch nothing outside.
    Dialect.ANTHROPIC: re.compile(r"custom|(?:bash|text_editor|computer|memory|tool_search_tool(?:_regex|_bm25)?)_[0-9]{8}"),
    Dialect.RESPONSES: re.compile(r"function|custom|local_shell|apply_patch|tool_search"),
    Dialect.CHAT: re.compile(r"function|custom"),
}
# Dialects in which a model's name alone can make it search.
_SEARCHING: Final = frozenset((Dialect.CHAT, Dialect.RESPONSES))
_SEARCHING_MODEL = re.compile(r"search|deep-research|:online", re.IGNORECASE)
_WORDS: Final = (
    (re.compile(r"search|fetch|web|url|browser|maps"), ProviderActionKind.WEB),
    (re.compile(r"code|shell|interpreter|container|computer"), ProviderActionKind.CODE),
    (re.compile(r"mcp"), ProviderActionKind.SERVERS),
    (re.compile(r"file"), ProviderActionKind.STORED),
)
# Names that OpenAI-compatible providers use.
_SEARCHES: Final[dict[str, tuple[ProviderActionKind, bool]]] = dict.fromkeys(
    ("websearchoptions", "searchparameters", "enablesearch", "plugins"), (ProviderActionKind.WEB, True)
)
# Top-level keys of the body, and whether the request still makes sense without them.
_AT_THE_TOP: Final = {
    Dialect.ANTHROPIC: {"mcpservers": (ProviderActionKind.SERVERS, True), "container": (ProviderActionKind.CODE, True)},
    Dialect.RESPONSES: {
        "prompt": (ProviderActionKind.STORED, False),
        "previousresponseid": (ProviderActionKind.STORED, False),
        "conversation": (ProviderActionKind.STORED, False),
        "background": (ProviderActionKind.BACKGROUND, True),
        **_SEARCHES,
    },
    Dialect.CHAT: _SEARCHES,
    Dialect.GEMINI: {"cachedcontent": (ProviderActionKind.STORED, False)},
}
_URLS: Final = frozenset(("imageurl", "fileurl", "fileuri", "videourl", "audiourl"))
_URL_PARENTS: Final = frozenset(("source", "image", "imageurl", "videourl", "audiourl", "document", "file"))
_IDS: Final = frozenset(("fileid", "containerid"))
_REFERENCE: Final = "itemreference"
_LATER_TOOLS: Final = frozenset(("toolsearchoutput", "additionaltools"))
_LONGEST_KEPT: Final = 64
_TOOL_CALLS: Final = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
# The input and output of a tool call are part of the conversation, whatever their keys are called.
_CALL_CONTENT: Final = {"toolcall": "input", "functioncall": "args", "functionresponse": "response"}
# Schemas only describe content.
_SCHEMAS: Final = frozenset(("text", "responseformat", "outputformat", "outputconfig", "generationconfig", "metadata"))


@record
class _FoundAction:
    reach: ProviderAction
    remove: Callable[[], None]


async def settle_actions(body: Json, dialect: Dialect, provider: str, judge: Judge) -> tuple[ProviderAction, ...]:
    """Judge each provider action in a body and return those that were removed from it; raise `Refused`."""
    removed: list[ProviderAction] = []
    for match in _find_actions(body, dialect, provider):
        action = match.reach
        handling = await judge(action)
        if handling == "allow":
            continue
        if handling == "refuse" or not action.removable:
            raise Refused(403, f"`{action.what}` at `{action.place}` has the provider reach beyond the conversation, which is not allowed")
        match.remove()
        removed.append(action)
    if removed:
        _remove_leftovers(body)
    return tuple(removed)


def _find_actions(body: Json, dialect: Dialect, provider: str) -> list[_FoundAction]:
    at_the_top, actions = _AT_THE_TOP[dialect], list[_FoundAction]()
    for (key, value), plain in zip(body.items(), _distinct_keys(body, "the body"), strict=True):
        if (known := at_the_top.get(plain)) and value:
            kind, removable = known
            actions.append(
                _FoundAction(ProviderAction(provider, kind, key, key, removable), lambda key=key: cast("None", body.pop(key, None)))
            )
        elif plain == "tools" and value is not None:
            # Some providers would accept a single tool without a list.
            if not isinstance(value, list):
                raise Refused(400, f"`{key}` is no list")
            actions += _tools(value, key, dialect, provider)
        elif plain in {"model", "models"} and dialect in _SEARCHING:
            actions += _models(value, key, provider)
        elif plain not in _SCHEMAS and isinstance(value, _NESTED):
            if plain == "input" and dialect is Dialect.RESPONSES:
                actions += _items(value, key, dialect, provider)
            _add_sources(actions, value, key, plain, provider)
    return actions


def _models(value: JsonValue, place: str, provider: str) -> Iterator[_FoundAction]:
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str) and _SEARCHING_MODEL.search(name):
            yield _FoundAction(ProviderAction(provider, ProviderActionKind.WEB, name[:80], place, removable=False), _remove_nothing)


def _items(value: JsonValue, place: str, dialect: Dialect, provider: str) -> Iterator[_FoundAction]:
    """Find references to items stored at the provider (by type, or with only an id), and tools that are added later."""
    for at, item in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(item, dict):
            continue
        here = f"{place}[{at}]"
        kind = _get(item, "type")
        plain = _plain(kind) if isinstance(kind, str) else ""
        if plain == _REFERENCE or (not plain and _get(item, "role") is None and _get(item, "id")):
            yield _FoundAction(
                ProviderAction(provider, ProviderActionKind.STORED, "item_reference", here, removable=False), _remove_nothing
            )
        elif plain in _LATER_TOOLS and isinstance(tools := _get(item, "tools"), list):
            yield from _tools(tools, f"{here}.tools", dialect, provider)


def _tools(tools: list[JsonValue], place: str, dialect: Dialect, provider: str) -> Iterator[_FoundAction]:
    for at, tool in enumerate(tools):
        here = f"{place}[{at}]"
        if not isinstance(tool, dict):
            raise Refused(400, f"`{here}` is no tool")
        _distinct_keys(tool, f"`{here}`")
        if dialect is Dialect.GEMINI:
            for key in list(tool):
                if _plain(key) != "functiondeclarations":
                    removal = _removal(tools, tool, key)
                    yield _FoundAction(ProviderAction(provider, _kind_of(key), key[:80], f"{here}.{key[:80]}", removable=True), removal)
            continue
        kind = _get(tool, "type")
        inner = _get(tool, "tools")
        if kind == "namespace" and isinstance(inner, list):
            yield from _tools(inner, f"{here}.tools", dialect, provider)
        elif not _runs_at_the_client(tool, kind, dialect):
            label = kind[:80] if isinstance(kind, str) else "a tool without a type"
            yield _FoundAction(ProviderAction(provider, _kind_of(label), label, here, removable=True), _removal(tools, tool))


def _runs_at_the_client(tool: Json, kind: JsonValue, dialect: Dialect) -> bool:
    if kind is None:
        return dialect is Dialect.ANTHROPIC
    if not isinstance(kind, str):
        return False
    if kind == "shell" and dialect is Dialect.RESPONSES:
        environment = _get(tool, "environment")
        return environment is None or (isinstance(environment, dict) and _get(environment, "type") == "local")
    return _CLIENT_TOOLS[dialect].fullmatch(kind) is not None


def _add_sources(actions: list[_FoundAction], value: Json | list[JsonValue], place: str, parent: str, provider: str) -> None:
    """Find URLs to fetch and stored files in messages; the depth was already limited when the body was parsed."""
    if isinstance(value, list):
        for at, inner in enumerate(value):
            if isinstance(inner, _NESTED):
                _add_sources(actions, inner, f"{place}[{at}]", parent, provider)
        return
    plains = [_plain(key) for key in value]
    kind = _get_single(value, plains, "type")
    content_key = _CALL_CONTENT.get("toolcall" if isinstance(kind, str) and kind in _TOOL_CALLS else parent)
    for (key, inner), plain in zip(value.items(), plains, strict=True):
        if plain == content_key:
            continue
        if isinstance(inner, str):
            is_fetched = plain in _URLS or (plain in {"url", "uri"} and parent in _URL_PARENTS)
            if is_fetched and inner[:5].lower() != "data:":
                actions.append(
                    _FoundAction(
                        ProviderAction(provider, ProviderActionKind.URL, inner[:200], _within(place, key), removable=False), _remove_nothing
                    )
                )
            elif plain in _IDS and inner:
                actions.append(
                    _FoundAction(
                        ProviderAction(provider, ProviderActionKind.STORED, key[:80], _within(place, key), removable=False), _remove_nothing
                    )
                )
        elif isinstance(inner, _NESTED):
            _add_sources(actions, inner, _within(place, key), plain, provider)


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


def _remove_nothing() -> None:
    """Do nothing: the action cannot be removed."""


def _remove_leftovers(body: Json) -> None:
    """Remove what only made sense with the removed tools."""
    for key in [key for key in body if _plain(key) == "tools" and not body[key]]:
        del body[key]
    if not any(_plain(key) == "tools" for key in body):
        for key in [key for key in body if _plain(key) in {"toolchoice", "toolconfig"}]:
            del body[key]


def _kind_of(name: str) -> ProviderActionKind:
    plain = name.lower()
    return next((kind for pattern, kind in _WORDS if pattern.search(plain)), ProviderActionKind.OTHER)


def _distinct_keys(value: Json, what: str) -> list[str]:
    """Return the plain keys of an object; raise `Refused` if one appears twice."""
    plains = [_plain(key) for key in value]
    if len(set(plains)) != len(plains):
        raise Refused(400, f"a key stands in {what} in two spellings")
    return plains


def _get(value: Json, plain: str) -> JsonValue:
    return _get_single(value, [_plain(key) for key in value], plain)


def _get_single(value: Json, plains: list[str], plain: str) -> JsonValue:
    """Return the value of a key in any spelling; raise `Refused` if two spellings occur."""
    count = plains.count(plain)
    if count > 1:
        raise Refused(400, f"the key `{plain}` stands in one object in two spellings")
    return list(value.values())[plains.index(plain)] if count else None


def _plain(key: str) -> str:
    # Long keys are not in any API, and would fill the cache.
    return _plain_short(key) if len(key) <= _LONGEST_KEPT else _in_plain_letters(key)


def _in_plain_letters(key: str) -> str:
    if not key.isascii():
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", key).casefold())
    return key.replace("_", "").replace("-", "").lower()


_plain_short = lru_cache(4096)(_in_plain_letters)
