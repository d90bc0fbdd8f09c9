"""`curtainwall sessions held` and `restore`: what was set aside in projects while agents worked, and putting it back."""

from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.channels.text.counts import counted
from curtainwall.cli.read_only import open_to_look
from curtainwall.cli.screen import Output, OutputOption, note, show, show_json, timestamp
from curtainwall.cli.tables import columns
from curtainwall.host.home import find_home
from curtainwall.host.local_time import when
from curtainwall.operations.lookup import find_session

if TYPE_CHECKING:
    from curtainwall.operations.held import Found


def held(
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="only of this session; its id, or the beginning of it")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List files that were set aside in projects, because they run by themselves and came while an agent worked."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.held import still_held

    with open_to_look(find_home()) as store:
        rows = None if session is None else [find_session(store.index, session)]
        found = [*still_held(store, rows)]
    if output is Output.JSON:
        show_json([_as_json(it) for it in found])
    elif found:
        show(columns(("file", "now", "session", "since"), [(it.file.path, it.file.aside, it.session, when(it.at)) for it in found]))
        note(
            f"{counted(len(found), 'file')} set aside: look at each, an agent may have written it; "
            "`curtainwall sessions restore FILE` puts one back"
        )
    else:
        note("nothing is set aside")


def restore(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="a file that was set aside, by its old name or the one it has now")],
) -> None:
    """Put back files that were set aside while an agent worked; those that changed since stay where they are."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.held import restore as put_back

    with open_to_look(find_home()) as store:
        for path in files:
            file, instead = put_back(store, path)
            kept = f"; what was there instead is `{instead}` now" if instead is not None else ""
            note(f"`{file.path}` is back{kept}")


def _as_json(found: "Found") -> dict[str, object]:
    file = found.file
    return {"path": file.path, "aside": file.aside, "replaced": file.is_replaced, "session": found.session, "at": timestamp(found.at)}
