"""One answer to identical asks: which of them it is for, and giving it to each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from curtainwall.model import AnswerApproval, ApprovalId, CurtainwallError, SessionId

Key = tuple[SessionId, ApprovalId]
"""What names one ask: an id alone may have been used in two sessions."""

SendAnswer = Callable[[SessionId, AnswerApproval], Awaitable[int]]
"""Has an answer decided; raises its refusal."""


def up_to(asks: Sequence[Key], approval: str) -> tuple[Key, ...]:
    """Return the identical asks that an answer to one of them is for: it and those before it, because those behind it came unseen."""
    place = next(place for place, (_, name) in enumerate(asks) if name == approval)
    return tuple(asks[: place + 1])


async def answer_each(send: SendAnswer, asks: Sequence[Key], command: AnswerApproval) -> Mapping[Key, CurtainwallError]:
    """Give the same answer to each ask and return those that it did not settle, with why."""
    refused: dict[Key, CurtainwallError] = {}
    # The first comes last: until then what is left is the same card, also for an answer that is repeated after a crash.
    for session, approval in reversed(asks):
        try:
            await send(session, command.model_copy(update={"approval": approval}))
        except CurtainwallError as fault:
            # The log of one may be damaged, and its owner stopped; the others are answered all the same.
            refused[session, approval] = fault
    return refused
