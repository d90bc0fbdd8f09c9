"""Judge calls without a session: the verdict, its reasons, similar tools, and the hooks that would run. Nothing is written."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, BinaryIO

from pydantic import JsonValue

from curtainwall.compose.hooks import pins_of
from curtainwall.compose.setup import Setup
from curtainwall.compose.tools import judging_tools
from curtainwall.facts import links_to, read_json
from curtainwall.model import (
    BadCall,
    Broken,
    CommandRefused,
    Effect,
    Label,
    Mode,
    Place,
    Role,
    SessionId,
    Subject,
    Verdict,
    Workspace,
    denial,
    record,
)
from curtainwall.policy import Explanation, SessionFacts, explain, judge
from curtainwall.session import Rules, SessionState, covers_of, standing_answer
from curtainwall.tools.hooks import HookSettings, HookTrust, workspace_hooks

if TYPE_CHECKING:
    # Start-up time: the ports of calls bring along all commands.
    from curtainwall.model import ToolHost

INVALID = "invalid-arguments"
POLICY_ERROR = "policy-error"
LONGEST_LINE = 8 * 1024 * 1024


@record
class TrialResult:
    """A verdict, and the subject that it is about if the call could be read."""

    verdict: Verdict
    subject: Subject | None = None

    def document(self) -> dict[str, JsonValue]:
        """Return what `policy check` prints."""
        verdict, subject = self.verdict, self.subject
        resources: list[JsonValue] = [{"role": it.role.value, "value": it.value} for it in subject.resources] if subject else []
        return {"effect": verdict.effect.value, "because": [*verdict.because], "reason": verdict.reason, "resources": resources}


@record
class Judge:
    """Judges calls for an imaginary session: its workspace, its mode, and its labels."""

    rules: Rules
    tools: "ToolHost"
    facts: SessionFacts

    def line(self, content: bytes) -> TrialResult:
        """Judge one line; deny anything that is not a call."""
        try:
            tool, arguments = read_call(content)
            return self.call(tool, arguments)
        except BadCall as bad:
            return TrialResult(denial(bad.rule, str(bad)))
        except Exception as fault:  # noqa: BLE001 - fail closed: whatever a line does to us, it is not allowed
            return TrialResult(denial(INVALID, f"this call cannot be judged ({type(fault).__name__})"))

    def call(self, tool: str, arguments: JsonValue) -> TrialResult:
        """Judge one call as the gate would, including the mode's standing answers; raise `BadCall` if it cannot be read."""
        place = Place(session=SessionId(self.facts.session), workspace=self.facts.workspace)
        subject = self.tools.prepare(tool, arguments, place).subject
        verdict = judge(self.rules.policy, subject, self.facts)
        if verdict.effect is not Effect.ASK:
            return TrialResult(verdict, subject)
        answer = standing_answer(SessionState(mode=self.facts.mode), subject, covers_of(verdict, subject), self.rules)
        if answer is None:
            return TrialResult(verdict, subject)
        reason = f"`{answer}` answers what otherwise asks: {verdict.reason}"
        return TrialResult(verdict.model_copy(update={"effect": Effect.ALLOW, "reason": reason}), subject)


def refuse_all(fault: str) -> Callable[[bytes], TrialResult]:
    """Return a judge that denies every line because of a fault, for when no rules can be loaded."""
    ruling = TrialResult(denial(POLICY_ERROR, f"nothing is judged until this is repaired: {fault}"))
    return lambda _line: ruling


def judge_for(setup: Setup, workspace: Workspace, mode: Mode, labels: frozenset[str]) -> Judge:
    """Return the judge for an imaginary session."""
    facts = SessionFacts(
        session="check", agent="builtin", workspace=workspace, mode=mode, channel="local", labels=frozenset(map(Label, labels))
    )
    return Judge(setup.rules, judging_tools(setup), facts)


def workspace_for(setup: Setup, workspace: Path | None, project: Path | None) -> tuple[Workspace, str]:
    """Return the workspace to judge in, and a warning about it, if any.

    The default is the current directory, as the session's own workspace. If that cannot be a workspace (`~`, for example), use one
    that does not exist, so that a pipe still gets its verdicts.
    """
    # No session may work next to its rule file, but a call may still be judged there.
    besides = frozenset(
        name for path in setup.given for name in (normpath(path.absolute()), str(path.resolve()), *links_to(normpath(path.absolute())))
    )
    if project is not None:
        return setup.workspace_at(project, own=False, besides=besides), ""
    if workspace is not None:
        return setup.workspace_at(workspace, own=True, besides=besides), ""
    try:
        return setup.workspace_at(Path.cwd(), own=True, besides=besides), ""
    except (CommandRefused, OSError) as refusal:
        stand_in = Workspace(path=str(setup.home.sessions / "check" / "workspace"), own=True)
        return stand_in, f"{refusal}; judging as in an empty workspace of its own"


