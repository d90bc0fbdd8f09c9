"""`curtainwall doctor`: which guarantees hold on this machine, which do not, and what to do."""

import typer

from curtainwall.cli.screen import Output, OutputOption, hanging, paint, show, show_json
from curtainwall.compose.doctor import examine
from curtainwall.host.home import find_home
from curtainwall.session import inert


def doctor(output: OutputOption = Output.TEXT) -> None:
    """Say which guarantees hold on this machine, which do not, and what to do about these.

    Exit codes: 0, or 1 where something that is needed does not hold.
    """
    findings = list(examine(find_home()))
    failed = any(finding.status == "fail" for finding in findings)
    if output is Output.JSON:
        documents = [{"name": it.name, "standing": it.status, "what": it.what, "todo": it.todo} for it in findings]
        show_json({"ok": not failed, "findings": documents})
    else:
        width = max(len(it.name) for it in findings)
        for it in findings:
            todo = f" → {inert(it.todo)}" if it.todo else ""
            what = hanging(f"{inert(it.what)}{todo}", 4 + 2 + width + 2)
            show(f"{paint(f'{it.status:<4}', it.status)}  {it.name:<{width}}  {what}")
    if failed:
        raise typer.Exit(1)
