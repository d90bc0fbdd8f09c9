"""What is mounted into a container counts as read by its agent: the labels that a workspace brings."""

from curtainwall.facts import MOST_NAMES, find_named
from curtainwall.model import CommandFacts, Digest, Label, LabelSource, Resource, Role, Subject, ToolEffect
from curtainwall.policy import Policy, SessionFacts, is_secret_name, labels_of


def mounted_labels(policy: Policy, facts: SessionFacts, most: int = MOST_NAMES) -> tuple[LabelSource, ...]:
    """Return the labels of everything in the session's workspace, each with what brought it."""
    root = facts.workspace.path
    # Whatever runs there may read all of it, as a command of the shell may.
    whole = Resource(role=Role.RUN_COMMAND, value="mount", facts=CommandFacts(program="mount", parsed=True))
    named = find_named(root, is_secret_name, most)
    origins = {path: path for path in named.found.values()}
    if named.missed:
        # INVARIANT: what nobody could look at counts as a secret, or one would be free of its label behind files enough.
        origins.setdefault(f"{root}/.env", f"{root}, which cannot be looked through for secrets: {named.missed}")
    resources = (whole, *(Resource(role=Role.READ_PATH, value=path) for path in origins))
    subject = Subject(tool="container.mount", effect=ToolEffect.EXECUTE, raw={}, canonical={}, resources=resources, digest=Digest(""))
    found: dict[Label, LabelSource] = {}
    for label, place in labels_of(policy, subject, facts):
        resource = resources[place]
        origin = root if resource is whole else origins[resource.value]
        found[label] = LabelSource(label=label, origin=f"the mount of {origin}")
    return tuple(found.values())
