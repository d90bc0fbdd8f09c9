"""Programs and models that the configuration names and that are not there: what stands on them would fail, or be silent, later on."""

import os
import shutil
from collections.abc import Iterator, Mapping

from curtainwall.agents.builtin.models import fault_in_name
from curtainwall.app.config import Config
from curtainwall.app.config_agents import BUILTIN
from curtainwall.app.home import user_homes
from curtainwall.app.models import model_settings
from curtainwall.model import Broken


def dangling(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return a sentence for each program and model that is named and not there, with the key that names it."""
    return (*_programs(config, environ), *_models(config, environ))


def _programs(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    named = [
        ("approvals.approver", config.approvals.approver[:1], "every ask is left to humans"),
        ("notify.command", config.notify.command[:1], "nobody is told by it"),
        *((f"servers.{name}.command", (server.command,), "its tools cannot be called") for name, server in config.servers.items()),
    ]
    user = user_homes(environ)[0]
    # The system's own programs are there for a sandboxed server whatever our path says.
    places = f"{environ.get('PATH', '')}{os.pathsep}{os.defpath}"
    for key, programs, so in named:
        for program in programs:
            if shutil.which(user + program[1:] if program.startswith("~/") else program, path=places) is None:
                yield f"`{key}` names the program `{program}`, which is not there or cannot be run; until it can, {so}"


def _models(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        settings = model_settings(config, lambda _name, _value: None, environ)
    except Broken as fault:
        yield str(fault)
        return
    named = [("model.name", BUILTIN, config.model.name)]
    named += [(f"cron.{name}.model", job.agent, job.model or "") for name, job in config.cron.items()]
    named += [(f"webhooks.hooks.{name}.model", hook.agent, hook.model or "") for name, hook in config.webhooks.hooks.items()]
    named += [(f"teams.{name}.model", team.agent, team.model or "") for name, team in config.teams.items()]
    for key, agent, model in named:
        if agent == BUILTIN and (fault := fault_in_name(model, settings)):
            yield f"`{key}`: {fault}"
