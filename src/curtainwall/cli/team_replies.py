"""Conversations with teams on the command line: their text, their JSON, and the exit code for a reply."""

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from curtainwall.channels.plain import plain
from curtainwall.cli.screen import Output, hint, note, show, show_json
from curtainwall.config.fields import show_duration
from curtainwall.library.teams import JsonObject, TeamReply
from curtainwall.model import NOBODY
from curtainwall.session import inert, visible
from curtainwall.teams.pairs import PairFigures, TeamExchange
from curtainwall.teams.tools import exchange_json

if TYPE_CHECKING:
    from curtainwall.agents.external.process import ConversationStatus

DONE, FAILED, PARKED = 0, 1, 3


def status_words(figures: PairFigures, approvals: Sequence[str]) -> str:
    """Return the status of a conversation, for the listing."""
    return "waiting for a human" if approvals else "budget used up" if figures.exhausted else figures.status


def waits_for(approvals: Sequence[str]) -> str:
    """Return what a human has to do for a conversation."""
    return f"waits for a human: {', '.join(f'`curtainwall approve {approval}`' for approval in approvals)}"


def exchange_document(exchange: TeamExchange, approvals: Sequence[str]) -> dict[str, JsonValue]:
    """Return a message and its answer; without one, what a human has to do, also for a team further on."""
    document = exchange_json(exchange)
    if not approvals or exchange.state not in ("working", "held"):
        return document
    return {**document, "status": "waiting" if exchange.state == "working" else "held", "approvals": [*approvals]}


def show_reply(reply: TeamReply, asker: str, thread: str, output: Output, reported: Collection[str] = ()) -> int:
    """Report what happened to a message; `reported` are the approvals and budgets that were already reported."""
    new_approvals = reply.approvals if output is Output.JSON else [approval for approval in reply.approvals if approval not in reported]
    # The reply names a tool; on the command line, the command named below fetches it.
    unanswered = f"{reply.team} {waits_for(new_approvals)}" if new_approvals else f"{reply.team} has not answered yet; nothing is lost"
    shortages = [*reply.exhausted, *(f"{it.session} {kind}" for it in reply.further for kind in it.kinds)]
    if any(output is Output.JSON or each not in reported for each in shortages):
        unanswered = reply.text.rpartition("; ")[0]
    text = unanswered if reply.status == "waiting" else reply.text
    code = {"done": DONE, "sent": DONE, "accepted": DONE, "waiting": PARKED}.get(reply.status, FAILED)
    if output is Output.JSON:
        further = [{"team": it.team, "session": it.session, "exhausted": it.kinds} for it in reply.further]
        extras = {
            "fault": reply.fault,
            "partial": reply.partial,
            "approvals": reply.approvals,
            "exhausted": reply.exhausted,
            "further": further,
        }
        more = {key: value for key, value in extras.items() if value}
        show_json({"team": reply.team, "handle": reply.handle, "status": reply.status, **more, "text": text})
        return code
    if reply.status == "done":
        show(plain(reply.text))
    elif code == DONE:
        show(f"{reply.status}: {reply.handle}")
    else:
        if reply.partial:
            show(plain(reply.partial))
        note(f"{reply.status}: {inert(text)}")
    if reply.status == "waiting":
        command = f"curtainwall teams history {reply.team}{conversation_options(asker, thread)}"
        hint(f"`{command}` shows the answer to {reply.handle} when it is there")
    return code


def conversation_options(asker: str, thread: str) -> str:
    """Return the options that name a conversation on the command line."""
    return f"{f' --from {shlex.quote(asker)}' if asker != NOBODY else ''}{f' --thread {shlex.quote(thread)}' if thread else ''}"


def exchange_text(document: JsonObject, at: str) -> str:
    """Return a message and its answer in full, on lines of text."""
    lines = [f"{at}  {document['handle']}  {document['by']}: {document['message']}"]
    answer, asks = document.get("answer") or document.get("reason"), document.get("approvals")
    if isinstance(asks, list):
        lines.append(f"  {waits_for([str(it) for it in asks])}")
    elif "exhausted" in document:
        lines.append("  begun, and a budget is used up")
    elif "further" in document:
        lines.append("  begun, and a budget is used up of a team that it waits for")
    elif document["status"] == "begun":
        lines.append("  begun, and nobody works on it now")
    else:
        lines.append(f"  {document['status']}{f': {answer}' if answer else ''}")
        if partial := document.get("partial"):
            lines.append(f"  said before: {partial}")
    return "\n".join(visible(line) for line in lines)


def sum_figures(figures: list[PairFigures]) -> dict[str, float]:
    """Return the totals of all conversations."""
    messages = sum(it.messages for it in figures)
    return {
        "messages": messages,
        "average": messages / len(figures) if figures else 0.0,
        "tokens": sum(it.tokens for it in figures),
        "dollars": round(sum(it.dollars for it in figures), 6),
        "lifetime": sum((it.used - it.created) / 1000 for it in figures) / len(figures) if figures else 0.0,
    }


def transcript_json(status: "ConversationStatus | None") -> dict[str, object]:
    """Return the state of an agent's own conversation, if it has one."""
    if status is None:
        return {}
    return {"transcript": {"id": status.conversation, "state": status.state, "why": status.why, "unclaimed": len(status.orphans)}}


def lifetime(figures: PairFigures) -> str:
    """Return how long a conversation has lasted so far."""
    return show_duration((figures.used - figures.created) / 1000)
