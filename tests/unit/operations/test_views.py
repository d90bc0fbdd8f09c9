"""A session's state as channels show it."""

from curtainwall.model import MessageAccepted, MessageId
from curtainwall.operations.desk import session_view
from curtainwall.session import fold
from tests.support.given import ANN, NOW, ready


class Compared(str):
    """An id that counts how often it is compared with another."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def test_a_long_queue_is_shown_in_its_order_and_no_message_is_looked_for_among_all_others() -> None:
    names = [Compared(f"m{place}") for place in range(500)]
    said = [MessageAccepted(at=NOW, message=MessageId("m"), text=f"about {name}", by=ANN) for name in names]
    log = [*ready(), *(event.model_copy(update={"message": name}) for event, name in zip(said, names, strict=True))]
    state = fold(log)
    before = Compared.times
    assert [it.text for it in session_view(state, log, None).queue] == [f"about m{place}" for place in range(500)]
    assert Compared.times - before < 5 * len(names)
