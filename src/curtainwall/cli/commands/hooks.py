"""`curtainwall hooks`: which programs of yours run when, and whether a workspace's own are trusted."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, YesOption, columns, confirm, note, require_directory, show, show_json
from curtainwall.compose.hooks import pins_of
from curtainwall.compose.setup import load_setup
from curtainwall.host.home import find_home
from curtainwall.model import Broken, CommandRefused
from curtainwall.session import inert, visible
from curtainwall.tools.hooks import (
    FILES,
    Copies,
    Hook,
    HookSettings,
    HookTrust,
    WorkspaceHooks,
    copied_programs,
    exchange_warnings,
    missing_beside_copies,
    missing_programs,
    workspace_hooks,
)

app = typer.Typer()
_Workspace = Annotated[Path, typer.Argument(metavar="DIR", help="the workspace that brings them")]

_WHAT_TO_DO = {
    HookTrust.UNTRUSTED: "brings hooks that do not run; read them, then `curtainwall hooks trust {path}`",
    HookTrust.PINNED: "brings hooks that you trusted; `curtainwall hooks forget {path}` takes that back",
    HookTrust.CHANGED: "has other hooks than you trusted: they do not run, and calls ask; read them, then `curtainwall hooks trust {path}`",
}
_ALONE = " (run as a copy, which finds beside itself only what is listed here)"


@app.command("list")
def list_hooks(
    workspace: Annotated[Path, typer.Option(metavar="DIR", help="a directory that may bring hooks of its own")] = Path(),
    output: OutputOption = Output.TEXT,
) -> None:
    """List the hooks of the configuration, and those that workspaces bring along."""
    require_directory(workspace, "--workspace")
    setup = load_setup()
    pins = pins_of(setup.home).all()
    found = [_found(path, dict(pins)) for path in dict.fromkeys((os.path.realpath(workspace), *pins))]
    found = [_with_notes(each) for each in found if each.trust is not HookTrust.NONE]
    configured = HookSettings(setup.hooks.hooks, (*setup.hooks.notes, *missing_programs(setup.hooks.hooks)))
    if output is Output.JSON:
        show_json({**_as_json(configured), "workspaces": [_found_as_json(each) for each in found]})
        return
    if not configured.hooks and not found:
        note("there are no hooks; docs/hooks.md says how to write some")
    if configured.hooks:
        show(_table(configured.hooks))
    for told in configured.notes:
        note(told)
    for each in found:
        show(f"`{inert(each.workspace)}` {_WHAT_TO_DO[each.trust].format(path=inert(each.workspace))}")
        _show_found(each)


@app.command()
def trust(
    workspace: _Workspace,
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let the hooks that a directory brings along run as they are now; after any change they are asked about again."""
    require_directory(workspace, "DIR")
    home = find_home()
    found = _with_notes(workspace_hooks(workspace, {}))
    if found.trust is HookTrust.NONE:
        raise CommandRefused(f"`{found.workspace}` brings no hooks; they would stand in {' or '.join(f'`{name}`' for name in FILES)} there")
    if output is Output.TEXT:
        _show_found(found)
    note("these programs will run as you, outside any sandbox; whatever else they start or read in there is not watched")
    confirm("Trust them?", yes=yes)
    home.prepare()
    pins = pins_of(home)
    pins.set(found.workspace, found.digest)
    Copies.of(pins).sweep(pins)
    show_json(_found_as_json(found) | {"trust": HookTrust.PINNED.value}) if output is Output.JSON else show(f"trusted {found.workspace}")


@app.command()
def forget(workspace: _Workspace, output: OutputOption = Output.TEXT) -> None:
    """Take back the trust in a directory's own hooks."""
    pins, real = pins_of(find_home()), os.path.realpath(workspace)
    if real not in pins.all():
        raise CommandRefused(f"the hooks of `{real}` are not trusted; `curtainwall hooks list` shows those that are")
    pins.set(real, None)
    Copies.of(pins).sweep(pins)
    show_json({"workspace": real, "trust": None}) if output is Output.JSON else show(f"forgot {real}")


# Whoever looks for the other half of `trust` finds it, rather than being told of `trust` itself.
app.command("untrust", hidden=True)(forget)


def _found(path: str, pins: dict[str, str]) -> WorkspaceHooks:
    try:
        found = workspace_hooks(path, pins)
    except Broken as fault:
        return WorkspaceHooks(path, HookTrust.CHANGED if path in pins else HookTrust.UNTRUSTED, HookSettings(notes=(str(fault),)))
    # What was trusted and is gone is a change as well.
    return WorkspaceHooks(path, HookTrust.CHANGED, found.settings) if found.trust is HookTrust.NONE and path in pins else found


def _with_notes(found: WorkspaceHooks) -> WorkspaceHooks:
    """Return the hooks with a note for each whose program is not there, will not find what it needs, or may not be what was looked at."""
    settings = found.settings
    told = map(inert, (*missing_programs(settings.hooks, found.workspace), *missing_beside_copies(found), *exchange_warnings(found)))
    return replace(found, settings=HookSettings(settings.hooks, (*settings.notes, *told)))


def _show_found(found: WorkspaceHooks) -> None:
    if found.settings.hooks:
        show(_table(found.settings.hooks))
    for hook in found.settings.hooks:
        # The table cuts a long line; whoever trusts it must have seen all of it.
        if inert(str(hook.action)) != (whole := visible(str(hook.action))):
            show(f"{hook.name} in full: {whole}")
    copied, needed = copied_programs(found), {each: path for path, files in found.beside.items() for each in files}
    for file, looked in found.looked.items():
        leads_to = f" (run as {inert(looked.leads_to)})" if looked.leads_to is not None else ""
        by = f", which {inert(os.path.basename(needed[file]))} needs" if file in needed else ""
        show(f"with the {'file' if by else 'program'} {inert(file)}{by}{_ALONE if file in copied else leads_to}")
    for told in found.settings.notes:
        note(told)


def _table(hooks: tuple[Hook, ...]) -> str:
    rows = [(hook.event, hook.matcher.text or "*", f"{hook.seconds:g}s", hook.name, str(hook.action)) for hook in hooks]
    return columns(("event", "for", "limit", "name", "runs"), rows)


def _as_json(settings: HookSettings) -> dict[str, object]:
    hooks = [
        {"name": hook.name, "event": hook.event, "matcher": hook.matcher.text, "runs": str(hook.action), "seconds": hook.seconds}
        for hook in settings.hooks
    ]
    return {"hooks": hooks, "notes": list(settings.notes)}


def _found_as_json(found: WorkspaceHooks) -> dict[str, object]:
    return {
        "workspace": found.workspace,
        "trust": found.trust.value,
        **_as_json(found.settings),
        "files": list(found.files),
        "copied": sorted(copied_programs(found)),
        "leads_to": {path: looked.leads_to for path, looked in found.looked.items() if looked.leads_to is not None},
    }
