"""Policy tests as data: JSON lines with expected verdicts in, differences out. The judge is an argument."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import JsonValue, ValidationError

from curtainwall.model import (
    Broken,
    Effect,
    Frozen,
    Label,
    Mode,
    Resource,
    Role,
    RuleId,
    Subject,
    SubjectKind,
    ToolEffect,
    Verdict,
    Workspace,
    explain_invalid,
    record,
    subject_digest,
)
from curtainwall.policy.entities import SessionFacts
from curtainwall.policy.judgement import judge, labels_of
from curtainwall.policy.lists import Lists
from curtainwall.policy.loader import load
from curtainwall.policy.protection import Protection
from curtainwall.policy.rules import RuleSource, shipped


class TrialSession(Frozen):
    """The session that a trial is judged in."""

    workspace: str = "/w"
    own: bool = True
    mode: Mode = Mode.DEFAULT
    channel: str = "terminal"
    labels: tuple[Label, ...] = ()
    agent: str = "builtin"
    team: str = ""


class TrialLists(Frozen):
    """The config lists of a trial."""

    hosts: tuple[str, ...] = ()
    remotes: tuple[str, ...] = ()
    push_remotes: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()


class TrialPaths(Frozen):
    """The protected paths of a trial."""

    never: tuple[str, ...] = ()
    readonly: tuple[str, ...] = ()
    free: tuple[str, ...] = ()


class TrialCall(Frozen):
    """A call as an agent wrote it; code that knows the tools turns it into resources."""

    tool: str
    arguments: Mapping[str, JsonValue]


class Expected(Frozen):
    """The expected outcome; rules and labels are compared as sets, and only if they are given."""

    effect: Effect
    because: tuple[RuleId, ...] | None = None
    labels: tuple[Label, ...] | None = None


class Trial(Frozen):
    """One line of a corpus: rules besides the shipped ones, a session, a call or its resources, and the expected verdict."""

    name: str = ""
    rules: str = ""
    lists: TrialLists = TrialLists()
    protected: TrialPaths = TrialPaths()
    session: TrialSession = TrialSession()
    kind: SubjectKind = SubjectKind.TOOL_CALL
    tool: str = "test.tool"
    effect: ToolEffect = ToolEffect.INSPECT
    resources: tuple[Resource, ...] = ()
    call: TrialCall | None = None
    expect: Expected

    @property
    def facts(self) -> SessionFacts:
        """Return the session's facts."""
        session = self.session
        workspace = Workspace(path=session.workspace, own=session.own)
        return SessionFacts("trial", session.agent, workspace, session.mode, session.channel, frozenset(session.labels), session.team)

    @property
    def subject(self) -> Subject:
        """Return the subject with the given resources; for a tool call, the tool is added to them."""
        tool_resource = {
            "role": Role.USE_TOOL,
            "value": self.tool,
            "facts": {"kind": "tool", "server": self.tool.partition(".")[0], "effect": self.effect},
        }
        is_complete = self.kind is not SubjectKind.TOOL_CALL or any(resource.role is Role.USE_TOOL for resource in self.resources)
        resources = self.resources if is_complete else (Resource.model_validate(tool_resource), *self.resources)
        digest = subject_digest(self.kind, self.tool, {}, resources)
        return Subject(kind=self.kind, tool=self.tool, effect=self.effect, raw={}, canonical={}, resources=resources, digest=digest)


@record
class Judged:
    """The outcome of a trial; `labels` is None if they were not determined."""

    verdict: Verdict
    labels: tuple[Label, ...] | None = None


@record
class Result:
    """A trial, its outcome, and a sentence for each difference; none means that it passed."""

    trial: Trial
    judged: Judged | None
    faults: tuple[str, ...]


def read_corpus(text: str) -> tuple[Trial, ...]:
    """Return the trials of a corpus; raise `Broken` with the line that cannot be read. Empty lines and `#` lines are skipped."""
    trials: list[Trial] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            trial = Trial.model_validate_json(line)
        except ValidationError as error:
            raise Broken(f"line {number} is no trial: {_words(error)}") from None
        trials.append(trial if trial.name else trial.model_copy(update={"name": f"line {number}"}))
    return tuple(trials)


def run_corpus(trials: Iterable[Trial], judge_trial: Callable[[Trial], Judged]) -> tuple[Result, ...]:
    """Return the result of every trial; a policy that does not load fails its trial and does not end the run."""
    results: list[Result] = []
    for trial in trials:
        try:
            judged = judge_trial(trial)
        except Broken as error:
            results.append(Result(trial, None, (f"does not load: {error}",)))
        else:
            results.append(Result(trial, judged, tuple(_differences(trial.expect, judged))))
    return tuple(results)


def judge_trial(trial: Trial, sources: Sequence[RuleSource] | None = None) -> Judged:
    """Judge a trial that gives its resources, with these rule files (by default the shipped ones) and its own rules, lists and paths."""
    if trial.call is not None:
        raise Broken("this trial gives a call; whoever knows the tools must judge it")
    rule_sources = [*(shipped() if sources is None else sources)]
    if trial.rules:
        rule_sources.append(RuleSource("rules", trial.rules, user=True))
    lists = Lists(trial.lists.hosts, trial.lists.remotes, trial.lists.push_remotes, trial.lists.teams)
    policy = load(rule_sources, lists=lists, protection=Protection(trial.protected.never, trial.protected.readonly, trial.protected.free))
    labels = labels_of(policy, trial.subject, trial.facts)
    return Judged(judge(policy, trial.subject, trial.facts), tuple(label for label, _ in labels))


def _differences(expected: Expected, judged: Judged) -> Iterable[str]:
    if judged.verdict.effect is not expected.effect:
        yield f"expected `{expected.effect}`, got `{judged.verdict.effect}` because of {_names(judged.verdict.because)}"
    if expected.because is not None and set(expected.because) != set(judged.verdict.because):
        yield f"expected because of {_names(expected.because)}, got {_names(judged.verdict.because)}"
    if expected.labels is not None and judged.labels is not None and set(expected.labels) != set(judged.labels):
        yield f"expected labels {_names(expected.labels)}, got {_names(judged.labels)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "nothing"


def _words(error: ValidationError) -> str:
    place, words = explain_invalid(error)
    if not place:
        return f"it {words}"
    fields = ", ".join(f"`{name}`" for name in Trial.model_fields) if len(place) == 1 and words == "is not known here" else ""
    return f"`{'.'.join(map(str, place))}` {words}{f'; a trial has {fields}' if fields else ''}"
