"""The model that needs no network: it follows plain instructions by programs, and says that it is no language model."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.builtin.language_model import (
    AgentMessage,
    ConversationItem,
    Delta,
    ModelReply,
    Program,
    ProgramOutcome,
    Prompt,
    UserMessage,
)
from curtainwall.agents.builtin.models.demo.answers import answer_of
from curtainwall.agents.builtin.models.demo.chat import also_lost, not_followed, small_talk, too_many
from curtainwall.agents.builtin.models.demo.instructions import Understood, last_path, spoken_of, understand
from curtainwall.agents.builtin.models.demo.programs import MOST_STEPS, program_of
from curtainwall.agents.builtin.models.demo.steps import Step
from curtainwall.agents.builtin.models.usage import free_usage, plain_account, text_pieces

CONTEXT_SIZE: Final = 200_000
_EARLIER: Final = 6


class DemoModel:
    """A stand-in. The same conversation gives the same reply."""

    @property
    def name(self) -> str:
        """Return the model as the user names it."""
        return "demo"

    @property
    def context_size(self) -> int:
        """Return how many tokens fit."""
        return CONTEXT_SIZE

    def __repr__(self) -> str:
        return "DemoModel()"

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        """Yield a program for each message that asks for something, or an answer for what came of them."""
        text, codes = _replied(prompt)
        for piece in text_pieces(text):
            yield Delta(piece)
        name = f"demo-{prompt.replies + 1}"
        programs = tuple(Program(id=f"{name}-{number}" if number else name, code=code) for number, code in enumerate(codes))
        said = AgentMessage(text=text, programs=programs)
        raw: JsonValue = {"text": text, "code": list(codes)}
        yield ModelReply(said=said, raw=raw, usage=free_usage(prompt, said), stop_reason="tool_use" if programs else "end_turn")


@dataclass(frozen=True, slots=True)
class _Instructions:
    """One message: the steps to take for it, the parts of it that are left out meanwhile, and what to say to the rest."""

    steps: tuple[Step, ...] = ()
    lost: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def _replied(prompt: Prompt) -> tuple[str, Sequence[str]]:
    items = prompt.items
    if not prompt.may_run:
        return plain_account(items[:-1] or items), ()
    answer = _answer_to_programs(items)
    texts = _last_said(items)
    if not texts:
        return answer or "There is nothing to do. Say `help` to see what I can do.", ()
    heard = _instructions_of(items)
    wishes = [each.steps for each in heard if each.steps]
    deeds = [step.deed for steps in wishes for step in steps]
    lost = [part for each in heard for part in each.lost]
    said = [
        *([answer] if answer else []),
        *([f"I will {_listed(deeds)}."] if deeds else []),
        *([also_lost(lost)] if lost else []),
        *(words for each in heard for words in each.words),
    ]
    codes = [program_of(steps, among=len(deeds)) for steps in wishes]
    return "\n\n".join(said) or "I am listening. Say `help` to see what I can do.", codes


def _instructions_of(items: Sequence[ConversationItem]) -> list[_Instructions]:
    """Return what people said since the last reply, message by message: what one of them does not get keeps nobody else from theirs."""
    heard: list[_Instructions] = []
    it = spoken_of(_said_before(items))
    for text in _last_said(items):
        wish = understand(text, it)
        it = last_path(wish.steps, it)
        heard.append(_meant(text, wish))
    return heard


def _meant(text: str, wish: Understood) -> _Instructions:
    said = None if wish.steps else small_talk(text)
    if said is not None:
        return _Instructions(words=(said,))
    is_too_much = len(wish.steps) > MOST_STEPS
    if wish.may_be_done and not is_too_much:
        return _Instructions(wish.steps, wish.lost)
    much = (too_many(len(wish.steps), MOST_STEPS),) if is_too_much else ()
    lost = (not_followed(wish.lost, [step.deed for step in wish.steps]),) if wish.lost else ()
    return _Instructions(words=(*much, *lost))


def _listed(deeds: Sequence[str]) -> str:
    return deeds[0] if len(deeds) == 1 else f"{', '.join(deeds[:-1])} and {deeds[-1]}"


def _answer_to_programs(items: Sequence[ConversationItem]) -> str:
    """Return the answer where programs have ended since the last reply, and nothing otherwise."""
    at = _last_reply(items)
    reply = items[at] if at >= 0 else None
    if not isinstance(reply, AgentMessage) or not reply.programs:
        return ""
    ended = {item.id: item.text for item in items[at + 1 :] if isinstance(item, ProgramOutcome)}
    known = [program for program in reply.programs if program.id in ended]
    if not known:
        return ""
    answer = answer_of([program.code for program in known], [ended[program.id] for program in known])
    lost = [part for each in _instructions_of(items[:at]) for part in each.lost]
    return f"{answer}\n\n{also_lost(lost)}" if lost else answer


def _last_reply(items: Sequence[ConversationItem]) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if isinstance(items[at], AgentMessage)), -1)


def _last_said(items: Sequence[ConversationItem]) -> list[str]:
    """Return what people said since the last reply; what was put beside it as context, or as a block in tags, asks for nothing."""
    said = [item.text for item in items[_last_reply(items) + 1 :] if isinstance(item, UserMessage) and not item.is_context]
    return [text for text in said if not (text.lstrip().startswith("<") and text.rstrip().endswith(">"))]


def _said_before(items: Sequence[ConversationItem]) -> list[str]:
    earlier: list[str] = []
    for at in range(_last_reply(items), -1, -1):
        item = items[at]
        if isinstance(item, UserMessage) and not item.is_context:
            earlier.append(item.text)
            if len(earlier) == _EARLIER:
                break
    return earlier[::-1]
