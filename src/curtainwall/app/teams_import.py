"""Iris's `teams.json` read into our configuration: the same teams, and no permission that nobody gave here."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from curtainwall.app.config_edit import add_teams
from curtainwall.model import Broken

_KNOWN = {"project", "path", "description", "skipPermissions", "color"}


@dataclass(frozen=True, slots=True)
class Imported:
    """A team that was read, and what its owner should know."""

    name: str
    settings: dict[str, object]
    notes: tuple[str, ...]


def read_teams(path: Path) -> tuple[Imported, ...]:
    """Return the teams of a file; raise `Broken` for one that is none."""
    try:
        told: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Broken(f"`{path}` cannot be read: {(error.strerror or '').lower()}") from None
    except ValueError as error:
        raise Broken(f"`{path}` is no JSON: {error}") from None
    teams = cast("dict[str, object]", told).get("teams") if isinstance(told, dict) else None
    if not isinstance(teams, dict):
        raise Broken(f'`{path}` names no teams; write `{{"teams": {{"NAME": {{"project": "/…"}}}}}}`')
    return tuple(_team(path, name, entry) for name, entry in cast("dict[str, object]", teams).items())


def import_teams(config: Path, source: Path) -> tuple[Imported, ...]:
    """Write the teams of a file into the configuration, all or none, and return them."""
    teams = read_teams(source)
    add_teams(config, {team.name: team.settings for team in teams})
    return teams


def _team(path: Path, name: str, entry: object) -> Imported:
    told = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    project = told.get("project") or told.get("path")
    if not isinstance(project, str) or not project.startswith("/"):
        raise Broken(f"`{path}`: team `{name}` has no `project`, or one that is no whole path")
    settings: dict[str, object] = {"project": project}
    notes: list[str] = []
    if not Path(project).is_dir():
        notes.append(f"`{project}` is no directory here; the team can be asked once it is")
    if isinstance(told.get("description"), str) and told["description"]:
        settings["description"] = told["description"]
    if isinstance(told.get("color"), str):
        settings["colour"] = told["color"]
    if told.get("skipPermissions"):
        notes.append("`skipPermissions` is not taken over: it runs in mode `default`, and asks where the rules say so")
    notes += [f"`{key}` is not known here and was left out" for key in told if key not in _KNOWN]
    return Imported(name, settings, tuple(notes))
