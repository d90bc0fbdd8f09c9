"""Older messages become a summary: what stays, what goes, and when nothing would be gained."""

import weakref

from curtainwall.agents.builtin.compaction import plan_compaction
from curtainwall.agents.builtin.language_model import AgentMessage, ConversationItem, Program, ProgramOutcome, UserMessage
from tests.support.covers import covers

BIG = 1_000_000


def human(text: str) -> ConversationItem:
    return UserMessage(text=text)


def agent(text: str, *codes: str) -> ConversationItem:
    return AgentMessage(text=text, programs=tuple(Program(id=code, code=code) for code in codes))


def exchange(n: int, size: int = 0) -> list[ConversationItem]:
    return [
        human(f"question {n}{'x' * size}"),
        agent("", f"look({n})"),
        ProgramOutcome(id=f"look({n})", text=f"saw {n}"),
        agent(f"answer {n}"),
    ]


def talk(count: int, size: int = 0) -> list[ConversationItem]:
    return [item for n in range(count) for item in exchange(n, size)]


@covers("agents.compaction-keeps-a-tail")
def test_the_tail_starts_with_a_human_and_is_kept_word_for_word() -> None:
    items = talk(20, size=400)
    made = plan_compaction(items, 5_000, "")
    assert made is not None
    assert isinstance(made.tail[0], UserMessage)
    assert made.tail == tuple(items[made.replaced :])
    assert made.tail[-4:] == tuple(items[-4:])
    assert made.replaced > len(made.tail)
    done = made.with_summary("  we talked  ")
    assert done is not None
    assert done.items[2:] == made.tail
    assert [item.kind for item in done.items[:2]] == ["human", "agent"]
    assert done.replaced == made.replaced


def test_where_all_would_fit_only_the_last_exchange_stays() -> None:
    made = plan_compaction(talk(3), BIG, "")
    assert made is not None
    assert made.tail == tuple(exchange(2))


def test_where_nothing_would_be_gained_nothing_is_done() -> None:
    assert plan_compaction([], BIG, "") is None
    assert plan_compaction([human("hello")], BIG, "") is None
    assert plan_compaction(exchange(0), BIG, "") is None
    assert plan_compaction([agent("welcome"), human("hello"), agent("hello")], BIG, "") is None


def test_without_a_summary_nothing_is_replaced() -> None:
    made = plan_compaction(talk(3), BIG, "")
    assert made is not None
    assert made.with_summary("") is None
    assert made.with_summary(" \n\t") is None


@covers("agents.compaction-keeps-what-was-run")
def test_what_was_run_and_what_came_of_it_is_told_whatever_the_summary_says() -> None:
    made = plan_compaction(talk(4), BIG, "")
    assert made is not None
    done = made.with_summary("nothing of interest")
    assert done is not None
    [summary, *_] = done.items
    assert isinstance(summary, UserMessage)
    for n in range(3):
        assert f"look({n})" in summary.text
        assert f"saw {n}" in summary.text
    assert "look(3)" not in summary.text


def test_instructions_reach_the_model_and_huge_parts_are_shortened() -> None:
    made = plan_compaction([human("y" * 100_000), agent("fine"), *exchange(1)], BIG, "remember the port")
    assert made is not None
    [asked] = made.prompt.items
    assert isinstance(asked, UserMessage)
    assert asked.text.endswith("Pay special attention to this: remember the port")
    assert len(asked.text) < 10_000
    assert "characters left out" in asked.text
    assert not made.prompt.may_run


@covers("agents.compaction-keeps-a-tail")
def test_what_the_person_asked_last_stays_even_where_it_is_too_long_for_a_tail() -> None:
    items = [*talk(5), human("the task " + "x" * 8_000), agent("", "look(9)"), ProgramOutcome(id="look(9)", text="z" * 8_000)]
    made = plan_compaction(items, 5_000, "")
    assert made is not None
    assert made.tail[0] == items[-3]


def test_while_a_summary_is_written_the_messages_that_it_replaces_are_not_held() -> None:
    items = talk(20, size=400)
    made = plan_compaction(items, 5_000, "")
    assert made is not None
    replaced = [weakref.ref(item) for item in items[: made.replaced]]
    kept = items[made.replaced :]
    del items
    assert [ref() for ref in replaced] == [None] * made.replaced
    done = made.with_summary("we talked")
    assert done is not None
    assert "look(0)" in done.items[0].model_dump_json()
    assert done.items[2:] == tuple(kept)


@covers("agents.compaction-inside-a-turn")
def test_in_the_middle_of_a_turn_the_results_that_were_not_used_yet_stay_with_their_programs() -> None:
    work = [item for n in range(9) for item in (agent("", f"look({n})"), ProgramOutcome(id=f"look({n})", text="z" * 8_000))]
    made = plan_compaction([*talk(2), human("the task"), *work], 5_000, "", keeps_step=True)
    assert made is not None
    task, step, result = made.tail
    assert (task, step) == (human("the task"), agent("", "look(8)"))
    assert isinstance(result, ProgramOutcome)
    assert len(result.text) < 5_000 * 4 * 0.31
    assert "characters left out" in result.text
    assert made.replaced == 8 + len(work) - 2


@covers("agents.compaction-inside-a-turn")
def test_the_request_for_a_summary_fits_into_the_context_as_well() -> None:
    made = plan_compaction(talk(400, size=1_500), 20_000, "")
    assert made is not None
    [asked] = made.prompt.items
    assert isinstance(asked, UserMessage)
    assert 30_000 < len(asked.text) < 45_000
    assert asked.text.startswith("The conversation:\n\nPERSON: question 0")
    assert "parts left out]" in asked.text
    done = made.with_summary("we talked")
    assert done is not None
    assert len(done.items[0].model_dump_json()) < 20_000 * 4 * 0.12
