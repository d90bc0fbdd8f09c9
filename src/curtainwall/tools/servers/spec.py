"""The user's declaration of a tool server: how it starts, what it may see, and what its tools' arguments mean."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from curtainwall.facts import quoted
from curtainwall.model import OWN_SERVERS, Broken, Meaning, Role, ToolEffect, fault_of_cases, record

WORKSPACE: Final = "{workspace}"
"""The placeholder for the session's workspace in arguments and paths."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ROLES = frozenset(
    {
        Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH, Role.FETCH_URL, Role.SEND_URL, Role.READ_REMOTE, Role.WRITE_REMOTE,
        Role.RUN_COMMAND,
    }
)  # fmt: skip
_PATHS = frozenset({Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH})
_CHANGING = frozenset({Role.WRITE_PATH, Role.DELETE_PATH, Role.SEND_URL, Role.WRITE_REMOTE, Role.RUN_COMMAND})


@record
class ToolRoles:
    """A human's declaration of one tool: its strongest effect, and what its arguments mean."""

    effect: ToolEffect
    meanings: tuple[Meaning, ...] = ()


def fault_of_roles(roles: ToolRoles, *, is_confined: bool) -> str:
    """Return why nobody could judge the calls of a tool that is not ours by these roles, or nothing."""
    played: set[Role] = set()
    for meaning in roles.meanings:
        all_roles = {*meaning.roles, *(role for case in meaning.cases for role in case.roles)}
        where = f"`{meaning.argument}`"
        if strangers := all_roles - _ROLES:
            return f"{where} cannot have the role {', '.join(f'`{role}`' for role in sorted(strangers))} in a tool that is not ours"
        if fault := fault_of_cases(meaning.roles, meaning.cases):
            return f"{where}: {fault}"
        if meaning.within is not None and not all_roles <= _PATHS:
            return f"{where}: `within` is for paths"
        played |= set(meaning.roles)
    if not is_confined and Role.RUN_COMMAND in played:
        # The rules let commands run freely because the sandbox confines them; outside it, only a human may allow one.
        return "commands would run outside any sandbox; give the tool no roles, then every call asks"
    unseen = roles.effect is ToolEffect.MODIFY and not played & _CHANGING
    unseen |= roles.effect is ToolEffect.EXECUTE and Role.RUN_COMMAND not in played
    if played and unseen:
        return (
            f"its effect is `{roles.effect}`, and no role says what it changes; "
            "add such a role, or take all roles away, then every call asks"
        )
    return ""


@record
class ServerSpec:
    """One server of the user. `environment` is all that it gets of ours; its sandbox holds the paths besides the system.

    `network` lists the hosts that it may ask for; the session's policy decides whether it reaches one.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    trusted: bool = False
    shared: bool = False
    timeout: float = 60.0
    tools: Mapping[str, ToolRoles] = field(default_factory=dict[str, ToolRoles])

    def __post_init__(self) -> None:
        """Raise `Broken` for a declaration that is inconsistent or unsafe."""
        self._require_free_name()
        if not self.command or "\0" in "".join((self.command, *self.args)):
            raise self._broken("`command` must name a program")
        if self.trusted and (self.read or self.write):
            raise self._broken("`read` and `write` are for the sandbox, and a trusted server has none; take them or `trusted` away")
        if self.trusted and self.network:
            raise self._broken("a trusted server has your whole network; take `network` or `trusted` away")
        if self.shared and self.network:
            raise self._broken("a shared server belongs to no session whose policy could be asked; take `network` or `shared` away")
        if self.shared and any(WORKSPACE in text for text in (*self.args, *self.read, *self.write)):
            raise self._broken(f"a shared server belongs to no session, so it cannot use `{WORKSPACE}`")
        for path in (*self.read, *self.write):
            if not path.startswith(("/", "~/", WORKSPACE)):
                raise self._broken(f"the path {quoted(path)} must be absolute, or start with `~/` or `{WORKSPACE}`")
        for tool, roles in self.tools.items():
            self._require_sound_roles(tool, roles)

    def _require_free_name(self) -> None:
        if self.name in OWN_SERVERS:
            raise self._broken("this name is reserved for our own tools; choose another")
        if not _NAME.fullmatch(self.name):
            raise self._broken("a server's name is made of lower-case letters, digits and `_`, and starts with a letter")

    def _require_sound_roles(self, tool: str, roles: ToolRoles) -> None:
        if fault := fault_of_roles(roles, is_confined=not self.trusted):
            raise self._broken(f"{tool}: {fault}")

    def _broken(self, why: str) -> Broken:
        return Broken(f"[servers.{self.name}]: {why}")


def allowed_environment(entries: Iterable[str], ours: Mapping[str, str], secret: frozenset[str]) -> dict[str, str]:
    """Return the environment that a list allows: `NAME` copies ours if set, `NAME=value` sets it; raise `Broken` for our own keys."""
    environment: dict[str, str] = {}
    for entry in entries:
        name, has_value, value = entry.partition("=")
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise Broken(f"{quoted(entry)} in `env` is neither the name of a variable nor `NAME=value`")
        if name in secret or name.startswith("CURTAINWALL_"):
            raise Broken(f"`{name}` is a key of ours and is given to no server")
        if has_value:
            environment[name] = value
        elif name in ours:
            environment[name] = ours[name]
    return environment
