"""What a provider would do beyond answering is found in every dialect, judged, and removed where the request still means something."""

import asyncio
import copy
import tracemalloc
from typing import Any

import pytest

from curtainwall.egress import Dialect, Handling, ProviderAction, ProviderActionKind
from curtainwall.egress.bodies import settle_actions
from curtainwall.egress.ports import remove_actions
from curtainwall.egress.refusals import Refused
from tests.support.covers import covers

FUNCTION = {
    "name": "read_file",
    "input_schema": {"type": "object", "properties": {"url": {"type": "string"}, "file_id": {"type": "string"}}},
}


def user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def contents(*parts: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}]}


REMOVED: list[tuple[Dialect, dict[str, Any], ProviderActionKind]] = [
    (Dialect.ANTHROPIC, {"tools": [FUNCTION, {"type": "web_search_20250305", "name": "web_search"}]}, ProviderActionKind.WEB),
    (Dialect.ANTHROPIC, {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, ProviderActionKind.WEB),
    (Dialect.ANTHROPIC, {"tools": [{"type": "code_execution_20250825", "name": "x"}]}, ProviderActionKind.CODE),
    (Dialect.ANTHROPIC, {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, ProviderActionKind.SERVERS),
    (Dialect.ANTHROPIC, {"tools": [{"TYPE": "web_search_20250305"}]}, ProviderActionKind.WEB),
    (Dialect.ANTHROPIC, {"mcp_servers": [{"type": "url", "url": "https://evil.test", "name": "x"}]}, ProviderActionKind.SERVERS),
    (Dialect.ANTHROPIC, {"container": {"id": "c", "skills": []}}, ProviderActionKind.CODE),
    (Dialect.ANTHROPIC, {"tools": [{"type": "something_new_20300101"}]}, ProviderActionKind.OTHER),
    (Dialect.RESPONSES, {"tools": [{"type": "web_search"}]}, ProviderActionKind.WEB),
    (Dialect.RESPONSES, {"tools": [{"type": "web_search_preview_2025_03_11"}]}, ProviderActionKind.WEB),
    (Dialect.RESPONSES, {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, ProviderActionKind.WEB),
    (Dialect.RESPONSES, {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, ProviderActionKind.CODE),
    (Dialect.RESPONSES, {"tools": [{"type": "mcp", "server_url": "https://evil.test"}]}, ProviderActionKind.SERVERS),
    (Dialect.RESPONSES, {"tools": [{"type": "computer_use_preview"}]}, ProviderActionKind.CODE),
    (Dialect.RESPONSES, {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, ProviderActionKind.CODE),
    (Dialect.RESPONSES, {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]}, ProviderActionKind.SERVERS),
    (Dialect.RESPONSES, {"tools": [{"name": "no type"}]}, ProviderActionKind.OTHER),
    (Dialect.RESPONSES, {"background": True}, ProviderActionKind.BACKGROUND),
    (Dialect.CHAT, {"web_search_options": {"user_location": None}}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"tools": [{"type": "web_search"}]}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"toolſ": [{"type": "web_search"}]}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"web_ſearch_optionſ": {"user_location": None}}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"plugins": [{"id": "web"}]}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"search_parameters": {"mode": "on"}}, ProviderActionKind.WEB),
    (Dialect.RESPONSES, {"plugins": [{"id": "web"}]}, ProviderActionKind.WEB),
    (Dialect.RESPONSES, {"input": [{"type": "tool_search_output", "tools": [{"type": "mcp"}]}]}, ProviderActionKind.SERVERS),
    (Dialect.ANTHROPIC, {"mcp_ſerverſ": [{"type": "url", "url": "https://evil.test"}]}, ProviderActionKind.SERVERS),
    (Dialect.GEMINI, {"tools": [{"google_search": {}}]}, ProviderActionKind.WEB),
    (Dialect.GEMINI, {"tools": [{"googleSearch": {}}]}, ProviderActionKind.WEB),
    (Dialect.GEMINI, {"tools": [{"url_context": {}}]}, ProviderActionKind.WEB),
    (Dialect.GEMINI, {"tools": [{"codeExecution": {}}]}, ProviderActionKind.CODE),
    (Dialect.GEMINI, {"tools": [{"functionDeclarations": [], "fileSearch": {}}]}, ProviderActionKind.WEB),
]

