"""Chooses how a view of a project is made, and says why in words for people."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.host.views.copy import MOST_BYTES, MOST_FILES, CopyView
from curtainwall.host.views.direct import DirectView
from curtainwall.host.views.holder import Holder
from curtainwall.host.views.overlay import OverlayView, delete_tree, project_owner
from curtainwall.model import ProjectView, ViewChoice, ViewFailed, ViewMechanism

_MOST_LOOKED_AT: Final = 500_000
_NO_OVERLAY: Final = ("overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "ecryptfs", "fuse", "vboxsf")
_MIB: Final = 1024 * 1024
CHOSEN: Final = "you chose a copy"
"""Why a session has a copy unless something else is said."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in a project: a path that belongs to somebody else, and how much there is to copy."""

    foreign: str | None = None
    files: int = 0
    size: int = 0
    is_whole: bool = True


def open_view(project: str, state: Path, wanted: ViewMechanism | None = None, why: str = CHOSEN) -> ProjectView:
    """Return a session's view of a project, by its real path; `state` is its own directory. It keeps the mechanism that it began with.

    Raise `ViewFailed` if a mechanism is wanted that does not work here; `why` says why it is wanted.
    """
    recorded = state / "mechanism.json"
    if recorded.exists():
        choice = ViewChoice.model_validate_json(recorded.read_bytes())
    else:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        choice = choose_mechanism(project, state, wanted, why)
        recorded.write_bytes(choice.model_dump_json().encode())
    match choice.mechanism:
        case ViewMechanism.OVERLAY:
            return OverlayView(project, state, choice.reason)
        case ViewMechanism.COPY:
            return CopyView(project, state, choice.reason, can_mount=namespaces_fault(project, state) is None)
        case ViewMechanism.NONE:
            return DirectView(project, choice.reason)


def remove_view(state: Path) -> None:
    """Delete everything that a closed view keeps; raise `ViewFailed`."""
    delete_tree(state)


def choose_mechanism(project: str, state: Path, wanted: ViewMechanism | None = None, why: str = CHOSEN) -> ViewChoice:
    """Return the best mechanism for a project, or the wanted one; raise `ViewFailed` if that does not work here."""
    if wanted is ViewMechanism.NONE:
        return ViewChoice(mechanism=ViewMechanism.NONE, reason="you chose to work in the project itself")
    survey = look_through(project)
    fault = None if wanted is ViewMechanism.COPY else _overlay_fault(project, state, survey)
    if fault is None and wanted in {None, ViewMechanism.OVERLAY}:
        return ViewChoice(mechanism=ViewMechanism.OVERLAY, reason="the project is not copied; only what changes takes space")
    if wanted is ViewMechanism.OVERLAY:
        raise ViewFailed(f"an overlay of `{project}` is not possible: {fault}")
    chosen = why if fault is None else f"an overlay is not possible: {fault}"
    if not survey.is_whole or survey.files > MOST_FILES or survey.size > MOST_BYTES:
        too_much = f"the project has more than {MOST_FILES} files or {MOST_BYTES // _MIB} MiB"
        if wanted is ViewMechanism.COPY:
            raise ViewFailed(f"`{project}` cannot be copied: {too_much}")
        return ViewChoice(mechanism=ViewMechanism.NONE, reason=f"{chosen}; and {too_much}, which is too much to copy")
    return ViewChoice(mechanism=ViewMechanism.COPY, reason=chosen)


def namespaces_fault(project: str, state: Path) -> str | None:
    """Return why nothing can be mounted for a session here, or None."""
    try:
        # Whoever looks through a view, unmounted, has its own lock.
        Holder(project, project_owner(project), state / "trial.lock").close()
    except ViewFailed as fault:
        return str(fault)
    return None


def look_through(project: str) -> Survey:
    """Look through a project for files that belong to somebody else, and count."""
    owner = project_owner(project)
    # As root, files of root may be in it: both are known in the namespaces of a view.
    users, groups = {owner.user, os.geteuid()}, {owner.group, os.getegid()}
    foreign: str | None = None
    files = size = 0
    waiting = [project]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                files += 1
                size += status.st_size
                if foreign is None and (status.st_uid not in users or status.st_gid not in groups):
                    foreign = entry.path
                if files > (_MOST_LOOKED_AT if foreign is None else MOST_FILES):
                    return Survey(foreign, files, size, is_whole=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return Survey(foreign, files, size)


def _overlay_fault(project: str, state: Path, survey: Survey) -> str | None:
    mounts = _mounts()
    inside = next((each.point for each in mounts if each.point.startswith(f"{project}/")), None)
    if inside is not None:
        return f"`{inside}` is mounted inside the project"
    for path, what in ((project, "the project"), (str(state), "our home")):
        kind = next((each.kind for each in reversed(mounts) if path == each.point or path.startswith(f"{each.point.rstrip('/')}/")), "")
        if kind in _NO_OVERLAY or kind.startswith("fuse."):
            return f"{what} is on a file system of type {kind}"
    if survey.foreign is not None:
        return f"`{survey.foreign}` belongs to another user or group"
    if os.path.realpath(state).startswith(f"{project}/"):
        return "our home is inside the project"
    return _trial(project, state)


def _trial(project: str, state: Path) -> str | None:
    """Mount an overlay once, and take it away again."""
    view = OverlayView(project, state)
    try:
        view.enter()
    except ViewFailed as fault:
        return str(fault)
    finally:
        view.close()
    return None


@dataclass(frozen=True, slots=True)
class _Mount:
    point: str
    kind: str


def _mounts() -> list[_Mount]:
    """Return what is mounted, shorter paths first, so that the last one that fits a path is its own."""
    mounts: list[_Mount] = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        mounts.append(_Mount(_unescaped(before.split()[4]), after.split()[0]))
    return sorted(mounts, key=lambda each: len(each.point))


def _unescaped(point: str) -> str:
    for code in ("\\040", "\\011", "\\012", "\\134"):
        point = point.replace(code, chr(int(code[1:], 8)))
    return point
