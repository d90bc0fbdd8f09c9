"""Programs and models that the configuration names and that are not there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.compose.config_checks import missing_references
from curtainwall.config.loader import parse_config
from tests.support.in_process import Places, Said

PROGRAMS = """
[approvals]
approver = ["{program}", "-v"]
[notify]
command = ["{program}"]
[servers.x]
command = "{program}"
"""
MODELS = """
[model]
name = "{model}"
[cron.nightly]
schedule = "0 3 * * *"
instructions = "go"
model = "{model}"
[webhooks.hooks.ci]
secret-file = "/s"
prompt = "go"
model = "{model}"
[teams.backend]
project = "/w"
model = "{model}"
[teams.frontend]
project = "/w"
agent = "claude-code"
model = "{model}"
[models.mine]
url = "http://localhost:1/v1"
"""


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "~/no-such-program", "/etc/passwd"])
def test_each_key_that_names_a_program_that_cannot_run_is_told(program: str) -> None:
    there = f"names the program `{program}`, which is not there or cannot be run; until it can,"
    assert missing_references(parse_config(PROGRAMS.format(program=program))) == (
        f"`approvals.approver` {there} every ask is left to humans",
        f"`notify.command` {there} nobody is told by it",
        f"`servers.x.command` {there} its tools cannot be called",
    )


def test_a_program_that_is_there_is_found_as_it_will_be(tmp_path: Path) -> None:
    (tmp_path / "guard").write_text("#!/bin/sh\n")
    (tmp_path / "guard").chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    for program in ("guard", "~/guard", f"{tmp_path}/guard", "sh", "/bin/sh"):
        assert missing_references(parse_config(PROGRAMS.format(program=program)), environ) == ()


def test_each_key_that_names_a_model_of_ours_that_is_none_is_told() -> None:
    told = missing_references(parse_config(MODELS.format(model="opnai:x")))
    assert [each.partition(";")[0] for each in told] == [
        "`model.name`: there is no model `opnai:x`",
        "`cron.nightly.model`: there is no model `opnai:x`",
        "`webhooks.hooks.ci.model`: there is no model `opnai:x`",
        "`teams.backend.model`: there is no model `opnai:x`",
    ]
    assert told[0].endswith("; did you mean `openai`?")
    for known in ("auto", "demo", "script:x", "anthropic", "openai:x", "mine:x"):
        assert missing_references(parse_config(MODELS.format(model=known)), {}) == ()
    (told,) = missing_references(parse_config('[models.mine]\nmodel = "x"'))
    assert told.startswith("[models.mine]: `url` is missing; write")


def test_doctor_and_config_show_tell_it(run: Callable[..., Said], places: Places) -> None:
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text('[model]\nname = "opnai:x"\n[servers.x]\ncommand = "no-such-program"\n')
    shown = run("config", "show")
    assert "`servers.x.command` names the program `no-such-program`" in shown.err
    assert "`model.name`: there is no model `opnai:x`" in shown.err
    told = next(it for it in run("doctor", "--output", "json").json["findings"] if it["name"] == "config")
    assert (told["standing"], told["todo"]) == ("warn", "install it, or name another")
    assert "(and 1 more; `curtainwall config show` has all)" in told["what"]
