"""What a session last presented as changes of its project, for people who look at it: the list, and the differences in full."""

from collections.abc import Collection, Iterator
from functools import partial

from curtainwall.facts import Masker
from curtainwall.model import BadCall, Blobs, ChangeSet, NotFound, SessionId, ShownFile, ViewContents, record
from curtainwall.session import ChangeProposal, SessionState, quoted_path, visible
from curtainwall.tools.change_card import ChangeDescription, DescribedChange
from curtainwall.tools.changes import is_later, load_changes, resources_of


@record
class PresentedChanges:
    """A change set as it was presented, and how it was answered."""

    changes: ChangeSet
    summary: str
    status: str
    only: tuple[str, ...] | None
    described: tuple[DescribedChange, ...]

    @property
    def left_out(self) -> frozenset[str]:
        """Return the paths that an answer for some files leaves out."""
        if self.only is None:
            return frozenset()
        accepted = {change.path for change in self.changes.only(self.only).changes}
        return frozenset(change.path for change in self.changes.changes if change.path not in accepted)


def presented_changes(
    state: SessionState, blobs: Blobs, contents: ViewContents, masker: Masker, whole: Collection[str] = ()
) -> PresentedChanges:
    """Return what a session last presented, with the long differences of the paths in `whole`; raise `NotFound` if it presented nothing."""
    proposal = state.proposal
    if proposal is None or state.opened is None:
        raise NotFound("this session has presented no changes of its project")
    try:
        changes = load_changes(blobs, proposal.changes, state.workspace.path)
    except BadCall as fault:
        raise NotFound(str(fault)) from fault
    description = describe(changes, contents, state.opened.session, masker, whole)
    return PresentedChanges(changes, description.summary, _status(proposal), proposal.only, tuple(description.described()))


def describe(
    changes: ChangeSet, contents: ViewContents, session: SessionId, masker: Masker, whole: Collection[str] = ()
) -> ChangeDescription:
    """Return what describes a change set of a session, with the long differences of the paths in `whole`."""
    later = frozenset(
        path for path, resources in resources_of(changes).items() if any(is_later(each, changes.project) for each in resources)
    )
    return ChangeDescription(changes, later, masker, partial(contents.content, session), frozenset(whole))


def _status(proposal: ChangeProposal) -> str:
    if proposal.is_accepted:
        return "accepted, and being applied" if not proposal.is_over else "accepted" if proposal.only is None else "accepted in part"
    if proposal.is_denied:
        return "not accepted, and discarded" if proposal.discards else "not accepted"
    return "not accepted: nobody answered, or a rule denied it" if proposal.is_over else "waiting for an answer"


def change_lines(presented: PresentedChanges) -> Iterator[str]:
    """Yield the list of a change set, each file by name."""
    left_out = presented.left_out
    yield visible(f"{presented.summary} ({presented.status})")
    for change in presented.described:
        yield f"  {file_words(change.file)}{'  (not accepted)' if change.file.path in left_out else ''}"


def difference_lines(presented: PresentedChanges, paths: Collection[str] = ()) -> Iterator[str]:
    """Yield the differences of a change set, or of some of its files, in full; raise `NotFound` for a file that is not in it."""
    known = {change.file.path for change in presented.described}
    for path in paths:
        if path not in known:
            raise NotFound(f"`{path}` is not among the changes; name a file as it is listed, relative to the project")
    for change in presented.described:
        if not paths or change.file.path in paths:
            yield file_words(change.file)
            yield from (f"  {visible(line)}" for line in change.lines)


def file_words(file: ShownFile) -> str:
    """Return a change in words."""
    source = f", was {quoted_path(file.source)}" if file.source else ""
    later = "runs later by itself: " if file.runs_later else ""
    return visible(f"{later}{file.words}  {quoted_path(file.path)}{source}")
