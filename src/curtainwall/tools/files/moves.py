"""Moving a file or directory: a call is bound to what it would move, and moves that or nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import Masker, quoted
from curtainwall.host import Contents, ContentsChanged, Extent, Unbound, move_contents, move_entry, read_contents
from curtainwall.model import MOVE_FILE, BadCall, PathFacts, Place, Prepared, Resource, Role, is_beneath, runs_later
from curtainwall.tools.runners import CannotDo, Refiner, refined
from curtainwall.tools.schema_check import RULE

EXTENT_LEAVING: Final = Extent(entries=10_000, size=1024**3, closed=True)
"""What can be moved to where the agent cannot write by itself; more is refused, since nobody could say what was approved."""

EXTENT_INSIDE: Final = Extent(entries=1_000, size=64 * 1024**2)
"""What is looked at when a move stays in the workspace; more is moved unseen, and the card says so."""

_UNSEEN: Final = "something too big or too unusual to look at, so what is in it is not part of this approval"
_UNREADABLE: Final = "something that cannot be read, or is too much to be read, so nothing will be moved"
_CONTENTS, _COPIED, _SHOWN = "contents", "copied", "moves"


def move_refiners(masker: Masker, is_protected: Callable[[str, Place], bool]) -> Mapping[str, Refiner]:
    """Return what looks closer at moves. A protected path is not looked into: its call is denied, and its size is nobody's business."""

    def move_file(prepared: Prepared, place: Place) -> Prepared:
        source = cast("str", prepared.arguments["source"])
        if is_protected(source, place):
            return prepared
        leaves = _leaves(prepared.subject.resources, place)
        try:
            found = read_contents(source, EXTENT_LEAVING if leaves else EXTENT_INSIDE)
            bound: dict[str, JsonValue] = {_SHOWN: _describe(found, masker), _CONTENTS: found.digest, _COPIED: leaves}
        except (Unbound, OSError) as fault:
            if not leaves:
                if isinstance(fault, Unbound) and fault.is_special and not place.workspace.own:
                    # A command that starts meanwhile has the pipes of a project covered where they are, and would find this one elsewhere.
                    raise BadCall(RULE, f"{quoted(str(prepared.subject.raw['source']))} cannot be moved: {fault}") from fault
                return refined(prepared, {_SHOWN: _UNSEEN}, (), masker)
            if is_beneath(source, place.workspace.path):
                why = str(fault) if isinstance(fault, Unbound) else "not all of it can be read"
                hint = "move it in parts, or leave it to the user"
                raise BadCall(RULE, f"{quoted(str(prepared.subject.raw['source']))} cannot be moved there: {why}; {hint}") from fault
            # INVARIANT: an agent is not told what lies outside the workspace before a human has approved that, not even by a refusal.
            bound = {_SHOWN: _UNREADABLE, _CONTENTS: "", _COPIED: True}
        closer = refined(prepared, bound, (), masker)
        # The digest of a file is a way to guess at a short one, and nobody who reads the log needs it.
        shown = {key: value for key, value in closer.subject.canonical.items() if key not in (_CONTENTS, _COPIED)}
        return replace(closer, subject=closer.subject.model_copy(update={"canonical": shown}))

    return {MOVE_FILE: move_file}


def move(arguments: Mapping[str, JsonValue], name: Callable[[str], str]) -> str:
    """Move what was judged; raise `CannotDo` where it is something else by now. `name` gives a path as the agent knows it."""
    source, destination = cast("str", arguments["source"]), cast("str", arguments["destination"])
    digest, copied = arguments.get(_CONTENTS), arguments.get(_COPIED) is True
    try:
        if isinstance(digest, str) and copied:
            left = not move_contents(source, destination, digest, EXTENT_LEAVING)
        else:
            if isinstance(digest, str) and read_contents(source, EXTENT_INSIDE).digest != digest:
                raise ContentsChanged(source)
            move_entry(source, destination)
            left = False
    except FileExistsError:
        raise CannotDo(f"{name(destination)} is already there; delete it first, or choose another name") from None
    except (ContentsChanged, Unbound):
        raise CannotDo(f"{name(source)} changed after it was judged, so nothing was moved; ask again") from None
    moved = f"moved {name(source)} to {name(destination)}"
    return f"{moved}; what changed meanwhile, or could not be deleted, is still at {name(source)}" if left else moved


def _leaves(resources: tuple[Resource, ...], place: Place) -> bool:
    """Tell whether a move crosses the bounds of the workspace, or ends where something runs later by itself."""
    root = place.workspace.path
    paths = [each for each in resources if each.role in (Role.DELETE_PATH, Role.WRITE_PATH)]
    return any(
        not is_beneath(each.value, root) or runs_later(each.value, root) or (isinstance(each.facts, PathFacts) and each.facts.runs_later)
        for each in paths
    )


def _describe(found: Contents, masker: Masker) -> str:
    match found.kind:
        case "file":
            return f"a file of {found.size:,} {'byte' if found.size == 1 else 'bytes'}"
        case "directory":
            return f"a directory with {found.files:,} {'file' if found.files == 1 else 'files'} of {found.size:,} bytes in all"
        case "link":
            # What is masked here is bound by the digest all the same.
            return f"a link to {masker.mask_text(quoted(found.target))}"
        case "nothing":
            return "nothing: there is no such file yet"
