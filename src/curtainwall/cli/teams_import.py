"""Iris's `teams.json` read into our configuration: the same teams, and no permission that nobody gave here."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from curtainwall.config.agents import LOCAL
from curtainwall.config.edit import add_teams
from curtainwall.config.teams import COLOUR
from curtainwall.model import Broken

_KNOWN = {"project", "path", "description", "skipPermissions", "color"}
_SETTINGS = {"maxProcesses": ("most", 1), "idleTimeout": ("idle", 1000), "healthCheckInterval": ("health", 1000)}
"""What Iris sets for all teams: the key of `[processes]` that it is here, and how many of its units make one of ours."""


@dataclass(frozen=True, slots=True)
class ImportedTeam:
    """A team that was read, and what its owner should know."""

    name: str
    settings: dict[str, object]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TeamsImport:
    """What was taken over from a file: its teams, what `[processes]` is to say, and what was left out."""

    teams: tuple[ImportedTeam, ...]
    processes: dict[str, int]
    notes: tuple[str, ...]


def read_teams(path: Path) -> TeamsImport:
    """Return what a file says; raise `Broken` for one that names no teams."""
    try:
        told: object = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise Broken(f"`{path}` cannot be read: {(error.strerror or '').lower()}") from None
    except ValueError as error:
        raise Broken(f"`{path}` is no JSON: {error}") from None
    told = cast("dict[str, object]", told) if isinstance(told, dict) else {}
    teams = told.get("teams")
    if not isinstance(teams, dict) or not teams:
        raise Broken(f'`{path}` names no teams; write `{{"teams": {{"NAME": {{"project": "/…"}}}}}}`')
    processes, notes = _settings(told.get("settings"))
    found = tuple(_team(path, name, entry) for name, entry in cast("dict[str, object]", teams).items())
    return TeamsImport(found, processes, notes)


def import_teams(config: Path, source: Path) -> TeamsImport:
    """Write what a file says into the configuration, all or none, and return it; what `[processes]` says already stays."""
    taken = read_teams(source)
    add_teams(config, {team.name: team.settings for team in taken.teams}, taken.processes)
    return taken


def _settings(told: object) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return what is set for all teams in our words, and what was left out."""
    taken: dict[str, int] = {}
    notes: list[str] = []
    for key, value in cast("dict[str, object]", told).items() if isinstance(told, dict) else ():
        name, unit = _SETTINGS.get(key, ("", 1))
        if name and isinstance(value, int) and not isinstance(value, bool) and value >= unit:
            taken[name] = value // unit
        else:
            notes.append(f"`settings.{key}` is not known here, or means nothing, and was left out")
    return taken, tuple(notes)


def _team(path: Path, name: str, entry: object) -> ImportedTeam:
    told = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    project = told.get("project") or told.get("path")
    if not isinstance(project, str) or not project.startswith("/"):
        raise Broken(f"`{path}`: team `{name}` has no `project`, or one that is no whole path")
    settings: dict[str, object] = {"project": project, "agent": LOCAL}
    notes: list[str] = []
    if not Path(project).is_dir():
        notes.append(f"`{project}` is no directory here; the team can be asked once it is")
    description, colour = told.get("description"), told.get("color")
    if isinstance(description, str) and description:
        settings["description"] = description
    elif description not in (None, ""):
        notes.append("`description` is no text and was left out")
    if isinstance(colour, str) and re.fullmatch(COLOUR, colour):
        settings["colour"] = colour
    elif colour is not None:
        notes.append("`color` is no colour as `#E91E63` and was left out")
    if told.get("skipPermissions"):
        notes.append("`skipPermissions` is not taken over: it runs in mode `default`, and asks where the rules say so")
    notes += [f"`{key}` is not known here and was left out" for key in told if key not in _KNOWN]
    return ImportedTeam(name, settings, tuple(notes))
