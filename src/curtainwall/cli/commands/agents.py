"""`curtainwall agents`: list the agents and what each lacks; build and remove container images.

The client of the Docker engine is an extra. Functions import what needs it, so that agents are listed without it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.channels.plain import counted
from curtainwall.cli import loop
from curtainwall.cli.screen import Output, OutputOption, columns, hint, note, show, show_json
from curtainwall.compose.external.processes import missing_for_local
from curtainwall.compose.external.providers import accesses, missing_keys
from curtainwall.compose.external.status import AgentStatus
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.config.agents import BUILTIN, DEVCONTAINER, LOCAL, contained_agents
from curtainwall.config.schema import Config
from curtainwall.egress import Access
from curtainwall.host.extras import ExtraMissing
from curtainwall.model import NotFound
from curtainwall.session import inert

app = typer.Typer()

_LONGEST_LINE = 160


@app.command("list")
def list_agents(output: OutputOption = Output.TEXT) -> None:
    """List the agents: the version that each image holds, whether that is built, and what is in the way of running it."""
    statuses = loop.run(_statuses())
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
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="build on this image: one of yours, `dev`, or `devcontainer` for the one in this directory")
    ] = "",
    pull: Annotated[bool, typer.Option("--pull", help="fetch the image below anew, and build on exactly that from now on")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Build the images that agents run in. One that is there already is not built again; another recipe is another image."""
    from curtainwall.agents.external.container import devcontainer_image

    base = devcontainer_image(Path.cwd()) if image == DEVCONTAINER else image
    if base != image:
        note(f"`devcontainer.json` names the image `{inert(base)}`")
    built = loop.run(_build(name, network, base, pull=pull))
    if output is Output.JSON:
        show_json([{"agent": agent, "image": made, "new": is_new} for agent, made, is_new in built])
        return
    for agent, name_of_image, is_new in built:
        show(f"{agent}: {name_of_image} {'is built' if is_new else 'was there already'}")


@app.command()
def prune(
    everything: Annotated[bool, typer.Option("--all", help="also the images that are up to date")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove images that no recipe makes any more, and what building left behind; images that containers use stay."""
    removed, size = loop.run(_prune(everything=everything))
    if output is Output.JSON:
        show_json({"removed": removed, "bytes": size})
        return
    for image in removed:
        show(f"removed {inert(image)}")
    show(f"{counted(len(removed), 'image')} removed, {size // 1024**2} MiB at most")


async def _prune(*, everything: bool) -> tuple[list[str], int]:
    from curtainwall.agents.external.container import Engine, ImagePins
    from curtainwall.compose.external.images import AgentImages

    setup, engine = load_setup(), Engine()
    try:
        images = AgentImages(setup.config, engine, ImagePins(setup.home.root).all())
        return await images.prune(everything=everything)
    finally:
        await engine.close()


async def _statuses() -> Sequence[AgentStatus]:
    setup = load_setup()
    return [AgentStatus(BUILTIN, "", "", built=False), await _local(setup.config), *await _contained(setup)]


async def _contained(setup: Setup) -> Sequence[AgentStatus]:
    config = setup.config
    try:
        from curtainwall.agents.external.container import Engine, ImagePins
        from curtainwall.compose.external.images import AgentImages, adapters_of
    except ExtraMissing as fault:
        return [AgentStatus(name, "", "", built=False, lacks=(str(fault),)) for name in contained_agents(config.agents)]
    engine = Engine()
    try:
        adapters = adapters_of(config)
        keys = {name: await _keys_of(config, name) for name in adapters.names}
        return await AgentImages(config, engine, ImagePins(setup.home.root).all()).statuses(adapters, keys)
    finally:
        await engine.close()


def _given(config: Config, agent: str) -> dict[str, Access]:
    return accesses(config, lambda _name, _value: None, agent=agent)


async def _keys_of(config: Config, agent: str) -> frozenset[str]:
    access_by_provider = _given(config, agent)
    return frozenset(access_by_provider.keys() - await missing_keys(access_by_provider))


async def _local(config: Config) -> AgentStatus:
    return AgentStatus(LOCAL, "", "", built=False, lacks=await missing_for_local(LOCAL, config, _given(config, LOCAL)))


async def _build(name: str | None, network: str | None, base: str = "", *, pull: bool = False) -> list[tuple[str, str, bool]]:
    from curtainwall.agents.external.container import Engine, ImagePins
    from curtainwall.compose.external.images import AgentImages, adapters_of

    setup, engine = load_setup(), Engine()
    config, pins = setup.config, ImagePins(setup.home.root)
    images = AgentImages(config, engine, pins.all())
    if name is not None and name not in adapters_of(config).names:
        raise NotFound(f"there is no agent `{name}` in a container; there are: {', '.join(adapters_of(config).names)}")
    built: list[tuple[str, str, bool]] = []
    try:
        await engine.about()
        chosen = images.buildable if name is None else (name,)
        if pull:
            for ground in dict.fromkeys(images.recipes(agent, base).ground for agent in chosen if not images.is_users(agent)):
                pinned = await engine.pull(ground)
                pins.set(ground, pinned)
                hint(f"`{inert(ground)}` is pinned to `{inert(pinned)}`")
            images = AgentImages(config, engine, pins.all())
        for agent in chosen:
            is_new = not images.is_users(agent) and await images.lacks(agent, base)
            async for line in images.build(agent, network, base):
                hint(f"{agent}: {inert(line)[:_LONGEST_LINE]}")
            built.append((agent, images.of(agent, base), is_new))
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
