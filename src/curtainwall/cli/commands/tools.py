"""`curtainwall tools`: what an agent can ask for, and what each argument means at the gate."""

from typing import Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, note, show, show_json
from curtainwall.cli.tables import columns
from curtainwall.compose.advice import similar_tools
from curtainwall.compose.setup import set_up
from curtainwall.compose.tools import judging_tools
from curtainwall.model import Meaning, NotFound, ToolSpec

app = typer.Typer()


@app.command("list")
def list_tools(server: Annotated[str | None, typer.Option(help="of this server alone")] = None, output: OutputOption = Output.TEXT) -> None:
    """List the tools in the catalogue."""
    found = [spec for spec in judging_tools(set_up()).listing() if server in {None, spec.server}]
    if output is Output.JSON:
        show_json([_as_json(spec) for spec in found])
    elif found:
        show(columns(("tool", "effect", "does"), [(spec.full_name, spec.effect, spec.description) for spec in found]))
    else:
        note(f"there is no tool of a server `{server}`")


@app.command("show")
def show_tool(name: Annotated[str, typer.Argument(metavar="TOOL", help="server.tool")], output: OutputOption = Output.TEXT) -> None:
    """Show one tool: its arguments, and the roles they play."""
    setup = set_up()
    spec = judging_tools(setup).find(name)
    if spec is None:
        alike = " or ".join(f"`{tool}`" for tool in similar_tools(setup, name))
        guess = f"; did you mean {alike}?" if alike else ";"
        raise NotFound(f"there is no tool `{name}`{guess} `curtainwall tools list` shows them")
    if output is Output.JSON:
        show_json(_as_json(spec))
        return
    show(f"{spec.full_name} ({spec.effect}): {spec.description}")
    properties, required = spec.schema_.get("properties"), spec.schema_.get("required")
    meanings = {meaning.argument: meaning for meaning in spec.meanings}
    rows: list[tuple[str, str, str, str]] = []
    for argument, told in properties.items() if isinstance(properties, dict) else ():
        about = told if isinstance(told, dict) else {}
        mark = "" if isinstance(required, list) and argument in required else "?"
        rows.append((f"{argument}{mark}", str(about.get("type", "")), _roles(meanings.get(argument)), str(about.get("description", ""))))
    show(columns(("argument", "type", "means", "is"), rows) if rows else "it takes no arguments")


def _roles(meaning: Meaning | None) -> str:
    if meaning is None:
        return "-"
    cases = [f"{'+'.join(case.roles)} with {case.argument}" for case in meaning.cases]
    return "; ".join(["+".join(meaning.roles), *cases])


def _as_json(spec: ToolSpec) -> dict[str, object]:
    meanings = [meaning.model_dump(mode="json", exclude_defaults=True) for meaning in spec.meanings]
    told = {"name": spec.full_name, "effect": spec.effect.value, "description": spec.description}
    return {**told, "schema": dict(spec.schema_), "meanings": meanings}
