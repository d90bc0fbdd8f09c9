"""What is mounted into a container counts as read by its agent: the labels that a workspace brings."""

import os
from collections.abc import Iterator

from curtainwall.model import CommandFacts, Digest, Label, LabelSource, Resource, Role, Subject, ToolEffect
from curtainwall.policy import Policy, SessionFacts, is_secret_name, labels_of

_MANY = 50_000


def mounted_labels(policy: Policy, facts: SessionFacts) -> tuple[LabelSource, ...]:
    """Return the labels of everything in the session's workspace, each with what brought it."""
    # Whatever runs there may read all of it, as a command of the shell may.
    whole = Resource(role=Role.RUN_COMMAND, value="mount", facts=CommandFacts(program="mount", parsed=True))
    named = (Resource(role=Role.READ_PATH, value=path) for path in _named_like_secrets(facts.workspace.path))
    resources = (whole, *named)
    subject = Subject(tool="container.mount", effect=ToolEffect.EXECUTE, raw={}, canonical={}, resources=resources, digest=Digest(""))
    found: dict[Label, LabelSource] = {}
    for label, place in labels_of(policy, subject, facts):
        resource = resources[place]
        origin = facts.workspace.path if resource is whole else resource.value
        found[label] = LabelSource(label=label, origin=f"the mount of {origin}")
    return tuple(found.values())


def _named_like_secrets(root: str) -> Iterator[str]:
    """Yield the first file of each name that looks like a secret's, as far as a big project can be looked through."""
    seen, names = 0, set[str]()
    for directory, _, files in os.walk(root):
        seen += len(files)
        for name in files:
            if name not in names and is_secret_name(name):
                names.add(name)
                yield os.path.join(directory, name)
        if seen > _MANY:
            return
