"""A session's conversation with Claude Code, compared between log and disk: whether it can be resumed, is already answered, or was lost."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from curtainwall.agents import external as foreign
from curtainwall.agents.external.process.launch import EXTENSION, ProcessFolders
from curtainwall.agents.external.process.packed_state import is_packed, unpack_state
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
from curtainwall.model import (
    AnyEvent,
    CommandRefused,
    ContextMeasured,
    ExtensionNoted,
    Feed,
    Millis,
    NotFound,
    SessionId,
    record,
    session_stream,
)


@dataclass(slots=True)
class ProcessHistory(foreign.ExternalHistory):
    """A session up to an entry of its log."""

    marks: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Each delivered message of this conversation, with the length of `said` right after it."""
    summary: str = ""
    """A summary of the previous conversation, until it is delivered to the agent."""
    used: int = 0
    size: int = 0

    def sync(self, feed: Feed, session: SessionId) -> None:
        """Apply the events after the cursor; raise `NotFound` if the log is empty."""
        for recorded in feed.read(session_stream(session), self.cursor):
            self.take(recorded.event)
            self.cursor = recorded.seq
        if self.workspace is None:
            raise NotFound(f"there is no session `{session}`")

    def take(self, event: AnyEvent) -> None:
        """Apply the next event."""
        if isinstance(event, ContextMeasured):
            self.used, self.size = event.used, event.size
        foreign.ExternalHistory.take(self, event)

    def note(self, data: Mapping[str, object]) -> None:
        """Apply a note of this package: a conversation was started or adopted, or a message was delivered."""
        before = self.conversation
        foreign.ExternalHistory.note(self, data)
        if self.conversation != before:
            self.marks = []
            self.used = self.size = 0
        summary, mark = data.get("summary"), data.get("mark")
        if isinstance(summary, str):
            self.summary = summary
        if isinstance(mark, str):
            self.marks.append((mark, len(self.transcript)))
            self.summary = ""

    def share(self) -> float:
        """Return the used share of the model's context, 0 if unknown."""
        return self.used / self.size if self.size else 0.0

    @property
    def was_answered(self) -> bool:
        """Tell whether the agent has said anything in this conversation."""
        return bool(self.marks) and any(speaker == "You" for speaker, _ in self.transcript[self.marks[0][1] :])

    def answers_since(self, mark: str) -> int:
        """Return how many of the messages delivered after this one were answered, at least in part."""
        names = [name for name, _ in self.marks]
        places = [place for _, place in self.marks[names.index(mark) + 1 :]]
        spans = zip(places, [*places[1:], len(self.transcript)], strict=True)
        return sum(any(speaker == "You" for speaker, _ in self.transcript[begin:end]) for begin, end in spans)

    def text_since(self, mark: str) -> str:
        """Return the messages after a delivered message and its answer."""
        places = [place for name, place in self.marks if name == mark]
        after = self.transcript[places[-1] :] if places else []
        # Skip the answer to the message itself: the transcript has it if it has the message.
        while after and after[0][0] == "You":
            after = after[1:]
        return "\n\n".join(f"{speaker}: {text}" for speaker, text in after)


_WRITTEN_WITHIN: Final = 5.0
_LOOK_AGAIN: Final = 0.05
_NAME: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@record
class ConversationStatus:
    """The status of a session's conversation. The next message replaces a broken one and says so."""

    conversation: str
    state: Literal["none", "kept", "broken"]
    why: str = ""
    orphans: tuple[StoredConversation, ...] = ()


def conversation_status(past: ProcessHistory, folders: ProcessFolders) -> ConversationStatus:
    """Compare the log with the files; those of an archived conversation are not looked into."""
    if is_packed(folders):
        return ConversationStatus(past.conversation, "kept" if past.marks else "none")
    stored = conversations_in(folders.state, folders.workspace)
    orphans = tuple(each for each in stored if each.conversation != past.conversation)
    if not past.conversation or not past.marks:
        return ConversationStatus(past.conversation, "none", orphans=orphans)
    transcript = read_transcript(transcript_path(folders.state, folders.workspace, past.conversation))
    if transcript == GONE and not past.was_answered:
        return ConversationStatus(past.conversation, "none", orphans=orphans)
    if isinstance(transcript, Damage):
        return ConversationStatus(past.conversation, "broken", transcript.why, orphans)
    if not transcript.leads_back([mark for mark, _ in past.marks]):
        return ConversationStatus(past.conversation, "broken", PART_MISSING, orphans)
    return ConversationStatus(past.conversation, "kept", orphans=orphans)


def adoption_event(conversation: str, at: Millis) -> ExtensionNoted:
    """Return the event that makes a session's agent continue a claimed conversation."""
    return ExtensionNoted(at=at, extension=EXTENSION, data={"conversation": conversation, "adopted": True})


