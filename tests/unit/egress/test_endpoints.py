"""The filter: exactly the listed methods and paths, in one spelling, whatever the query says."""

import pytest

from curtainwall.egress import ANTHROPIC, GEMINI, OPENAI, Dialect, openai_compatible
from curtainwall.egress.admission import EndpointFilter
from curtainwall.egress.refusals import Refused

ALLOWED = [
    (ANTHROPIC, "POST", "/v1/messages", ""),
    (ANTHROPIC, "POST", "/v1/messages?beta=true", ""),
    (ANTHROPIC, "POST", "/v1/messages/count_tokens", ""),
    (ANTHROPIC, "GET", "/v1/models/claude-opus-4.5", "claude-opus-4.5"),
    (OPENAI, "POST", "/v1/responses", ""),
    (OPENAI, "POST", "/v1/chat/completions", ""),
    (OPENAI, "GET", "/v1/models?limit=1000", ""),
    (GEMINI, "POST", "/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-pro"),
    (GEMINI, "POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro"),
]


@pytest.mark.parametrize(("provider", "method", "target", "name"), ALLOWED)
def test_a_listed_endpoint_is_found_whatever_its_query(provider, method: str, target: str, name: str) -> None:
    endpoint, chosen = EndpointFilter(provider).match(method, target, [provider.host])
    assert (endpoint.method, chosen) == (method, name)


@pytest.mark.parametrize("hosts", [["api.anthropic.com"], ["API.anthropic.com"], ["api.anthropic.com:443"]])
def test_the_host_may_be_spelt_with_its_port_or_in_capitals(hosts: list[str]) -> None:
    assert EndpointFilter(ANTHROPIC).match("POST", "/v1/messages", hosts)[0].dialect is Dialect.ANTHROPIC


@pytest.mark.parametrize(
    "hosts", [[], [""], ["evil.test"], ["api.anthropic.com", "evil.test"], ["api.anthropic.com."], ["api.anthropic.com:80"]]
)
def test_any_other_host_is_refused(hosts: list[str]) -> None:
    with pytest.raises(Refused, match="Host header"):
        EndpointFilter(ANTHROPIC).match("POST", "/v1/messages", hosts)


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".", "", "a%2fb", "a:generateContent", "x" * 200, "a:streamGenerateContent/../../files", "-a", "a\\b"]
)
def test_a_models_name_is_one_plain_segment(name: str) -> None:
    with pytest.raises(Refused):
        EndpointFilter(GEMINI).match("POST", f"/v1beta/models/{name}:generateContent", [GEMINI.host])


@pytest.mark.parametrize(
    "query", ["key=AIzaX", "alt=sse&key=1", "KEY=1", "api_key=1", "%6bey=1", "access_token=x", "a=1;key=2", "$httpHeaders=x", "k%65y"]
)
def test_a_key_in_the_query_is_refused(query: str) -> None:
    with pytest.raises(Refused, match="query"):
        EndpointFilter(GEMINI).match("POST", f"/v1beta/models/g:generateContent?{query}", [GEMINI.host])


def test_a_users_own_provider_has_its_own_path_and_place() -> None:
    own = openai_compatible("ours", "models.internal", "http://127.0.0.1:11434", path="/api/v1")
    assert EndpointFilter(own).match("POST", "/api/v1/chat/completions", ["models.internal"])[0].dialect is Dialect.CHAT
    assert own.authority == "127.0.0.1:11434"
    with pytest.raises(Refused):
        EndpointFilter(own).match("POST", "/v1/chat/completions", ["models.internal"])
