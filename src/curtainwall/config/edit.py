"""Changing the configuration file for its owner: comments and order stay, and nothing is written that could not be read back."""

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from curtainwall.config.loader import parse_config, read_plain
from curtainwall.model import Broken, CommandRefused, NotFound
from curtainwall.tools.servers import Proposal


def add_server(path: Path, name: str, settings: Mapping[str, object]) -> None:
    """Write a new server into the configuration file; all else in it stays as it is."""
    document = _read(path)
    servers = _table(document, "servers")
    if name in servers:
        raise CommandRefused(f"there is a server `{name}` already; edit it in `{path}`")
    table = tomlkit.table()
    for key, value in settings.items():
        table.add(key, value)
    servers.append(name, table)
    _write(path, document)


def add_teams(path: Path, teams: Mapping[str, Mapping[str, object]], processes: Mapping[str, object] | None = None) -> None:
    """Write new teams into the configuration file, all or none, and what is not said yet about processes; all else in it stays as it is."""
    document = _read(path)
    for name in ("teams", "processes"):
        if name in document and isinstance(document[name], InlineTable):
            raise CommandRefused(f"`{path}` says `{name}` in one line; write `[{name}{'.NAME' if name == 'teams' else ''}]` there instead")
    for key, value in (processes or {}).items():
        if "processes" not in document:
            document.append("processes", tomlkit.table())
        table: Any = document["processes"]
        if key not in table:
            table.add(key, value)
    known = _table(document, "teams")
    for name, settings in teams.items():
        if name in known:
            raise CommandRefused(f"there is a team `{name}` already; edit it in `{path}`, or take it out first")
        table = tomlkit.table()
        for key, value in settings.items():
            table.add(key, value)
        known.append(name, table)
    _write(path, document)


def has_server(path: Path, name: str) -> bool:
    """Tell whether the configuration file names a server."""
    return name in _read(path).unwrap().get("servers", {})


def remove_server(path: Path, name: str) -> None:
    """Take a server and its roles out of the configuration file; all else in it stays as it is."""
    document = _read(path)
    servers = _table(document, "servers")
    if name not in servers:
        raise NotFound(f"there is no server `{name}` in `{path}`; `curtainwall servers list` shows them")
    kept = _without_tables(document, name)
    del servers[name]
    # Only what says the same may stand in place of what the parser leaves; it keeps the comments in front of the next table.
    _write(path, kept if kept is not None and kept.unwrap() == document.unwrap() else document)


def _without_tables(document: tomlkit.TOMLDocument, name: str) -> tomlkit.TOMLDocument | None:
    """Return the file without the lines of a server's tables, or None where these cannot be told by their heads."""
    ours = re.compile(rf"\s*\[\s*servers\s*\.\s*(\"?){re.escape(name)}\1\s*[.\]]")
    kept: list[str] = []
    held: list[str] = []
    is_ours = False
    for line in tomlkit.dumps(document).splitlines(keepends=True):
        if re.match(r"\s*\[", line):
            kept += held
            is_ours = ours.match(line) is not None
            held = []
        if not is_ours:
            kept.append(line)
        else:
            held = [*held, line] if re.match(r"\s*(#|$)", line) else []
    try:
        return tomlkit.parse("".join([*kept, *held]))
    except TOMLKitError:
        return None


def add_roles(path: Path, server: str, proposals: Iterable[Proposal]) -> None:
    """Write proposed roles into the configuration file, with what a human should look at as comments."""
    document = _read(path)
    servers = _table(document, "servers")
    tools = _table(_table(servers, server), "tools")
    for proposal in proposals:
        tools.append(proposal.tool, role_table(proposal))
    _write(path, document)


def role_table(proposal: Proposal) -> Table:
    """Return a proposal as a table of the file."""
    table = tomlkit.table()
    for text in proposal.notes:
        table.add(tomlkit.comment(text))
    table.add("effect", proposal.roles.effect.value)
    arguments = tomlkit.inline_table()
    for meaning in proposal.roles.meanings:
        roles = [role.value for role in meaning.roles]
        more = {"default": meaning.default, "within": meaning.within, "follows": None if meaning.follows else False}
        given = {key: value for key, value in more.items() if value is not None}
        inline = tomlkit.inline_table()
        for key, value in {"roles": roles, **given}.items():
            inline.add(key, value)
        arguments.add(meaning.argument, inline if given else roles)
    if proposal.roles.meanings:
        table.add("arguments", arguments)
    return table


def shown(server: str, proposals: Iterable[Proposal]) -> str:
    """Return proposals as they would stand in the file."""
    document = tomlkit.document()
    tools = _table(_table(_table(document, "servers"), server), "tools")
    for proposal in proposals:
        tools.append(proposal.tool, role_table(proposal))
    return tomlkit.dumps(document).strip()


def _table(parent: Any, name: str) -> Any:
    if name not in parent:
        parent.append(name, tomlkit.table(is_super_table=True))
    return parent[name]


def _read(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(read_plain(path).decode())
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, UnicodeDecodeError, TOMLKitError) as fault:
        raise Broken(f"`{path}` cannot be read: {fault}") from None


def _write(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Write the file whole, for us alone, and only if it can be read back."""
    text = tomlkit.dumps(document)
    try:
        parse_config(text)
    except ValueError as fault:
        raise CommandRefused(f"this would not be a configuration: {fault}") from None
    # A configuration that is kept elsewhere and linked to stays there.
    real = Path(os.path.realpath(path))
    real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(real)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
