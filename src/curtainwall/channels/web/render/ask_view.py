"""An open ask in the parts that a page shows: what is requested, on which terms, why, and with which arguments."""

from collections import Counter
from functools import cached_property
from typing import Final

from curtainwall.channels.asks.cards import CardLine, Space, card_lines, exact_card, left_out, says_more
from curtainwall.channels.plain import counted, plain_line
from curtainwall.model import PendingAsk, Role, record

_CARD: Final = Space(letters=2_000, rest="“Show everything” below has them")
_MANY = 10
_MOST_NAMED = 12
_LONG_BOX = 14
_LONG_TEXT = 900


@record
class AskedResource:
    """One requested thing: its role or another word of ours, its resource, and the rules that ask about it."""

    role: str
    value: str
    rules: str = ""


@record
class AskPart:
    """A titled part of a card, such as a diff, or a step of a plan."""

    title: str
    lines: tuple[CardLine, ...]
    is_open: bool = False

    @property
    def is_change(self) -> bool:
        """Tell whether it shows what would be written."""
        return any(line.kind in ("added", "removed", "place") for line in self.lines)

    @property
    def is_long(self) -> bool:
        """Tell whether it is too long for its box and has to be scrolled."""
        return len(self.lines) > _LONG_BOX or sum(len(line.text) for line in self.lines) > _LONG_TEXT


class AskView:
    """An ask as a page shows it. INVARIANT: everything left out is stated, and `everything` contains it."""

    def __init__(self, ask: PendingAsk) -> None:
        self._ask = ask
        self._lines = card_lines(ask, _CARD)
        titles = [index for index, line in enumerate(self._lines) if line.kind == "title"]
        # Below the first title are the arguments, or the steps of a plan with what each of them requests.
        self._head = self._lines[: titles[0]] if titles else self._lines

    @cached_property
    def asked_resources(self) -> tuple[AskedResource, ...]:
        """What is asked for."""
        return tuple(_asked_resource(line.text) for line in self._head if line.kind == "rule" and not line.text.startswith("because "))

    @property
    def differ(self) -> bool:
        """Tell whether the resources are asked about because of different rules."""
        return len({asked.rules for asked in self.asked_resources if asked.rules}) > 1

    @property
    def tally(self) -> str:
        """A summary of a long list, the rarest first: one command among a hundred would go unnoticed."""
        if len(self.asked_resources) <= _MANY:
            return ""
        names = Counter(asked.value.partition(" ")[0] if asked.role == Role.RUN_COMMAND else asked.role for asked in self.asked_resources)
        rarest = sorted(names.items(), key=lambda name_and_count: name_and_count[1])
        more = f", and {len(rarest) - _MOST_NAMED} more" if len(rarest) > _MOST_NAMED else ""
        summary = ", ".join(f"{plain_line(name, 60)} × {many}" if many > 1 else plain_line(name, 60) for name, many in rarest[:_MOST_NAMED])
        return f"{counted(len(self.asked_resources), 'thing')} at once: {summary}{more}"

    @property
    def terms(self) -> tuple[str, ...]:
        """What a yes means, and what is left out of the list above."""
        return tuple(line.text for line in self._head if line.kind == "head" and not line.text.startswith("tool: "))

    @property
    def because(self) -> str:
        """Why a human is asked, in the words of the rules."""
        return next((line.text.removeprefix("because ") for line in self._head if line.text.startswith("because ")), "")

    @cached_property
    def parts(self) -> tuple[AskPart, ...]:
        """The arguments in both forms and what would change, or the steps of a plan. Parts that say more than the list above are open."""
        plan = bool(self._ask.subject.steps)
        return _parts(self._lines[len(self._head) :], opened=1 if says_more(self._ask.subject) else 0, all_open=plan)

    @property
    def is_cut(self) -> bool:
        """Tell whether the card leaves something out."""
        return any(line.is_cut for line in self._lines)

    @property
    def everything(self) -> tuple[AskPart, ...]:
        """What the call touches and its arguments, in full."""
        return _parts(left_out(self._ask), all_open=True)

    @property
    def exact(self) -> str:
        """The exact text that an answer is about."""
        return "\n".join(line.text for line in exact_card(self._ask))


def ask_view(ask: PendingAsk) -> AskView:
    """Return an ask as a page shows it."""
    return AskView(ask)


def _asked_resource(line: str) -> AskedResource:
    role, _, rest = line.removeprefix("wants ").partition(" ")
    if not line.startswith("wants "):
        return AskedResource(role, rest)
    value, _, rules = rest.rpartition(" (")
    return AskedResource(role, value, rules.removesuffix(")"))


def _parts(lines: tuple[CardLine, ...], *, opened: int = 0, all_open: bool = False) -> tuple[AskPart, ...]:
    """Return the parts under their titles, with the first `opened` of them open."""
    parts: list[tuple[str, list[CardLine]]] = []
    for line in lines:
        if line.kind == "title":
            parts.append((line.text.removesuffix(":"), []))
        elif parts:
            parts[-1][1].append(line)
    return tuple(AskPart(title, tuple(part_lines), all_open or index < opened) for index, (title, part_lines) in enumerate(parts))
