"""Files that are named like secrets: what runs in a workspace, or is given a directory, may read them, so they count as read."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from curtainwall.facts import MOST_NAMES, NamedFiles, find_named, is_without_key
from curtainwall.model import CommandFacts, Digest, Label, LabelSource, PathFacts, Place, Prepared, Resource, Role, Subject, ToolEffect
from curtainwall.policy import Policy, SessionFacts, is_secret_name, labels_of

_FEW: Final = 16
_MOST_REMEMBERED: Final = 256
# What packages bring along, keys for their own tests among it, everybody can download.
_PACKAGES: Final = ("/node_modules/", "/site-packages/")


def secrets_in(workspace: str, most: int = MOST_NAMES) -> NamedFiles:
    """Look for files that are named like secrets, and are not seen to be something else."""

    def is_one(path: str) -> bool:
        within = path[len(workspace) :]
        return is_secret_name(path) and not any(part in within for part in _PACKAGES) and not is_without_key(path)

    return find_named(workspace, is_one, most)


def may_read(workspace: str, secrets: NamedFiles) -> Mapping[str, str]:
    """Return what counts as read by whoever runs in a workspace, each with what people are told of it; a few stand for all."""
    reads = {path: path for path in [*secrets.found.values()][:_FEW]}
    if secrets.missed:
        # INVARIANT: what nobody could look at counts as a secret, or one would be free of its label behind files enough.
        reads.setdefault(f"{workspace}/.env", f"{workspace}, which cannot be looked through for secrets: {secrets.missed}")
    return reads


def with_given_secrets(prepared: Prepared, _place: Place) -> Prepared:
    """Return a call of somebody else's tool with the secrets in the directories that it is given: what it does there, nobody knows."""
    whole = [
        it.value for it in prepared.subject.resources if it.role is Role.READ_PATH and isinstance(it.facts, PathFacts) and it.facts.whole
    ]
    reads = {path: told for directory in whole for path, told in may_read(directory, secrets_in(directory)).items()}
    return _with_reads(prepared, reads)


def _with_reads(prepared: Prepared, reads: Mapping[str, str]) -> Prepared:
    return replace(prepared, subject=prepared.subject.model_copy(update={"reads": reads})) if reads else prepared


class SecretReads:
    """What commands may read in each workspace. As long as the secrets that were found are there, nobody looks for others."""

    def __init__(self) -> None:
        self._known: dict[str, NamedFiles] = {}

    def closer(self, prepared: Prepared, place: Place) -> Prepared:
        """Return a command with the secrets that it would find in the workspace."""
        root = place.workspace.path
        known = self._known.get(root)
        if known is None or not (known.missed or all(map(os.path.lexists, known.found.values()))):
            known = secrets_in(root)
            self._remember(root, known)
        return _with_reads(prepared, may_read(root, known))

    def _remember(self, root: str, known: NamedFiles) -> None:
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        # That there is none now says nothing of the next command.
        if known.found or known.missed:
            self._known[root] = known


def mounted_labels(policy: Policy, facts: SessionFacts, most: int = MOST_NAMES) -> tuple[LabelSource, ...]:
    """Return the labels of everything in the session's workspace, each with what brought it."""
    root = facts.workspace.path
    # Whatever runs there may read all of it, as a command of the shell may.
    whole = Resource(role=Role.RUN_COMMAND, value="mount", facts=CommandFacts(program="mount", parsed=True))
    reads = may_read(root, secrets_in(root, most))
    subject = Subject(
        tool="container.mount", effect=ToolEffect.EXECUTE, raw={}, canonical={}, resources=(whole,), digest=Digest(""), reads=reads
    )
    found: dict[Label, LabelSource] = {}
    for label, place in labels_of(policy, subject, facts):
        origin = subject.origin_of(place) if place else root
        found[label] = LabelSource(label=label, origin=f"the mount of {origin}")
    return tuple(found.values())
