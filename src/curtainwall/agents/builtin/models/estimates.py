"""What a reply used where nobody counted, and a reply's text in the pieces that a person sees it come in."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from curtainwall.agents.builtin.talk import AgentSaid, HumanSaid, Item, ProgramEnded, Prompt
from curtainwall.model import Basis, Usage

CHARACTERS_PER_TOKEN: Final = 4
_PIECE = re.compile(r".{1,48}(?:\s+|$)|\S{1,48}|\s+", re.DOTALL)


def estimated_tokens(characters: int) -> int:
    """Return about how many tokens so many characters are."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def size_of(item: Item) -> int:
    """Return how many characters of an item a model reads."""
    match item:
        case HumanSaid() | ProgramEnded():
            return len(item.text)
        case AgentSaid():
            return len(item.text) + sum(len(program.code) for program in item.programs)
        case _:
            assert_never(item)


def size_of_prompt(prompt: Prompt) -> int:
    """Return how many characters a model reads for one reply."""
    return len(prompt.system) + sum(map(size_of, prompt.items))


def free_usage(prompt: Prompt, said: AgentSaid) -> Usage:
    """Return what a reply used that no provider made: its tokens are a guess, and it costs nothing for sure."""
    return Usage(
        input_tokens=estimated_tokens(size_of_prompt(prompt)),
        output_tokens=estimated_tokens(size_of(said)),
        tokens_basis=Basis.ESTIMATED,
        dollars_basis=Basis.MEASURED,
    )


def pieces(text: str) -> Iterator[str]:
    """Yield a text in short pieces that end between words; together they are the text."""
    return (found.group() for found in _PIECE.finditer(text))


def shortened(text: str, most: int) -> str:
    """Return a text with its middle left out, and said so, where it is longer than `most`."""
    if len(text) <= most:
        return text
    half = max(1, most // 2)
    return f"{text[:half]} […{len(text) - 2 * half} characters left out…] {text[-half:]}"


def account_of(items: Sequence[Item], most: int = 6_000) -> str:
    """Return a plain account of a conversation, for a model that cannot summarise: who said what and which programs ran, shortened."""
    share = max(200, most // max(1, len(items)))
    lines: list[str] = []
    for item in items:
        match item:
            case HumanSaid(text=text):
                lines.append(f"The human said: {shortened(text, share)}")
            case AgentSaid(text=text, programs=programs):
                lines += [f"The agent said: {shortened(text, share)}"] if text else []
                lines += [f"It ran: {shortened(program.code, share)}" for program in programs]
            case ProgramEnded(text=text):
                lines.append(f"That gave: {shortened(text, share)}")
            case _:
                assert_never(item)
    return shortened("\n".join(lines), most)
