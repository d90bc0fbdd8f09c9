"""What is on disk beside what the log says: whether a session's conversation can be gone on with, and which others lie there unclaimed."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from curtainwall.agents.external.process.past import Past
from curtainwall.agents.external.process.slugs import transcript_of
from curtainwall.agents.external.process.terms import EXTENSION, Folders
from curtainwall.agents.external.process.transcripts import GONE, PART_MISSING, Damage, Found, conversations_in, read_transcript, take_over
from curtainwall.facts import quoted
from curtainwall.model import CommandRefused, ExtensionNoted, Millis

_NAME: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Standing:
    """How a session's conversation stands; a broken one is replaced by the next message, which says so."""

    conversation: str
    state: Literal["none", "kept", "broken"]
    why: str = ""
    orphans: tuple[Found, ...] = ()


def standing(past: Past, folders: Folders) -> Standing:
    """Compare the log with the files."""
    found = conversations_in(folders.state, folders.workspace)
    orphans = tuple(each for each in found if each.conversation != past.conversation)
    if not past.conversation or not past.marks:
        return Standing(past.conversation, "none", orphans=orphans)
    read = read_transcript(transcript_of(folders.state, folders.workspace, past.conversation))
    if read == GONE and not past.was_answered:
        return Standing(past.conversation, "none", orphans=orphans)
    if isinstance(read, Damage):
        return Standing(past.conversation, "broken", read.why, orphans)
    if not read.leads_back([mark for mark, _ in past.marks]):
        return Standing(past.conversation, "broken", PART_MISSING, orphans)
    return Standing(past.conversation, "kept", orphans=orphans)


def adoption(conversation: str, at: Millis) -> ExtensionNoted:
    """Return the event by which a session's agent goes on with a conversation that was claimed for it."""
    return ExtensionNoted(at=at, extension=EXTENSION, data={"conversation": conversation, "adopted": True})


def claim(folders: Folders, conversation: str, source: Path | None) -> None:
    """See that a conversation can be gone on with by a session, copied from elsewhere where a file is named; raise `CommandRefused`."""
    if not _NAME.fullmatch(conversation):
        raise CommandRefused(f"{quoted(conversation)} is no id of a conversation")
    if source is not None:
        outside = read_transcript(source)
        if isinstance(outside, Damage):
            raise CommandRefused(f"the conversation {quoted(str(source))} cannot be adopted: {outside.why}")
        take_over(source, folders.state, folders.workspace, conversation)
    read = read_transcript(transcript_of(folders.state, folders.workspace, conversation))
    if isinstance(read, Damage):
        raise CommandRefused(f"the conversation `{conversation}` cannot be adopted: {read.why}")
