"""Items of a conversation are the same again after they were packed, and take less memory meanwhile."""

from curtainwall.agents.builtin.held_items import HeldItems
from curtainwall.agents.builtin.language_model import AgentMessage, Program, ProgramOutcome, UserMessage


def test_a_packed_conversation_is_the_same_afterwards_and_takes_less_meanwhile() -> None:
    items = (
        UserMessage(text="go " * 10_000),
        UserMessage(text="beside it", is_context=True),
        AgentMessage(text="half a character: \ud800", programs=(Program(id="p1", code="1"),), kept={"a": [1, None, "é"]}),
        ProgramOutcome(id="p1", text="done"),
    )
    held = HeldItems()
    assert (held.pack(), held.last, held.items) == (0, None, [])
    held.add(items)
    weight = held.weight
    assert weight > 30_000
    assert held.pack() == weight
    assert (held.weight, held.last) == (0, items[-1])
    assert held.pack() == 0
    assert held.packed_size < 2_000
    assert (tuple(held.items), held.weight, held.last) == (items, weight, items[-1])


def test_a_conversation_that_is_packed_again_has_what_came_meanwhile() -> None:
    held, said = HeldItems(), [UserMessage(text=letter) for letter in "abcdef"]
    held.add(said[:2])
    held.pack()
    assert held.items == said[:2]
    held.add(said[2:3])
    held.pack()
    # While they are packed, more may come, and that may be packed as well.
    held.add(said[3:4])
    assert held.last == said[3]
    held.pack()
    held.add(said[4:5])
    assert held.items == said[:5]
    # A summary takes the place of everything before it, also where that is packed.
    held.pack()
    held.clear()
    held.add(said[5:])
    held.pack()
    assert held.items == said[5:]


def test_what_is_packed_turn_by_turn_takes_little_more_than_what_is_packed_at_once() -> None:
    by_and_by, at_once = HeldItems(), HeldItems()
    for number in range(200):
        said = (UserMessage(text="read the notes"), AgentMessage(text=f"note {number}: bread, milk, a new lock for the gate"))
        by_and_by.add(said)
        by_and_by.pack()
        at_once.add(said)
    at_once.pack()
    assert by_and_by == at_once
    assert by_and_by.packed_size < 1.5 * at_once.packed_size
