"""The tools for messages between agents and teams: their arguments and meanings. Team names come from the configuration."""

from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from curtainwall.model import ANSWER, NOBODY, Meaning, Role, ToolEffect, ToolSpec

SERVER: Final = "teams"
LONGEST_MESSAGE: Final = 262_144
_LONGEST_WAIT = 3_600_000
_TALKS = (Role.MESSAGE_TEAM,)

Schema = dict[str, JsonValue]


def team_tools(teams: Iterable[str]) -> tuple[ToolSpec, ...]:
    """Return the tools for these teams."""
    names: list[JsonValue] = [*sorted(teams)]
    who: Schema = {"type": "string", "description": "the team", **({"enum": names} if names else {})}
    thread = _text("a conversation of its own with this team, by any name; left out, the main one", maxLength=64)
    asker: Schema = {"type": ["string", "null"], "description": "your own team; left out, whoever you are known as"}
    wait: Schema = {"type": "integer", "description": "milliseconds to wait", "minimum": 1, "maximum": _LONGEST_WAIT}
    message = _text("what to tell the team", minLength=1, maxLength=LONGEST_MESSAGE)
    handle = _text("the message, by the handle that sending it gave")

    def tool(name: str, effect: ToolEffect, about: str, required: str, *meanings: Meaning, **arguments: Schema) -> ToolSpec:
        schema: Schema = {
            "type": "object",
            "properties": {**arguments, "fromTeam": asker},
            "required": [*required.split()],
            "additionalProperties": False,
        }
        return ToolSpec(server=SERVER, name=name, description=about, schema_=schema, effect=effect, meanings=meanings)

    def of_pair(name: str, effect: ToolEffect, about: str, required: str = "team", **more: Schema) -> ToolSpec:
        return tool(name, effect, about, required, Meaning(argument="team", roles=_TALKS), team=who, thread=thread, **more)

    inspect, modify, send = ToolEffect.INSPECT, ToolEffect.MODIFY, ToolEffect.SEND
    return (
        of_pair(
            "ask", send, "Ask a team and wait for its answer. It remembers what you asked before. If it takes too long you get a handle.",
            "team question", question=_text("the question", minLength=1, maxLength=LONGEST_MESSAGE), timeout=wait,
        ),
        tool(
            "send_message", send, "Send a team a message, and wait for the answer or fetch it later with `reports`.", "toTeam message",
            Meaning(argument="toTeam", roles=_TALKS), toTeam=who, thread=thread, message=message, timeout=wait,
            waitForResponse={"type": "boolean", "description": "wait for the answer; left out, yes"},
        ),
        tool(
            "notify", send, "Tell a team something without waiting; it is delivered exactly once.", "toTeam message",
            Meaning(argument="toTeam", roles=_TALKS), toTeam=who, thread=thread, message=message,
            ttlDays={"type": "number", "description": "for how many days it may wait", "exclusiveMinimum": 0, "maximum": 3650},
        ),
        tool("list", inspect, "List the teams and your conversations with them.", ""),
        tool("quick_status", inspect, "Tell how your conversations with a team, or with all, stand.", "", team=who),
        tool(
            "history", inspect, "Show your conversation with a team.", "team", team=who, thread=thread,
            limit={"type": "integer", "description": "only so many last messages", "minimum": 1, "maximum": 1000},
        ),
        tool("reports", inspect, "Fetch the answers to messages that you sent earlier.", "", team=who, handle=handle),
        of_pair("cancel", modify, "Take back a message, or stop the team's work on it.", handle=handle),
        of_pair("wake", modify, "Get the team's agent ready for your next question."),
        of_pair("sleep", modify, "Let the team's agent rest; the conversation stays."),
        of_pair(
            "compact", modify, "Let older messages of your conversation with a team become a summary.",
            instructions=_text("what the summary should keep", maxLength=4096),
        ),
        of_pair(
            "fork", modify, "Begin another conversation with a team that starts with what this one knows.", "team newThread",
            newThread=_text("the name of the new one", minLength=1, maxLength=64),
        ),
        _answer(names),
    )  # fmt: skip


def _answer(names: list[JsonValue]) -> ToolSpec:
    schema: Schema = {
        "type": "object",
        "properties": {
            "team": {"type": "string", "description": "the team that asked", **({"enum": [*names, NOBODY]} if names else {})},
            "message": _text("its message"),
            "answer": _text("the answer"),
        },
        "required": ["team", "message", "answer"],
        "additionalProperties": False,
    }
    return ToolSpec(
        server=SERVER,
        name=ANSWER.partition(".")[2],
        description="Send a team the answer to its message.",
        schema_=schema,
        effect=ToolEffect.SEND,
        meanings=(Meaning(argument="team", roles=_TALKS),),
        for_house=True,
    )


def _text(about: str, **limits: JsonValue) -> Schema:
    return {"type": "string", "description": about, **limits}
