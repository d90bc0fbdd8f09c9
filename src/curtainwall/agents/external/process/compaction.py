"""A long conversation made short: by the agent's own `/compact`, or summarised so that it can go on in a new one."""

import asyncio
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.external import MOST_WORDS, Failed, Finished, Spoke
from curtainwall.agents.external.process.faults import fault_of
from curtainwall.agents.external.process.running_process import Running
from curtainwall.agents.external.process.terms import AgentErred, AgentSilent
from curtainwall.agents.external.process.wire import Begun, LoggedOut, NotShortened, Shortened, Signal, Summed, Wished, message

_SUMMARISE: Final = (
    "This conversation is nearly too long. Write a summary for whoever goes on with it and has nothing else: what was asked and answered, "
    "what was decided and why, names, figures and paths exactly as they are, and what is still open. Write only the summary; use no tools."
)


@dataclass(frozen=True, slots=True)
class Shorter:
    """What a conversation came to; tokens before and after, 0 where nobody knows."""

    text: str
    before: int = 0
    after: int = 0


async def shorten(running: Running, instructions: str, mark: str, patience: float) -> Shorter | None:
    """Have the agent replace its history by a summary of its own making; None where it found nothing to replace."""
    heard = await _told(running, f"/compact {' '.join(instructions.split())}".rstrip(), mark, patience)
    short = next((signal for signal in heard if isinstance(signal, Shortened)), None)
    summary = next((signal.text for signal in heard if isinstance(signal, Summed)), "")
    return None if short is None else Shorter(summary, short.before, short.after)


async def summarise(running: Running, mark: str, patience: float) -> Shorter | None:
    """Have the agent write down what the conversation came to; None where it says nothing."""
    heard = await _told(running, _SUMMARISE, mark, patience)
    text = "\n\n".join(signal.text for signal in heard if isinstance(signal, Spoke))
    return Shorter(text) if text else None


async def _told(running: Running, text: str, mark: str, patience: float) -> list[Signal]:
    """Tell a process something that is no turn of the session's, and return all that came until it was done."""
    heard: list[Signal] = []
    is_taken_up, running.has_been_told = not running.has_been_told, True
    await running.send(message(text, mark))
    try:
        async with asyncio.timeout(patience):
            while (signals := await running.hear()) is not None:
                heard += signals
                for signal in signals:
                    match signal:
                        case Wished():
                            await running.send(signal.reply)
                        case Failed() | LoggedOut() | NotShortened():
                            raise AgentErred(f"claude: {signal.why[:MOST_WORDS]}")
                        case Begun():
                            is_taken_up = is_taken_up or signal.mark == mark
                        case Finished() if is_taken_up:
                            return heard
                        case Finished():
                            # So much was said to an earlier message, whose turn nobody waits for any more.
                            heard.clear()
                        case _:
                            pass
    except TimeoutError:
        raise AgentSilent(f"the agent did not come to an end within {patience:g} seconds") from None
    raise fault_of(await running.exit_code(), running.process.stopped, tuple(running.errors), "")
