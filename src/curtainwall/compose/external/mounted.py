"""What is mounted into a container counts as read by its agent: the labels that a workspace brings."""

from curtainwall.compose.secret_files import may_read, secrets_in
from curtainwall.facts import MOST_NAMES
from curtainwall.model import CommandFacts, Digest, Label, LabelSource, Resource, Role, Subject, ToolEffect
from curtainwall.policy import Policy, SessionFacts, labels_of


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
