"""Places for asks that nothing serves are refused with the configuration."""

from collections.abc import Callable

import pytest

from curtainwall.config.loader import parse_config
from tests.support.covers import covers
from tests.support.in_process import Places, Said

MATRIX = """
[channels.matrix]
operators = ["@ann:x"]
[matrix]
homeserver = "https://x"
user = "@wall:x"
token-env = "T"
"""
TABLES = {
    "approvals.targets": '[approvals]\ntargets = ["{}"]\n',
    "cron.nightly.approval-targets": '[cron.nightly]\nschedule = "0 3 * * *"\ninstructions = "go"\napproval-targets = ["{}"]\n',
    "webhooks.hooks.ci.approval-targets": (
        '[webhooks]\nlisten = "127.0.0.1:9"\n[webhooks.hooks.ci]\nsecret-file = "/s"\nprompt = "go"\napproval-targets = ["{}"]\n'
    ),
    "teams.backend.approval-target": '[teams.backend]\nproject = "/w"\napproval-target = "{}"\n',
}


@covers("config.unserved-targets-are-refused")
@pytest.mark.parametrize("key", TABLES)
def test_each_key_that_names_an_unserved_place_is_refused(key: str) -> None:
    for place, why in (("matrix:!a:x", "but `matrix.homeserver` is not set"), ("web", "but `web.enabled` is false")):
        with pytest.raises(ValueError, match="names") as refused:
            parse_config(f"{TABLES[key].format(place)}[web]\nenabled = false\n")
        assert f"`{key}` names `{place}`, {why}" in str(refused.value)
        parse_config(f"{TABLES[key].format(place)}{MATRIX}")


@covers("config.unserved-targets-are-refused", "matrix.a-person-as-target")
@pytest.mark.parametrize(
    ("more", "place", "why"),
    [
        (MATRIX + 'rooms = ["!a:x"]', "matrix:!b:x", "is not among `matrix.rooms`"),
        (MATRIX + 'rooms = ["!a:x"]', "matrix:!a:x", None),
        (MATRIX, "matrix", "is neither a room nor a person"),
        (MATRIX, "matrix:#ops:x", "is neither a room nor a person"),
        (MATRIX, "matrix:@ann:x", None),
        (MATRIX + 'rooms = ["!a:x"]', "matrix:@ann:x", None),
        (MATRIX + 'users = ["@bob:x"]', "matrix:@bob:x", "who could not answer"),
        ("", "telegram:1", "nothing here serves `telegram`"),
        ('[channels.telegram]\noperators = ["ann"]', "telegram:1", None),
        (MATRIX.replace("operators", "enabled = false\noperators"), "matrix:!a:x", "but `channels.matrix.enabled` is false"),
        (MATRIX.replace("operators", "enabled = false\noperators"), "matrix:@ann:x", "but `channels.matrix.enabled` is false"),
        ('[channels.telegram]\nenabled = false\noperators = ["ann"]', "telegram:1", "but `channels.telegram.enabled` is false"),
    ],
)
def test_only_rooms_that_we_serve_and_people_who_may_answer_are_targets(more: str, place: str, why: str | None) -> None:
    text = f'[approvals]\ntargets = ["{place}"]\n{more}'
    if why is None:
        parse_config(text)
        return
    with pytest.raises(ValueError, match=why):
        parse_config(text)


@covers("config.unserved-targets-are-refused")
def test_commands_say_which_key_it_is(run: Callable[..., Said], places: Places) -> None:
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text('[approvals]\ntargets = ["matrix:!a:x"]\n')
    shown = run("config", "show")
    assert shown.code == 1
    assert "`approvals.targets` names `matrix:!a:x`, but `matrix.homeserver` is not set" in shown.err
