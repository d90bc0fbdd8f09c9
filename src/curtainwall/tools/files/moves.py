"""Move a file or directory: a call is bound to the contents that were judged, and moves those or nothing."""

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import Masker, quoted
from curtainwall.host import Contents, ContentsChanged, Extent, Unbound, move_contents, move_entry, read_contents
from curtainwall.model import MOVE_FILE, BadCall, PathFacts, Place, Prepared, Resource, Role, inside_view, is_beneath, runs_later, view_use
from curtainwall.tools.runners import CannotDo, Refiner, refined
from curtainwall.tools.schema_check import RULE

EXTENT_LEAVING: Final = Extent(entries=10_000, size=1024**3, closed=True)
"""The limit for moves to where the agent may not write unasked; more is refused, since nobody could tell what was approved."""

EXTENT_INSIDE: Final = Extent(entries=1_000, size=64 * 1024**2)
"""The limit for inspecting moves within the workspace; more is moved uninspected, and the card says so."""

EXTENT_IN_VIEW: Final = Extent(entries=100_000, size=4 * 1024**3)
"""The limit for a directory of the project that is moved in a view, where the kernel cannot rename it and it is copied."""

_UNSEEN: Final = "something too big or too unusual to look at, so what is in it is not part of this approval"
_UNREADABLE: Final = "something that cannot be read, or is too much to be read, so nothing will be moved"
_CONTENTS, _COPIED, _SHOWN = "contents", "copied", "moves"


def move_refiners(masker: Masker, is_protected: Callable[[str, Place], bool]) -> Mapping[str, Refiner]:
    """Return the refiners of moves. A protected path is not inspected: its call is denied, and its size must not leak."""

    def move_file(prepared: Prepared, place: Place) -> Prepared:
        source = cast("str", prepared.arguments["source"])
        if is_protected(source, place):
            return prepared
        leaves = _leaves(prepared.subject.resources, place)
        try:
            contents = read_contents(source, EXTENT_LEAVING if leaves else EXTENT_INSIDE)
            additions: dict[str, JsonValue] = {_SHOWN: _describe(contents, masker), _CONTENTS: contents.digest, _COPIED: leaves}
        except (Unbound, OSError) as error:
            if not leaves:
                if isinstance(error, Unbound) and error.is_special and not place.workspace.own:
                    # A command that starts meanwhile has the pipes hidden at their old paths, and would find this one at its new path.
                    raise BadCall(RULE, f"{quoted(str(prepared.subject.raw['source']))} cannot be moved: {error}") from error
                return refined(prepared, {_SHOWN: _UNSEEN}, (), masker)
            if is_beneath(source, place.workspace.path):
                reason = str(error) if isinstance(error, Unbound) else "not all of it can be read"
                hint = "move it in parts, or leave it to the user"
                raise BadCall(RULE, f"{quoted(str(prepared.subject.raw['source']))} cannot be moved there: {reason}; {hint}") from error
            # INVARIANT: an agent learns nothing about files outside the workspace before a human approves, not even from a refusal.
            additions = {_SHOWN: _UNREADABLE, _CONTENTS: "", _COPIED: True}
        closer = refined(prepared, additions, (), masker)
        # A digest allows guessing the content of a short file, and no reader of the log needs it.
        shown = {key: value for key, value in closer.subject.canonical.items() if key not in (_CONTENTS, _COPIED)}
        return replace(closer, subject=closer.subject.model_copy(update={"canonical": shown}))

    return {MOVE_FILE: move_file}


def move(arguments: Mapping[str, JsonValue], name: Callable[[str], str]) -> str:
    """Move the judged contents; raise `CannotDo` if they have changed. `name` gives a path as the agent knows it."""
    source, destination = cast("str", arguments["source"]), cast("str", arguments["destination"])
    digest, copied = arguments.get(_CONTENTS), arguments.get(_COPIED) is True
    try:
        if isinstance(digest, str) and copied:
            is_left_behind = not move_contents(source, destination, digest, EXTENT_LEAVING)
        else:
            if isinstance(digest, str) and read_contents(source, EXTENT_INSIDE).digest != digest:
                raise ContentsChanged(source)
            is_left_behind = not _rename(source, destination)
    except FileExistsError:
        raise CannotDo(f"{name(destination)} is already there; delete it first, or choose another name") from None
    except (ContentsChanged, Unbound):
        raise CannotDo(f"{name(source)} changed after it was judged, so nothing was moved; ask again") from None
    message = f"moved {name(source)} to {name(destination)}"
    return f"{message}; what changed meanwhile, or could not be deleted, is still at {name(source)}" if is_left_behind else message


def _rename(source: str, destination: str) -> bool:
    """Rename a path, or copy a directory that a view cannot rename; tell whether nothing was left behind."""
    try:
        move_entry(source, destination)
    except OSError as fault:
        if fault.errno != errno.EXDEV or inside_view(source) is None or inside_view(destination) is None:
            raise
        contents = read_contents(source, EXTENT_IN_VIEW)
        return move_contents(source, destination, contents.digest, EXTENT_IN_VIEW)
    return True


def _leaves(resources: tuple[Resource, ...], place: Place) -> bool:
    """Tell whether a move crosses the boundary of the workspace, or ends where something runs later automatically."""
    root, is_in_view = place.workspace.path, view_use() is not None
    paths = [resource for resource in resources if resource.role in (Role.DELETE_PATH, Role.WRITE_PATH)]
    return any(
        not is_beneath(resource.value, root)
        # In a view nothing runs by itself, and a human sees what would run later before it reaches the project.
        or (not is_in_view and runs_later(resource.value, root))
        or (not is_in_view and isinstance(resource.facts, PathFacts) and resource.facts.runs_later)
        for resource in paths
    )


def _describe(contents: Contents, masker: Masker) -> str:
    match contents.kind:
        case "file":
            return f"a file of {contents.size:,} {'byte' if contents.size == 1 else 'bytes'}"
        case "directory":
            return f"a directory with {contents.files:,} {'file' if contents.files == 1 else 'files'} of {contents.size:,} bytes in all"
        case "link":
            # The digest still covers what is masked here.
            return f"a link to {masker.mask_text(quoted(contents.target))}"
        case "nothing":
            return "nothing: there is no such file yet"
