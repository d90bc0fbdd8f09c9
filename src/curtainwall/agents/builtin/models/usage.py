"""The usage and cost of a reply: the provider's counts if they are plausible, an estimate otherwise."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from curtainwall.agents.builtin.language_model import AgentMessage, ConversationItem, ProgramOutcome, Prompt, UserMessage
from curtainwall.agents.builtin.models.settings import Price
from curtainwall.model import Basis, Usage, record

CHARACTERS_PER_TOKEN: Final = 4
_PIECE = re.compile(r".{1,48}(?:\s+|$)|\S{1,48}|\s+", re.DOTALL)


def estimated_tokens(characters: int) -> int:
    """Return an estimate of the tokens in a number of characters."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def item_size(item: ConversationItem) -> int:
    """Return how many characters of an item a model reads."""
    match item:
        case UserMessage() | ProgramOutcome():
            return len(item.text)
        case AgentMessage():
            return len(item.text) + sum(len(program.code) for program in item.programs)
        case _:
            assert_never(item)


def prompt_size(prompt: Prompt) -> int:
    """Return how many characters a model reads for one reply."""
    return len(prompt.system) + sum(map(item_size, prompt.items))


def free_usage(prompt: Prompt, reply: AgentMessage) -> Usage:
    """Return the usage of a reply that no provider made: its tokens are estimated, and it certainly costs nothing."""
    return Usage(
        input_tokens=estimated_tokens(prompt_size(prompt)),
        output_tokens=estimated_tokens(item_size(reply)),
        tokens_basis=Basis.ESTIMATED,
        dollars_basis=Basis.MEASURED,
    )


def text_pieces(text: str) -> Iterator[str]:
    """Yield a text in short pieces that end between words."""
    return (match.group() for match in _PIECE.finditer(text))


def shortened(text: str, most: int) -> str:
    """Return a text; if it is longer than `most`, replace its middle with a note."""
    if len(text) <= most:
        return text
    half = max(1, most // 2)
    return f"{text[:half]} […{len(text) - 2 * half} characters left out…] {text[-half:]}"


_LONGEST_ACCOUNT: Final = 6_000


def plain_account(items: Sequence[ConversationItem]) -> str:
    """Return a plain account of a conversation, for a model that cannot summarise: who said what and which programs ran, shortened."""
    share = max(200, _LONGEST_ACCOUNT // max(1, len(items)))
    lines: list[str] = []
    for item in items:
        match item:
            case UserMessage(text=text):
                lines.append(f"The human said: {shortened(text, share)}")
            case AgentMessage(text=text, programs=programs):
                lines += [f"The agent said: {shortened(text, share)}"] if text else []
                lines += [f"It ran: {shortened(program.code, share)}" for program in programs]
            case ProgramOutcome(text=text):
                lines.append(f"That gave: {shortened(text, share)}")
            case _:
                assert_never(item)
    return shortened("\n".join(lines), _LONGEST_ACCOUNT)


# A character is at most a few tokens. A request also contains the tool and some framing, a reply also hidden reasoning.
_TOKENS_PER_CHARACTER: Final = 4
_HIDDEN_INPUT: Final = 20_000
_HIDDEN_OUTPUT: Final = 200_000
_FEWEST: Final = 200  # characters per token, in text that is nearly all white space
_MILLION: Final = 1_000_000


@record
class Counts:
    """Tokens as a provider reported them: read and written, and of those read, how many came from or went into a cache."""

    input: object = None
    output: object = None
    cached: object = None
    stored: object = None


@record
class Sizes:
    """How many characters we saw going in and coming out."""

    input: int
    output: int


@record
class Tokens:
    """Tokens that are paid for: read and written, and of those read what came from a cache and what went into one."""

    read: int
    written: int
    cached: int = 0
    stored: int = 0


def usage_of(counts: Counts, sizes: Sizes, *, provider: str, model: str, price: Price | None) -> Usage:
    """Return the usage of one reply. If a count is implausible, both are estimated, and the cost follows from them."""
    read = _believable(counts.input, sizes.input, _HIDDEN_INPUT)
    written = _believable(counts.output, sizes.output, _HIDDEN_OUTPUT)
    if read is None or written is None:
        read, written = estimated_tokens(sizes.input), estimated_tokens(sizes.output)
        cached, stored, basis = 0, 0, Basis.ESTIMATED
    else:
        cached = min(read, _count(counts.cached) or 0)
        stored = min(read - cached, _count(counts.stored) or 0)
        basis = Basis.MEASURED
    tokens = Tokens(read, written, cached, stored)
    dollars = dollars_of(tokens, provider=provider, model=model, price=price)
    return Usage(
        input_tokens=read,
        output_tokens=written,
        cached_tokens=cached,
        dollars=dollars or 0.0,
        tokens_basis=basis,
        dollars_basis=basis if dollars is not None else Basis.UNKNOWN,
    )


def dollars_of(tokens: Tokens, *, provider: str, model: str, price: Price | None) -> float | None:
    """Return the cost of tokens by the user's price or the price list; None if unknown."""
    dollars = _own_dollars(tokens, price) if price else _list_dollars(tokens, provider, model)
    return dollars if dollars is not None and math.isfinite(dollars) and dollars >= 0 else None


def _count(value: object) -> int | None:
    """Return a valid count: a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value >= 0 and value == int(value) else None


def _believable(value: object, characters: int, hidden: int) -> int | None:
    count = _count(value)
    if not count:
        # A reply without a single character may have cost nothing; a request always costs something.
        return 0 if count == 0 and characters == 0 else None
    return count if characters // _FEWEST <= count <= _TOKENS_PER_CHARACTER * characters + hidden else None


def _own_dollars(tokens: Tokens, price: Price) -> float:
    cached = price.input if price.cached is None else price.cached
    return ((tokens.read - tokens.cached) * price.input + tokens.cached * cached + tokens.written * price.output) / _MILLION


def _list_dollars(tokens: Tokens, provider: str, model: str) -> float | None:
    # Here and not above: the list of prices takes a quarter of a second to load.
    from genai_prices import Usage as Used
    from genai_prices import calc_price

    used = Used(input_tokens=tokens.read, output_tokens=tokens.written, cache_read_tokens=tokens.cached, cache_write_tokens=tokens.stored)
    try:
        return float(calc_price(used, model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None
