"""The tools that come with the house: all of them to be judged, and those that this machine can run to be run."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping

from curtainwall.compose.knowledge import open_notebook, skill_index
from curtainwall.compose.secret_files import SecretReads, with_given_secrets
from curtainwall.compose.servers import open_servers
from curtainwall.compose.setup import Setup, judging_masker
from curtainwall.config.agents import SandboxesSection
from curtainwall.facts import Masker
from curtainwall.host import MIB, Bubblewrap, Credentials, ShareLimits, Shares, WatchRecords, find_bubblewrap, limits_of_this_machine
from curtainwall.host.home import Home, user_homes
from curtainwall.model import SHELL_RUN, AskGate, CallPermitted, Place, Prepared, Role, ToolResult
from curtainwall.policy import SECRET_PATTERNS, Protection, is_secret_name
from curtainwall.tools import (
    CONFINED,
    NATIVE_TOOLS,
    Catalogue,
    Denials,
    Mounts,
    NativeTools,
    OnHeld,
    Refiner,
    Runner,
    Sandboxes,
    ToolHub,
    WithheldFiles,
    fetch_runners,
    filesystem_runners,
    git_refiners,
    git_runners,
    move_refiners,
    shell_runners,
    team_tools,
)
from curtainwall.tools.memory import memory_refiners
from curtainwall.tools.skills import skill_refiners


def judged_tools(
    home: Home,
    masker: Masker,
    runners: Mapping[str, Runner] | None = None,
    *,
    own_ports: frozenset[int] = frozenset(),
    teams: Iterable[str] = (),
    closers: Mapping[str, Refiner] | None = None,
    protection: Protection | None = None,
) -> NativeTools:
    """Return every tool that comes with the house; without runners they can be judged and not run."""
    user, specs = user_homes(os.environ)[0], (*NATIVE_TOOLS, *team_tools(teams))
    every = {**_closers(home, masker, protection or Protection()), **(closers or {})}
    return NativeTools(
        Catalogue(specs), home=user, masker=masker, runners=runners, own_ports=own_ports, closers=every, of_others=with_given_secrets
    )


def run_tools(
    home: Home,
    masker: Masker,
    credentials: Credentials,
    protection: Protection,
    ask_again: AskGate,
    session: Mapping[str, Runner],
    mounts: Callable[[Place], Mounts],
    own_ports: frozenset[int] = frozenset(),
    teams: Iterable[str] = (),
    closers: Mapping[str, Refiner] | None = None,
    on_held: OnHeld | None = None,
    shares: Shares | None = None,
    denials: Denials = lambda _tool, _place: None,
) -> NativeTools:
    """Return the tools that run here; where nothing can be confined, shell and git are absent rather than unconfined.

    Those of teams are there where there is a team to talk to.
    """
    sandboxes = Sandboxes(on_held, shares, WatchRecords(home.watched))
    runners = {**_file_tools(masker, protection), **fetch_runners(masker, credentials, ask_again, own_ports), **session}
    names = tuple(teams)
    specs = (*NATIVE_TOOLS, *team_tools(names)) if names else NATIVE_TOOLS
    if isinstance(find_bubblewrap(), Bubblewrap):
        withheld = WithheldFiles(SECRET_PATTERNS, is_secret_name, denials)
        git = git_runners(
            sandboxes=sandboxes,
            protected=protection.never,
            own_ports=own_ports,
            withheld=withheld,
        )
        runners |= {**shell_runners(sandboxes=sandboxes), **git}
    else:
        specs = tuple(spec for spec in specs if spec.server not in CONFINED)
    return NativeTools(
        Catalogue(specs),
        home=user_homes(os.environ)[0],
        masker=masker,
        runners=runners,
        mounts=mounts,
        own_ports=own_ports,
        closers={**_closers(home, masker, protection), **(closers or {})},
        of_others=with_given_secrets,
    )


def _closers(home: Home, masker: Masker, protection: Protection) -> dict[str, Refiner]:
    seen = SecretReads()
    return {
        SHELL_RUN: seen.closer,
        **git_refiners(masker, is_secret_name, seen.closer),
        **skill_refiners(skill_index(home), masker),
        **memory_refiners(open_notebook(home), masker),
        **move_refiners(masker, lambda path, place: protection.stops(Role.DELETE_PATH, path, place.workspace)),
    }


def _file_tools(masker: Masker, protection: Protection) -> dict[str, Runner]:
    """Return the file tools, which leave protected paths out of walks; which those are depends on whose workspace it is."""

    def run(prepared: Prepared, permit: CallPermitted, place: Place) -> Awaitable[ToolResult]:
        runners = filesystem_runners(masker, is_protected=lambda path: protection.stops(Role.READ_PATH, path, place.workspace))
        return runners[prepared.subject.tool](prepared, permit, place)

    return dict.fromkeys(filesystem_runners(masker), run)


def judging_tools(setup: Setup) -> ToolHub:
    """Return every tool for judging alone: nothing runs, no server is started, and nothing is written."""
    masker = judging_masker(setup.home)
    protection, teams = setup.policy.protection, setup.config.teams
    native = judged_tools(setup.home, masker, own_ports=setup.own_ports, teams=teams, protection=protection)
    return ToolHub(native, open_servers(setup.home, setup.servers, masker, protection))


def share_limits(section: SandboxesSection) -> ShareLimits:
    """Return what sandboxes are held to: what the user wrote, and by the size of this machine what they left out."""
    here = limits_of_this_machine()
    commands = section.commands or max(here.commands, section.session_commands)
    # A total that was not written is never less than a part that was, and a part never more than the total.
    processes = section.processes if "processes" in section.model_fields_set else max(section.processes, section.session_processes)
    memory = section.memory * MIB if section.memory else max(here.memory, (section.session_memory or 0) * MIB)
    return ShareLimits(
        session_commands=min(section.session_commands, commands),
        commands=commands,
        session_memory=section.session_memory * MIB if section.session_memory else min(here.session_memory, memory),
        memory=memory,
        session_processes=min(section.session_processes, processes),
        processes=processes,
    )
