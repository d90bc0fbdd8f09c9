"""Secrets that the configuration names: what is said where one is not there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.config.loader import parse_config
from curtainwall.config.secrets import faults_in_secrets, shared_secret
from curtainwall.model import Broken
from tests.support.in_process import Places, Said

Run = Callable[..., Said]


@pytest.mark.parametrize(
    ("environ", "words"),
    [({}, "`CI_SECRET` is not set"), ({"CI_SECRET": " "}, "`CI_SECRET` is empty"), ({"CI_SECRET": "short"}, "fewer than 16 characters")],
)
def test_a_secret_that_is_not_set_empty_or_short_is_told_as_what_it_is(environ: dict[str, str], words: str) -> None:
    with pytest.raises(Broken, match=words):
        shared_secret("the secret of webhook `ci`", "CI_SECRET", None, environ)


def test_a_secret_in_a_file_is_what_stands_in_it_without_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sixteen letters or more\n")
    assert shared_secret("it", None, str(tmp_path / "secret")) == "sixteen letters or more"


def test_a_token_for_notifications_that_is_not_set_is_told() -> None:
    config = parse_config('[notify]\nurl = "https://ntfy.example.org/me"\ntoken-env = "NTFY_TOKEN"')
    (told,) = faults_in_secrets(config, {})
    assert (
        told == "the token for `notify.url` cannot be read: the variable `NTFY_TOKEN` is not set; set it before `curtainwall serve` starts"
    )
    assert list(faults_in_secrets(config, {"NTFY_TOKEN": "t"})) == []


def test_the_doctor_tells_of_secrets_that_are_missing(run: Run, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.home.mkdir(mode=0o700)
    config = places.home / "config.toml"
    config.write_text(
        '[webhooks.hooks.ci]\nsecret-env = "CI_SECRET"\nprompt = "go"\n'
        f'[teams.a]\nproject = "{places.home.parent}"\ntoken-env = "A_TOKEN"\n'
    )
    config.chmod(0o600)
    monkeypatch.delenv("CI_SECRET", raising=False)
    monkeypatch.setenv("A_TOKEN", "a token of enough letters")

    def told() -> tuple[str, str]:
        [found] = [it for it in run("doctor", "--output", "json").json["findings"] if it["name"] == "secrets"]
        return found["standing"], found["what"]

    standing, what = told()
    assert standing == "warn"
    assert "webhook `ci`" in what
    assert "`CI_SECRET` is not set" in what
    monkeypatch.setenv("CI_SECRET", "a secret of enough letters")
    assert told()[0] == "ok"
