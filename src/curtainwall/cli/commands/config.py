"""`curtainwall config`: show the configuration and its path, or write a file to start from."""

import os

import typer

from curtainwall.cli.screen import Output, OutputOption, hint, note, show, show_json
from curtainwall.compose.config_checks import fault_in_config, missing_references
from curtainwall.config.docs import commented, effective
from curtainwall.config.loader import load_config
from curtainwall.host.home import find_home
from curtainwall.model import CommandRefused
from curtainwall.session import inert

app = typer.Typer()


@app.command("show")
def show_config(output: OutputOption = Output.TEXT) -> None:
    """Print the configuration that holds, defaults included, and what in it cannot be used."""
    home = find_home()
    config = load_config(home.config)
    if output is Output.JSON:
        show_json(config.model_dump(mode="json", by_alias=True))
    else:
        if not home.config.exists():
            hint(f"there is no `{home.config}`; these are the defaults")
        show(effective(config).rstrip())
    for problem in missing_references(config):
        note(inert(problem))
    if fault := fault_in_config(home, config):
        note(f"this cannot be used, and nothing is allowed until it is corrected: {inert(fault)}")
        raise typer.Exit(1)


@app.command("path")
def show_path(output: OutputOption = Output.TEXT) -> None:
    """Print where the configuration file is, or would be."""
    path = str(find_home().config)
    if output is Output.JSON:
        show_json({"path": path, "exists": os.path.exists(path)})
    else:
        show(path)


@app.command("init")
def init_config(output: OutputOption = Output.TEXT) -> None:
    """Write a commented configuration file; one that is there stays as it is."""
    home = find_home()
    home.prepare()
    try:
        descriptor = os.open(home.config, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise CommandRefused(f"`{home.config}` is there already; edit it, or move it away first") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(commented())
    if output is Output.JSON:
        show_json({"path": str(home.config)})
    else:
        show(str(home.config))
