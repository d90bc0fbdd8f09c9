"""The `git` tools that stay on this machine, each in the confinement."""

import asyncio
import os
from dataclasses import replace
from typing import cast

from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.host import Confinement
from curtainwall.tools.git_call import Call, identity, make_directory, refuse_running
from curtainwall.tools.git_confined import LOCAL, run_git
from curtainwall.tools.running import CannotDo

# Looking


async def _ask(call: Call, *words: str) -> str:
    """Run git and return what it printed."""
    async with call.open(call.spot()) as confinement:
        done = await run_git(words, confinement)
    return done.out.decode(errors="replace")


async def status(call: Call) -> JsonValue:
    """Tell what has changed in the working tree."""
    return await _ask(call, "status", "--porcelain=v1", "--branch", "--ignore-submodules=all")


async def diff(call: Call) -> JsonValue:
    """Show changes."""
    ref = call.text("ref")
    files = cast("list[str]", call.prepared.arguments.get("files", []))
    staged = ["--cached"] if call.prepared.arguments.get("staged") else []
    words = ["--no-ext-diff", "--no-textconv", "--ignore-submodules=all", *staged, *([ref] if ref else []), "--", *files]
    return await _ask(call, "diff", *words)


async def log(call: Call) -> JsonValue:
    """Show the last commits."""
    count, ref = call.prepared.arguments.get("count", 20), call.text("ref")
    return await _ask(call, "log", f"--max-count={count}", "--no-show-signature", "--decorate=short", *([ref] if ref else []), "--")


async def show(call: Call) -> JsonValue:
    """Show one commit or object."""
    return await _ask(call, "show", "--no-ext-diff", "--no-textconv", "--no-show-signature", call.text("ref") or "HEAD", "--")


# Changing


async def add(call: Call) -> JsonValue:
    """Stage files."""
    files = cast("list[str]", call.prepared.arguments["files"])
    await _ask(call, "add", "--verbose", "--", *files)
    return await status(call)


async def commit(call: Call) -> JsonValue:
    """Commit what is staged."""
    message = (call.text("message") or "").encode()
    spot = call.spot()
    async with call.open(spot) as confinement:
        named = replace(confinement, environment=await identity(call.house.way_out.environ))
        done = await run_git(["commit", "--no-verify", "--no-gpg-sign", "--file=-"], named, stdin=message)
    return done.out.decode(errors="replace")


async def branch(call: Call) -> JsonValue:
    """List the branches, or make one."""
    name = call.text("name")
    if name is None:
        return await _ask(call, "branch", "--all", "--no-color")
    await _ask(call, "branch", "--", name)
    return f"the branch {quoted(name)} was made"


async def checkout(call: Call) -> JsonValue:
    """Switch to a branch or commit."""
    ref, create = call.text("ref") or "", bool(call.prepared.arguments.get("create"))
    spot = call.spot()
    if not create:
        await refuse_running(call, spot, "HEAD", ref)
    async with call.open(spot) as confinement:
        done = await run_git(["checkout", "--no-recurse-submodules", *(["-b", ref] if create else [ref]), "--"], confinement)
    return done.err.decode(errors="replace") + done.out.decode(errors="replace")


async def init(call: Call) -> JsonValue:
    """Make a new repository."""
    path = call.path
    if await asyncio.to_thread(os.path.lexists, os.path.join(path, ".git")):
        raise CannotDo(f"{quoted(path)} is a repository already")
    await make_directory(call, path)
    # Only the new directory is given, and nothing of a repository runs yet.
    confinement = Confinement(cwd=path, writable=(path,), bounds=LOCAL)
    await run_git(["init", "--quiet", "--template=", "--initial-branch=main", path], confinement)
    return f"a new repository in {quoted(path)}"


async def set_working_dir(call: Call) -> JsonValue:
    """Set the directory that git works in."""
    if not await asyncio.to_thread(os.path.isdir, call.path):
        raise CannotDo(f"{quoted(call.path)} is not a directory")
    call.house.directories.choose(call.place.session, call.path)
    return call.path
