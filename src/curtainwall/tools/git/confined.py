"""Run git confined, with the repository's own config, which may be hostile but can reach nothing."""

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from curtainwall.facts import is_beneath, quoted, real_path
from curtainwall.host import MIB, Bounds, Confinement, ConfinementFailed, Finished, Sockets, run_confined
from curtainwall.model import Place, on_disk, record
from curtainwall.tools.runners import CannotDo

LOCAL: Final = Bounds(seconds=120, output=4 * MIB, file_size=4096 * MIB)

# Disable programs that a repository could configure. The confinement is the real protection; this keeps git fast and quiet.
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.editor=false", "core.askPass=false",
    "core.sshCommand=false", "core.gitProxy=none", "credential.helper=", "commit.gpgSign=false", "tag.gpgSign=false",
    "log.showSignature=false", "merge.verifySignatures=false", "gc.auto=0", "maintenance.auto=false", "submodule.recurse=false",
    "fetch.recurseSubmodules=false", "branch.autoSetupMerge=false", "safe.directory=*", "protocol.allow=never",
    "protocol.file.allow=always", "color.ui=false",
    # A hunk header repeats the last line above that begins with a letter, but must not show a line of a key.
    "diff.default.xfuncname=!^[A-Za-z0-9+/=]{40,}[[:space:]]*$\n^[A-Za-z_$].*$",
)  # fmt: skip
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C.UTF-8",
}


@record
class LocalRepository:
    """A repository on disk: the directory that git starts in, its top, and the directory that must be mounted."""

    path: str
    top: str
    root: str


def find_repository(path: str, place: Place) -> LocalRepository:
    """Return the repository of a judged path; raise `CannotDo` if its files are outside of what was judged."""
    workspace = place.workspace.path
    limit = workspace if is_beneath(path, workspace) else path
    here: str = path
    while True:
        marker = os.path.join(here, ".git")
        if os.path.lexists(on_disk(marker)):
            real = _git_directory(here, marker)
            if is_beneath(real, here):
                return LocalRepository(path, here, here)
            if is_beneath(real, limit):
                return LocalRepository(path, here, limit)
            raise CannotDo(f"the files of the repository {quoted(here)} lie in {quoted(real)}, outside of what this call may touch")
        if _is_bare(here):
            return LocalRepository(path, here, here)
        if here in (limit, "/"):
            raise CannotDo(f"{quoted(path)} is in no git repository")
        here = os.path.dirname(here)


def _git_directory(here: str, marker: str) -> str:
    if os.path.isfile(on_disk(marker)) and not os.path.islink(on_disk(marker)):
        return real_path(os.path.join(here, read_marker(marker)))
    return real_path(marker)


def read_marker(marker: str) -> str:
    """Return the target of a `.git` file without blocking, since it may have become a pipe meanwhile."""
    opened = os.open(on_disk(marker), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise CannotDo(f"{quoted(marker)} is no regular file")
        return file.read(4096).decode(errors="replace").removeprefix("gitdir:").strip()


def _is_bare(path: str) -> bool:
    at = on_disk(path)
    return os.path.isfile(f"{at}/HEAD") and os.path.isdir(f"{at}/objects") and os.path.isdir(f"{at}/refs")


def git_args(settings: Sequence[str]) -> list[str]:
    """Return git's options before the command: settings that override every config file."""
    return ["/usr/bin/env", "git", *(word for setting in settings for word in ("-c", setting))]


async def try_git(words: Sequence[str], confinement: Confinement, *, stdin: bytes = b"", stdout: int | None = None) -> Finished:
    """Run git confined and return how it ended; raise `CannotDo` if it was stopped."""
    environment = {**_ENVIRONMENT, **confinement.environment}
    try:
        done = await run_confined(
            [*git_args(_SETTINGS), *words], replace(confinement, environment=environment, sockets=Sockets.NONE), stdin=stdin, stdout=stdout
        )  # fmt: skip
    except ConfinementFailed as fault:
        raise CannotDo(str(fault)) from fault
    if done.stopped:
        raise CannotDo(f"git was stopped: {done.stopped}")
    return done


async def run_git(words: Sequence[str], confinement: Confinement, *, stdin: bytes = b"") -> Finished:
    """Run git confined; raise `CannotDo` with git's message if it fails."""
    done = await try_git(words, confinement, stdin=stdin)
    if done.code != 0:
        raise CannotDo(failure_text(done, words[0]))
    return done


def failure_text(done: Finished, what: str) -> str:
    """Return why git failed, in its own words."""
    output = "\n".join(text for text in (done.err.decode(errors="replace").strip(), done.out.decode(errors="replace").strip()) if text)
    return output[:8000] or f"git {what} failed with code {done.code}"
