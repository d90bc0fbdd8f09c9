"""The single keys that answer an ask, what each means, and how long an ask must have been there before one counts."""

from typing import Final

from curtainwall.channels.slash import Approve, Deny, Request, Why
from curtainwall.model import ApprovalId, GrantScope

KEYS: Final = "yspnw"
KEY_WORDS: Final = ("y once", "n deny", "s session", "p project", "w why")
GRACE_MILLIS: Final = 700
"""How long an ask must have been on the screen, with no key pressed, before a key answers it: nobody answers what they have not seen."""


def meant_by(key: str, approval: ApprovalId) -> Request:
    """Return what a key wants of an ask."""
    match key:
        case "y":
            return Approve(approval)
        case "s":
            return Approve(approval, GrantScope.SESSION)
        case "p":
            return Approve(approval, GrantScope.PROJECT)
        case "n":
            return Deny(approval)
        case _:
            return Why(approval)
