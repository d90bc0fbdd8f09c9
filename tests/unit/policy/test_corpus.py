"""The policy corpus is data; this runs it, and tests the one that runs it."""

from pathlib import Path

import pytest

from curtainwall.model import Broken, Effect, Label, RuleId
from curtainwall.policy import Judged, Trial, judge_trial, read_corpus, run_corpus, shipped

CORPUS = Path(__file__).parents[2] / "corpus" / "policy"
TRIALS = [(file.stem, trial) for file in sorted(CORPUS.glob("*.jsonl")) for trial in read_corpus(file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("trial", [pytest.param(trial, id=f"{stem}: {trial.name}") for stem, trial in TRIALS])
def test_the_verdict_is_the_expected_one(trial: Trial) -> None:
    (result,) = run_corpus([trial], judge_trial)
    assert result.faults == ()


def test_the_corpus_is_large_and_its_names_are_single() -> None:
    assert len(TRIALS) >= 90
    assert len({(stem, trial.name) for stem, trial in TRIALS}) == len(TRIALS)


def test_every_shipped_rule_decides_somewhere_in_the_corpus() -> None:
    decided = {rule for _, trial in TRIALS for rule in judge_trial(trial).verdict.because}
    labelled = {"secret-files", "untrusted-host", "untrusted-remote"}
    written = {line.split('@id("')[1].split('"')[0] for source in shipped() for line in source.text.splitlines() if line.startswith("@id(")}
    assert written - labelled - decided == set()


def test_a_difference_is_told_in_words() -> None:
    trial = Trial.model_validate(
        {"resources": [{"role": "read-path", "value": "/etc/x"}], "expect": {"effect": "allow", "because": ["x"], "labels": ["y"]}}
    )
    (result,) = run_corpus([trial], judge_trial)
    assert result.faults == (
        "expected `allow`, got `ask` because of `read-outside`",
        "expected because of `x`, got `read-outside`",
        "expected labels `y`, got nothing",
    )
    assert result.judged is not None
    assert result.judged.verdict.effect is Effect.ASK


def test_labels_that_nobody_looked_at_are_not_compared() -> None:
    trial = Trial.model_validate({"resources": [], "expect": {"effect": "allow", "labels": ["y"]}})
    (result,) = run_corpus([trial], lambda trial: Judged(judge_trial(trial).verdict))
    assert result.faults == ()


def test_rules_that_do_not_load_are_a_fault_of_their_trial_alone() -> None:
    text = '{"rules": "permit", "expect": {"effect": "deny"}}\n{"expect": {"effect": "allow"}}'
    broken, fine = run_corpus(read_corpus(text), judge_trial)
    assert broken.judged is None
    assert "does not load" in broken.faults[0]
    assert fine.faults == ()


def test_a_trial_with_a_call_is_for_someone_who_knows_the_tools() -> None:
    (trial,) = read_corpus('{"call": {"tool": "filesystem.read_file", "arguments": {"path": "a"}}, "expect": {"effect": "allow"}}')
    assert trial.call is not None
    assert trial.call.arguments == {"path": "a"}
    with pytest.raises(Broken, match="gives a call"):
        judge_trial(trial)


def test_a_trial_may_be_judged_under_other_files() -> None:
    (trial,) = read_corpus('{"resources": [{"role": "read-path", "value": "/w/x"}], "expect": {"effect": "deny"}}')
    judged = judge_trial(trial, sources=())
    assert judged.verdict.because == (RuleId("no-rule"),)
    assert judged.labels == ()


def test_lines_are_named_and_comments_skipped() -> None:
    trials = read_corpus(
        '# words\n\n{"expect": {"effect": "allow"}}\n{"name": "n", "session": {"labels": ["a"]}, "expect": {"effect": "allow"}}'
    )
    assert [trial.name for trial in trials] == ["line 3", "n"]
    assert trials[1].facts.labels == {Label("a")}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "it is no JSON"),
        ("[]", "it must be an object"),
        ("null", "it must be an object"),
        ("{}", "`expect` is missing"),
        ('{"expect": {"effect": "maybe"}}', "`expect.effect` must be `allow`, `ask` or `deny`"),
        ('{"expect": {"effect": "allow"}, "extra": 1}', "`extra` is not known here; a trial has `name`, `rules`, `lists`,"),
        ('{"expect": {"effect": "allow"}, "session": {"own": "perhaps"}}', "`session.own` must be true or false"),
        ('{"expect": {"effect": "allow"}, "lists": {"hosts": "x"}}', "`lists.hosts` must be a list"),
        ('{"expect": {"effect": "allow"}, "resources": [{"role": "read"}]}', "`resources.0.role` must be `use-tool`,"),
    ],
)
def test_a_line_that_is_no_trial_is_named_and_says_why_in_our_words(line: str, why: str) -> None:
    with pytest.raises(Broken, match="line 2 is no trial: ") as told:
        read_corpus(f"# first\n{line}")
    assert why in str(told.value)
    assert "pydantic" not in str(told.value)
    assert len(str(told.value)) < 300
