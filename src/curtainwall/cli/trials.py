"""A corpus of expected verdicts, judged on this machine: calls get their meaning here, resources are judged as they are given."""

from functools import cache
from pathlib import Path

from curtainwall.compose.rules import rule_sources
from curtainwall.compose.setup import judging_masker
from curtainwall.compose.tools import judged_tools
from curtainwall.compose.trial import Judge
from curtainwall.host.home import Home
from curtainwall.model import BadCall, Broken, denial
from curtainwall.policy import (
    Judged,
    Lists,
    Policy,
    Protection,
    Result,
    Source,
    Trial,
    judge_trial,
    labels_of,
    load,
    read_corpus,
    run_corpus,
)
from curtainwall.session import Rules


def run_trials(home: Home, file: Path, policy_files: list[Path]) -> tuple[Result, ...]:
    """Return what came out for every line of a corpus, under the rules that ship, the user's own, and those that were given."""
    sources = rule_sources(home, policy_files)
    tools = judged_tools(home, judging_masker(home))
    try:
        trials = read_corpus(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Broken(f"`{file}` is not UTF-8; save it as UTF-8 text") from None
    except Broken as fault:
        raise Broken(f"`{file}`: {fault}") from None
    if not trials:
        # Nothing expected is nothing tested: a green answer would be taken for more than it is.
        raise Broken(f"`{file}` holds no expected verdict; docs/policy.md says how a line is written")

    @cache
    def policy_of(rules: str, lists: Lists, protection: Protection) -> Policy:
        added = (Source("rules", rules, user=True),) if rules else ()
        return load((*sources, *added), lists=lists, protection=protection)

    def judged(trial: Trial) -> Judged:
        if trial.call is None:
            return judge_trial(trial, sources)
        lists = Lists(trial.lists.hosts, trial.lists.remotes, trial.lists.push_remotes, trial.lists.teams)
        policy = policy_of(trial.rules, lists, Protection(trial.protected.never, trial.protected.readonly, trial.protected.free))
        judge = Judge(Rules(policy=policy), tools, trial.facts)
        try:
            ruling = judge.call(trial.call.tool, dict(trial.call.arguments))
        except BadCall as bad:
            return Judged(denial(bad.rule, str(bad)))
        labels = labels_of(policy, ruling.subject, trial.facts) if ruling.subject else ()
        return Judged(ruling.verdict, tuple(label for label, _ in labels))

    return run_corpus(trials, judged)
