"""The `git` tools that use the network: through a clean repository, to the judged URL and nowhere else."""

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from pydantic import JsonValue

from curtainwall.facts import canonical_remotes, quoted
from curtainwall.facts.git.config import find_repository
from curtainwall.host import Confinement
from curtainwall.model import Mode, Role, on_disk, works_on_view
from curtainwall.tools.git.call import GitCall, identity, looks_at_names, make_directory, refuse_names, refuse_switch
from curtainwall.tools.git.confined import LOCAL, LocalRepository, run_git, try_git
from curtainwall.tools.git.network import CleanRepository, GitTarget, clean_repository, reading, run_on_network, shown
from curtainwall.tools.runners import CannotDo

_HEADS, _TAGS = "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"
_TIP = r"(?m)^[0-9a-f]{40}(?:[0-9a-f]{24})?(?=\t)"
_SHA256_DIGITS = 64
_QUIET = ("--no-recurse-submodules", "--no-auto-maintenance")


async def clone(call: GitCall) -> JsonValue:
    """Clone a repository into a new directory."""
    path, url = call.path, call.text("url") or ""
    remote = canonical_remotes(url, repository=None, push=False, own_ports=call.parts.way_out.own_ports)[0]
    if remote.url != url:
        raise CannotDo(f"the URL {quoted(url)} is not the one that was judged")
    target = GitTarget(url, call.judged(Role.READ_REMOTE, remote.value, remote.host))
    if not await asyncio.to_thread(_is_free, path):
        raise CannotDo(f"{quoted(path)} is already there and not an empty directory")
    async with clean_repository() as clean:
        listing = await run_on_network(["ls-remote", "--symref", url, "HEAD"], clean, target, call.parts.way_out)
        listed = listing.out.decode(errors="replace")
    object_format = _format_of(re.findall(_TIP, listed))
    async with clean_repository(object_format) as clean:
        await run_on_network(["fetch", *_QUIET, "--no-write-fetch-head", url, _HEADS, _TAGS], clean, target, call.parts.way_out)
        head = await _head_in(listed, clean)
        if head is not None and looks_at_names(call):
            command = ["-C", clean.repository, "ls-tree", "-r", "-z", "--name-only", f"refs/heads/{head}", "--"]
            await asyncio.to_thread(refuse_names, call, path, await try_git(command, clean.alone))
        is_new = await make_directory(call, path)
        try:
            await _unpack(path, clean, target, head, object_format)
        except BaseException:
            if is_new:
                with suppress(OSError):
                    os.rmdir(on_disk(path))
            raise
    return f"{url} was cloned into {path}" + (f", on branch {quoted(head)}" if head else "; it is empty")


def _is_free(path: str) -> bool:
    try:
        return not os.listdir(on_disk(path))
    except FileNotFoundError:
        return not os.path.lexists(on_disk(path))
    except OSError:
        return False


def _format_of(ids: Sequence[str]) -> str:
    """Return git's name for the way in which these objects are named."""
    return "sha256" if any(len(id_) == _SHA256_DIGITS for id_ in ids) else "sha1"


