"""`curtainwall servers`: add, test, review and remove third-party tool servers."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer
from pydantic import JsonValue

from curtainwall.channels.plain import exact_rows
from curtainwall.cli import loop
from curtainwall.cli.screen import Misuse, Output, OutputOption, YesOption, columns, confirm, hint, note, room, show, show_json
from curtainwall.compose.masker import judging_masker
from curtainwall.compose.servers import check_server, needed_paths, open_servers
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.config.edit import add_roles, add_server, has_server, remove_server, shown
from curtainwall.config.loader import load_config
from curtainwall.config.secrets import secret_variables
from curtainwall.facts import is_beneath
from curtainwall.host.home import find_home
from curtainwall.model import Broken, NotFound, Place, SessionId, Workspace, in_order
from curtainwall.session import inert, visible
from curtainwall.tools.servers import (
    OfferedTool,
    Proposal,
    Review,
    Reviews,
    Servers,
    ServerSpec,
    ToolStatus,
    comparison,
    is_running,
    propose_roles,
    statement,
    why_unusable,
)

_LEAD = "# "
_SPELT_OUT = "= "


def review_text(before: Review, offered: Mapping[str, OfferedTool]) -> str:
    """Return everything new that a server offers, as comments for the proposed roles; empty if nothing is new."""
    width = room()
    rows: list[str] = []
    for line in _review(before, offered):
        rows += [line] if width is None else exact_rows(line, width - len(_LEAD))
    return "\n".join(f"{_LEAD}{row}" for row in rows)


def new_tools(before: Review, offered: Mapping[str, OfferedTool]) -> list[str]:
    """Return the names of the tools that nobody has reviewed yet."""
    return sorted(offered.keys() - before.tools.keys())


def changed_tools(before: Review, offered: Mapping[str, OfferedTool]) -> list[str]:
    """Return the names of tools whose description has changed since the review, even if it has changed back."""
    return sorted((before.compared(offered).changed & offered.keys()) - {*new_tools(before, offered)})


def _review(before: Review, offered: Mapping[str, OfferedTool]) -> Iterator[str]:
    for name in new_tools(before, offered):
        yield f"`{name}` is new. The server says:"
        for line in statement(offered[name]):
            yield from _seen("  ", line)
    for name in changed_tools(before, offered):
        lines = comparison(before.tools[name], offered[name])
        if not lines:
            yield f"`{name}` was described otherwise in the meantime, and is now as it was reviewed; what it said then is not kept"
            continue
        yield f"`{name}` has changed since it was reviewed (- then, + now):"
        for line in lines:
            if line.skipped:
                yield f"  …[{line.skipped} lines are as they were reviewed]…"
            yield from _seen(f"{line.mark} ", line.text)
    for name in sorted(before.tools.keys() - offered.keys()):
        yield f"`{name}` is no longer offered"


def _seen(mark: str, line: str) -> Iterator[str]:
    """Yield a line with all characters visible, and an escaped copy if it has characters that may look like others."""
    yield f"{mark}{visible(in_order(line))}"
    if not line.isascii():
        yield f"{mark}{_SPELT_OUT}{''.join(letter if letter.isascii() else _escaped(letter) for letter in line)}"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()


app = typer.Typer()

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="as in `[servers.NAME]`")]
KnownArgument = Annotated[str, typer.Argument(metavar="SERVER", help="as in `[servers.NAME]`")]


@app.command("list")
def list_servers(output: OutputOption = Output.TEXT) -> None:
    """List the servers: how they run, and how many of their tools can be called."""
    setup = load_setup()
    servers, documents = _servers(setup), list[dict[str, object]]()
    for spec in setup.servers:
        standings = [servers.catalogue.standing(spec.name, tool) for tool in {*servers.catalogue.review(spec.name).tools, *spec.tools}]
        documents.append(
            {
                "name": spec.name,
                "command": [spec.command, *spec.args],
                "runs": "trusted" if spec.trusted else "sandbox",
                "shared": spec.shared,
                "running": is_running(setup.home.root / "servers", spec.name),
                "reviewed": bool(servers.catalogue.review(spec.name).tools),
                "ready": standings.count(ToolStatus.READY),
                "suspended": standings.count(ToolStatus.CHANGED),
                "denied": len(standings) - standings.count(ToolStatus.READY) - standings.count(ToolStatus.CHANGED),
            }
        )
    if output is Output.JSON:
        show_json(documents)
        return
    if not documents:
        hint("no server is configured; `curtainwall servers add NAME -- COMMAND …` adds one")
        return
    rows = [
        (it["name"], it["runs"], "all sessions" if it["shared"] else "each session", "yes" if it["running"] else "no", it["ready"],
         it["suspended"], it["denied"], "" if it["reviewed"] else f"curtainwall servers annotate {it['name']}")
        for it in documents
    ]  # fmt: skip
    show(columns(("server", "runs in", "one for", "running", "ready", "suspended", "denied", "next"), rows))


@app.command("add")
def add(
    name: NameArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARG]…", help="the program and its arguments")],
    read: Annotated[list[str] | None, typer.Option(metavar="PATH", help="a path that it may read; can be given more than once")] = None,
    write: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="a path that it may write; `{workspace}` is the session's workspace")
    ] = None,
    network: Annotated[list[str] | None, typer.Option(metavar="HOST", help="a host that it may ask for, as in `lists.hosts`")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME", help="a variable of ours that it gets, or NAME=value")] = None,
    trusted: Annotated[bool, typer.Option("--trusted", help="run it outside the sandbox, with network and all your files")] = False,
    shared: Annotated[bool, typer.Option("--shared", help="one process for all sessions")] = False,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="how long a call may take, as `90s`")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write a server into the configuration; what its program needs to read is found where possible."""
    program, *args = command
    # Drop paths that are given twice, and needed paths inside a given one.
    reads = [*dict.fromkeys(os.path.normpath(path) for path in read or ())]
    writes = [*dict.fromkeys(os.path.normpath(path) for path in write or ())]
    granted = [os.path.expanduser(path) for path in (*reads, *writes)]
    needed = () if trusted else tuple(path for path in needed_paths(program, args) if not any(is_beneath(path, each) for each in granted))
    settings: dict[str, object] = {
        "command": os.path.abspath(program) if "/" in program else program,
        "args": args,
        "env": env or [],
        "read": [*reads, *needed],
        "write": writes,
        "network": network or [],
        "trusted": trusted,
        "shared": shared,
        "timeout": timeout,
    }
    written = {key: value for key, value in settings.items() if value not in ([], False, None)}
    home = find_home()
    # Check it as the loader would, before anything is written.
    hosts = check_server(name, env or (), network or (), secret_variables(load_config(home.config)))
    ServerSpec(name, program, tuple(args), read=tuple(reads), write=tuple(writes), network=hosts, trusted=trusted, shared=shared)
    home.prepare()
    add_server(home.config, name, written)
    if output is Output.JSON:
        show_json({"name": name, "settings": written, "path": str(home.config)})
        return
    show(f"added `{name}` to {home.config}")
    if needed:
        note(f"it may read {', '.join(f'`{path}`' for path in needed)}, which its command line names")
    if shutil.which(program) is None:
        note(f"the program `{inert(program)}` is not on the path yet; install it, or correct `servers.{name}.command`")
    for path in (path for path in granted if path.startswith("/") and not os.path.exists(path)):
        note(f"`{inert(path)}` does not exist; the server starts once it does")
    hint(f"next: `curtainwall servers test {name}`, then `curtainwall servers annotate {name}`")