def read_lines(source: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a stream; cut long lines to a length that `read_call` still refuses."""
    while line := source.readline(LONGEST_LINE + 2):
        rest = line
        while not rest.endswith(b"\n") and len(rest) > LONGEST_LINE:
            rest = source.readline(LONGEST_LINE + 2)
        yield line


def read_call(content: bytes) -> tuple[str, JsonValue]:
    """Return tool and arguments of a line `{"tool": …, "arguments": {…}}`; raise `BadCall` for anything else."""
    if len(content) > LONGEST_LINE + 1:
        raise BadCall(INVALID, f"the line is longer than {LONGEST_LINE} bytes")
    try:
        message = read_json(content.decode())
    except UnicodeDecodeError:
        raise BadCall(INVALID, "the line is not UTF-8") from None
    except RecursionError:
        raise BadCall(INVALID, "the line is nested too deeply") from None
    except json.JSONDecodeError as error:
        why = f"{error.msg.lower()} at character {error.pos}" if content.strip() else "it is blank"
        raise BadCall(INVALID, f"the line is no JSON: {why}") from None
    except ValueError as error:
        raise BadCall(INVALID, f"the line is no JSON: {error}") from None
    if not isinstance(message, dict) or message.keys() != {"tool", "arguments"}:
        raise BadCall(INVALID, 'write `{"tool": "server.tool", "arguments": {…}}`, with these two keys alone')
    tool = message["tool"]
    if not isinstance(tool, str):
        raise BadCall(INVALID, "`tool` must be a string")
    return tool, message["arguments"]


_UNKNOWN = "unknown-tool"
_MOST_ALIKE = 5
_MAY = {"PreToolUse": "may deny it, have a human asked, or rewrite it", "PostToolUse": "is told what came of it"}


def call_remedies(setup: Setup, tool: str, verdict: Verdict) -> tuple[str, ...]:
    """Return what would turn an unreadable call into a valid one."""
    if _UNKNOWN in verdict.because:
        alike = similar_tools(setup, tool)
        suggestion = f"a tool that there is: {', '.join(f'`{name}`' for name in alike)}" if alike else "a tool that there is"
        server = tool.partition(".")[0]
        is_servers = any(spec.name == server for spec in setup.servers)
        return (
            *([f"a review of what `{server}` offers: `curtainwall servers annotate {server}`"] if is_servers else []),
            f"{suggestion}; `curtainwall tools list` shows all",
        )
    if INVALID in verdict.because:
        return (f"arguments that can be read in exactly one way; `curtainwall tools show {tool}` says which it takes",)
    if POLICY_ERROR in verdict.because:
        return ("rules and configuration that load; `curtainwall doctor` says what is wrong with them",)
    return ("a call that can be read in exactly one way",)


def explain_trial(setup: Setup, judge: Judge, ruling: TrialResult, tool: str) -> Explanation:
    """Return the reasons for a ruling, even if the call could not be read."""
    if ruling.subject is not None:
        explanation = explain(judge.rules.policy, ruling.subject, judge.facts, ruling.verdict)
        return replace(explanation, facts=(*_unknown_credentials(setup, ruling.subject), *explanation.facts))
    cards = tuple(card for rule in ruling.verdict.because if (card := judge.rules.policy.card(rule)) is not None)
    return Explanation(ruling.verdict.effect, cards, (), call_remedies(setup, tool, ruling.verdict))


def _unknown_credentials(setup: Setup, subject: Subject) -> Iterator[str]:
    """Yield a fact for each credential that is not configured: such a call fails whatever the rules say."""
    configured = setup.config.credentials
    for name in dict.fromkeys(it.value for it in subject.resources if it.role is Role.USE_CREDENTIAL and it.value not in configured):
        hint = f"there are: {', '.join(sorted(configured))}" if configured else "the configuration has none"
        yield f"there is no credential `{name}`, so the call would fail even if it was allowed; {hint}"


def similar_tools(setup: Setup, tool: str) -> tuple[str, ...]:
    """Return the tools that the caller may have meant: those with a similar name, or with the same name on another server."""
    names = sorted(spec.full_name for spec in judging_tools(setup).listing())
    short = tool.rpartition(".")[2].rpartition("__")[2]
    alike = get_close_matches(tool[:128].replace("__", "."), names, n=_MOST_ALIKE, cutoff=0.6)
    shorts = get_close_matches(short[:128], {name.partition(".")[2] for name in names}, n=_MOST_ALIKE, cutoff=0.6)
    elsewhere = [name for one in shorts for name in names if name.partition(".")[2] == one]
    return tuple(dict.fromkeys([*alike, *elsewhere]))[:_MOST_ALIKE]


def hooks_for_call(setup: Setup, workspace: str, tool: str) -> tuple[str, ...]:
    """Return the hooks that a call would trigger, without running any."""
    return (*_hook_lines(setup.hooks, tool, ""), *_workspace_hook_lines(setup, workspace, tool))


def _workspace_hook_lines(setup: Setup, workspace: str, tool: str) -> Iterator[str]:
    try:
        hooks = workspace_hooks(workspace, pins_of(setup.home).all())
    except Broken as fault:
        yield f"hooks that the workspace brings along cannot be read: {fault}"
        return
    match hooks.trust:
        case HookTrust.NONE:
            pass
        case HookTrust.PINNED:
            yield from _hook_lines(hooks.settings, tool, " of the workspace")
        case HookTrust.UNTRUSTED:
            yield f"hooks that the workspace brings along do not run; `curtainwall hooks trust {workspace}` lets them"
        case HookTrust.CHANGED:
            yield f"the workspace has other hooks than you trusted, so calls ask; see `curtainwall hooks list --workspace {workspace}`"


def _hook_lines(settings: HookSettings, tool: str, whose: str) -> Iterator[str]:
    for event, may in _MAY.items():
        for hook in settings.for_tool(event, tool):
            yield f"`{hook.name}`{whose} ({event}) {may}"
