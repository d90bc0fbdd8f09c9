"""The crew: each session's agent by the name in its log, made when it is first needed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from curtainwall.agents.registry import AgentRegistry
from curtainwall.model import NotFound, SessionId, TurnAt, TurnId, TurnResult, TurnStatus
from tests.support.covers import covers
from tests.support.talking import run

OURS, THEIRS, NOBODYS = SessionId("ours"), SessionId("theirs"), SessionId("nobodys")


@dataclass
class Stand:
    """An agent that says its name."""

    name: str
    forgot: list[SessionId] = field(default_factory=list)

    async def work(self, at: TurnAt) -> TurnResult:
        return TurnResult(status=TurnStatus.DONE, failure=f"{self.name} worked on {at.turn}")

    async def compact(self, session: SessionId, instructions: str) -> None:
        self.forgot.append(session)

    def forget(self, session: SessionId) -> None:
        self.forgot.append(session)

    def last_words(self, session: SessionId) -> str:
        return f"{self.name} to {session}"


@dataclass
class OneKind:
    """A kind that counts what is made of it."""

    names: Sequence[str]
    made: list[Stand] = field(default_factory=list)
    closed: int = 0

    async def require_ready(self, agent: str) -> None:
        raise NotFound(f"no {agent}")

    def require_model(self, agent: str, model: str) -> None:
        raise NotFound(f"{agent} has no {model}")

    async def worker(self) -> Stand:
        self.made.append(Stand(self.names[0]))
        return self.made[-1]

    async def close(self) -> None:
        self.closed += 1


@covers("agents.by-name", "agents.made-when-needed")
def test_a_session_finds_its_agent_by_name_and_nothing_is_made_for_the_others() -> None:
    builtin, foreign = OneKind(("builtin",)), OneKind(("claude", "codex"))
    crew = AgentRegistry({OURS: "builtin", THEIRS: "codex", NOBODYS: "gone"}.__getitem__, builtin, foreign)

    async def story() -> None:
        assert crew.last_words(OURS) == "", "whoever has not worked has said nothing"
        for turn in ("one", "two"):
            done = await crew.work(TurnAt(session=OURS, turn=TurnId(turn)))
            assert done.failure == f"builtin worked on {turn}"
        assert (len(builtin.made), len(foreign.made)) == (1, 0)
        assert crew.last_words(OURS) == "builtin to ours"
        with pytest.raises(NotFound, match="there is no agent `gone` here; there are: builtin, claude, codex"):
            await crew.work(TurnAt(session=NOBODYS, turn=TurnId("three")))
        with pytest.raises(NotFound, match="codex has no gpt"):
            crew.kind_of("codex").require_model("codex", "gpt")
        await crew.compact(THEIRS, "")
        crew.forget(OURS)
        assert foreign.made[0].forgot == [THEIRS, OURS]
        await crew.close()
        assert (builtin.closed, foreign.closed) == (1, 1)

    run(story())
