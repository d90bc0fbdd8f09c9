"""How a turn takes up its conversation: goes on with it, begins one, finds that it was answered already, or says what was lost."""

from dataclasses import dataclass
from pathlib import Path

from curtainwall.agents.external.process.past import Past
from curtainwall.agents.external.process.slugs import transcript_of
from curtainwall.agents.external.process.transcripts import GONE, PART_MISSING, Transcript, read_transcript

_LACKS = "Your memory lacks what was said last:\n\n{told}\n\nNow:\n\n"
_CARRIED = "This goes on from an earlier conversation, which came to this:\n\n{told}\n\nNow:\n\n"


@dataclass(frozen=True, slots=True)
class Opening:
    """What to do before the message is sent."""

    conversation: str
    is_new: bool
    preface: str = ""
    """What the agent has to be told before the message."""
    lost: str = ""
    """Why the conversation before is lost, for people."""
    is_delivered: bool = False
    """The message is in the conversation already."""
    answer: str | None = None
    """The whole answer to it, where that is there too."""


def opening(past: Past, state: Path, workspace: Path, mark: str, fresh: str) -> Opening:
    """Look at what is on disk; `fresh` is the name of a conversation that may have to begin."""
    if not past.conversation:
        return Opening(fresh, True, _told(past))
    found = read_transcript(transcript_of(state, workspace, past.conversation), mend=True)
    if isinstance(found, Transcript):
        return _kept(past, found, mark, fresh)
    if not past.marks and found == GONE:
        # It was given its name and never began.
        return Opening(past.conversation, True, _told(past))
    if not past.was_answered and found == GONE:
        # Its first turn failed before anything was written down: nothing is lost that the log does not have.
        return Opening(fresh, True, _told(past))
    return lost(past, found.why, fresh)


def lost(past: Past, why: str, fresh: str) -> Opening:
    """Begin a new conversation in place of one that cannot be gone on with."""
    return Opening(fresh, True, _told(past), why)


def _kept(past: Past, found: Transcript, mark: str, fresh: str) -> Opening:
    if found.has(mark):
        return Opening(past.conversation, False, is_delivered=True, answer=found.answer_to(mark))
    known = [each for each, _ in past.marks]
    if not found.leads_back(known):
        return lost(past, PART_MISSING, fresh)
    there = next((each for each in reversed(known) if found.has(each)), None)
    if not known or there == known[-1]:
        return Opening(past.conversation, False)
    if there is not None and past.answers_since(there) <= 1:
        # It was ended before it wrote down its last turn, which the log has; so were those before it that came to nothing.
        return Opening(past.conversation, False, _LACKS.format(told=past.told_since(there)))
    return lost(past, "its file was cut short", fresh)


def _told(past: Past) -> str:
    if past.summary:
        return _CARRIED.format(told=past.summary)
    return past.told_again("") if past.said else ""