@app.command("remove")
def remove(name: KnownArgument, yes: YesOption = False, output: OutputOption = Output.TEXT) -> None:
    """Take a server out of the configuration, with its roles and what was reviewed of it."""
    home = find_home()
    if not has_server(home.config, name):
        raise NotFound(f"there is no server `{name}` in `{home.config}`; `curtainwall servers list` shows them")
    confirm(f"remove `{name}` and the roles of its tools from {home.config}?", yes=yes)
    remove_server(home.config, name)
    Reviews(home.root / "servers").forget(name)
    show_json({"name": name, "path": str(home.config)}) if output is Output.JSON else show(f"removed `{name}` from {home.config}")
    if is_running(home.root / "servers", name):
        note(f"`{name}` still runs in a session that began before; it ends with it")


@app.command("test")
def try_out(name: KnownArgument, output: OutputOption = Output.TEXT) -> None:
    """Start a server, see that it answers, and show how its tools stand."""
    setup = load_setup()
    spec = _find(setup, name)
    about, offered = _ask(setup, spec)
    shelf, now = _servers(setup).catalogue, dict[str, tuple[str, str]]()
    review = shelf.review(name).compared(offered)
    for tool in sorted({*offered, *spec.tools}):
        status = ToolStatus.CHANGED if tool in review.changed else shelf.standing(name, tool)
        why = why_unusable(offered[tool]) if tool in offered else "the server does not offer it"
        now[tool] = (status.value, why or shelf.fault(name, tool))
    if output is Output.JSON:
        tools = [{"name": tool, "standing": status, "why": why} for tool, (status, why) in now.items()]
        show_json({"name": name, "about": about, "tools": tools})
        return
    show(f"{name} answers: {about}, {len(offered)} tools")
    rows = [(tool, status, _roles(spec, tool), why) for tool, (status, why) in now.items()]
    show(columns(("tool", "standing", "roles", "why"), rows))
    if any(status != ToolStatus.READY.value for status, _ in now.values()):
        hint(f"`curtainwall servers annotate {name}` proposes roles, and shows what has changed")


