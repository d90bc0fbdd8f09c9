"""The content of a push: the branch, its commit, and the commits that the remote is not known to have."""

import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from curtainwall.facts.git.config import Repository, find_repository
from curtainwall.facts.git.objects import HEADS, Commits, Listed, commit_at, current_branch
from curtainwall.facts.git.remotes import canonical_remotes
from curtainwall.facts.refusal import quoted
from curtainwall.model import record


class Unseen(Exception):
    """The answer is unknown; the message says why."""


def new_files(commits: Commits, id_: str) -> Iterator[str]:
    """Yield the paths that a commit adds or changes; for a merge, those that differ from all parents. Raise `Unseen`."""
    commit = commits.find(id_)
    parents = [commits.find(each) for each in commit.parents] if commit is not None else []
    if commit is None or None in parents:
        raise Unseen("a commit is not here")
    waiting = [("", commit.tree, [each.tree for each in parents if each is not None])]
    while waiting:
        above, tree, before = waiting.pop()
        others = [_listed(commits, each) for each in before]
        for name, here in _listed(commits, tree).items():
            previous = [entry for other in others if (entry := other.get(name)) is not None]
            if here in previous:
                continue
            if here.is_directory:
                waiting.append((f"{above}{name}/", here.id, _directories(previous)))
            else:
                yield f"{above}{name}"


def _directories(listed: Sequence[Listed]) -> list[str]:
    return [each.id for each in listed if each.is_directory]


def _listed(commits: Commits, tree: str) -> Mapping[str, Listed]:
    entries = commits.directory(tree)
    if entries is None:
        raise Unseen("too many directories, or some that are not here")
    return entries


# Counting blocks all other work.
_MOST_COUNTED: Final = 100
_LONGEST_TITLE: Final = 200
_SHORT_ID: Final = 12
_FEW: Final = 16


@record
class Push:
    """One branch that is to be pushed.

    `commit` is None if the branch has none. `since` is the commit that the repository last saw at the remote's branch of that name, and
    `summary` describes the push to a human.
    """

    branch: str | None
    commit: str | None
    since: str | None
    summary: str
    secrets: tuple[str, ...] = ()
    """Files with names of secrets, in commits that the remote is not known to have; only the first few."""
    unseen: str = ""
    """Why it is unknown whether there are such files; empty if it is known."""


def find_push(
    path: str,
    remote: str,
    branch: str | None,
    mask: Callable[[str], str] = str,
    workspace: str = "/",
    is_secret: Callable[[str], bool] = lambda _path: False,
) -> Push | None:
    """Return what a push from a directory would publish, or None if there is no repository; raise `Unclear` if that is unknown.

    Quoted text is masked before it is cut, because half a secret would not be recognized.
    """
    repository = find_repository(path, workspace)
    if repository is None:
        return None
    name = branch or current_branch(repository)
    if name is None:
        return Push(None, None, None, "nothing: no branch is checked out")
    commit = commit_at(repository, f"{HEADS}{name}")
    if commit is None:
        return Push(name, None, None, f"nothing: there is no branch {quoted(mask(name))} yet")
    since = _last_seen(repository, path, remote, name, workspace)
    with Commits(repository.directory) as commits:
        head = commits.find(commit)
        title = "" if head is None else f" {json.dumps(mask(head.title)[:_LONGEST_TITLE], ensure_ascii=False)}"
        is_here = since is None or commits.find(since) is not None
        new = _new(commits, commit, () if since is None else (since,)) if is_here else None
    summary = (
        f"{commit[:_SHORT_ID]}{title} to {quoted(mask(name))}: {_describe_count(None if new is None else len(new), since, mask(remote))}"
    )
    with Commits(repository.directory) as commits:
        secrets, unseen = _secrets(commits, commit, _known_tips(repository, path, remote, name, workspace), is_secret)
    return Push(name, commit, since, summary, secrets, unseen)


def _secrets(commits: Commits, commit: str, known: tuple[str, ...], is_secret: Callable[[str], bool]) -> tuple[tuple[str, ...], str]:
    """Return the files with names of secrets in commits that the remote is not known to have, and why the list may be incomplete."""
    new = _new(commits, commit, known)
    if new is None:
        return (), "its commits are not all here"
    files = dict[str, None]()
    try:
        if len(new) > _MOST_COUNTED:
            raise Unseen(f"more than {_MOST_COUNTED} commits")
        for each in sorted(new):
            files |= dict.fromkeys(name for name in new_files(commits, each) if is_secret(name))
    except Unseen as fault:
        return tuple(sorted(files))[:_FEW], str(fault)
    return tuple(sorted(files))[:_FEW], ""


def _last_seen(repository: Repository, path: str, remote: str, branch: str, workspace: str) -> str | None:
    """Return the last fetched commit of the remote's branch; None if the remote is pushed to another place than it is fetched from."""
    if not any((entry.section, entry.subsection) == ("remote", remote) for entry in repository.entries):
        return None
    places = {it.value for push in (True, False) for it in canonical_remotes(remote, repository=path, push=push, workspace=workspace)}
    return commit_at(repository, f"refs/remotes/{remote}/{branch}") if len(places) == 1 else None


def _known_tips(repository: Repository, path: str, remote: str, branch: str, workspace: str) -> tuple[str, ...]:
    """Return the commits that the remote is known to have: of this branch, and of the usual main branches."""
    tips = (_last_seen(repository, path, remote, each, workspace) for each in (branch, "HEAD", "main", "master"))
    return tuple(dict.fromkeys(each for each in tips if each is not None))


def _new(commits: Commits, commit: str, known_tips: tuple[str, ...]) -> set[str] | None:
    """Return the ancestors of a commit that the known tips do not have, never too few; None if that is unknown.

    The walk takes the youngest first, as git does, so that it ends a little below the point where both histories meet.
    """
    parents = dict[str, tuple[str, ...]]()
    known, new = set[str](), set[str]()
    waiting = list[tuple[int, str]]()
    oldest = -inf

    def meet(id_: str) -> bool:
        if id_ not in parents:
            details = commits.find(id_)
            if details is None:
                return False
            parents[id_] = details.parents
            heapq.heappush(waiting, (-details.when, id_))
        return True

    if not meet(commit):
        return None
    # A known tip that is not here leads to nothing that is counted.
    known.update(tip for tip in known_tips if meet(tip))
    while waiting and (waiting[0][0] <= oldest or any(id_ not in known for _, id_ in waiting)):
        age, here = heapq.heappop(waiting)
        if here in known:
            _mark_ancestors(here, parents, known)
        else:
            new.add(here)
            oldest = max(oldest, age)
        if len(new - known) > _MOST_COUNTED:
            break
        if len(parents) > 5 * _MOST_COUNTED or not all(meet(id_) for id_ in parents[here]):
            return None
    return new - known


def _mark_ancestors(start: str, parents: Mapping[str, tuple[str, ...]], known: set[str]) -> None:
    """Mark the ancestors of a known commit as known, as far as they were read."""
    waiting = [start]
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in known:
                known.add(parent)
                waiting.append(parent)


def _describe_count(counted: int | None, since: str | None, remote: str) -> str:
    if counted is None:
        return "how many commits that are cannot be told here"
    number = f"more than {_MOST_COUNTED} commits" if counted > _MOST_COUNTED else "1 commit" if counted == 1 else f"{counted} commits"
    if since is None:
        return f"{number} at most; what the remote has is not known"
    return f"{number} more than {since[:_SHORT_ID]}, which {quoted(remote)} has" if counted else f"{quoted(remote)} has it already"
