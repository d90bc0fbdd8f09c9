"""The tools that ship: all of them for judging, and those that this machine can run for running."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from curtainwall.compose.knowledge import open_notebook, skill_index
from curtainwall.compose.masker import judging_masker
from curtainwall.compose.secret_files import SecretReads, with_given_secrets
from curtainwall.compose.servers import open_servers
from curtainwall.compose.setup import Setup
from curtainwall.config.agents import SandboxesSection, contained_agents
from curtainwall.facts import Masker
from curtainwall.host.home import Home, user_homes
from curtainwall.model import SHELL_RUN, CallPermitted, CommandRefused, Place, Prepared, Role, SessionViews, ToolResult
from curtainwall.policy import SECRET_PATTERNS, Protection, is_secret_name
from curtainwall.tools import (
    NATIVE_TOOLS,
    Catalogue,
    NativeTools,
    Refiner,
    Runner,
    ToolHub,
    git_refiners,
    move_refiners,
    team_tools,
)
from curtainwall.tools.memory import memory_refiners
from curtainwall.tools.skills import skill_refiners

if TYPE_CHECKING:
    # Start-up time: judging a call runs none.
    from curtainwall.host import Credentials, ShareLimits, Shares
    from curtainwall.model import AskGate
    from curtainwall.tools import Denials, OnHeld


def judged_tools(
    home: Home,
    masker: Masker,
    runners: Mapping[str, Runner] | None = None,
    *,
    own_ports: frozenset[int] = frozenset(),
    teams: Iterable[str] = (),
    protection: Protection | None = None,
) -> NativeTools:
    """Return every tool that ships; without runners they can only be judged."""
    user, specs = user_homes(os.environ)[0], (*NATIVE_TOOLS, *team_tools(teams))
    return NativeTools(
        Catalogue(specs),
        home=user,
        masker=masker,
        runners=runners,
        own_ports=own_ports,
        refiners=_refiners(home, masker, protection or Protection()),
        server_refiner=with_given_secrets,
    )


def run_tools(
    setup: Setup,
    masker: Masker,
    credentials: "Credentials",
    ask_again: "AskGate",
    from_session: Mapping[str, Runner],
    refiners: Mapping[str, Refiner],
    on_held: "OnHeld",
    shares: "Shares",
    denials: "Denials",
    replaced: Mapping[str, Runner] | None,
    views: SessionViews,
) -> NativeTools:
    """Return the tools that run here; without confinement, shell and git are absent rather than unconfined.

    Tools for teams exist only if there is a team. Runners in `replaced` run in place of ours; raise `CommandRefused` for unknown names.
    """
    # Start-up time: as above.
    from curtainwall.host import Bubblewrap, WatchRecords, find_bubblewrap
    from curtainwall.tools import CONFINED, Sandboxes

    home, protection, own_ports = setup.home, setup.policy.protection, setup.own_ports
    sandboxes = Sandboxes(on_held, shares, WatchRecords(home.watched))

    def fetch() -> Mapping[str, Runner]:
        from curtainwall.tools import fetch_runners

        return fetch_runners(masker, credentials, ask_again, own_ports)

    def git() -> Mapping[str, Runner]:
        from curtainwall.tools import WithheldFiles, git_runners

        withheld = WithheldFiles(SECRET_PATTERNS, is_secret_name, denials)
        return git_runners(sandboxes=sandboxes, protected=protection.never, own_ports=own_ports, withheld=withheld)

    def shell() -> Mapping[str, Runner]:
        from curtainwall.tools import shell_runners

        return shell_runners(sandboxes=sandboxes)

    runners = {**_file_tools(masker, protection), **_late("fetch", fetch), **from_session}
    names = tuple(setup.config.teams)
    specs = (*NATIVE_TOOLS, *team_tools(names)) if names else NATIVE_TOOLS
    others = dict(replaced or {})
    if unknown := sorted(others.keys() - {spec.full_name for spec in (*specs, *team_tools(names))}):
        raise CommandRefused(f"there is no tool `{unknown[0]}` to replace; declare a new one with `curtainwall.tool`")
    if isinstance(find_bubblewrap(), Bubblewrap):
        runners |= {**_late("shell", shell), **_late("git", git)}
    else:
        specs = tuple(spec for spec in specs if spec.server not in CONFINED or spec.full_name in others)
    runners |= others
    return NativeTools(
        Catalogue(specs),
        home=user_homes(os.environ)[0],
        masker=masker,
        runners=runners,
        contained=contained_agents(setup.config.agents),
        own_ports=own_ports,
        refiners={**_refiners(home, masker, protection), **refiners},
        server_refiner=with_given_secrets,
        views=views,
        without_view=others,
    )


def _late(server: str, load: Callable[[], Mapping[str, Runner]]) -> dict[str, Runner]:
    """Return the runners of one kind of tool, loaded on the first call: most sessions use few kinds."""
    loaded = cache(load)

    def run(prepared: Prepared, permit: CallPermitted, place: Place) -> Awaitable[ToolResult]:
        return loaded()[prepared.subject.tool](prepared, permit, place)

    return dict.fromkeys((spec.full_name for spec in NATIVE_TOOLS if spec.server == server), run)


def _refiners(home: Home, masker: Masker, protection: Protection) -> dict[str, Refiner]:
    secret_reads = SecretReads()
    return {
        SHELL_RUN: secret_reads.refine,
        **git_refiners(masker, is_secret_name, secret_reads.refine),
        **skill_refiners(skill_index(home), masker),
        **memory_refiners(open_notebook(home), masker),
        **move_refiners(masker, lambda path, place: protection.stops(Role.DELETE_PATH, path, place.workspace)),
    }


def _file_tools(masker: Masker, protection: Protection) -> dict[str, Runner]:
    """Return the file tools, which skip protected paths in walks; which paths those are depends on the workspace."""

    def run(prepared: Prepared, permit: CallPermitted, place: Place) -> Awaitable[ToolResult]:
        # Start-up time: loaded on the first call.
        from curtainwall.tools import filesystem_runners

        runners = filesystem_runners(masker, is_protected=lambda path: protection.stops(Role.READ_PATH, path, place.workspace))
        return runners[prepared.subject.tool](prepared, permit, place)

    return dict.fromkeys((spec.full_name for spec in NATIVE_TOOLS if spec.server == "filesystem"), run)


def judging_tools(setup: Setup) -> ToolHub:
    """Return every tool for judging only: nothing runs, no server is started, and nothing is written."""
    masker = judging_masker(setup.home)
    protection, teams = setup.policy.protection, setup.config.teams
    native = judged_tools(setup.home, masker, own_ports=setup.own_ports, teams=teams, protection=protection)
    return ToolHub(native, open_servers(setup.home, setup.servers, masker, protection) if setup.servers else None)


def share_limits(section: SandboxesSection) -> "ShareLimits":
    """Return the limits of sandboxes: the configured ones, or else defaults for the size of this machine."""
    # Start-up time: as above.
    from curtainwall.host import MIB, ShareLimits, limits_of_this_machine

    machine = limits_of_this_machine()
    commands = section.commands or max(machine.commands, section.session_commands)
    # A default total is never less than a configured part, and a part is never more than the total.
    processes = section.processes if "processes" in section.model_fields_set else max(section.processes, section.session_processes)
    memory = section.memory * MIB if section.memory else max(machine.memory, (section.session_memory or 0) * MIB)
    return ShareLimits(
        session_commands=min(section.session_commands, commands),
        commands=commands,
        session_memory=section.session_memory * MIB if section.session_memory else min(machine.session_memory, memory),
        memory=memory,
        session_processes=min(section.session_processes, processes),
        processes=processes,
    )
