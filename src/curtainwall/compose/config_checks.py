"""Checks whether a readable configuration can be used: its lists, servers, credentials and hooks, but not the rules."""

import os
import shutil
from collections.abc import Iterator, Mapping

from curtainwall.agents.builtin.models import fault_in_name
from curtainwall.compose.models import model_settings
from curtainwall.compose.policy import lists_of, rule_sources
from curtainwall.compose.setup import load_setup
from curtainwall.config.agents import BUILTIN
from curtainwall.config.schema import Config
from curtainwall.host.home import Home, user_homes
from curtainwall.model import Broken, CurtainwallError
from curtainwall.policy import Lists, Protection, load


def fault_in_config(home: Home, config: Config) -> str:
    """Return why this configuration cannot be used; empty if it can, or if only the rules are at fault."""
    try:
        lists_of(home.config, config)
    except CurtainwallError as fault:
        return str(fault)
    try:
        load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(home.root)})
    except CurtainwallError as fault:
        return "" if _rules_are_at_fault(home) else str(fault)
    return ""


def _rules_are_at_fault(home: Home) -> bool:
    try:
        load(rule_sources(home), lists=Lists(), protection=Protection())
    except CurtainwallError:
        return True
    return False


def missing_references(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return a sentence for each configured program and model that is missing, with its key."""
    return (*_programs(config, environ), *_models(config, environ))


def _programs(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    commands = [
        ("approvals.approver", config.approvals.approver[:1], "every ask is left to humans"),
        ("notify.command", config.notify.command[:1], "nobody is told by it"),
        *((f"servers.{name}.command", (server.command,), "its tools cannot be called") for name, server in config.servers.items()),
    ]
    user = user_homes(environ)[0]
    # A sandboxed server always has the system's programs, whatever our path is.
    places = f"{environ.get('PATH', '')}{os.pathsep}{os.defpath}"
    for key, programs, consequence in commands:
        for program in programs:
            if shutil.which(user + program[1:] if program.startswith("~/") else program, path=places) is None:
                yield f"`{key}` names the program `{program}`, which is not there or cannot be run; until it can, {consequence}"


def _models(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        settings = model_settings(config, lambda _name, _value: None, environ)
    except Broken as fault:
        yield str(fault)
        return
    models = [("model.name", BUILTIN, config.model.name)]
    models += [(f"cron.{name}.model", job.agent, job.model or "") for name, job in config.cron.items()]
    models += [(f"webhooks.hooks.{name}.model", hook.agent, hook.model or "") for name, hook in config.webhooks.hooks.items()]
    models += [(f"teams.{name}.model", team.agent, team.model or "") for name, team in config.teams.items()]
    for key, agent, model in models:
        if agent == BUILTIN and (fault := fault_in_name(model, settings)):
            yield f"`{key}`: {fault}"
