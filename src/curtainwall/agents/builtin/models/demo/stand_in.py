"""The model that needs no network: it turns plain instructions into programs, and says that it is only a demo."""

import re
from collections.abc import AsyncGenerator, Sequence
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
from curtainwall.agents.builtin.models.demo.instructions import understand
from curtainwall.agents.builtin.models.demo.programs import MOST_STEPS, Step, answer_of, program_of
from curtainwall.agents.builtin.models.usage import free_usage, plain_account, text_pieces
from curtainwall.model import record

CONTEXT_SIZE: Final = 200_000
_EARLIER: Final = 6

_WHO: Final = (
    "I am the `demo` model of Curtainwall: a small offline stand-in that follows plain instructions. I am no language model, so I cannot "
    "reason, summarise or make up text. To talk to a real one, set a key (for example `ANTHROPIC_API_KEY`) or choose one with `--model`."
)
_HELP: Final = """\
Here is what I can do, one thing or several joined by “and” or “then”:

- look: `list src`, `read notes.txt`, `show the first 5 lines of notes.txt`, `show the tree`, `how big is notes.txt`
- search: `search for TODO in src`, `find files named *.py`, `count the words in notes.txt`
- change: `write 'hello' to greeting.txt`, `append 'more' to greeting.txt`, `replace 'a' with 'b' in notes.txt`
- arrange: `copy a.txt to b.txt`, `rename a.txt to b.txt`, `delete a.txt`, `make a directory called docs`
- reach out: ``run `ls -la` ``, `fetch https://example.org`
- git: `git status`, `show the last 3 commits`, `git diff`, `commit everything with message 'why'`
- notes: `remember that the build needs make`, `recall build`
- any tool: `call filesystem.get_file_info {"path": "notes.txt"}`

Put texts and names with spaces in quotes. Each step passes the session's rules: it runs, is refused, or a human is asked."""

_OFFER: Final = "Say `help` to see what I can do."
_FORMS_OF_TALK: Final = (
    ("", f"You said nothing. {_OFFER}"),
    (r"(please )?(help( me)?|\?+|commands?|usage|what (can|do) (you|i) (do|ask|say).*|how (do|can) i use .*)", f"{_WHO}\n\n{_HELP}"),
    (r".*\b((who|what) are you|your name|what model|introduce yourself|are you (an? )?(ai|llm|real|human|bot)).*", f"{_WHO} {_OFFER}"),
    (r"(many )?(thanks?|thank you|thx|cheers|great|nice|well done|perfect|good job)\b[\s\w,!.]{0,40}", "You are welcome."),
    (r"(bye|goodbye|good bye|see you|good night|farewell)\b[\s\w,!.]{0,30}", "Goodbye."),
    (r"(hi|hello|hey|hallo|good (morning|evening|afternoon|day)|greetings)\b[\s\w,!.?]{0,40}", f"Hello! {_WHO} {_OFFER}"),
    (r"(go on|continue|carry on|proceed|yes|no|ok(ay)?|sure|y|n)", f"There is nothing that I was about to do. {_OFFER}"),
)
"""Small talk that asks for nothing to be done, and the answers to it."""


class DemoModel:
    """A stand-in. The same conversation gives the same reply."""

    def __init__(self, context_size: int | None = None) -> None:
        self._context_size = context_size or CONTEXT_SIZE

    @property
    def name(self) -> str:
        """Return the model as the user names it."""
        return "demo"

    @property
    def context_size(self) -> int:
        """Return how many tokens fit."""
        return self._context_size

    def __repr__(self) -> str:
        return "DemoModel()"

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        """Yield a program for each message that asks for something, or an answer with the outcomes of earlier programs."""
        text, codes = _replied(prompt)
        for piece in text_pieces(text):
            yield Delta(piece)
        name = f"demo-{prompt.replies + 1}"
        programs = tuple(Program(id=f"{name}-{number}" if number else name, code=code) for number, code in enumerate(codes))
        message = AgentMessage(text=text, programs=programs)
        raw: JsonValue = {"text": text, "code": list(codes)}
        yield ModelReply(message=message, raw=raw, usage=free_usage(prompt, message), stop_reason="tool_use" if programs else "end_turn")


@record
class _Instruction:
    """One message: the steps to take for it, the parts of it that are left out meanwhile, or what to answer."""

    steps: tuple[Step, ...] = ()
    lost: tuple[str, ...] = ()
    answer: str = ""


