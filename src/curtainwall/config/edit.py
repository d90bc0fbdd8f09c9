"""Edits the configuration file: keeps comments and order, and never writes a file that could not be read back."""

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
    """Add a server to the configuration file and leave everything else unchanged."""
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
    """Add teams to the configuration file, all or none, and missing keys of `[processes]`; leave everything else unchanged."""
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
    team_tables = _table(document, "teams")
    for name, settings in teams.items():
        if name in team_tables:
            raise CommandRefused(f"there is a team `{name}` already; edit it in `{path}`, or take it out first")
        table = tomlkit.table()
        for key, value in settings.items():
            table.add(key, value)
        team_tables.append(name, table)
    _write(path, document)


def has_server(path: Path, name: str) -> bool:
    """Tell whether the configuration file names a server."""
    return name in _read(path).unwrap().get("servers", {})


def remove_server(path: Path, name: str) -> None:
    """Remove a server and its roles from the configuration file and leave everything else unchanged."""
    document = _read(path)
    servers = _table(document, "servers")
    if name not in servers:
        raise NotFound(f"there is no server `{name}` in `{path}`; `curtainwall servers list` shows them")
    edited = _without_tables(document, name)
    del servers[name]
    # Prefer our own edit, which keeps the comments before the next table, but only if it means the same as the parser's.
    _write(path, edited if edited is not None and edited.unwrap() == document.unwrap() else document)


def _without_tables(document: tomlkit.TOMLDocument, name: str) -> tomlkit.TOMLDocument | None:
    """Return the file without the lines of a server's tables, or None if the rest does not parse."""
    server_header = re.compile(rf"\s*\[\s*servers\s*\.\s*(\"?){re.escape(name)}\1\s*[.\]]")
    lines: list[str] = []
    trailing: list[str] = []
    is_removed = False
    for line in tomlkit.dumps(document).splitlines(keepends=True):
        if re.match(r"\s*\[", line):
            lines += trailing
            is_removed = server_header.match(line) is not None
            trailing = []
        if not is_removed:
            lines.append(line)
        else:
            trailing = [*trailing, line] if re.match(r"\s*(#|$)", line) else []
    try:
        return tomlkit.parse("".join([*lines, *trailing]))
    except TOMLKitError:
        return None


def add_roles(path: Path, server: str, proposals: Iterable[Proposal]) -> None:
    """Write proposed roles into the configuration file, with comments on what a human should check."""
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
        options = {"default": meaning.default, "within": meaning.within, "follows": None if meaning.follows else False}
        set_options = {key: value for key, value in options.items() if value is not None}
        inline = tomlkit.inline_table()
        for key, value in {"roles": roles, **set_options}.items():
            inline.add(key, value)
        arguments.add(meaning.argument, inline if set_options else roles)
    if proposal.roles.meanings:
        table.add("arguments", arguments)
    return table


def shown(server: str, proposals: Iterable[Proposal]) -> str:
    """Return proposals as they would appear in the file."""
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
    """Replace the file atomically, readable only by its owner, and only if it can be read back."""
    text = tomlkit.dumps(document)
    try:
        parse_config(text)
    except ValueError as fault:
        raise CommandRefused(f"this would not be a configuration: {fault}") from None
    # If the configuration is a link, write to its target.
    real = Path(os.path.realpath(path))
    real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(real)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
