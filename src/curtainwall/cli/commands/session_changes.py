"""`curtainwall sessions changes` and `diff`: what a session last presented as changes of its project."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, show, show_json
from curtainwall.compose.store import open_store
from curtainwall.host.home import Home, find_home
from curtainwall.operations.lookup import find_session

if TYPE_CHECKING:
    from curtainwall.operations.presented import PresentedChanges

IdArgument = Annotated[str, typer.Argument(metavar="SESSION", help="its id, or the beginning of it")]


def changes(session: IdArgument, output: OutputOption = Output.TEXT) -> None:
    """List what a session last presented as changes of its project, and how that was answered."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.presented import change_lines

    presented = _presented(find_home(), session)
    if output is Output.JSON:
        show_json(
            {
                "project": presented.changes.project,
                "changes": presented.changes.digest,
                "status": presented.status,
                "only": None if presented.only is None else list(presented.only),
                "files": [
                    {
                        "path": change.file.path,
                        "was": change.file.source or None,
                        "words": change.file.words,
                        "runs_later": change.file.runs_later,
                    }
                    for change in presented.described
                ],
            }
        )
        return
    show("\n".join(change_lines(presented)))


def diff(
    session: IdArgument,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE…]", help="only these, as they are listed")] = None,
) -> None:
    """Show line by line what a session last presented as changes of its project; secrets are masked."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.presented import difference_lines

    show("\n".join(difference_lines(_presented(find_home(), session, files or ()), files or ())))


def _presented(home: Home, session: str, whole: Collection[str] = ()) -> "PresentedChanges":
    # Start-up time: listings need none of this.
    from curtainwall.compose.masker import judging_masker
    from curtainwall.host import ViewsOfSessions
    from curtainwall.model import session_stream
    from curtainwall.operations.presented import presented_changes
    from curtainwall.session import fold, lift

    with open_store(home) as store:
        row = find_session(store.index, session)
        state = fold(lift(entry) for entry in store.log.read(session_stream(row.session)))
        return presented_changes(state, store.blobs, ViewsOfSessions(home), judging_masker(home), whole)
