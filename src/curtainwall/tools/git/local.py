"""The `git` tools that stay on this machine, each in the confinement."""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.host import Confinement
from curtainwall.model import Role, on_disk
from curtainwall.tools.git.call import GitCall, denied_names, identity, make_directory, refuse_switch, shown_names
from curtainwall.tools.git.confined import LOCAL, run_git, try_git
from curtainwall.tools.runners import CannotDo

_MOST_LISTED: Final = 20
# The output format of `add --dry-run`.
_NAMED: Final = re.compile(r"(?:add|remove) '(.*)'")

# A renamed file is listed under both names.
_LISTED: Final = ("--name-only", "--no-renames", "--no-relative", "-z")

# Read


async def _ask(call: GitCall, *words: str) -> str:
    """Run git and return its output."""
    async with call.open(call.spot()) as confinement:
        done = await run_git(words, confinement)
    return done.out.decode(errors="replace")


async def _ask_about(call: GitCall, *words: str, listed: Sequence[str], files: Sequence[str] = ()) -> str:
    """Run git without files that the rules deny or, unless the call names them, files named like secrets; note which were left out.

    INVARIANT: everything shown or staged was judged by its name, or is neither denied nor labelled. Directories and commits hold files
    that the call does not name.
    """
    spot = call.spot()
    patterns = [] if call.names_secrets else await asyncio.to_thread(_patterns, call, files)
    async with call.open(spot) as confinement:
        listing = [words[0], *listed, *words[1:], "--", *files] if listed else []
        names = await _names(call, confinement, listing) if listed and call.is_denied is not None else []
        denied = await asyncio.to_thread(denied_names, call, spot.top, names, (Role.READ_PATH,))
        excluded = [f":(exclude,top,icase,glob)**/{pattern}" for pattern in patterns] + [f":(exclude,top,literal){name}" for name in denied]
        with_globs = replace(confinement, environment={**confinement.environment, "GIT_LITERAL_PATHSPECS": "0"})
        done = await run_git([*words, "--", *(f":(literal){path}" for path in files), *excluded], with_globs)
        if listed and call.is_denied is None:
            # A filter of the repository may make this fail, so it runs last if nothing depends on the names.
            names = await _names(call, confinement, listing)
    left_out = [name for name in names if any(fnmatchcase(os.path.basename(name).lower(), pattern) for pattern in patterns)]
    _note(call, "left out, because of names that secrets have: {}; whatever is named by its path is there", left_out)
    _note(call, "left out, because the rules of this session deny reading them: {}", denied)
    return done.out.decode(errors="replace")


async def _names(call: GitCall, confinement: Confinement, words: Sequence[str]) -> list[str]:
    """Return the files that git would show or stage; raise `CannotDo` if that matters and git cannot list them."""
    done = await (try_git if call.is_denied is None else run_git)(words, confinement)
    if done.cut and call.is_denied is not None:
        raise CannotDo("too many files to look through; name some of them")
    text = os.fsdecode(done.out)
    lines = text.split("\0") if "-z" in words else text.splitlines()
    return list(dict.fromkeys(name for line in lines if (name := _NAMED.sub(r"\1", line).strip("\n"))))


def _note(call: GitCall, words: str, names: Sequence[str]) -> None:
    if names:
        call.notes.append(words.format(shown_names(names, _MOST_LISTED)))


def _patterns(call: GitCall, files: Sequence[str]) -> list[str]:
    """Return the patterns of secrets, except those that match a harmless file named by the call."""
    named = [os.path.basename(path).lower() for path in files if not os.path.isdir(on_disk(path))]
    return [pattern for pattern in call.parts.withheld.patterns if not any(fnmatchcase(name, pattern) for name in named)]


async def _refuse_bare_files(call: GitCall, ref: str) -> str:
    """Refuse a file named only by its id, since it could not be judged by name; return the type of the last object named."""
    kind = ""
    for side in re.split(r"\.{2,3}", ref):
        async with call.open(call.spot(), write=False) as confinement:
            done = await try_git(["cat-file", "-t", f"{side or 'HEAD'}^{{}}" if ":" not in side else side], confinement)
        kind = done.out.decode(errors="replace").strip()
        if kind == "blob" and ":" not in side:
            raise CannotDo(f"{quoted(side)} is a file; name it by a commit and its path, as in `HEAD:README.md`")
    return kind


