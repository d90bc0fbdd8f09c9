"""A session's conversation with Claude Code, from the log and from disk: whether it can be resumed, is already answered, or was lost."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from curtainwall.agents import external as foreign
from curtainwall.agents.external.process.launch import EXTENSION, ProcessFolders
from curtainwall.agents.external.process.transcripts import (
    GONE,
    PART_MISSING,
    ClaudeTranscript,
    Damage,
    StoredConversation,
    conversations_in,
    copy_conversation,
    read_transcript,
    transcript_path,
)
from curtainwall.facts import quoted
from curtainwall.model import AnyEvent, CommandRefused, ContextMeasured, ExtensionNoted, Feed, Millis, NotFound, SessionId, session_stream


@dataclass(slots=True)
class ProcessHistory(foreign.ExternalHistory):
    """A session up to an entry of its log."""

    marks: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Each delivered message of this conversation, and how much had been said, with it, by then."""
    summary: str = ""
    """What the conversation before this one came to, until the agent was told."""
    used: int = 0
    size: int = 0

    def sync(self, feed: Feed, session: SessionId) -> None:
        """Take in what the log has beyond the cursor; raise `NotFound` where it has nothing at all."""
        for recorded in feed.read(session_stream(session), self.cursor):
            self.take(recorded.event)
            self.cursor = recorded.seq
        if self.workspace is None:
            raise NotFound(f"there is no session `{session}`")

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if isinstance(event, ContextMeasured):
            self.used, self.size = event.used, event.size
        foreign.ExternalHistory.take(self, event)

    def note(self, data: Mapping[str, object]) -> None:
        """Take in what was written down here: a conversation that begins or is adopted, or a message that was delivered."""
        before = self.conversation
        foreign.ExternalHistory.note(self, data)
        if self.conversation != before:
            self.marks = []
            self.used = self.size = 0
        summary, mark = data.get("summary"), data.get("mark")
        if isinstance(summary, str):
            self.summary = summary
        if isinstance(mark, str):
            self.marks.append((mark, len(self.said)))
            self.summary = ""

    def share(self) -> float:
        """Return how full the model's context is, 0 where nobody knows."""
        return self.used / self.size if self.size else 0.0

    @property
    def was_answered(self) -> bool:
        """Tell whether the agent has said anything in this conversation."""
        return bool(self.marks) and any(who == "You" for who, _ in self.said[self.marks[0][1] :])

    def answers_since(self, mark: str) -> int:
        """Return how many of the messages delivered after this one were answered, in part at least."""
        names = [name for name, _ in self.marks]
        places = [place for _, place in self.marks[names.index(mark) + 1 :]]
        after = zip(places, [*places[1:], len(self.said)], strict=True)
        return sum(any(who == "You" for who, _ in self.said[begin:end]) for begin, end in after)

    def text_since(self, mark: str) -> str:
        """Return what was said after a delivered message and its answer."""
        places = [place for known, place in self.marks if known == mark]
        after = self.said[places[-1] :] if places else []
        # The answer to the message itself comes first, and is there where the message is.
        while after and after[0][0] == "You":
            after = after[1:]
        return "\n\n".join(f"{who}: {text}" for who, text in after)


_NAME: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """How a session's conversation stands; a broken one is replaced by the next message, which says so."""

    conversation: str
    state: Literal["none", "kept", "broken"]
    why: str = ""
    orphans: tuple[StoredConversation, ...] = ()


def conversation_status(past: ProcessHistory, folders: ProcessFolders) -> ConversationStatus:
    """Compare the log with the files."""
    found = conversations_in(folders.state, folders.workspace)
    orphans = tuple(each for each in found if each.conversation != past.conversation)
    if not past.conversation or not past.marks:
        return ConversationStatus(past.conversation, "none", orphans=orphans)
    read = read_transcript(transcript_path(folders.state, folders.workspace, past.conversation))
    if read == GONE and not past.was_answered:
        return ConversationStatus(past.conversation, "none", orphans=orphans)
    if isinstance(read, Damage):
        return ConversationStatus(past.conversation, "broken", read.why, orphans)
    if not read.leads_back([mark for mark, _ in past.marks]):
        return ConversationStatus(past.conversation, "broken", PART_MISSING, orphans)
    return ConversationStatus(past.conversation, "kept", orphans=orphans)


