"""The model that needs no network: it follows plain instructions by programs, and says that it is no language model."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.builtin.models.demo.answers import answer_of
from curtainwall.agents.builtin.models.demo.chat import also_lost, not_followed, small_talk, too_many
from curtainwall.agents.builtin.models.demo.programs import MOST_STEPS, program_of
from curtainwall.agents.builtin.models.demo.understanding import Understood, joined, spoken_of, understand
from curtainwall.agents.builtin.models.estimates import account_of, free_usage, pieces
from curtainwall.agents.builtin.talk import AgentSaid, Delta, HumanSaid, Item, Program, ProgramEnded, Prompt, Reply

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

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | Reply]:
        """Yield a program for an instruction, or an answer for what came of one."""
        text, code = _replied(prompt)
        for piece in pieces(text):
            yield Delta(piece)
        programs = () if code is None else (Program(id=f"demo-{prompt.replies + 1}", code=code),)
        said = AgentSaid(text=text, programs=programs)
        raw: JsonValue = {"text": text, "code": code}
        yield Reply(said=said, raw=raw, usage=free_usage(prompt, said), stop_reason="tool_use" if programs else "end_turn")


def _replied(prompt: Prompt) -> tuple[str, str | None]:
    items = prompt.items
    if not prompt.may_run:
        return account_of(items[:-1] or items), None
    answer = _answer_to_programs(items)
    texts = _last_said(items)
    if not texts:
        return answer or "There is nothing to do. Say `help` to see what I can do.", None
    wish, talk = _heard(texts, spoken_of(_said_before(items)))
    if wish.may_be_done and len(wish.steps) <= MOST_STEPS:
        return _intro(wish, answer), program_of(wish.steps)
    said = [
        *([answer] if answer else []),
        *talk,
        *([too_many(len(wish.steps), MOST_STEPS)] if len(wish.steps) > MOST_STEPS else []),
        *([not_followed(wish.lost, [step.deed for step in wish.steps])] if wish.lost else []),
    ]
    return "\n\n".join(said) or "I am listening. Say `help` to see what I can do.", None


def _heard(texts: Sequence[str], it: str = "") -> tuple[Understood, list[str]]:
    """Return what people want done, and what to say to the rest of what they said."""
    wishes: list[Understood] = []
    talk: list[str] = []
    for text in texts:
        wish = understand(text, it)
        said = None if wish.steps else small_talk(text)
        if said is None:
            wishes.append(wish)
        else:
            talk.append(said)
    return joined(wishes), talk


def _intro(wish: Understood, answer: str) -> str:
    deeds = [step.deed for step in wish.steps]
    listed = deeds[0] if len(deeds) == 1 else f"{', '.join(deeds[:-1])} and {deeds[-1]}"
    return "\n\n".join([*([answer] if answer else []), f"I will {listed}.", *([also_lost(wish.lost)] if wish.lost else [])])


def _answer_to_programs(items: Sequence[Item]) -> str:
    """Return the answer where programs have ended since the last reply, and nothing otherwise."""
    at = _last_reply(items)
    reply = items[at] if at >= 0 else None
    if not isinstance(reply, AgentSaid) or not reply.programs:
        return ""
    ended = {item.id: item.text for item in items[at + 1 :] if isinstance(item, ProgramEnded)}
    known = [program for program in reply.programs if program.id in ended]
    if not known:
        return ""
    answer = answer_of([program.code for program in known], [ended[program.id] for program in known])
    lost = _heard(_last_said(items[:at]))[0].lost
    return f"{answer}\n\n{also_lost(lost)}" if lost else answer


def _last_reply(items: Sequence[Item]) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if isinstance(items[at], AgentSaid)), -1)


def _last_said(items: Sequence[Item]) -> list[str]:
    """Return what people said since the last reply; what was put beside it as context, or as a block in tags, asks for nothing."""
    said = [item.text for item in items[_last_reply(items) + 1 :] if isinstance(item, HumanSaid) and not item.is_context]
    return [text for text in said if not (text.lstrip().startswith("<") and text.rstrip().endswith(">"))]


def _said_before(items: Sequence[Item]) -> list[str]:
    earlier: list[str] = []
    for at in range(_last_reply(items), -1, -1):
        item = items[at]
        if isinstance(item, HumanSaid) and not item.is_context:
            earlier.append(item.text)
            if len(earlier) == _EARLIER:
                break
    return earlier[::-1]
