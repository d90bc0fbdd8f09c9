"""Places for asks that nothing serves."""

from collections.abc import Callable

import pytest

from curtainwall.compose.config_checks import unshown_targets
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
EVERYWHERE = """
[approvals]
targets = ["matrix:!a:x"]
[cron.nightly]
schedule = "0 3 * * *"
instructions = "go"
approval-targets = ["web", "matrix:!b:x"]
[webhooks]
listen = "127.0.0.1:9"
[webhooks.hooks.ci]
secret-file = "/s"
prompt = "go"
approval-targets = ["matrix:!c:x"]
[teams.backend]
project = "/w"
approval-target = "web"
[web]
enabled = false
"""


def test_each_key_that_names_an_unserved_place_is_told() -> None:
    assert [told.partition(";")[0] for told in unshown_targets(parse_config(EVERYWHERE))] == [
        "`approvals.targets` names `matrix:!a:x`, but `matrix.homeserver` is not set",
        "`cron.nightly.approval-targets` names `web`, but `web.enabled` is false",
        "`cron.nightly.approval-targets` names `matrix:!b:x`, but `matrix.homeserver` is not set",
        "`webhooks.hooks.ci.approval-targets` names `matrix:!c:x`, but `matrix.homeserver` is not set",
        "`teams.backend.approval-target` names `web`, but `web.enabled` is false",
    ]
    served = EVERYWHERE.replace("enabled = false", "enabled = true") + MATRIX
    assert unshown_targets(parse_config(served)) == ()


@pytest.mark.parametrize(
    ("more", "place", "why"),
    [
        (MATRIX + 'rooms = ["!a:x"]', "matrix:!b:x", "is not among `matrix.rooms`"),
        (MATRIX + 'rooms = ["!a:x"]', "matrix:!a:x", None),
        (MATRIX, "matrix", "is no room"),
        ("", "telegram:1", "nothing here serves `telegram`"),
        ('[channels.telegram]\noperators = ["ann"]', "telegram:1", None),
    ],
)
def test_rooms_that_we_are_not_in_and_channels_that_are_none_are_told(more: str, place: str, why: str | None) -> None:
    told = unshown_targets(parse_config(f'[approvals]\ntargets = ["{place}"]\n{more}'))
    assert ([why in each for each in told] == [True]) if why else told == ()


@covers("serve.unserved-targets-are-told")
def test_doctor_and_config_show_tell_it(run: Callable[..., Said], places: Places) -> None:
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text(EVERYWHERE.replace('[teams.backend]\nproject = "/w"\napproval-target = "web"\n', ""))
    shown = run("config", "show")
    assert shown.code == 0
    assert "`cron.nightly.approval-targets` names `web`, but `web.enabled` is false; asks are not shown there\n" in shown.err
    assert len(shown.err.splitlines()) == 4
    told = next(it for it in run("doctor", "--output", "json").json["findings"] if it["name"] == "config")
    assert told["standing"] == "warn"
    assert told["what"].startswith("`approvals.targets` names `matrix:!a:x`")