def adoption_event(conversation: str, at: Millis) -> ExtensionNoted:
    """Return the event by which a session's agent goes on with a conversation that was claimed for it."""
    return ExtensionNoted(at=at, extension=EXTENSION, data={"conversation": conversation, "adopted": True})


def claim_conversation(folders: ProcessFolders, conversation: str, source: Path | None) -> None:
    """See that a conversation can be gone on with by a session, copied from elsewhere where a file is named; raise `CommandRefused`."""
    if not _NAME.fullmatch(conversation):
        raise CommandRefused(f"{quoted(conversation)} is no id of a conversation")
    if source is not None:
        outside = read_transcript(source)
        if isinstance(outside, Damage):
            raise CommandRefused(f"the conversation {quoted(str(source))} cannot be adopted: {outside.why}")
        copy_conversation(source, folders.state, folders.workspace, conversation)
    read = read_transcript(transcript_path(folders.state, folders.workspace, conversation))
    if isinstance(read, Damage):
        raise CommandRefused(f"the conversation `{conversation}` cannot be adopted: {read.why}")


_LACKS = "Your memory lacks what was said last:\n\n{told}\n\nNow:\n\n"
_CARRIED = "This goes on from an earlier conversation, which came to this:\n\n{told}\n\nNow:\n\n"


@dataclass(frozen=True, slots=True)
class ConversationOpening:
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


def open_conversation(past: ProcessHistory, state: Path, workspace: Path, mark: str, fresh: str) -> ConversationOpening:
    """Look at what is on disk; `fresh` is the name of a conversation that may have to begin."""
    if not past.conversation:
        return ConversationOpening(fresh, True, _retold(past))
    found = read_transcript(transcript_path(state, workspace, past.conversation), mend=True)
    if isinstance(found, ClaudeTranscript):
        return _kept(past, found, mark, fresh)
    if not past.marks and found == GONE:
        # It was given its name and never began.
        return ConversationOpening(past.conversation, True, _retold(past))
    if not past.was_answered and found == GONE:
        # Its first turn failed before anything was written down: nothing is lost that the log does not have.
        return ConversationOpening(fresh, True, _retold(past))
    return replace_lost_conversation(past, found.why, fresh)


def replace_lost_conversation(past: ProcessHistory, why: str, fresh: str) -> ConversationOpening:
    """Begin a new conversation in place of one that cannot be gone on with."""
    return ConversationOpening(fresh, True, _retold(past), why)


def _kept(past: ProcessHistory, found: ClaudeTranscript, mark: str, fresh: str) -> ConversationOpening:
    if found.has(mark):
        return ConversationOpening(past.conversation, False, is_delivered=True, answer=found.answer_to(mark))
    known = [each for each, _ in past.marks]
    if not found.leads_back(known):
        return replace_lost_conversation(past, PART_MISSING, fresh)
    there = next((each for each in reversed(known) if found.has(each)), None)
    if not known or there == known[-1]:
        return ConversationOpening(past.conversation, False)
    if there is not None and past.answers_since(there) <= 1:
        # It was ended before it wrote down its last turn, which the log has; so were those before it that came to nothing.
        return ConversationOpening(past.conversation, False, _LACKS.format(told=past.text_since(there)))
    return replace_lost_conversation(past, "its file was cut short", fresh)


def _retold(past: ProcessHistory) -> str:
    if past.summary:
        return _CARRIED.format(told=past.summary)
    return past.retold_message("") if past.said else ""
