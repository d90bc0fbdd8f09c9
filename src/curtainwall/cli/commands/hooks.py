"""`curtainwall hooks`: which of your programs run when, and whether a workspace's hooks are trusted."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, YesOption, columns, confirm, hint, note, require_directory, show, show_json
from curtainwall.compose.hooks import hook_settings, pins_of
from curtainwall.config.loader import load_config
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
    home = find_home()
    hooks = hook_settings(home, load_config(home.config), os.environ)
    pins = pins_of(home).all()
    workspaces = [_hooks_at(path, dict(pins)) for path in dict.fromkeys((os.path.realpath(workspace), *pins))]
    workspaces = [_with_notes(entry) for entry in workspaces if entry.trust is not HookTrust.NONE]
    configured = HookSettings(hooks.hooks, (*hooks.notes, *missing_programs(hooks.hooks)))
    if output is Output.JSON:
        show_json({**_as_json(configured), "workspaces": [_workspace_json(entry) for entry in workspaces]})
        return
    if not configured.hooks and not workspaces:
        hint("there are no hooks; docs/hooks.md says how to write some")
    if configured.hooks:
        show(_table(configured.hooks))
    for line in configured.notes:
        note(line)
    for entry in workspaces:
        show(f"`{inert(entry.workspace)}` {_WHAT_TO_DO[entry.trust].format(path=inert(entry.workspace))}")
        _show_workspace(entry)


@app.command()
def trust(
    workspace: _Workspace,
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let the hooks that a directory brings along run as they are now; after any change they are asked about again."""
    require_directory(workspace, "DIR")
    home = find_home()
    hooks = _with_notes(workspace_hooks(workspace, {}))
    if hooks.trust is HookTrust.NONE:
        raise CommandRefused(f"`{hooks.workspace}` brings no hooks; they would stand in {' or '.join(f'`{name}`' for name in FILES)} there")
    if output is Output.TEXT:
        _show_workspace(hooks)
    note("these programs will run as you, outside any sandbox; whatever else they start or read in there is not watched")
    confirm("Trust them?", yes=yes)
    home.prepare()
    pins = pins_of(home)
    pins.set(hooks.workspace, hooks.digest)
    Copies.of(pins).sweep(pins)
    show_json(_workspace_json(hooks) | {"trust": HookTrust.PINNED.value}) if output is Output.JSON else show(f"trusted {hooks.workspace}")


@app.command()
def forget(workspace: _Workspace, output: OutputOption = Output.TEXT) -> None:
    """Take back the trust in a directory's own hooks."""
    pins, real = pins_of(find_home()), os.path.realpath(workspace)
    if real not in pins.all():
        raise CommandRefused(f"the hooks of `{real}` are not trusted; `curtainwall hooks list` shows those that are")
    pins.set(real, None)
    Copies.of(pins).sweep(pins)
    show_json({"workspace": real, "trust": None}) if output is Output.JSON else show(f"forgot {real}")


# An alias for people who look for the opposite of `trust`; otherwise we would suggest `trust` itself.
app.command("untrust", hidden=True)(forget)


def _hooks_at(path: str, pins: dict[str, str]) -> WorkspaceHooks:
    try:
        hooks = workspace_hooks(path, pins)
    except Broken as fault:
        return WorkspaceHooks(path, HookTrust.CHANGED if path in pins else HookTrust.UNTRUSTED, HookSettings(notes=(str(fault),)))
    # Trusted hooks that are gone count as changed.
    return WorkspaceHooks(path, HookTrust.CHANGED, hooks.settings) if hooks.trust is HookTrust.NONE and path in pins else hooks


def _with_notes(hooks: WorkspaceHooks) -> WorkspaceHooks:
    """Add a note for each hook whose program is missing, will not find what it needs, or may have been exchanged."""
    settings = hooks.settings
    notes = map(inert, (*missing_programs(settings.hooks, hooks.workspace), *missing_beside_copies(hooks), *exchange_warnings(hooks)))
    return replace(hooks, settings=HookSettings(settings.hooks, (*settings.notes, *notes)))


def _show_workspace(workspace: WorkspaceHooks) -> None:
    if workspace.settings.hooks:
        show(_table(workspace.settings.hooks))
    for hook in workspace.settings.hooks:
        # The table cuts long lines, but the user must see all of a hook before trusting it.
        if inert(str(hook.action)) != (full := visible(str(hook.action))):
            show(f"{hook.name} in full: {full}")
    copied, needed_by = copied_programs(workspace), {each: path for path, files in workspace.beside.items() for each in files}
    for file, looked in workspace.looked.items():
        leads_to = f" (run as {inert(looked.leads_to)})" if looked.leads_to is not None else ""
        needed_for = f", which {inert(os.path.basename(needed_by[file]))} needs" if file in needed_by else ""
        show(f"with the {'file' if needed_for else 'program'} {inert(file)}{needed_for}{_ALONE if file in copied else leads_to}")
    for line in workspace.settings.notes:
        note(line)


def _table(hooks: tuple[Hook, ...]) -> str:
    rows = [(hook.event, hook.matcher.text or "*", f"{hook.seconds:g}s", hook.name, str(hook.action)) for hook in hooks]
    return columns(("event", "for", "limit", "name", "runs"), rows)


def _as_json(settings: HookSettings) -> dict[str, object]:
    hooks = [
        {"name": hook.name, "event": hook.event, "matcher": hook.matcher.text, "runs": str(hook.action), "seconds": hook.seconds}
        for hook in settings.hooks
    ]
    return {"hooks": hooks, "notes": list(settings.notes)}


def _workspace_json(hooks: WorkspaceHooks) -> dict[str, object]:
    return {
        "workspace": hooks.workspace,
        "trust": hooks.trust.value,
        **_as_json(hooks.settings),
        "files": list(hooks.files),
        "copied": sorted(copied_programs(hooks)),
        "leads_to": {path: looked.leads_to for path, looked in hooks.looked.items() if looked.leads_to is not None},
    }
