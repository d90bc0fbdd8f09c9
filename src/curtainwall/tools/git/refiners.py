"""Refine `git` calls beyond their arguments: which commit a push publishes, and whether git would run filters."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import Masker, Unclear, is_beneath
from curtainwall.model import GIT_PUSH, PUSH_SECRETS, BadCall, Place, Prepared, ToolEffect
from curtainwall.tools.runners import Refiner, extra_resource, refined
from curtainwall.tools.schema_check import RULE

# Commands that convert between files and git objects, or merge files. Converters for display are switched off.
_FILTERING: Final = tuple(f"git.{name}" for name in ("status", "diff", "add", "commit", "checkout", "pull"))
_PROGRAMS: Final = frozenset({("filter", "clean"), ("filter", "smudge"), ("filter", "process"), ("merge", "driver")})


def git_refiners(
    masker: Masker, is_secret: Callable[[str], bool] = lambda _path: False, given: Refiner | None = None
) -> Mapping[str, Refiner]:
    """Return the refiners of git calls: they bind a push to its commit and list the secrets in it.

    `given` refines a call by what a command may read in the workspace. It applies to repositories with filters, which are commands.
    """

    def push(prepared: Prepared, place: Place) -> Prepared:
        # Start-up time: judging other calls reads no repository.
        from curtainwall.facts import find_push

        arguments = cast("Mapping[str, str]", prepared.arguments)
        path, remote, root = arguments["path"], arguments["remote"], place.workspace.path
        try:
            pushed = find_push(path, remote, arguments.get("branch"), masker.mask_text, root, is_secret)
        except (Unclear, OSError) as error:
            # Errors in a repository outside the workspace are reported by the push itself, once approved.
            if not is_beneath(path, root):
                return prepared
            raise BadCall(RULE, masker.mask_text(str(error))) from error
        if pushed is None:
            return prepared
        # Mask the commit's own text first: its id identifies it, so nothing of the call is hidden.
        details: dict[str, JsonValue] = {"branch": pushed.branch, "commit": pushed.commit, "since": pushed.since}
        additions = {"pushes": masker.mask_text(pushed.summary), **{key: value for key, value in details.items() if value is not None}}
        if not pushed.secrets and not pushed.unseen:
            return refined(prepared, additions, (), masker)
        unseen = [f"cannot be told of all: {pushed.unseen}"] if pushed.unseen else []
        additions["secrets"] = [*map(masker.mask_text, pushed.secrets), *unseen]
        closer = refined(prepared, additions, (extra_resource(PUSH_SECRETS, ToolEffect.SEND),), masker)
        # INVARIANT: what is pushed counts as read, and what could not be inspected counts as a secret.
        reads = {f"{path}/{name}": name for name in pushed.secrets} or {f"{path}/.env": f"commits of {path} that cannot be looked through"}
        return replace(closer, subject=closer.subject.model_copy(update={"reads": reads}))

    def filtered(prepared: Prepared, place: Place) -> Prepared:
        return given(prepared, place) if given is not None and _has_filters(cast("str", prepared.arguments["path"]), place) else prepared

    return {GIT_PUSH: push, **(dict.fromkeys(_FILTERING, filtered) if given is not None else {})}


def _has_filters(path: str, place: Place) -> bool:
    """Tell whether git would run programs from a repository's config on its files; they may print any other file instead."""
    # Start-up time: as above.
    from curtainwall.facts.git.config import find_repository

    try:
        repository = find_repository(path, place.workspace.path)
    except Unclear:
        return True
    return repository is not None and any((entry.section, entry.key) in _PROGRAMS for entry in repository.entries)
