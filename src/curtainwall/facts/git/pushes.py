"""What a push would publish: the branch, the commit that it stands at, and how much of its history the remote is said not to have."""

import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from curtainwall.facts.git.config import Repository, find_repository
from curtainwall.facts.git.objects import HEADS, Commits, Listed, commit_at, current_branch
from curtainwall.facts.git.remotes import canonical_remotes
from curtainwall.facts.refusal import quoted


class Unseen(Exception):
    """It cannot be told; the words say why."""


def new_files(commits: Commits, id_: str) -> Iterator[str]:
    """Yield the paths that a commit adds or changes; of a merge, those that it took from none of its parents. Raise `Unseen`."""
    commit = commits.find(id_)
    parents = [commits.find(each) for each in commit.parents] if commit is not None else []
    if commit is None or None in parents:
        raise Unseen("a commit is not here")
    waiting = [("", commit.tree, [each.tree for each in parents if each is not None])]
    while waiting:
        above, tree, before = waiting.pop()
        others = [_listed(commits, each) for each in before]
        for name, here in _listed(commits, tree).items():
            was = [found for other in others if (found := other.get(name)) is not None]
            if here in was:
                continue
            if here.is_directory:
                waiting.append((f"{above}{name}/", here.id, _directories(was)))
            else:
                yield f"{above}{name}"


def _directories(listed: Sequence[Listed]) -> list[str]:
    return [each.id for each in listed if each.is_directory]


def _listed(commits: Commits, tree: str) -> Mapping[str, Listed]:
    found = commits.directory(tree)
    if found is None:
        raise Unseen("too many directories, or some that are not here")
    return found


# Everybody waits while they are counted.
_MOST_COUNTED: Final = 100
_LONGEST_TITLE: Final = 200
_SHORT_ID: Final = 12
_FEW: Final = 16


@dataclass(frozen=True, slots=True)
class Push:
    """One branch on its way out.

    `commit` is None where the branch has none. `since` is the commit that the repository last saw at the remote's branch of that name, and
    `told` says all of it to a human.
    """

    branch: str | None
    commit: str | None
    since: str | None
    told: str
    secrets: tuple[str, ...] = ()
    """Files in commits that the remote is not known to have, named like secrets; a few stand for all."""
    unseen: str = ""
    """Why it cannot be told whether there are such files; empty where it can."""


def find_push(
    path: str,
    remote: str,
    branch: str | None,
    mask: Callable[[str], str] = str,
    workspace: str = "/",
    is_secret: Callable[[str], bool] = lambda _path: False,
) -> Push | None:
    """Return what a push from a directory would publish, None where there is no repository; raise `Unclear` where that cannot be told.

    What it quotes is masked as a whole, before it is cut: half a secret is known to nobody as one.
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
        found = commits.find(commit)
        title = "" if found is None else f" {json.dumps(mask(found.title)[:_LONGEST_TITLE], ensure_ascii=False)}"
        is_here = since is None or commits.find(since) is not None
        new = _new(commits, commit, () if since is None else (since,)) if is_here else None
    summary = f"{commit[:_SHORT_ID]}{title} to {quoted(mask(name))}: {_in_words(None if new is None else len(new), since, mask(remote))}"
    with Commits(repository.directory) as commits:
        secrets, unseen = _secrets(commits, commit, _known_tips(repository, path, remote, name, workspace), is_secret)
    return Push(name, commit, since, summary, secrets, unseen)


def _secrets(commits: Commits, commit: str, known: tuple[str, ...], is_secret: Callable[[str], bool]) -> tuple[tuple[str, ...], str]:
    """Return the files named like secrets that come with commits which the remote is not known to have, and why they cannot be told."""
    new = _new(commits, commit, known)
    if new is None:
        return (), "its commits are not all here"
    found = dict[str, None]()
    try:
        if len(new) > _MOST_COUNTED:
            raise Unseen(f"more than {_MOST_COUNTED} commits")
        for each in sorted(new):
            found |= dict.fromkeys(name for name in new_files(commits, each) if is_secret(name))
    except Unseen as fault:
        return tuple(sorted(found))[:_FEW], str(fault)
    return tuple(sorted(found))[:_FEW], ""


def _last_seen(repository: Repository, path: str, remote: str, branch: str, workspace: str) -> str | None:
    """Return where the remote's branch was when last fetched; nothing of a remote that is pushed to another place than it is read from."""
    if not any((entry.section, entry.subsection) == ("remote", remote) for entry in repository.entries):
        return None
    places = {it.value for push in (True, False) for it in canonical_remotes(remote, repository=path, push=push, workspace=workspace)}
    return commit_at(repository, f"refs/remotes/{remote}/{branch}") if len(places) == 1 else None


def _known_tips(repository: Repository, path: str, remote: str, branch: str, workspace: str) -> tuple[str, ...]:
    """Return what the remote is said to have: this branch, and those that most others begin at."""
    found = (_last_seen(repository, path, remote, each, workspace) for each in (branch, "HEAD", "main", "master"))
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _new(commits: Commits, commit: str, known_tips: tuple[str, ...]) -> set[str] | None:
    """Return the commits that lead to one and that others do not have, never too few; None where that cannot be told.

    The youngest is looked at first, as git does, so that the walk ends a little below the place where both meet.
    """
    parents = dict[str, tuple[str, ...]]()
    known, new = set[str](), set[str]()
    waiting = list[tuple[int, str]]()
    oldest = -inf

    def meet(id_: str) -> bool:
        if id_ not in parents:
            found = commits.find(id_)
            if found is None:
                return False
            parents[id_] = found.parents
            heapq.heappush(waiting, (-found.when, id_))
        return True

    if not meet(commit):
        return None
    # What is known of and not here leads to nothing that is counted.
    known.update(tip for tip in known_tips if meet(tip))
    while waiting and (waiting[0][0] <= oldest or any(id_ not in known for _, id_ in waiting)):
        age, here = heapq.heappop(waiting)
        if here in known:
            _spread(here, parents, known)
        else:
            new.add(here)
            oldest = max(oldest, age)
        if len(new - known) > _MOST_COUNTED:
            break
        if len(parents) > 5 * _MOST_COUNTED or not all(meet(id_) for id_ in parents[here]):
            return None
    return new - known


def _spread(start: str, parents: Mapping[str, tuple[str, ...]], known: set[str]) -> None:
    """Note that what a known commit builds on is known, as far as that was looked at."""
    waiting = [start]
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in known:
                known.add(parent)
                waiting.append(parent)


def _in_words(counted: int | None, since: str | None, remote: str) -> str:
    if counted is None:
        return "how many commits that are cannot be told here"
    number = f"more than {_MOST_COUNTED} commits" if counted > _MOST_COUNTED else "1 commit" if counted == 1 else f"{counted} commits"
    if since is None:
        return f"{number} at most; what the remote has is not known"
    return f"{number} more than {since[:_SHORT_ID]}, which {quoted(remote)} has" if counted else f"{quoted(remote)} has it already"
