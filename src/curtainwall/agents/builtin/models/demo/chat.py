"""What the stand-in says by itself: who it is, what it can do, and that it did not understand."""

import re
from collections.abc import Sequence
from typing import Final

WHO: Final = (
    "I am the `demo` model of Curtainwall: a small offline stand-in that follows plain instructions. I am no language model, so I cannot "
    "reason, summarise or make up text. To talk to a real one, set a key (for example `ANTHROPIC_API_KEY`) or choose one with `--model`."
)
HELP: Final = """\
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

_GREETING = re.compile(r"(?:hi|hello|hey|hallo|good (?:morning|evening|afternoon|day)|greetings|yo|moin)\b[\s\w,!.?]{0,40}", re.IGNORECASE)
_THANKS = re.compile(r"(?:many )?(?:thanks?|thank you|thx|cheers|great|nice|well done|perfect|good job)\b[\s\w,!.]{0,40}", re.IGNORECASE)
_BYE = re.compile(r"(?:bye|goodbye|good bye|see you|good night|farewell)\b[\s\w,!.]{0,30}", re.IGNORECASE)
_WHO = re.compile(
    r".*\b(?:who|what) (?:are|r) you\b.*|.*\bwhat(?:'s| is) your name\b.*"
    r"|.*\bare you (?:an? )?(?:ai|llm|language model|real|human|bot|gpt|claude).*"
    r"|.*\bwhat model\b.*|.*\bintroduce yourself\b.*",
    re.IGNORECASE | re.DOTALL,
)
_HELP = re.compile(
    r"(?:please )?(?:help(?: me)?|\?+|commands?|usage|what (?:can|do) you do.*|what can i (?:ask|say|do).*|"
    r"how (?:do|can) i use (?:you|this).*)[\s.!?]*",
    re.IGNORECASE | re.DOTALL,
)
_GO_ON = re.compile(r"(?:go on|continue|carry on|proceed|yes|no|ok(?:ay)?|sure|y|n)[\s.!]*", re.IGNORECASE)


def small_talk(text: str) -> str | None:
    """Return the answer to what asks for nothing to be done."""
    text = text.strip()
    if not text:
        return "You said nothing. Say `help` to see what I can do."
    if _HELP.fullmatch(text):
        return f"{WHO}\n\n{HELP}"
    if _WHO.fullmatch(text):
        return f"{WHO} Say `help` to see what I can do."
    if _THANKS.fullmatch(text):
        return "You are welcome."
    if _BYE.fullmatch(text):
        return "Goodbye."
    if _GREETING.fullmatch(text):
        return f"Hello! {WHO} Say `help` to see what I can do."
    if _GO_ON.fullmatch(text):
        return "There is nothing that I was about to do. Tell me what you want, for example `list the files` or `read notes.txt`."
    return None


def not_followed(lost: Sequence[str], deeds: Sequence[str]) -> str:
    """Say honestly what was not understood, and that nothing was done where that might have mattered."""
    said = " and ".join(f"“{_short(part)}”" for part in lost[:3])
    held = f" I did not {', '.join(deeds)} either, because what I did not understand may have been about that." if deeds else ""
    return (
        f"I cannot follow {said}: I am the `demo` model, a stand-in for trying things offline, and no language model.{held} "
        "I follow plain instructions such as `read notes.txt`, `write 'hello' to greeting.txt` or `search for TODO in src`; "
        "say `help` to see all of them."
    )


def too_many(count: int, most: int) -> str:
    """Say that an instruction asks for more than fits one program."""
    return f"That is {count} steps at once; I do at most {most}. Please ask for fewer."


def also_lost(lost: Sequence[str]) -> str:
    """Say which part of an instruction was left out."""
    return f"I did not follow {' and '.join(f'“{_short(part)}”' for part in lost[:3])}: I am a demo, and no language model."


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:160]}…"