def _replied(prompt: Prompt) -> tuple[str, Sequence[str]]:
    items = prompt.items
    if not prompt.may_run:
        return plain_account(items[:-1] or items), ()
    answer = _answer_to_programs(items)
    texts = _new_texts(items)
    if not texts:
        return answer or f"There is nothing to do. {_OFFER}", ()
    instructions = _instructions_of(items)
    deeds = [step.deed for each in instructions for step in each.steps]
    paragraphs = [
        *([answer] if answer else []),
        *([f"I will {' and '.join([', '.join(deeds[:-1]), deeds[-1]] if deeds[1:] else deeds)}."] if deeds else []),
        *_also_lost(instructions),
        *(each.answer for each in instructions if each.answer),
    ]
    codes = [program_of(each.steps, among=len(deeds)) for each in instructions if each.steps]
    return "\n\n".join(paragraphs) or f"I am listening. {_OFFER}", codes


def _instructions_of(items: Sequence[ConversationItem]) -> list[_Instruction]:
    """Return the instructions since the last reply, one for each message: an unclear message does not hold up the others."""
    it = ""
    for text in _earlier_texts(items):
        it = understand(text, it).it
    instructions: list[_Instruction] = []
    for text in _new_texts(items):
        understood = understand(text, it)
        it = understood.it
        small_talk = _small_talk(text)
        if small_talk and not understood.steps:
            instructions.append(_Instruction(answer=small_talk))
        elif len(understood.steps) > MOST_STEPS:
            instructions.append(
                _Instruction(answer=f"That is {len(understood.steps)} steps; I do at most {MOST_STEPS} at once. Please ask for fewer.")
            )
        elif understood.may_be_done:
            instructions.append(_Instruction(understood.steps, understood.lost))
        else:
            instructions.append(_Instruction(answer=_not_followed(understood.lost, [step.deed for step in understood.steps])))
    return instructions


def _small_talk(text: str) -> str | None:
    talk = text.strip().rstrip(".!")
    return next((answer for form, answer in _FORMS_OF_TALK if re.fullmatch(form, talk, re.IGNORECASE | re.DOTALL)), None)


def _not_followed(lost: Sequence[str], deeds: Sequence[str]) -> str:
    """Return an honest answer: what was not understood, and that no step was taken that it might have concerned."""
    held = f" I did not {', '.join(deeds)} either, because what I did not understand may have been about that." if deeds else ""
    return (
        f"I cannot follow {_quoted(lost)}: I am the `demo` model, a stand-in for trying things offline, and no language model.{held} "
        "I follow plain instructions such as `read notes.txt`, `write 'hello' to greeting.txt` or `search for TODO in src`; "
        "say `help` to see all of them."
    )


def _also_lost(instructions: Sequence[_Instruction]) -> list[str]:
    lost = [part for each in instructions for part in each.lost]
    return [f"I did not follow {_quoted(lost)}: I am a demo, and no language model."] if lost else []


def _quoted(lost: Sequence[str]) -> str:
    lines = [" ".join(part.split()) for part in lost[:3]]
    return " and ".join(f"“{line if len(line) <= 160 else f'{line[:160]}…'}”" for line in lines)


def _answer_to_programs(items: Sequence[ConversationItem]) -> str:
    """Return the answer for programs that ended since the last reply, or "" if there are none."""
    at = _last_reply(items)
    reply = items[at] if at >= 0 else None
    if not isinstance(reply, AgentMessage) or not reply.programs:
        return ""
    ended = {item.id: item.text for item in items[at + 1 :] if isinstance(item, ProgramOutcome)}
    known = [program for program in reply.programs if program.id in ended]
    if not known:
        return ""
    answer = answer_of([program.code for program in known], [ended[program.id] for program in known])
    return "\n\n".join([answer, *_also_lost(_instructions_of(items[:at]))])


def _last_reply(items: Sequence[ConversationItem]) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if isinstance(items[at], AgentMessage)), -1)


def _new_texts(items: Sequence[ConversationItem]) -> list[str]:
    """Return the messages of people since the last reply, without added context or blocks in tags, which ask for nothing."""
    texts = [item.text for item in items[_last_reply(items) + 1 :] if isinstance(item, UserMessage) and not item.is_context]
    return [text for text in texts if not (text.lstrip().startswith("<") and text.rstrip().endswith(">"))]


def _earlier_texts(items: Sequence[ConversationItem]) -> list[str]:
    texts = [item.text for item in items[: _last_reply(items) + 1] if isinstance(item, UserMessage) and not item.is_context]
    return texts[-_EARLIER:]
