"""The page on policy names every rule that ships, with its true effect, and its examples work."""

import re

from curtainwall.policy import judge_trial, read_corpus, run_corpus, shipped
from curtainwall.policy.rules import RuleSource
from tests.support.policies import policy
from tests.support.repository import DOCS, table_rows

PAGE = DOCS / "policy.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_names_every_shipped_rule_with_its_effect() -> None:
    told = {row["rule"].strip("`"): row["effect"] for row in table_rows(PAGE, ("rule", "what it does", "effect"))}
    assert told == {card.id: card.kind for card in policy().rules if card.kind != "structural"}


def test_the_page_names_every_structural_rule() -> None:
    told = [row["rule"].strip("`") for row in table_rows(PAGE, ("rule", "what it refuses"))]
    assert told == [card.id for card in policy().rules if card.kind == "structural"]


def test_the_examples_load_and_pass() -> None:
    rules = "\n".join(blocks("cedar"))
    (lines,) = blocks("json")
    sources = (*shipped(), RuleSource("example.cedar", rules, user=True))
    results = run_corpus(read_corpus(lines), lambda trial: judge_trial(trial, sources))
    assert [result.faults for result in results] == [()]
