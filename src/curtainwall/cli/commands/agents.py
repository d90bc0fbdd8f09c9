"""`curtainwall agents`: list the agents and what each lacks, and build container images."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from curtainwall.agents.external.container import Engine
from curtainwall.cli.screen import Output, OutputOption, columns, hint, show, show_json
from curtainwall.compose.external.containers import AgentImages, AgentStatus, adapters_of
from curtainwall.compose.external.processes import missing_for_local
from curtainwall.compose.external.providers import accesses, missing_keys
from curtainwall.compose.setup import load_setup
from curtainwall.config.agents import BUILTIN, LOCAL
from curtainwall.config.schema import Config
from curtainwall.egress import Access
from curtainwall.model import NotFound
from curtainwall.session import inert

app = typer.Typer()

_LONGEST_LINE = 160


@app.command("list")
def list_agents(output: OutputOption = Output.TEXT) -> None:
    """List the agents: the version that each image holds, whether that is built, and what is in the way of running it."""
    statuses = asyncio.run(_statuses())
    if output is Output.JSON:
        show_json([_as_json(status) for status in statuses])
        return
    rows = [(status.name, status.version or "-", _image_word(status), "yes" if status.is_runnable else "no") for status in statuses]
    show(columns(("agent", "version", "image", "can run"), rows))
    # Several agents often lack the same thing; show it once.
    lacks = dict.fromkeys(why for status in statuses for why in status.lacks)
    lines = [f"{', '.join(status.name for status in statuses if why in status.lacks)}: {inert(why)}" for why in lacks]
    if lines:
        show("\n".join(["", *lines]))


@app.command()
def build(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="one agent; left out, all that there are recipes for")] = None,
    network: Annotated[str | None, typer.Option(help="the engine's network to build in, such as `host`; left out, its usual one")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Build the images that agents run in. One that is there already is not built again; another recipe is another image."""
    built = asyncio.run(_build(name, network))
    if output is Output.JSON:
        show_json([{"agent": agent, "image": image, "new": is_new} for agent, image, is_new in built])
        return
    for agent, image, is_new in built:
        show(f"{agent}: {image} {'is built' if is_new else 'was there already'}")


async def _statuses() -> Sequence[AgentStatus]:
    config, engine = load_setup().config, Engine()
    try:
        builtin = AgentStatus(BUILTIN, "", "", built=False)
        adapters = adapters_of(config)
        keys = {name: await _keys_of(config, name) for name in adapters.names}
        contained = await AgentImages(config, engine).standings(adapters, keys)
        return [builtin, await _local(config), *contained]
    finally:
        await engine.close()


def _given(config: Config, agent: str) -> dict[str, Access]:
    return accesses(config, lambda _name, _value: None, agent=agent)


async def _keys_of(config: Config, agent: str) -> frozenset[str]:
    access_by_provider = _given(config, agent)
    return frozenset(access_by_provider.keys() - await missing_keys(access_by_provider))


async def _local(config: Config) -> AgentStatus:
    return AgentStatus(LOCAL, "", "", built=False, lacks=await missing_for_local(LOCAL, config, _given(config, LOCAL)))


async def _build(name: str | None, network: str | None) -> list[tuple[str, str, bool]]:
    config, engine = load_setup().config, Engine()
    images = AgentImages(config, engine)
    if name is not None and name not in adapters_of(config).names:
        raise NotFound(f"there is no agent `{name}` in a container; there are: {', '.join(adapters_of(config).names)}")
    built: list[tuple[str, str, bool]] = []
    try:
        await engine.about()
        for agent in images.buildable if name is None else (name,):
            is_new = not images.is_users(agent) and await images.lacks(agent)
            async for line in images.build(agent, network):
                hint(f"{agent}: {inert(line)[:_LONGEST_LINE]}")
            built.append((agent, images.of(agent), is_new))
    finally:
        await engine.close()
    return built


def _image_word(status: AgentStatus) -> str:
    if status.name in (BUILTIN, LOCAL):
        return "needs none"
    return "built" if status.built else "not built" if status.image else "none"


def _as_json(status: AgentStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "version": status.version,
        "image": status.image,
        "built": status.built,
        "runnable": status.is_runnable,
        "why": status.why,
    }
