"""Which providers an agent in a container can be given: those with a key, at the place that the user named."""

import re
from pathlib import Path

import pytest

from curtainwall.agents.external.container import Adapters
from curtainwall.compose.external.containers import limits_of
from curtainwall.compose.external.images import adapters_of
from curtainwall.compose.external.providers import accesses, key_remedy, require_matching_keys, require_team_keys
from curtainwall.config.agents import SHIPPED
from curtainwall.config.loader import parse_config
from curtainwall.config.secrets import model_secrets, secret_files, secret_variables
from curtainwall.egress.upstream.sentinels import Keyring, Refreshing
from curtainwall.host import Unavailable
from curtainwall.model import Broken, CommandRefused
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
    assert key_remedy(("gemini",)).startswith("set GEMINI_API_KEY;")
    assert key_remedy(("anthropic",)).startswith("set ANTHROPIC_API_KEY, or CLAUDE_CODE_OAUTH_TOKEN with the token of a subscription;")
    assert key_remedy(("anthropic", "openai")).startswith("set ANTHROPIC_API_KEY or set OPENAI_API_KEY;")


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


@covers("agents.own-keys")
def test_an_agent_with_a_key_of_its_own_is_given_that_one_and_the_others_keep_theirs() -> None:
    learnt: dict[str, str] = {}
    text = """
    [models.local]
    url = "http://localhost:11434/v1"
    key = "key-of-the-house"
    [agents.claude-code.keys.anthropic]
    env = "TEAM_KEY"
    [agents.mine]
    image = "my/image:1"
    command = ["my-agent"]
    providers = { local = "LOCAL_KEY" }
    [agents.mine.keys.local]
    command = ["echo", "key-of-mine"]
    """
    config, environ = parse_config(text), {**KEYS, "TEAM_KEY": "sk-ant-team"}

    def key(agent: str, provider: str) -> str:
        return run(accesses(config, learnt.__setitem__, environ, agent=agent)[provider].source.read())

    assert (key("claude-code", "anthropic"), key("claude-code", "gemini")) == ("sk-ant-team", "AIzaTwo")
    assert [key(agent, "anthropic") for agent in ("", "claude-local", "opencode")] == ["sk-ant-one"] * 3
    assert (key("mine", "local"), key("opencode", "local")) == ("key-of-mine", "key-of-the-house")
    assert learnt["claude-code-anthropic-key"] == "sk-ant-team", "it is masked before it is used"
    assert learnt["mine-local-key"] == "key-of-mine"


@covers("agents.own-keys")
def test_an_own_key_that_cannot_be_read_is_no_reason_to_use_the_other() -> None:
    config = parse_config('[agents.claude-code.keys.anthropic]\nenv = "TEAM_KEY"\n')
    found = accesses(config, lambda _name, _value: None, KEYS, agent="claude-code")["anthropic"]
    with pytest.raises(Unavailable, match="TEAM_KEY"):
        run(found.source.read())


@covers("agents.own-keys")
def test_an_own_key_is_a_token_only_where_its_own_section_says_so() -> None:
    text = '[models.anthropic]\nkey = "sk-ant-oat01-the-users"\noauth = true\n[agents.claude-local.keys.anthropic]\nenv = "TEAM_KEY"\n'
    environ = {"TEAM_KEY": "sk-ant-team"}
    assert accesses(parse_config(text), lambda _name, _value: None, environ)["anthropic"].oauth
    assert not accesses(parse_config(text), lambda _name, _value: None, environ, agent="claude-local")["anthropic"].oauth
    signed_in = parse_config(f"{text}oauth = true\n")
    assert accesses(signed_in, lambda _name, _value: None, environ, agent="claude-local")["anthropic"].oauth


@covers("agents.own-keys")
def test_a_key_for_a_provider_that_the_agent_does_not_talk_to_is_told() -> None:
    config = parse_config('[agents.codex.keys.anthropic]\nenv = "TEAM_KEY"\n')
    with pytest.raises(Broken, match=r"\[agents\.codex\.keys\.anthropic\]: codex does not talk to `anthropic`; it talks to: openai"):
        require_matching_keys(config, "codex", ("openai",))
    require_matching_keys(config, "opencode", ("openai",))


@covers("agents.own-keys")
def test_where_an_own_key_lies_no_agent_looks_and_no_child_inherits_it(tmp_path: Path) -> None:
    place = tmp_path / "team.key"
    text = f'[agents.claude-local.keys.anthropic]\nfile = "{place}"\n[agents.codex.keys.openai]\nenv = "TEAM_KEY"\n'
    config = parse_config(text)
    assert str(place) in secret_files(config)
    assert "TEAM_KEY" in secret_variables(config)
    assert "the-teams-own-key" in model_secrets(config, {"TEAM_KEY": "the-teams-own-key"}).values(), "and it is masked from the start"


TEAMS = """
[agents.claude-local.keys.anthropic]
env = "LOCAL_KEY"
[teams.backend]
project = "/srv/backend"
agent = "claude-local"
[teams.backend.keys.anthropic]
env = "BACKEND_KEY"
[teams.frontend]
project = "/srv/frontend"
agent = "claude-local"
[teams.frontend.keys.anthropic]
file = "/srv/keys/frontend"
oauth = true
[teams.design]
project = "/srv/design"
agent = "claude-local"
"""