def claim_conversation(folders: ProcessFolders, conversation: str, source: Path | None) -> None:
    """Check that a session can continue a conversation, after copying it from `source` if given; raise `CommandRefused`."""
    if not _NAME.fullmatch(conversation):
        raise CommandRefused(f"{quoted(conversation)} is no id of a conversation")
    unpack_state(folders)
    if source is not None:
        original = read_transcript(source)
        if isinstance(original, Damage):
            raise CommandRefused(f"the conversation {quoted(str(source))} cannot be adopted: {original.why}")
        copy_conversation(source, folders.state, folders.workspace, conversation)
    transcript = read_transcript(transcript_path(folders.state, folders.workspace, conversation))
    if isinstance(transcript, Damage):
        raise CommandRefused(f"the conversation `{conversation}` cannot be adopted: {transcript.why}")


async def find_message(folders: ProcessFolders, conversations: Sequence[str], mark: str, before: Sequence[str]) -> str | None:
    """Return which of these conversations has our message and leads back to those before it; None if none does in time."""
    names = [name for name in conversations if _NAME.fullmatch(name)]
    with suppress(TimeoutError):
        async with asyncio.timeout(_WRITTEN_WITHIN):
            # The agent writes its transcript a moment after it has started on a message, and sends no signal.
            while True:
                for name in names:
                    transcript = await asyncio.to_thread(read_transcript, transcript_path(folders.state, folders.workspace, name))
                    if isinstance(transcript, ClaudeTranscript) and transcript.has(mark):
                        return name if transcript.leads_back([*before, mark]) and _has_past(transcript, before) else None
                await asyncio.sleep(_LOOK_AGAIN)
    return None


def _has_past(transcript: ClaudeTranscript, before: Sequence[str]) -> bool:
    return not before or any(transcript.has(mark) for mark in before)


_LACKS = "Your memory lacks what was said last:\n\n{told}\n\nNow:\n\n"
_CARRIED = "This goes on from an earlier conversation, which came to this:\n\n{told}\n\nNow:\n\n"


@record
class ConversationOpening:
    """The steps before a message is sent."""

    conversation: str
    is_new: bool
    preface: str = ""
    """Text to put before the message."""
    lost: str = ""
    """Why the previous conversation was lost, for people."""
    is_delivered: bool = False
    """The message is already in the conversation."""
    answer: str | None = None
    """The complete answer to it, if that is there too."""


def open_conversation(past: ProcessHistory, state: Path, workspace: Path, mark: str, fresh: str) -> ConversationOpening:
    """Decide from the files how to open the conversation; `fresh` names a new one if it is needed."""
    if not past.conversation:
        return ConversationOpening(fresh, True, _replayed(past))
    transcript = read_transcript(transcript_path(state, workspace, past.conversation), mend=True)
    if isinstance(transcript, ClaudeTranscript):
        return _kept(past, transcript, mark, fresh)
    if not past.marks and transcript == GONE:
        # It was named but never started.
        return ConversationOpening(past.conversation, True, _replayed(past))
    if not past.was_answered and transcript == GONE:
        # Its first turn failed before anything was written: the log has everything.
        return ConversationOpening(fresh, True, _replayed(past))
    return replace_lost_conversation(past, transcript.why, fresh)


def replace_lost_conversation(past: ProcessHistory, why: str, fresh: str) -> ConversationOpening:
    """Start a new conversation in place of one that cannot be resumed."""
    return ConversationOpening(fresh, True, _replayed(past), why)


def _kept(past: ProcessHistory, transcript: ClaudeTranscript, mark: str, fresh: str) -> ConversationOpening:
    if transcript.has(mark):
        return ConversationOpening(past.conversation, False, is_delivered=True, answer=transcript.answer_to(mark))
    delivered = [name for name, _ in past.marks]
    if not transcript.leads_back(delivered):
        return replace_lost_conversation(past, PART_MISSING, fresh)
    newest = next((name for name in reversed(delivered) if transcript.has(name)), None)
    if not delivered or newest == delivered[-1]:
        return ConversationOpening(past.conversation, False)
    if newest is not None and past.answers_since(newest) <= 1:
        # The process ended before it wrote its last turn, which the log has. Unanswered turns before it are no loss.
        return ConversationOpening(past.conversation, False, _LACKS.format(told=past.text_since(newest)))
    return replace_lost_conversation(past, "its file was cut short", fresh)


def _replayed(past: ProcessHistory) -> str:
    if past.summary:
        return _CARRIED.format(told=past.summary)
    return past.replay_message("") if past.transcript else ""