REFUSED: list[tuple[Dialect, dict[str, Any], ProviderActionKind]] = [
    (Dialect.ANTHROPIC, user({"type": "image", "source": {"type": "url", "url": "https://evil.test/a.png"}}), ProviderActionKind.URL),
    (Dialect.ANTHROPIC, user({"type": "document", "source": {"type": "url", "URL": "HTTPS://evil.test"}}), ProviderActionKind.URL),
    (
        Dialect.ANTHROPIC,
        user({"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": "http://10.0.0.1"}}]}),
        ProviderActionKind.URL,
    ),
    (Dialect.ANTHROPIC, user({"type": "document", "source": {"type": "file", "file_id": "file_1"}}), ProviderActionKind.STORED),
    (Dialect.ANTHROPIC, user({"type": ["tool_use"], "source": {"type": {}, "url": "https://evil.test"}}), ProviderActionKind.URL),
    (Dialect.ANTHROPIC, {"system": [{"type": "image", "source": {"type": "url", "url": "ftp://x"}}]}, ProviderActionKind.URL),
    (
        Dialect.RESPONSES,
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x"}]}]},
        ProviderActionKind.URL,
    ),
    (
        Dialect.RESPONSES,
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x"}]}]},
        ProviderActionKind.URL,
    ),
    (
        Dialect.RESPONSES,
        {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": "https://x"}]}]},
        ProviderActionKind.URL,
    ),
    (Dialect.RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, ProviderActionKind.STORED),
    (Dialect.RESPONSES, {"prompt": {"id": "pmpt_1"}}, ProviderActionKind.STORED),
    (Dialect.RESPONSES, {"model": "o3-deep-research"}, ProviderActionKind.WEB),
    (Dialect.RESPONSES, {"previous_response_id": "resp_1", "input": "x"}, ProviderActionKind.STORED),
    (Dialect.RESPONSES, {"conversation": "conv_1", "input": "x"}, ProviderActionKind.STORED),
    (Dialect.RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}]}, ProviderActionKind.STORED),
    (Dialect.RESPONSES, {"input": [{"type": None, "id": "msg_1"}]}, ProviderActionKind.STORED),
    (Dialect.RESPONSES, {"input": [{"id": "msg_1"}]}, ProviderActionKind.STORED),
    (Dialect.CHAT, {"model": "gpt-4o-search-preview"}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"model": "gpt-4o-SEARCH-preview"}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"model": "openai/gpt-4o:online"}, ProviderActionKind.WEB),
    (Dialect.CHAT, {"model": "openai/gpt-4o", "models": ["openai/gpt-4o:online"]}, ProviderActionKind.WEB),
    (Dialect.CHAT, user({"type": "image_url", "image_url": {"url": "https://evil.test"}}), ProviderActionKind.URL),
    (Dialect.CHAT, user({"type": "image_url", "image_url": "https://evil.test"}), ProviderActionKind.URL),
    (Dialect.CHAT, user({"type": "image_url", "image_url": "https://evil.test/?data:image/png;base64,AA"}), ProviderActionKind.URL),
    (Dialect.CHAT, user({"type": "image_url", "image_url": " data:image/png;base64,AA"}), ProviderActionKind.URL),
    (Dialect.CHAT, user({"type": "video_url", "video_url": {"url": "https://evil.test"}}), ProviderActionKind.URL),
    (Dialect.GEMINI, contents({"fileData": {"fileUri": "https://evil.test"}}), ProviderActionKind.URL),
    (Dialect.GEMINI, contents({"file_data": {"file_uri": "gs://bucket/x"}}), ProviderActionKind.URL),
    (Dialect.GEMINI, contents({"functionResponse": {"name": "f", "parts": [{"fileData": {"fileUri": "x"}}]}}), ProviderActionKind.URL),
    (Dialect.GEMINI, {"cachedContent": "cachedContents/1"}, ProviderActionKind.STORED),
]