@covers("teams.own-keys")
def test_a_team_with_a_key_of_its_own_is_given_that_one_and_no_other_team_is() -> None:
    learnt: dict[str, str] = {}
    config, environ = parse_config(TEAMS), {"LOCAL_KEY": "sk-ant-local", "BACKEND_KEY": "sk-ant-backend", **KEYS}

    def key(team: str) -> str:
        return run(accesses(config, learnt.__setitem__, environ, agent="claude-local", team=team)["anthropic"].source.read())

    assert (key("backend"), key("design"), key("")) == ("sk-ant-backend", "sk-ant-local", "sk-ant-local")
    assert learnt["team-backend-anthropic-key"] == "sk-ant-backend", "it is masked before it is used"
    frontend = accesses(config, learnt.__setitem__, environ, agent="claude-local", team="frontend")
    assert frontend["anthropic"].oauth
    with pytest.raises(Unavailable, match="/srv/keys/frontend"):
        run(frontend["anthropic"].source.read())
    assert run(frontend["gemini"].source.read()) == "AIzaTwo", "for other providers it uses what all do"


@covers("teams.own-keys")
def test_where_a_teams_key_lies_no_agent_looks_and_no_child_inherits_it() -> None:
    config = parse_config(TEAMS)
    assert "/srv/keys/frontend" in secret_files(config)
    assert "BACKEND_KEY" in secret_variables(config)
    assert "the-key-of-backend" in model_secrets(config, {"BACKEND_KEY": "the-key-of-backend"}).values(), "and it is masked from the start"


@covers("teams.own-keys")
def test_a_teams_keys_that_changed_while_it_is_served_are_neither_used_nor_replaced_by_others() -> None:
    begun, now = parse_config(TEAMS), parse_config(TEAMS.replace("BACKEND_KEY", "ANOTHER_KEY"))
    with pytest.raises(CommandRefused, match=r"`teams\.backend\.keys` has changed; start this process again"):
        require_team_keys(begun, now, "backend")
    for team in ("frontend", "design", "nobody", ""):
        require_team_keys(begun, now, team)


@covers("teams.own-keys")
def test_a_teams_key_for_a_provider_that_its_agent_does_not_talk_to_is_told() -> None:
    config = parse_config('[teams.x]\nproject = "/x"\nagent = "codex"\n[teams.x.keys.anthropic]\nenv = "A"\n')
    with pytest.raises(Broken, match=r"\[teams\.x\.keys\.anthropic\]: codex does not talk to `anthropic`; it talks to: openai"):
        require_matching_keys(config, "codex", ("openai",), team="x")
    require_matching_keys(config, "codex", ("openai",))


@pytest.mark.parametrize(
    ("agent", "key", "said"),
    [
        ("builtin", 'anthropic]\nenv = "A"', "`teams.x.keys` is for the agents of others; `builtin` uses the keys of `[models.PROVIDER]`"),
        ("claude-local", 'openai]\nenv = "A"', "`teams.x.keys.openai`: `claude-local` talks to `anthropic` alone"),
        ("codex", 'openia]\nenv = "A"', "`teams.x.keys.openia` is for no provider that there is here; there are: anthropic"),
        ("codex", 'openai]\nenv = "A"\noauth = true', "`oauth` is for `anthropic` alone"),
        ("codex", "openai]", "write exactly one of `env`, `file`, `keyring` and `command`"),
    ],
)
def test_a_teams_key_that_nobody_would_use_is_refused(agent: str, key: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_config(f'[teams.x]\nproject = "/x"\nagent = "{agent}"\n[teams.x.keys.{key}\n')


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


def test_the_names_that_need_no_loading_are_those_of_the_adapters() -> None:
    assert Adapters().names == SHIPPED, "name the agent in `SHIPPED` (`config/agents.py`), in the order of `Adapters`"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[agents.builtin]\nimage = "x"', "taken by the agent that comes with the house"),
        ('[agents.nobody]\nimage = "x"', "there is no agent `nobody`; write the `command` of your own"),
        ('[agents.mine]\ncommand = ["x"]', "write the `image` that it runs in"),
        ('[agents.codex]\nresume = ["x"]', "are for an agent of your own"),
        ('[agents.codex]\nprograms = ["x"]', "write two whole paths"),
        ("[agents.codex.keys.openai]", "write exactly one of `env`, `file`, `keyring` and `command`"),
        ('[agents.codex.keys.openai]\nenv = "A"\nfile = "/a"', "write exactly one of"),
        ('[agents.codex.keys.openia]\nenv = "A"', "`agents.codex.keys.openia` is for no provider that there is here; there are: anthropic"),
        ('[agents.codex.keys.openai]\nenv = "A"\noauth = true', "`oauth` is for `anthropic` alone"),
        ('[agents.mine]\nimage = "x"\ncommand = ["x"]\n[agents.mine.keys.openai]\nenv = "A"', "name it in `providers` first"),
        ('[agents.claude-local]\nimage = "x"', "`claude-local.image` is for agents in containers"),
        ('[agents.claude-local.keys.openai]\nenv = "A"', "`claude-local` talks to `anthropic` alone"),
        ('[agents.Mine]\ncommand = ["x"]\nimage = "y"', "small letters"),
    ],
)
@covers("agents.configured")
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_config(text)