@app.command("annotate")
def annotate(
    name: KnownArgument,
    write: Annotated[bool, typer.Option("--write", help="take it over: roles into the configuration, the rest as reviewed")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Propose roles for a server's tools, and show all that is new or has changed since a review; with --write, take it over."""
    if write and not yes and output is Output.JSON:
        raise Misuse("nobody reads JSON before it is taken over; leave `--output json` away, or add --yes")
    setup = load_setup()
    spec = _find(setup, name)
    about, offered = _ask(setup, spec)
    reviews = Reviews(setup.home.root / "servers")
    before = reviews.read(name) or Review()
    proposals, refused = _proposals(spec, offered)
    new, changed = new_tools(before, offered), changed_tools(before, offered)
    if output is Output.TEXT:
        if text := review_text(before, offered):
            show(text)
        if proposals:
            show("\n".join(map(visible, shown(name, proposals).split("\n"))))
        for tool, why in refused.items():
            note(f"`{tool}` cannot be used: {why}")
    if write:
        # INVARIANT: take over what was shown, not what the server says when asked again.
        confirm(f"Take this over for `{name}`?", yes=yes)
        if proposals:
            add_roles(setup.home.config, name, proposals)
        reviews.write(name, Review(about, offered))
    if output is Output.JSON:
        proposed = [
            {"tool": it.tool, "effect": it.roles.effect.value, "arguments": _arguments(it), "notes": [*it.notes]} for it in proposals
        ]
        tools = [
            {"tool": tool, "reviewed": _tool_document(before.tools.get(tool)), "now": _tool_document(offered[tool])}
            for tool in (*new, *changed)
        ]
        document = {"name": name, "about": about, "proposed": proposed, "new": new, "changed": changed, "tools": tools, "refused": refused}
        show_json(document | {"written": write})
        return
    if write:
        note(f"{len(proposals)} tools got roles in {setup.home.config}; read them there. All {len(offered)} tools of `{name}` are reviewed")
    elif proposals or new or changed:
        hint(f"nothing is written; read this, then `curtainwall servers annotate {name} --write` takes it over")
    else:
        hint(f"all tools of `{name}` have roles, and none has changed")


def _servers(setup: Setup) -> Servers:
    return open_servers(setup.home, setup.servers, judging_masker(setup.home), setup.policy.protection)


def _find(setup: Setup, name: str) -> ServerSpec:
    server = next((spec for spec in setup.servers if spec.name == name), None)
    if server is None:
        raise NotFound(f"there is no server `{name}`; `curtainwall servers list` shows them")
    return server


def _ask(setup: Setup, spec: ServerSpec) -> tuple[str, dict[str, OfferedTool]]:
    """Start a server in an empty workspace and return what it is and what it offers."""
    setup.home.prepare()
    with tempfile.TemporaryDirectory(prefix="curtainwall-") as directory:
        place = Place(session=SessionId("test"), workspace=Workspace(path=os.path.realpath(directory), own=True))
        return loop.run(_answer(_servers(setup), spec, None if spec.shared else place))


async def _answer(servers: Servers, spec: ServerSpec, place: Place | None) -> tuple[str, dict[str, OfferedTool]]:
    link = await servers.supervisor.open(spec, place)
    try:
        return link.about, await servers.supervisor.offers(spec.name, link)
    finally:
        await link.close()


def _proposals(spec: ServerSpec, offered: Mapping[str, OfferedTool]) -> tuple[list[Proposal], dict[str, str]]:
    """Return proposals for tools without roles, and the reasons why some tools cannot have roles."""
    proposals: list[Proposal] = []
    refused: dict[str, str] = {}
    for tool in offered.values():
        try:
            proposal = propose_roles(tool, trusted=spec.trusted, server=spec.name)
        except Broken as fault:
            refused[tool.name] = str(fault)
            continue
        if tool.name not in spec.tools:
            proposals.append(proposal)
    return proposals, refused


def _tool_document(tool: OfferedTool | None) -> dict[str, JsonValue] | None:
    return None if tool is None else tool.fields


def _arguments(proposal: Proposal) -> dict[str, list[str]]:
    return {meaning.argument: [role.value for role in meaning.roles] for meaning in proposal.roles.meanings}


def _roles(spec: ServerSpec, tool: str) -> str:
    roles = spec.tools.get(tool)
    if roles is None:
        return "-"
    return " ".join([roles.effect.value, *(f"{it.argument}:{'+'.join(role.value for role in it.roles)}" for it in roles.meanings)])
