"""What a person can know and do about a call: why it is judged so, which tool was meant, and which hooks would hear of it."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from curtainwall.compose.hooks import pins_of
from curtainwall.compose.setup import Setup
from curtainwall.compose.tools import judging_tools
from curtainwall.compose.trial import INVALID, POLICY_ERROR, Judge, Ruling
from curtainwall.model import Broken, Role, Subject, Verdict
from curtainwall.policy import Explanation, explain
from curtainwall.tools.hooks import Settings, Trust, workspace_hooks

_UNKNOWN = "unknown-tool"
_MOST_ALIKE = 5
_MAY = {"PreToolUse": "may deny it, have a human asked, or rewrite it", "PostToolUse": "is told what came of it"}


def ways_to_a_call(setup: Setup, tool: str, verdict: Verdict) -> tuple[str, ...]:
    """Return what would make a call of something that means none."""
    if _UNKNOWN in verdict.because:
        alike = similar_tools(setup, tool)
        named = f"a tool that there is: {', '.join(f'`{name}`' for name in alike)}" if alike else "a tool that there is"
        server = tool.partition(".")[0]
        is_servers = any(spec.name == server for spec in setup.servers)
        return (
            *([f"a review of what `{server}` offers: `curtainwall servers annotate {server}`"] if is_servers else []),
            f"{named}; `curtainwall tools list` shows all",
        )
    if INVALID in verdict.because:
        return (f"arguments that can be read in exactly one way; `curtainwall tools show {tool}` says which it takes",)
    if POLICY_ERROR in verdict.because:
        return ("rules and configuration that load; `curtainwall doctor` says what is wrong with them",)
    return ("a call that can be read in exactly one way",)


def explained(setup: Setup, judge: Judge, ruling: Ruling, tool: str) -> Explanation:
    """Return why a ruling is what it is, also where the call meant nothing."""
    if ruling.subject is not None:
        told = explain(judge.rules.policy, ruling.subject, judge.facts, ruling.verdict)
        return replace(told, facts=(*_unknown_credentials(setup, ruling.subject), *told.facts))
    cards = tuple(card for rule in ruling.verdict.because if (card := judge.rules.policy.card(rule)) is not None)
    return Explanation(ruling.verdict.effect, cards, (), ways_to_a_call(setup, tool, ruling.verdict))


def _unknown_credentials(setup: Setup, subject: Subject) -> Iterator[str]:
    """Say of credentials that the configuration does not have that there are none: whatever the rules say, such a call fails."""
    known = setup.config.credentials
    for name in dict.fromkeys(it.value for it in subject.resources if it.role is Role.USE_CREDENTIAL and it.value not in known):
        there = f"there are: {', '.join(sorted(known))}" if known else "the configuration has none"
        yield f"there is no credential `{name}`, so the call would fail even if it was allowed; {there}"


def similar_tools(setup: Setup, tool: str) -> tuple[str, ...]:
    """Return the tools that may have been meant: of a similar name, or of the same name elsewhere."""
    names = sorted(spec.full_name for spec in judging_tools(setup).listing())
    short = tool.rpartition(".")[2].rpartition("__")[2]
    alike = get_close_matches(tool[:128].replace("__", "."), names, n=_MOST_ALIKE, cutoff=0.6)
    shorts = get_close_matches(short[:128], {name.partition(".")[2] for name in names}, n=_MOST_ALIKE, cutoff=0.6)
    elsewhere = [name for one in shorts for name in names if name.partition(".")[2] == one]
    return tuple(dict.fromkeys([*alike, *elsewhere]))[:_MOST_ALIKE]


def hooks_that_hear(setup: Setup, workspace: str, tool: str) -> tuple[str, ...]:
    """Return the hooks that a call would pass, none of which is run to find out."""
    return (*_of(setup.hooks, tool, ""), *_of_workspace(setup, workspace, tool))


def _of_workspace(setup: Setup, workspace: str, tool: str) -> Iterator[str]:
    try:
        found = workspace_hooks(workspace, pins_of(setup.home).all())
    except Broken as fault:
        yield f"hooks that the workspace brings along cannot be read: {fault}"
        return
    match found.trust:
        case Trust.NONE:
            pass
        case Trust.PINNED:
            yield from _of(found.settings, tool, " of the workspace")
        case Trust.UNTRUSTED:
            yield f"hooks that the workspace brings along do not run; `curtainwall hooks trust {workspace}` lets them"
        case Trust.CHANGED:
            yield f"the workspace has other hooks than you trusted, so calls ask; see `curtainwall hooks list --workspace {workspace}`"


def _of(settings: Settings, tool: str, whose: str) -> Iterator[str]:
    for event, may in _MAY.items():
        for hook in settings.for_tool(event, tool):
            yield f"`{hook.name}`{whose} ({event}) {may}"