ORDINARY: list[tuple[Dialect, dict[str, Any]]] = [
    (
        Dialect.ANTHROPIC,
        {"tools": [FUNCTION, {"type": "custom", "name": "x"}, {"type": "bash_20250124", "name": "bash"}], "tool_choice": {}},
    ),
    (Dialect.ANTHROPIC, user({"type": "image", "source": {"type": "base64", "data": "AAAA"}})),
    (Dialect.ANTHROPIC, user({"type": "tool_use", "input": {"url": "https://x", "source": {"url": "https://x"}, "file_id": "f"}})),
    (Dialect.ANTHROPIC, user({"type": "text", "text": "see https://example.com"})),
    (Dialect.RESPONSES, {"tools": [{"type": "function", "parameters": {"properties": {"image_url": {}}}}, {"type": "local_shell"}]}),
    (
        Dialect.RESPONSES,
        {"tools": [{"type": "shell", "environment": {"type": "local"}}, {"type": "namespace", "tools": [{"type": "function"}]}]},
    ),
    (Dialect.RESPONSES, {"background": False, "input": [{"content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}]}),
    (Dialect.RESPONSES, {"input": [{"content": [{"text": "x", "annotations": [{"type": "url_citation", "url": "https://x"}]}]}]}),
    (Dialect.RESPONSES, {"text": {"format": {"schema": {"properties": {"file_id": {"const": "x"}}}}}}),
    (
        Dialect.RESPONSES,
        {
            "previous_response_id": None,
            "input": [{"role": "user", "content": "x"}, {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}],
        },
    ),
    (Dialect.RESPONSES, {"input": [{"type": "tool_search_output", "tools": [{"type": "namespace", "tools": [{"type": "function"}]}]}]}),
    (Dialect.CHAT, user({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}})),
    (
        Dialect.CHAT,
        {"tools": [{"type": "function", "function": {"parameters": {"properties": {"a": {}, "A": {}, "type": {}, "Type": {}}}}}]},
    ),
    (Dialect.ANTHROPIC, user({"type": "tool_use", "input": {"a": 1, "A": 2, "type": "x", "Type": "y"}})),
    (Dialect.GEMINI, {"tools": [{"functionDeclarations": [{"name": "f"}]}, {"function_declarations": []}]}),
    (Dialect.GEMINI, contents({"inlineData": {"data": "AA"}}, {"functionCall": {"name": "f", "args": {"fileUri": "x"}}})),
]


TWO_SPELLINGS: list[tuple[Dialect, dict[str, Any]]] = [
    (Dialect.ANTHROPIC, {"tools": [{"Type": "custom", "type": "web_search_20250305", "name": "web_search"}]}),
    (Dialect.ANTHROPIC, {"tools": [{"ty_pe": "custom", "type": "web_search_20250305", "name": "web_search"}]}),
    (Dialect.ANTHROPIC, {"tools": [{"ｔype": "custom", "type": "web_search_20250305"}]}),
    (Dialect.RESPONSES, {"tools": [{"type": "namespace", "tools": [{"Type": "function", "type": "mcp"}]}]}),
    (Dialect.RESPONSES, {"tools": [{"type": "shell", "environment": {"Type": "local", "type": "container_auto"}}]}),
    (Dialect.CHAT, {"Tools": [], "tools": [{"type": "function"}]}),
    (Dialect.CHAT, {"Stream": True, "stream": False}),
    (Dialect.ANTHROPIC, user({"Type": "tool_use", "type": "image", "input": {"source": {"type": "url", "url": "https://evil.test"}}})),
    (Dialect.RESPONSES, {"input": [{"Type": "message", "type": "item_reference", "id": "msg_1"}]}),
]


async def allow(_: ProviderAction) -> Handling:
    return "allow"


async def refuse(_: ProviderAction) -> Handling:
    return "refuse"


def settled(dialect: Dialect, body: dict[str, Any], judge: Any = remove_actions) -> tuple[ProviderAction, ...]:
    return asyncio.run(settle_actions(body, dialect, "them", judge))


@pytest.mark.parametrize(("dialect", "body", "kind"), REMOVED)
@covers("egress.reaches-removed")
def test_what_can_be_removed_is_removed_and_told(dialect: Dialect, body: dict[str, Any], kind: ProviderActionKind) -> None:
    left = copy.deepcopy(body)
    (reach,) = settled(dialect, left)
    assert (reach.kind, reach.removable, reach.provider) == (kind, True, "them")
    assert left != body
    assert settled(dialect, left) == (), "nothing of it is left"


@pytest.mark.parametrize(("dialect", "body", "kind"), REFUSED)
@covers("egress.reaches-refused")
def test_what_cannot_be_removed_is_refused(dialect: Dialect, body: dict[str, Any], kind: ProviderActionKind) -> None:
    seen: list[ProviderAction] = []

    async def judge(reach: ProviderAction) -> Handling:
        seen.append(reach)
        return "remove"

    with pytest.raises(Refused) as refusal:
        settled(dialect, body, judge)
    assert refusal.value.status == 403
    assert [(reach.kind, reach.removable) for reach in seen] == [(kind, False)]


@pytest.mark.parametrize(("dialect", "body"), ORDINARY)
def test_an_ordinary_request_is_left_as_it_is(dialect: Dialect, body: dict[str, Any]) -> None:
    left = copy.deepcopy(body)
    assert settled(dialect, left, refuse) == ()
    assert left == body


@pytest.mark.parametrize(("dialect", "body", "kind"), [*REMOVED, *REFUSED])
def test_whoever_judges_may_allow_or_refuse_each(dialect: Dialect, body: dict[str, Any], kind: ProviderActionKind) -> None:
    left = copy.deepcopy(body)
    assert settled(dialect, left, allow) == ()
    assert left == body
    with pytest.raises(Refused):
        settled(dialect, left, refuse)


def test_with_the_last_tool_goes_what_chose_among_them() -> None:
    body = {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}, "input": "x"}
    settled(Dialect.RESPONSES, body)
    assert body == {"input": "x"}


def test_only_the_reaching_half_of_a_tool_goes() -> None:
    body = {"tools": [{"functionDeclarations": [{"name": "f"}], "googleSearch": {}}, {"codeExecution": {}}]}
    settled(Dialect.GEMINI, body)
    assert body == {"tools": [{"functionDeclarations": [{"name": "f"}]}]}


def test_a_tool_that_is_no_object_is_refused() -> None:
    with pytest.raises(Refused, match="is no tool"):
        settled(Dialect.ANTHROPIC, {"tools": ["web_search"]})


@pytest.mark.parametrize(("dialect", "body"), TWO_SPELLINGS)
@covers("egress.bodies-strict")
def test_a_key_in_two_spellings_is_refused_whatever_is_allowed(dialect: Dialect, body: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="two spellings") as refusal:
        settled(dialect, body, allow)
    assert refusal.value.status == 400


def test_tools_that_are_no_list_are_refused() -> None:
    with pytest.raises(Refused, match="is no list"):
        settled(Dialect.GEMINI, {"tools": {"google_search": {}}})


def test_a_long_key_is_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(30):
            settled(Dialect.CHAT, {f"{number}" * 1_000_000: 1})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 5_000_000
