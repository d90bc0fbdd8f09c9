"""The `git` tools as they run: local steps confined, network steps in a clean repository with the judged URL."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import Masker, Unclear, find_push, is_beneath
from curtainwall.facts.git.config import find_repository
from curtainwall.model import GIT_PUSH, PUSH_SECRETS, BadCall, CallPermitted, Place, Prepared, ToolEffect, ToolResult
from curtainwall.tools.git import local as git_local
from curtainwall.tools.git import remotes as git_remotes
from curtainwall.tools.git.call import GitCall, GitOperation, GitParts, WithheldFiles
from curtainwall.tools.git.network import GitNetwork
from curtainwall.tools.runners import CannotDo, Refiner, Runner, extra_resource, refined
from curtainwall.tools.sandbox import Sandboxes
from curtainwall.tools.schema_check import RULE

# Where files become what git keeps, or the other way round, or two become one. Converters for showing are switched off.
_FILTERING: Final = tuple(f"git.{name}" for name in ("status", "diff", "add", "commit", "checkout", "pull"))
_PROGRAMS: Final = frozenset({("filter", "clean"), ("filter", "smudge"), ("filter", "process"), ("merge", "driver")})


def git_runners(
    *,
    protected: Iterable[str] = (),
    sandboxes: Sandboxes | None = None,
    environ: Mapping[str, str] = os.environ,
    own_ports: frozenset[int] = frozenset(),
    withheld: WithheldFiles | None = None,
) -> Mapping[str, Runner]:
    """Return the runners of `git.*`; where bubblewrap is missing they must not be in the catalogue.

    `protected` are the paths that no agent reads; a repository outside the workspace that contains one is not opened. Files that
    are `withheld` are not shown, staged or written.
    """
    way_out = GitNetwork(environ, own_ports)
    house = GitParts(tuple(protected), sandboxes or Sandboxes(), way_out, withheld or WithheldFiles())
    deeds: dict[str, GitOperation] = {
        "status": git_local.status,
        "diff": git_local.diff,
        "log": git_local.log,
        "show": git_local.show,
        "add": git_local.add,
        "commit": git_local.commit,
        "branch": git_local.branch,
        "checkout": git_local.checkout,
        "init": git_local.init,
        "set_working_dir": git_local.set_working_dir,
        "clone": git_remotes.clone,
        "fetch": git_remotes.fetch,
        "pull": git_remotes.pull,
        "push": git_remotes.push,
    }
    return {f"git.{name}": _runner(deed, house) for name, deed in deeds.items()}


def git_refiners(
    masker: Masker, is_secret: Callable[[str], bool] = lambda _path: False, given: Refiner | None = None
) -> Mapping[str, Refiner]:
    """Return what looks closer at git: which commit a push is about, to which the call is bound, and which secrets come with it.

    `given` says what a command may read in the workspace. Where a repository has filters, those are commands.
    """

    def push(prepared: Prepared, place: Place) -> Prepared:
        arguments = cast("Mapping[str, str]", prepared.arguments)
        path, remote, root = arguments["path"], arguments["remote"], place.workspace.path
        try:
            found = find_push(path, remote, arguments.get("branch"), masker.mask_text, root, is_secret)
        except (Unclear, OSError) as fault:
            # What is wrong with a repository outside the workspace is told by the push, once it was approved.
            if not is_beneath(path, root):
                return prepared
            raise BadCall(RULE, masker.mask_text(str(fault))) from fault
        if found is None:
            return prepared
        # What a commit says of itself is masked first: the commit is known by its id, and nothing of the call is hidden.
        told: dict[str, JsonValue] = {"branch": found.branch, "commit": found.commit, "since": found.since}
        more = {"pushes": masker.mask_text(found.told), **{key: value for key, value in told.items() if value is not None}}
        if not found.secrets and not found.unseen:
            return refined(prepared, more, (), masker)
        unseen = [f"cannot be told of all: {found.unseen}"] if found.unseen else []
        more["secrets"] = [*map(masker.mask_text, found.secrets), *unseen]
        closer = refined(prepared, more, (extra_resource(PUSH_SECRETS, ToolEffect.SEND),), masker)
        # INVARIANT: what leaves was read, and what nobody could look at counts as a secret.
        reads = {f"{path}/{name}": name for name in found.secrets} or {f"{path}/.env": f"commits of {path} that cannot be looked through"}
        return replace(closer, subject=closer.subject.model_copy(update={"reads": reads}))

    def filtered(prepared: Prepared, place: Place) -> Prepared:
        return given(prepared, place) if given is not None and _has_filters(cast("str", prepared.arguments["path"]), place) else prepared

    return {GIT_PUSH: push, **(dict.fromkeys(_FILTERING, filtered) if given is not None else {})}


def _has_filters(path: str, place: Place) -> bool:
    """Tell whether git would run programs of a repository's config over its files, which may print any other file instead."""
    try:
        repository = find_repository(path, place.workspace.path)
    except Unclear:
        return True
    return repository is not None and any((entry.section, entry.key) in _PROGRAMS for entry in repository.entries)


def _runner(deed: GitOperation, house: GitParts) -> Runner:
    async def run(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        call = GitCall(prepared, place, house, [], was_asked=bool(permit.answered_by))
        try:
            with house.sandboxes.charged_to(place.session):
                value = await deed(call)
        except (CannotDo, Unclear) as fault:
            raise CannotDo("\n".join((str(fault), *call.notes))) from fault
        except OSError as fault:
            raise CannotDo(f"git cannot work here: {(fault.strerror or str(fault)).lower()}") from fault
        return ToolResult(ok=True, value="\n".join((value, *call.notes)) if isinstance(value, str) and call.notes else value)

    return run
