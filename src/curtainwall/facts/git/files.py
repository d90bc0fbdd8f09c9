"""Which files a commit brings: those that none of the commits before it has as they are."""

from collections.abc import Iterator, Mapping, Sequence

from curtainwall.facts.git.objects import Commits, Listed


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
