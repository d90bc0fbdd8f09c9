"""Imports teams from Iris's `teams.json` into our configuration, but none of their permissions."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from curtainwall.config.agents import LOCAL
from curtainwall.config.edit import add_teams
from curtainwall.config.teams import COLOUR
from curtainwall.model import Broken, record

_KNOWN = {"project", "path", "description", "skipPermissions", "color"}
_SETTINGS = {"maxProcesses": ("most", 1), "idleTimeout": ("idle", 1000), "healthCheckInterval": ("health", 1000)}
"""Settings of Iris for all teams: our key in `[processes]`, and how many of its units make one of ours."""


@record
class ImportedTeam:
    """An imported team, and notes for its owner."""

    name: str
    settings: dict[str, object]
    notes: tuple[str, ...]


@record
class TeamsImport:
    """What was imported from a file: its teams, settings for `[processes]`, and notes on what was left out."""

    teams: tuple[ImportedTeam, ...]
    processes: dict[str, int]
    notes: tuple[str, ...]


_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")


def read_teams(path: Path, environ: Mapping[str, str]) -> TeamsImport:
    """Read a file and put in the variables that its projects name; raise `Broken` if it names no teams, or a variable is missing."""
    try:
        document: object = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise Broken(f"`{path}` cannot be read: {(error.strerror or '').lower()}") from None
    except ValueError as error:
        raise Broken(f"`{path}` is no JSON: {error}") from None
    document = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    teams = document.get("teams")
    if not isinstance(teams, dict) or not teams:
        raise Broken(f'`{path}` names no teams; write `{{"teams": {{"NAME": {{"project": "/…"}}}}}}`')
    processes, notes = _settings(document.get("settings"))
    imported = tuple(_team(path, name, entry, environ) for name, entry in cast("dict[str, object]", teams).items())
    return TeamsImport(imported, processes, notes)


def import_teams(config: Path, source: Path, environ: Mapping[str, str] = os.environ) -> TeamsImport:
    """Add a file's teams to the configuration, all or none, and return them; existing `[processes]` settings stay."""
    imported = read_teams(source, environ)
    add_teams(config, {team.name: team.settings for team in imported.teams}, imported.processes)
    return imported


def _settings(section: object) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the settings for all teams under our names, and notes on what was left out."""
    settings: dict[str, int] = {}
    notes: list[str] = []
    for key, value in cast("dict[str, object]", section).items() if isinstance(section, dict) else ():
        name, unit = _SETTINGS.get(key, ("", 1))
        if name and isinstance(value, int) and not isinstance(value, bool) and value >= unit:
            settings[name] = value // unit
        else:
            notes.append(f"`settings.{key}` is not known here, or means nothing, and was left out")
    return settings, tuple(notes)


def _expanded(path: Path, name: str, project: str, environ: Mapping[str, str]) -> str:
    """Return a project with the values of its variables: `$NAME`, `${NAME}` and `${NAME:-value if it is not set}`."""
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        variable = match[1] or match[3]
        content = environ.get(variable) or match[2]
        if content is None:
            missing.append(variable)
        return content or ""

    expanded = _VARIABLE.sub(value, project)
    if missing:
        names = ", ".join(f"`{each}`" for each in dict.fromkeys(missing))
        are = "are" if len(set(missing)) > 1 else "is"
        raise Broken(
            f"`{path}`: the project of team `{name}` names {names}, which {are} not set; set {'them' if are == 'are' else 'it'} first"
        )
    return expanded


def _team(path: Path, name: str, entry: object, environ: Mapping[str, str]) -> ImportedTeam:
    team = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    project = team.get("project") or team.get("path")
    if isinstance(project, str):
        project = _expanded(path, name, project, environ)
    if not isinstance(project, str) or not project.startswith("/"):
        raise Broken(f"`{path}`: team `{name}` has no `project`, or one that is no whole path")
    settings: dict[str, object] = {"project": project, "agent": LOCAL}
    notes: list[str] = []
    if not Path(project).is_dir():
        notes.append(f"`{project}` is no directory here; the team can be asked once it is")
    description, colour = team.get("description"), team.get("color")
    if isinstance(description, str) and description:
        settings["description"] = description
    elif description not in (None, ""):
        notes.append("`description` is no text and was left out")
    if isinstance(colour, str) and re.fullmatch(COLOUR, colour):
        settings["colour"] = colour
    elif colour is not None:
        notes.append("`color` is no colour as `#E91E63` and was left out")
    if team.get("skipPermissions"):
        notes.append("`skipPermissions` is not taken over: it runs in mode `default`, and asks where the rules say so")
    notes += [f"`{key}` is not known here and was left out" for key in team if key not in _KNOWN]
    return ImportedTeam(name, settings, tuple(notes))
