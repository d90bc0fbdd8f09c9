"""What a session's log says to the keeper of its process: the conversation, each message that was delivered into it, and how full it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from curtainwall.agents import external as foreign
from curtainwall.model import AnyEvent, ContextMeasured, Feed, NotFound, SessionId, session_stream


@dataclass(slots=True)
class Past(foreign.Past):
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
        foreign.Past.take(self, event)

    def note(self, data: Mapping[str, object]) -> None:
        """Take in what was written down here: a conversation that begins or is adopted, or a message that was delivered."""
        before = self.conversation
        foreign.Past.note(self, data)
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

    def told_since(self, mark: str) -> str:
        """Return what was said after a delivered message and its answer."""
        places = [place for known, place in self.marks if known == mark]
        after = self.said[places[-1] :] if places else []
        # The answer to the message itself comes first, and is there where the message is.
        while after and after[0][0] == "You":
            after = after[1:]
        return "\n\n".join(f"{who}: {text}" for who, text in after)