async def status(call: GitCall) -> JsonValue:
    """Tell what has changed in the working tree."""
    return await _ask(call, "status", "--porcelain=v1", "--branch", "--ignore-submodules=all")


async def diff(call: GitCall) -> JsonValue:
    """Show changes."""
    ref = call.text("ref")
    files = cast("list[str]", call.prepared.arguments.get("files", []))
    staged = ["--cached"] if call.prepared.arguments.get("staged") else []
    if ref:
        await _refuse_bare_files(call, ref)
    words = ["--no-ext-diff", "--no-textconv", "--ignore-submodules=all", *staged, *([ref] if ref else [])]
    return await _ask_about(call, "diff", *words, listed=_LISTED, files=files)


async def log(call: GitCall) -> JsonValue:
    """Show the last commits."""
    count, ref = call.prepared.arguments.get("count", 20), call.text("ref")
    return await _ask(call, "log", f"--max-count={count}", "--no-show-signature", "--decorate=short", *([ref] if ref else []), "--")


async def show(call: GitCall) -> JsonValue:
    """Show one commit or object."""
    ref = call.text("ref") or "HEAD"
    kind = await _refuse_bare_files(call, ref)
    listed = () if kind in ("blob", "tree") else (*_LISTED, "--format=")
    return await _ask_about(call, "show", "--no-ext-diff", "--no-textconv", "--no-show-signature", ref, listed=listed)


# Write


async def add(call: GitCall) -> JsonValue:
    """Stage files."""
    files = cast("list[str]", call.prepared.arguments["files"])
    await _ask_about(call, "add", "--verbose", listed=("--dry-run",), files=files)
    return await status(call)


async def commit(call: GitCall) -> JsonValue:
    """Commit what is staged."""
    message = (call.text("message") or "").encode()
    spot = call.spot()
    async with call.open(spot) as confinement:
        named = replace(confinement, environment=await identity(call.parts.way_out.environ))
        done = await run_git(["commit", "--no-verify", "--no-gpg-sign", "--file=-"], named, stdin=message)
    return done.out.decode(errors="replace")


async def branch(call: GitCall) -> JsonValue:
    """List the branches, or make one."""
    name = call.text("name")
    if name is None:
        return await _ask(call, "branch", "--all", "--no-color")
    await _ask(call, "branch", "--", name)
    return f"the branch {quoted(name)} was made"


async def checkout(call: GitCall) -> JsonValue:
    """Switch to a branch or commit."""
    ref, create = call.text("ref") or "", bool(call.prepared.arguments.get("create"))
    spot = call.spot()
    if not create:
        await refuse_switch(call, spot, "HEAD", ref)
    async with call.open(spot) as confinement:
        done = await run_git(["checkout", "--no-recurse-submodules", *(["-b", ref] if create else [ref]), "--"], confinement)
    return done.err.decode(errors="replace") + done.out.decode(errors="replace")


async def init(call: GitCall) -> JsonValue:
    """Make a new repository."""
    path = call.path
    if await asyncio.to_thread(os.path.lexists, on_disk(os.path.join(path, ".git"))):
        raise CannotDo(f"{quoted(path)} is a repository already")
    await make_directory(call, path)
    # The sandbox holds only the new directory, and there is no repository yet that could run anything.
    confinement = Confinement(cwd=path, writable=(path,), bounds=LOCAL, as_owner=True)
    await run_git(["init", "--quiet", "--template=", "--initial-branch=main", path], confinement)
    return f"a new repository in {quoted(path)}"


async def set_working_dir(call: GitCall) -> JsonValue:
    """Set git's working directory from now on; the log records it in the result of this call."""
    if call.prepared.subject.masked:
        raise CannotDo("a part of the path looks like a secret, which the log does not keep; give `path` with each call instead")
    if not await asyncio.to_thread(os.path.isdir, on_disk(call.path)):
        raise CannotDo(f"{quoted(call.path)} is not a directory")
    return call.path
