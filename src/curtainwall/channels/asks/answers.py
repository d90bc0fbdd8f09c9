"""One answer for several identical asks: which asks it covers, and how it is sent to each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from curtainwall.channels.asks.answerers import Key
from curtainwall.model import AnswerApproval, CurtainwallError, SessionId

SendAnswer = Callable[[SessionId, AnswerApproval], Awaitable[int]]
"""Submits an answer for decision; raises the refusal."""


def up_to(asks: Sequence[Key], approval: str) -> tuple[Key, ...]:
    """Return the identical asks that an answer to one of them covers: that ask and the earlier ones.

    Asks after it may have arrived unseen, so they are not covered.
    """
    index = next(index for index, (_, name) in enumerate(asks) if name == approval)
    return tuple(asks[: index + 1])


async def answer_each(send: SendAnswer, asks: Sequence[Key], command: AnswerApproval) -> Mapping[Key, CurtainwallError]:
    """Send the same answer to each ask; return the asks it did not settle, each with its error."""
    refused: dict[Key, CurtainwallError] = {}
    # The first ask is answered last: until then the remaining asks still form the same card, even if the answer is repeated after a crash.
    for session, approval in reversed(asks):
        try:
            await send(session, command.model_copy(update={"approval": approval}))
        except CurtainwallError as error:
            # One session's log may be damaged and its owner stopped; the other asks are still answered.
            refused[session, approval] = error
    return refused
