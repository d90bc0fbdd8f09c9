"""Iris's teams in our configuration."""

import json
from pathlib import Path

import pytest

from curtainwall.cli.teams_import import import_teams
from curtainwall.config.loader import load_config
from curtainwall.model import Broken, CommandRefused, Mode
from tests.support.covers import covers


def written(tmp_path: Path, **teams: object) -> Path:
    file = tmp_path / "teams.json"
    file.write_text(json.dumps({"settings": {"maxProcesses": 10}, "teams": teams}))
    return file


@covers("teams.import")
def test_teams_come_over_and_their_permissions_do_not(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("# mine\n[limits]\nsteps = 7\n")
    source = written(
        tmp_path,
        frontend={"project": str(tmp_path), "path": "/old", "description": "the pages", "skipPermissions": True, "color": "#E91E63"},
        backend={"path": "/nowhere/at/all", "idleTimeout": 3},
    )
    frontend, backend = import_teams(config, source).teams
    told = load_config(config)
    assert told.limits.steps == 7
    assert config.read_text().startswith("# mine")
    team = told.teams["frontend"]
    assert (team.project, team.description, team.colour, team.mode) == (str(tmp_path), "the pages", "#E91E63", Mode.DEFAULT)
    assert team.agent == "claude-local"
    assert any("skipPermissions" in note for note in frontend.notes)
    assert any("no directory" in note for note in backend.notes)
    assert any("`idleTimeout`" in note for note in backend.notes)


@covers("teams.import")
def test_what_is_set_for_all_teams_comes_over_where_nothing_is_said_here(tmp_path: Path) -> None:
    config, source = tmp_path / "config.toml", tmp_path / "teams.json"
    config.write_text("[processes]\nidle = 60\n")
    settings = {"idleTimeout": 300_000, "maxProcesses": 4, "healthCheckInterval": 20_000, "httpPort": 1615}
    source.write_text(json.dumps({"settings": settings, "teams": {"one": {"project": str(tmp_path)}}}))
    taken = import_teams(config, source)
    processes = load_config(config).processes
    assert (processes.idle, processes.most, processes.health) == (60, 4, 20)
    assert taken.notes == ("`settings.httpPort` is not known here, or means nothing, and was left out",)


@covers("teams.import")
def test_variables_in_a_project_are_replaced_and_missing_ones_are_named(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    teams = {"one": {"project": "$BASE/${SUB}/one"}, "two": {"path": "${BASE}/${KIND:-apps}/two"}, "three": {"project": "${KIND:-/srv}/3"}}
    with pytest.raises(Broken, match="team `one` names `BASE`, `SUB`, which are not set"):
        import_teams(config, written(tmp_path, **teams), {})
    with pytest.raises(Broken, match="team `one` names `SUB`, which is not set"):
        import_teams(config, written(tmp_path, **teams), {"BASE": "/base", "SUB": ""})
    assert not config.exists()
    imported = import_teams(config, written(tmp_path, **teams), {"BASE": "/base", "SUB": "sub"}).teams
    assert [team.settings["project"] for team in imported] == ["/base/sub/one", "/base/apps/two", "/srv/3"]


@covers("teams.import")
def test_all_teams_are_imported_or_none(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    import_teams(config, written(tmp_path, one={"project": "/srv/one"}))
    before = config.read_text()
    with pytest.raises(CommandRefused, match="there is a team `one` already"):
        import_teams(config, written(tmp_path, two={"project": "/srv/two"}, one={"project": "/srv/one"}))
    with pytest.raises(CommandRefused, match="stands for whoever asks without a team"):
        import_teams(config, written(tmp_path, nobody={"project": "/srv/x"}))
    with pytest.raises(Broken, match="team `three` has no `project`"):
        import_teams(config, written(tmp_path, three={"project": "relative"}))
    assert config.read_text() == before


@covers("teams.import")
def test_what_only_looks_is_left_out_with_a_note_where_it_means_nothing_here(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    colours = enumerate(("red", "#abc", "", 7))
    source = written(tmp_path, **{f"t{number}": {"project": "/srv/x", "color": told} for number, told in colours})
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes())
    teams = import_teams(config, source).teams
    assert [team.colour for team in load_config(config).teams.values()] == [None] * 4
    assert all(any("`color`" in note for note in team.notes) for team in teams)
    (told,) = import_teams(config, written(tmp_path, t9={"project": "/srv/x", "description": 5})).teams
    assert any("`description`" in note for note in told.notes)


def test_teams_in_one_line_of_the_configuration_are_named_as_what_is_in_the_way(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for text in ('teams = {y = {project = "/srv/y"}}\n', "processes = {}\n"):
        config.write_text(text)
        with pytest.raises(CommandRefused, match=r"in one line; write `\[(teams|processes)"):
            import_teams(config, written(tmp_path, x={"project": "/srv/x"}))
        assert config.read_text() == text


def test_what_is_no_list_of_teams_is_said_so(tmp_path: Path) -> None:
    file = tmp_path / "teams.json"
    for text, words in (
        ("{", "is no JSON"),
        ("[]", "names no teams"),
        ('{"teams": 3}', "names no teams"),
        ('{"teams": {}}', "names no teams"),
    ):
        file.write_text(text)
        with pytest.raises(Broken, match=words):
            import_teams(tmp_path / "config.toml", file)
    with pytest.raises(Broken, match="cannot be read"):
        import_teams(tmp_path / "config.toml", tmp_path / "missing.json")
