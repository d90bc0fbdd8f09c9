"""`curtainwall tools`: the tools that agents can call, and what their arguments mean at the gate."""

from typing import Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, columns, hint, show, show_json
from curtainwall.compose.servers import server_specs
from curtainwall.config.loader import load_config
from curtainwall.config.secrets import secret_variables
from curtainwall.host.home import find_home
from curtainwall.model import Meaning, NotFound, ToolSpec
from curtainwall.tools import NATIVE_TOOLS, Catalogue, team_tools
from curtainwall.tools.servers import Reviews, ServerCatalogue

app = typer.Typer()


@app.command("list")
def list_tools(server: Annotated[str | None, typer.Option(help="of this server alone")] = None, output: OutputOption = Output.TEXT) -> None:
    """List the tools in the catalogue."""
    specs = [spec for spec in _known() if server in {None, spec.server} and not spec.for_house]
    if output is Output.JSON:
        show_json([_as_json(spec) for spec in specs])
    elif specs:
        show(columns(("tool", "effect", "does"), [(spec.full_name, spec.effect, spec.description) for spec in specs]))
    else:
        hint(f"there is no tool of a server `{server}`")


@app.command("show")
def show_tool(name: Annotated[str, typer.Argument(metavar="TOOL", help="server.tool")], output: OutputOption = Output.TEXT) -> None:
    """Show one tool: its arguments, and the roles they play."""
    spec = next((spec for spec in _known() if spec.full_name == name), None)
    if spec is None:
        # Start-up time: only an unknown name needs suggestions.
        from curtainwall.compose.setup import load_setup
        from curtainwall.compose.trial import similar_tools

        alike = " or ".join(f"`{tool}`" for tool in similar_tools(load_setup(), name))
        guess = f"; did you mean {alike}?" if alike else ";"
        raise NotFound(f"there is no tool `{name}`{guess} `curtainwall tools list` shows them")
    if output is Output.JSON:
        show_json(_as_json(spec))
        return
    show(f"{spec.full_name} ({spec.effect}): {spec.description}")
    properties, required = spec.schema_.get("properties"), spec.schema_.get("required")
    meanings = {meaning.argument: meaning for meaning in spec.meanings}
    rows: list[tuple[str, str, str, str]] = []
    for argument, schema in properties.items() if isinstance(properties, dict) else ():
        about = schema if isinstance(schema, dict) else {}
        mark = "" if isinstance(required, list) and argument in required else "?"
        rows.append((f"{argument}{mark}", str(about.get("type", "")), _roles(meanings.get(argument)), str(about.get("description", ""))))
    show(columns(("argument", "type", "means", "is"), rows) if rows else "it takes no arguments")


def _known() -> tuple[ToolSpec, ...]:
    """Return our own tools, those of teams, and the reviewed ones of servers; judges nothing and starts no server."""
    home = find_home()
    config = load_config(home.config)
    own = Catalogue((*NATIVE_TOOLS, *team_tools(config.teams)))
    servers = {spec.name: spec for spec in server_specs(config, secret_variables(config))}
    return (*own.listing(), *ServerCatalogue(servers, Reviews(home.root / "servers")).listing())


def _roles(meaning: Meaning | None) -> str:
    if meaning is None:
        return "-"
    cases = [f"{'+'.join(case.roles)} with {case.argument}" for case in meaning.cases]
    return "; ".join(["+".join(meaning.roles), *cases])


def _as_json(spec: ToolSpec) -> dict[str, object]:
    meanings = [meaning.model_dump(mode="json", exclude_defaults=True) for meaning in spec.meanings]
    document = {"name": spec.full_name, "effect": spec.effect.value, "description": spec.description}
    return {**document, "schema": dict(spec.schema_), "meanings": meanings}
