"""Configuration: defaults, the ways a file can be wrong, and the page that is made from the schema."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.config.docs import commented, effective, render
from curtainwall.config.fields import parse_duration, show_duration
from curtainwall.config.loader import keys_of, load_config, parse_config
from curtainwall.config.schema import Config
from curtainwall.model import Broken
from tests.support.in_process import Places, Said
from tests.support.repository import DOCS

Run = Callable[..., Said]


def test_the_defaults_are_those_of_the_design() -> None:
    limits = Config().limits
    assert (limits.tokens, limits.steps, limits.seconds, limits.dollars, limits.warn_at) == (1_000_000, 200, 7_200, 5.0, 0.8)
    assert (Config().approvals.deadline, Config().approvals.files, Config().approvals.unrouted) == (None, False, "park")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[lists]\nhost = []", "unknown key `lists.host`; did you mean `lists.hosts`?"),
        ("[list]", "unknown key `list`; did you mean `lists`?"),
        ("[log]\ntokens = 1", "unknown key `log.tokens`; `[log]` has `calls`, `logged-bytes` (docs/config.md)"),
        ("[web]\nlisten = 'x'", "unknown key `web.listen`; `[web]` has `enabled`, `host`, `port`, "),
        ("[web]\nadress = 'x'", "unknown key `web.adress`; `[web]` has `enabled`"),
        ("[log]\nunrouted = 'park'", "unknown key `log.unrouted`; did you mean `approvals.unrouted`?"),
        ("[channels.web]\noperator = ['ann']\noperators = ['ann']", "`channels.web.operator`; did you mean `channels.web.operators`?"),
        ("[webhooks.hooks.a]\nsecret-env = 'X'\nprompt = '{{ the branch }}'", "`webhooks.hooks.a`: `{{` in `prompt` begins a field: write"),
        ("[cron.a]\nschedule = '* * * * *'\ninstructions = 'x'\nbudget.token = 1", "did you mean `cron.a.budget.tokens`?"),
        ("[teams.a]\nproject = '/srv/a'\naskers = ['b']", "`teams.a.askers` names `b`, which is no team here"),
        ("zzz = 1", "unknown key `zzz`; docs/config.md"),
        ("[limits]\n\ntokens = = 1", "line 3"),
        ("[limits]\ntokens = 1\ntokens = 2", "line 3"),
        ('[limits]\ntokens = "many"', "`limits.tokens` must be a whole number"),
        ("[limits]\ntokens = true", "`limits.tokens`"),
        ("[limits]\ntokens = 0", "`limits.tokens` must be more than 0"),
        ("[limits]\nwarn-at = 1.5", "`limits.warn-at` must be at most 1"),
        ('[approvals]\ndeadline = "soon"', "`approvals.deadline`: `soon` is no length of time; write"),
        ('[approvals]\nunrouted = "allow"', "`approvals.unrouted` must be `park` or `deny`"),
        ('[lists]\nhosts = "x"', "`lists.hosts` must be a list"),
        ("[channels.web]\noperators = []", "`channels.web.operators` must not be empty"),
        ("[channels.web]", "`channels.web.operators` is missing"),
        ("[lists]\nhost = []\n[limits]\ntoken = 1", "(and 1 more)"),
        ("limits = 3", "`limits` must be a table"),
        ("[limits]\nseconds = 1.5", "`limits.seconds`: this is no length of time; write"),
        ("[models.Local]", "`models.Local`: a name here starts with a small letter"),
        ("[models.demo]", "`models.demo`: this name is taken"),
        ('[models.local]\nurl = "localhost"', "`models.local.url`: write a URL that starts with `http://` or `https://`"),
        ('[models.local]\nfile = "key"', "`models.local.file`: write the whole path of the file, from `/` or `~/` on"),
        ('[teams.a]\nproject = "x"', "line 2: `teams.a.project`: write the whole path of the directory, from `/` or `~/` on"),
        ('[protected]\nreadonly = ["~/bin", "bin"]', "line 2: `protected.readonly.1`: write the whole path, from `/` or `~/` on"),
        ('[cron.x]\ninstructions = "x"\nschedule = "61 * * * *"', "line 3: `cron.x.schedule`: no schedule: bad minute; write"),
        ('[cron.x]\ninstructions = "x"\nschedule = "0 3 * * *"\nzone = "Mars"', "line 4: `cron.x.zone`: there is no time zone `Mars`"),
        ('[credentials.x]\nenv = "X"\nhosts = ["a.org"]\nsend = "cookie"', "line 4: `credentials.x.send`: write `bearer`"),
        ("nonsense = 1\n[model]\nname = 4", "line 1: unknown key `nonsense`"),
        ("[limits]\ntokens = 1\n[limits]\nsteps = 1", "cannot declare `limits` twice (at line 3"),
        ('[models.local]\nkey = "short"', "`models.local.key` must have at least 8 characters"),
        ('[credentials."a b"]\nenv = "X"', "`credentials.a b`: a name here is made of letters"),
        (
            '[servers.x]\ncommand = "x"\ntools.t.effect = "sing"',
            "`servers.x.tools.t.effect` must be `inspect`, `modify`, `execute` or `send`",
        ),
        (
            (
                "[servers.x]\ncommand = 'x'\n[servers.x.tools.t]\neffect = 'send'\narguments.a = {roles = ['read-path'], "
                "cases = [{argument = 'b', equals = [[]], roles = ['read-path']}]}"
            ),
            "`servers.x.tools.t.arguments.a.cases.0.equals.0` must be a text, a number, true or false",
        ),
        (
            (
                "[servers.x]\ncommand = 'x'\n[servers.x.tools.t]\neffect = 'modify'\n[servers.x.tools.t.arguments.path]\n"
                "roles = ['read-path', 'write-path']\ncases = [{argument = 'op', equals = ['rm'], roles = ['delete-path']}]"
            ),
            (
                "line 5: `servers.x.tools.t.arguments.path`: a case asks for more than `roles` where `op` has one exact value, and a "
                'server may know other spellings of it; write the strictest as `roles = ["read-path", "write-path", "delete-path"]`'
            ),
        ),
        (
            (
                "[servers.x]\ncommand = 'x'\n[servers.x.tools.t]\neffect = 'send'\narguments.url = {roles = ['send-url'], cases = "
                "[{argument = 'm', equals = ['GET'], roles = ['fetch-url']}, {argument = 'body', roles = ['send-url']}]}"
            ),
            "line 5: `servers.x.tools.t.arguments.url`: a case that asks for less comes before the one for any `body`",
        ),
    ],
)
def test_an_error_names_the_key_or_the_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse_config(text)
    assert "\n" not in str(caught.value)
    assert "``" not in str(caught.value)


def test_what_is_wrong_is_never_said_with_the_value_itself() -> None:
    with pytest.raises(ValueError, match="at least 8") as caught:
        parse_config('[models.openai]\nkey = "hunter2"')
    assert "hunter2" not in str(caught.value)


def test_lengths_of_time_are_texts_or_seconds() -> None:
    config = parse_config('[approvals]\ndeadline = "30m"\n[limits]\nseconds = "2h"\n[breaker]\nwindow = 5')
    assert (config.approvals.deadline, config.limits.seconds, config.breaker.window) == (1800, 7200, 5)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("7d", 604_800), ("2w", 1_209_600)])
def test_a_length_of_time_is_read_and_shown(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(show_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1.5h", "h", "1 fortnight", "1" * 12])
def test_other_texts_are_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        parse_duration(text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "directory").mkdir()
    for name, message in (("bytes", "not UTF-8"), ("directory", "cannot be read")):
        with pytest.raises(Broken, match=message):
            load_config(tmp_path / name)
    assert load_config(tmp_path / "missing") == Config()


def test_the_page_is_what_the_schema_says() -> None:
    assert (DOCS / "config.md").read_text(encoding="utf-8") == render(), "run `python -m curtainwall.config.docs > docs/config.md`"
    assert all(f"`{key.rpartition('.')[2]}`" in render() for key in keys_of(Config))


def test_the_commented_file_changes_nothing_and_names_every_key() -> None:
    assert parse_config(commented()) == Config()
    uncommented = "\n".join(
        line.removeprefix("# ") if " = " in line or line.startswith("# [") else line for line in commented().splitlines()
    )
    assert parse_config(uncommented).channels["NAME"].operators == ("ann",)


def test_what_holds_reads_back_as_it_is() -> None:
    config = parse_config('[lists]\nhosts = ["a.org", "*.b.org"]\n[channels."my room"]\noperators = ["ann", "bob \\"b\\""]\n')
    assert parse_config(effective(config)) == config


def test_init_writes_once_and_show_tells_what_holds(run: Run, places: Places) -> None:
    assert run("config", "path").out == f"{places.home}/config.toml\n"
    assert run("config", "show").err.startswith("there is no")
    assert run("config", "init").code == 0
    assert (places.home / "config.toml").stat().st_mode & 0o777 == 0o600
    (places.home / "config.toml").write_text("[limits]\ntokens = 5\n")
    again = run("config", "init")
    assert (again.code, again.out) == (1, "")
    assert "is there already" in again.err
    assert run("config", "show", "--output", "json").json["limits"]["tokens"] == 5


def test_a_wrong_file_stops_every_command_with_one_line(run: Run, places: Places) -> None:
    places.home.mkdir()
    (places.home / "config.toml").write_text("[lists]\nhost = []\n")
    for words in (("config", "show"), ("policy", "rules"), ("cron", "list")):
        said = run(*words)
        assert (said.code, said.out) == (1, "")
        assert said.err == f"curtainwall: `{places.home}/config.toml`: line 2: unknown key `lists.host`; did you mean `lists.hosts`?\n"


def test_what_a_key_chooses_among_is_told() -> None:
    assert '`"park"` or `"deny"`' in render()
    assert '# unrouted: what happens to an ask that can be shown nowhere: `"park"` or `"deny"`' in commented()
