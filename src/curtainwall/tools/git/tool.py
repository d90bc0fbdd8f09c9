"""Run the `git` tools: local steps confined, network steps in a clean repository with the judged URL."""

import os
from collections.abc import Iterable, Mapping

from curtainwall.facts import Unclear
from curtainwall.model import CallPermitted, Place, Prepared, ToolResult
from curtainwall.tools.git import local as git_local
from curtainwall.tools.git import remotes as git_remotes
from curtainwall.tools.git.call import GitCall, GitOperation, GitParts, WithheldFiles
from curtainwall.tools.git.network import GitNetwork
from curtainwall.tools.runners import CannotDo, Runner
from curtainwall.tools.sandbox import Sandboxes


def git_runners(
    *,
    protected: Iterable[str] = (),
    sandboxes: Sandboxes | None = None,
    environ: Mapping[str, str] = os.environ,
    own_ports: frozenset[int] = frozenset(),
    withheld: WithheldFiles | None = None,
) -> Mapping[str, Runner]:
    """Return the runners of `git.*`; without bubblewrap they must not be in the catalogue.

    `protected` are the paths that no agent reads; a repository outside the workspace that contains one is not opened. Files that
    are `withheld` are not shown, staged or written.
    """
    way_out = GitNetwork(environ, own_ports)
    parts = GitParts(tuple(protected), sandboxes or Sandboxes(), way_out, withheld or WithheldFiles())
    operations: dict[str, GitOperation] = {
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
    return {f"git.{name}": _runner(operation, parts) for name, operation in operations.items()}


def _runner(operation: GitOperation, parts: GitParts) -> Runner:
    async def run(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        call = GitCall(prepared, place, parts, [], was_asked=bool(permit.answered_by))
        try:
            with parts.sandboxes.charged_to(place.session):
                value = await operation(call)
        except (CannotDo, Unclear) as error:
            raise CannotDo("\n".join((str(error), *call.notes))) from error
        except OSError as error:
            raise CannotDo(f"git cannot work here: {(error.strerror or str(error)).lower()}") from error
        return ToolResult(ok=True, value="\n".join((value, *call.notes)) if isinstance(value, str) and call.notes else value)

    return run
