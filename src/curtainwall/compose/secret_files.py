"""Files that are named like secrets. Whatever runs in a workspace or gets a directory may read them, so they count as read."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from curtainwall.facts import MOST_NAMES, NamedFiles, find_named, is_without_key
from curtainwall.model import (
    CommandFacts,
    Digest,
    Label,
    LabelSource,
    PathFacts,
    Place,
    Prepared,
    Resource,
    Role,
    SessionId,
    Subject,
    ToolEffect,
    inside_view,
    on_disk,
)
from curtainwall.policy import Policy, SessionFacts, is_secret_name, labels_of

_FEW: Final = 16
_MOST_REMEMBERED: Final = 256
# Everybody can download the files in packages, including the keys for their tests.
_PACKAGES: Final = ("/node_modules/", "/site-packages/")


def secrets_in(workspace: str, most: int = MOST_NAMES) -> NamedFiles:
    """Find files that are named like secrets, except those that evidently hold no key."""

    def is_one(path: str) -> bool:
        within = path[len(workspace) :]
        return is_secret_name(path) and not any(part in within for part in _PACKAGES) and not is_without_key(path)

    return find_named(workspace, is_one, most)


def may_read(workspace: str, secrets: NamedFiles) -> Mapping[str, str]:
    """Return the paths that count as read by anything that runs in a workspace, with a description each; a few represent all."""
    reads = {path: path for path in [*secrets.paths.values()][:_FEW]}
    if secrets.missed:
        # INVARIANT: what could not be searched counts as a secret. Otherwise a secret behind enough other files would go unlabelled.
        reads.setdefault(f"{workspace}/.env", f"{workspace}, which cannot be looked through for secrets: {secrets.missed}")
    return reads


def with_given_secrets(prepared: Prepared, _place: Place) -> Prepared:
    """Add to a call of a third-party tool the secrets in the directories that it gets: we cannot know what it reads there."""
    directories = [
        it.value for it in prepared.subject.resources if it.role is Role.READ_PATH and isinstance(it.facts, PathFacts) and it.facts.whole
    ]
    reads = {path: text for directory in directories for path, text in may_read(directory, secrets_in(directory)).items()}
    return _with_reads(prepared, reads)


def _with_reads(prepared: Prepared, reads: Mapping[str, str]) -> Prepared:
    return replace(prepared, subject=prepared.subject.model_copy(update={"reads": reads})) if reads else prepared


class SecretReads:
    """Remembers the secrets that commands may read in each workspace, and searches again when one of them is gone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, SessionId | None], NamedFiles] = {}

    def refine(self, prepared: Prepared, place: Place) -> Prepared:
        """Add to a command the secrets in its workspace."""
        root = place.workspace.path
        # Each session has its own view of a project.
        key = root, place.session if inside_view(root) is not None else None
        secrets = self._known.get(key)
        if secrets is None or not (secrets.missed or all(os.path.lexists(on_disk(path)) for path in secrets.paths.values())):
            secrets = secrets_in(root)
            self._remember(key, secrets)
        return _with_reads(prepared, may_read(root, secrets))

    def _remember(self, key: tuple[str, SessionId | None], secrets: NamedFiles) -> None:
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        # If there are none now, there may be some before the next command.
        if secrets.paths or secrets.missed:
            self._known[key] = secrets


def mounted_labels(policy: Policy, facts: SessionFacts, most: int = MOST_NAMES, *, besides: Iterable[str] = ()) -> tuple[LabelSource, ...]:
    """Return the labels of everything in the session's workspace, and in what is mounted besides, each with its origin."""
    root = facts.workspace.path
    # Whatever runs there may read all of it, as a shell command may.
    whole = Resource(role=Role.RUN_COMMAND, value="mount", facts=CommandFacts(program="mount", parsed=True))
    reads = {path: text for place in (root, *besides) for path, text in may_read(place, secrets_in(place, most)).items()}
    subject = Subject(
        tool="container.mount", effect=ToolEffect.EXECUTE, raw={}, canonical={}, resources=(whole,), digest=Digest(""), reads=reads
    )
    sources: dict[Label, LabelSource] = {}
    for label, place in labels_of(policy, subject, facts):
        origin = subject.origin_of(place) if place else root
        sources[label] = LabelSource(label=label, origin=f"the mount of {origin}")
    return tuple(sources.values())