async def _head_in(listing: str, clean: CleanRepository) -> str | None:
    """Return the default branch of a remote repository, if it was fetched."""
    for line in listing.splitlines():
        if line.startswith("ref: refs/heads/") and line.endswith("\tHEAD"):
            name = line.removeprefix("ref: refs/heads/").removesuffix("\tHEAD")
            ref = await try_git(["-C", clean.repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}"], clean.alone)
            return name if ref.code == 0 else None
    return None


async def _unpack(path: str, clean: CleanRepository, target: GitTarget, head: str | None, object_format: str) -> None:
    """Fill a new directory from the clean repository; anything the checkout runs is confined to this directory."""
    inside = await reading(Confinement(cwd=path, writable=(path,), bounds=LOCAL, as_owner=True), clean)
    init = ["init", "--quiet", "--template=", f"--initial-branch={head or 'main'}", f"--object-format={object_format}", path]
    await run_git(init, inside)
    await run_git(["config", "remote.origin.url", target.url], inside)
    await run_git(["config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"], inside)
    await run_git(["fetch", "--quiet", *_QUIET, clean.repository, "+refs/heads/*:refs/remotes/origin/*", _TAGS], inside)
    if head is not None:
        await run_git(["config", f"branch.{head}.remote", "origin"], inside)
        await run_git(["config", f"branch.{head}.merge", f"refs/heads/{head}"], inside)
        await run_git(["symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{head}"], inside)
        await run_git(["reset", "--quiet", "--hard", f"refs/remotes/origin/{head}"], inside)


async def _fetch_through(call: GitCall, spot: LocalRepository, branch: str | None = None) -> str:
    """Fetch from a remote over the network into the clean repository, then into the workspace's; return git's output."""
    (target,) = call.targets(Role.READ_REMOTE)
    name = _remote_name(call)
    async with call.open(spot, write=False) as confinement:
        object_format = (await run_git(["rev-parse", "--show-object-format"], confinement)).out.decode().strip()
    async with clean_repository("sha256" if object_format == "sha256" else "sha1") as clean:
        async with call.open(spot, write=False) as confinement:
            await clean.take_over(confinement, ["--branches", "--tags", "--remotes"], "+refs/*:refs/ours/*")
        wanted = [_HEADS, _TAGS] if name else [f"+{f'refs/heads/{branch}' if branch else 'HEAD'}:refs/theirs"]
        fetch = ["fetch", *_QUIET, "--no-write-fetch-head", *([] if name else ["--no-tags"]), target.url, *wanted]
        await run_on_network(fetch, clean, target, call.parts.way_out)
        refspecs = [f"+refs/heads/*:refs/remotes/{name}/*", "refs/tags/*:refs/tags/*"] if name else ["refs/theirs"]
        async with call.open(spot) as confinement:
            done = await run_git(["fetch", *_QUIET, clean.repository, *refspecs], await reading(confinement, clean))
        return shown(done.err, clean, target)


def _remote_name(call: GitCall) -> str | None:
    """Return the remote's name, or None if the call gave a URL."""
    repository = find_repository(call.path, call.place.workspace.path)
    remotes = {entry.subsection for entry in repository.entries if entry.section == "remote"} if repository else set[str | None]()
    remote = call.text("remote") or "origin"
    return remote if remote in remotes else None


async def fetch(call: GitCall) -> JsonValue:
    """Get new commits from a remote."""
    return await _fetch_through(call, call.spot()) or "nothing new"


async def pull(call: GitCall) -> JsonValue:
    """Get new commits from a remote and merge them."""
    spot, branch = call.spot(), call.text("branch")
    name = _remote_name(call)
    if name is not None and branch is None:
        branch = await _current_branch(call, spot)
    fetch_output = await _fetch_through(call, spot, branch)
    source = f"refs/remotes/{name}/{branch}" if name else "FETCH_HEAD"
    await refuse_switch(call, spot, "HEAD", source)
    async with call.open(spot) as confinement:
        with_identity = replace(confinement, environment=await identity(call.parts.way_out.environ))
        done = await run_git(["merge", "--no-edit", "--no-verify", "--no-gpg-sign", source], with_identity)
    return "\n".join(text for text in (fetch_output, done.out.decode(errors="replace").strip()) if text)


async def _current_branch(call: GitCall, spot: LocalRepository) -> str:
    async with call.open(spot, write=False) as confinement:
        done = await try_git(["symbolic-ref", "--quiet", "--short", "HEAD"], confinement)
        name = done.out.decode(errors="replace").strip()
        if done.code != 0 or (await try_git(["check-ref-format", f"refs/heads/{name}"], confinement)).code != 0 or name.startswith("-"):
            raise CannotDo("no branch is checked out; name one")
    return name


async def push(call: GitCall) -> JsonValue:
    """Publish a branch to every judged URL."""
    spot, targets = call.spot(), call.targets(Role.WRITE_REMOTE)
    if works_on_view(call.place.workspace, call.place.mode):
        call.notes.append("this is the repository of the project itself: commits that were made in review mode are in the view alone")
    branch, commit = call.text("branch"), call.text("commit")
    if branch is None or commit is None:
        raise CannotDo("no branch is checked out; name one" if branch is None else f"there is no branch {quoted(branch)} to push")
    ref = f"refs/heads/{branch}"
    outputs: list[str] = []
    async with clean_repository(_format_of([commit])) as clean:
        async with call.open(spot, write=False) as confinement:
            if (await try_git(["rev-parse", "--verify", "--quiet", ref], confinement)).code != 0:
                raise CannotDo(f"there is no branch {quoted(branch)} any more")
            await clean.take_over(confinement, [ref], f"{ref}:{ref}")
        if await _commit_at(clean, ref) != commit:
            raise CannotDo(f"{quoted(branch)} has moved since the push of {commit[:12]} was judged; push again")
        for target in targets:
            if call.was_asked:
                await _refuse_more(call, clean, target, ref)
            await _refuse_secrets(call, clean, target, commit)
            command = [
                "push",
                "--porcelain",
                "--no-verify",
                "--no-signed",
                "--no-follow-tags",
                "--recurse-submodules=no",
                target.url,
                f"{commit}:{ref}",
            ]
            done = await run_on_network(command, clean, target, call.parts.way_out)
            outputs.append(shown(done.out, clean, target))
        await _note_pushed(call, spot, clean, branch, commit)
    return "\n".join(outputs)


async def _commit_at(clean: CleanRepository, ref: str) -> str:
    return (await run_git(["-C", clean.repository, "rev-parse", ref], clean.alone)).out.decode().strip()


async def _refuse_more(call: GitCall, clean: CleanRepository, target: GitTarget, ref: str) -> None:
    """Refuse a push of more commits than were shown: the repository's record of the remote may be forged by the agent.

    A branch that was merged and deleted is part of the remote's default branch.
    """
    since = call.text("since")
    if since is None:
        return
    listing = await run_on_network(["ls-remote", target.url, ref, "HEAD"], clean, target, call.parts.way_out)
    tips = re.findall(_TIP, listing.out.decode(errors="replace"))
    if since in tips or await _is_behind(clean, since, tips):
        return
    hint = "fetch and push again, or push to its URL"
    raise CannotDo(f"{quoted(target.url)} is not known to have {since[:12]}, so more would be pushed than was shown; {hint}")


async def _refuse_secrets(call: GitCall, clean: CleanRepository, target: GitTarget, commit: str) -> None:
    """Refuse a push with files named like secrets that was judged as having none: its base may be forged by the agent."""
    names = call.parts.withheld
    if "secrets" in call.prepared.arguments or not names.patterns:
        return
    listing = await run_on_network(["ls-remote", "--heads", target.url], clean, target, call.parts.way_out)
    tips = re.findall(_TIP, listing.out.decode(errors="replace"))
    # The full history: git would otherwise skip a branch that added such a file and was merged without it.
    walk = ["--full-history", "--name-only", "-z", "-c", "--no-renames", "--ignore-missing", "--stdin"]
    command = ["-C", clean.repository, "log", "--format=", *walk]
    stdin_lines = [commit, *(f"^{tip}" for tip in tips), "--", *(f":(top,icase,glob)**/{pattern}" for pattern in names.patterns), ""]
    with_globs = replace(clean.alone, environment={"GIT_LITERAL_PATHSPECS": "0"})
    done = await run_git(command, with_globs, stdin="\n".join(stdin_lines).encode())
    secrets = [name for name in done.out.decode(errors="replace").split("\0") if name and names.is_one(name)]
    if secrets or done.cut:
        listed = ", ".join(quoted(name) for name in secrets[:5])
        hint = "fetch and push again, or push to its URL"
        raise CannotDo(f"{quoted(target.url)} is not known to have {listed}, named like secrets, which nobody was asked about; {hint}")


async def _is_behind(clean: CleanRepository, since: str, tips: Sequence[str]) -> bool:
    """Tell whether a commit is reachable from one of the tips; False if it is not part of the push, since nothing is known of it."""
    if (await try_git(["-C", clean.repository, "cat-file", "-e", f"{since}^{{commit}}"], clean.alone)).code != 0:
        return False
    command = ["-C", clean.repository, "rev-list", "--ignore-missing", "--max-count=1", "--stdin"]
    unreachable = await run_git(command, clean.alone, stdin="\n".join([since, *(f"^{tip}" for tip in tips), ""]).encode())
    return not unreachable.out.strip()


async def _note_pushed(call: GitCall, spot: LocalRepository, clean: CleanRepository, branch: str, commit: str) -> None:
    """Update the remote-tracking branch as git does, if the session may write without asking."""
    name = _remote_name(call)
    if name is None or (call.is_careful and call.place.mode is not Mode.ACCEPT_EDITS):
        return
    async with call.open(spot, write=True) as confinement:
        await run_git(["update-ref", f"refs/remotes/{name}/{branch}", commit], await reading(confinement, clean))
