"""A remote that is one repository, for tests that want no other."""

from curtainwall.facts.git.remotes import Remote, canonical_remotes


def one_remote(text: object, *, repository: str | None = None, push: bool = False) -> Remote:
    """Return the repository that a remote's name or URL means; one that a push would send to several places fails the test."""
    (remote,) = canonical_remotes(text, repository=repository, push=push)
    return remote
