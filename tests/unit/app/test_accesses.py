"""Which providers an agent in a container can be given: those with a key, at the place that the user named."""

from pathlib import Path

import pytest

from curtainwall.agents.container import Adapters
from curtainwall.app.accesses import accesses, how_to_get
from curtainwall.app.config import parse_config
from curtainwall.app.config_agents import SHIPPED
from curtainwall.app.containers import adapters_of, limits_of
from curtainwall.egress.sentinels import Keyring, Refreshing
from curtainwall.host import Unavailable
from curtainwall.model import Broken
from tests.support.covers import covers
from tests.support.talking import run

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-one", "GEMINI_API_KEY": "AIzaTwo", "OPENAI_API_KEY": " "}


@covers("brokered.accesses")
def test_a_provider_is_there_when_its_key_is_and_the_key_is_masked_before_it_is_used() -> None:
    learnt: dict[str, str] = {}
    text = '[models.openai]\nurl = "http://127.0.0.1:9/v1"\nkey = "sk-in-the-file"\n[models.local]\nurl = "http://localhost:11434/v1"\n'
    found = accesses(parse_config(text), learnt.__setitem__, KEYS)
    assert list(found) == ["anthropic", "openai", "gemini", "local"]
    assert found["anthropic"].provider.upstream.host == "api.anthropic.com"
    assert (found["openai"].provider.upstream.host, found["openai"].provider.upstream.port) == ("127.0.0.1", 9)
    assert found["local"].provider.host == "local.models.internal"
    assert "/v1/chat/completions" in {endpoint.path for endpoint in found["local"].provider.endpoints}
    assert not learnt
    assert run(found["openai"].source.read()) == "sk-in-the-file"
    assert learnt == {"openai-key": "sk-in-the-file"}
    assert not any(key in repr(found) for key in ("sk-in-the-file", "sk-ant-one", "AIzaTwo"))
    assert list(accesses(parse_config(""), learnt.__setitem__, {})) == []
    assert how_to_get(("gemini",)).startswith("set GEMINI_API_KEY;")
    assert how_to_get(("anthropic",)).startswith("set ANTHROPIC_API_KEY, or CLAUDE_CODE_OAUTH_TOKEN with the token of a subscription;")
    assert how_to_get(("anthropic", "openai")).startswith("set ANTHROPIC_API_KEY or set OPENAI_API_KEY;")


@covers("brokered.accesses")
def test_a_place_with_a_path_of_its_own_is_refused_with_what_to_write() -> None:
    config = parse_config('[models.anthropic]\nurl = "https://gateway.example.com/team/anthropic"\nkey = "sk-in-the-file"\n')
    with pytest.raises(Broken, match=r"write `https://gateway\.example\.com` as its `url`"):
        accesses(config, lambda _name, _value: None, {})


@covers("brokered.signed-in")
def test_a_token_is_a_bearer_and_read_anew_where_it_was_refused(tmp_path: Path) -> None:
    place = tmp_path / "token"
    place.write_text("sk-ant-oat01-the-first")
    place.chmod(0o600)
    config = parse_config(f'[models.anthropic]\nfile = "{place}"\noauth = true\n')
    found = accesses(config, lambda _name, _value: None, {})["anthropic"]
    assert found.oauth
    assert Keyring(found).sentinel.startswith("sk-ant-oat01-")
    assert isinstance(found.source, Refreshing)
    with pytest.raises(Unavailable):
        run(found.source.refresh("sk-ant-oat01-the-first"))
    place.write_text("sk-ant-oat01-the-second")
    assert run(found.source.refresh("sk-ant-oat01-the-first")) == "sk-ant-oat01-the-second"
    from_variable = accesses(parse_config(""), lambda _name, _value: None, {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x"})
    assert from_variable["anthropic"].oauth
    with_both = accesses(parse_config(""), lambda _name, _value: None, {**KEYS, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x"})
    assert not with_both["anthropic"].oauth, "a key goes first"


@covers("brokered.signed-in")
def test_a_token_for_others_or_without_a_place_is_refused() -> None:
    with pytest.raises(Broken, match="`oauth` is for `anthropic` alone"):
        accesses(parse_config('[models.openai]\nkey = "sk-in-the-file"\noauth = true\n'), lambda _name, _value: None, {})
    with pytest.raises(ValueError, match="name its place"):
        parse_config("[models.anthropic]\noauth = true\n")


@covers("agents.configured")
def test_agents_of_ones_own_and_limits_come_from_the_file() -> None:
    text = """
    [agents.mine]
    image = "my/image:1"
    command = ["my-agent", "--thread", "{conversation}"]
    resume = ["--go-on"]
    providers = { openai = "OPENAI_API_KEY" }
    env = ["REGION=eu"]
    [containers]
    most = 2
    memory = 512
    idle = "5m"
    """
    config = parse_config(text)
    mine = adapters_of(config).find("mine")
    assert (mine.name, dict(mine.providers)) == ("mine", {"openai": "OPENAI_API_KEY"})
    limits = limits_of(config)
    assert (limits.containers, limits.memory, limits.remove_after) == (2, 512 * 1024**2, 300.0)
    assert Adapters().names == SHIPPED, "the names that need no loading are those that there are"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[agents.builtin]\nimage = "x"', "taken by the agent that comes with the house"),
        ('[agents.nobody]\nimage = "x"', "there is no agent `nobody`; write the `command` of your own"),
        ('[agents.mine]\ncommand = ["x"]', "write the `image` that it runs in"),
        ('[agents.codex]\nresume = ["x"]', "are for an agent of your own"),
        ('[agents.codex]\nprograms = ["x"]', "write two whole paths"),
        ('[agents.Mine]\ncommand = ["x"]\nimage = "y"', "small letters"),
    ],
)
@covers("agents.configured")
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_config(text)
