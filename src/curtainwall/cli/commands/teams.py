"""`curtainwall teams`: ask teams, send them messages, and follow their conversations."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import JsonValue

from curtainwall.channels.plain import counted
from curtainwall.cli.screen import Misuse, Output, OutputOption, columns, hint, note, show, show_json, timestamp
from curtainwall.cli.team_replies import (
    DONE,
    conversation_options,
    exchange_document,
    exchange_text,
    lifetime,
    show_reply,
    status_words,
    sum_figures,
    transcript_json,
    waits_for,
)
from curtainwall.cli.teams_import import import_teams
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.store import is_served
from curtainwall.config.agents import LOCAL
from curtainwall.config.fields import parse_duration
from curtainwall.host.home import find_home
from curtainwall.host.user import when
from curtainwall.library.teams import TeamReply, Teams, approvals_along, is_worked_on, open_approvals, open_teams
from curtainwall.model import NOBODY, CurtainwallError, SessionId
from curtainwall.session import inert
from curtainwall.teams.callers import require_team
from curtainwall.teams.pairs import Pair, PairFigures, TeamExchange, shortage_text
from curtainwall.teams.tools import figures_json

if TYPE_CHECKING:
    from curtainwall.agents.external.process import ConversationStatus, StoredConversation

app = typer.Typer()

T = TypeVar("T")
_NOBODY_WORKS = "nobody works for the teams now: `curtainwall serve` does, and so does whoever runs `curtainwall teams ask` next"

TeamArgument = Annotated[str, typer.Argument(metavar="TEAM", help="as in `[teams.TEAM]`")]


def _require_asker(asker: str) -> str:
    if not asker.strip():
        raise Misuse("--from: the name of the team is empty; leave the option out to ask as nobody")
    return asker


def _require_name(name: str | None) -> str | None:
    if name is not None and not name.strip():
        raise Misuse("the name of the team is empty; leave the option out to list all")
    return name


FromOption = Annotated[
    str, typer.Option("--from", metavar="TEAM", callback=_require_asker, show_default=False, help="the team that asks; left out, nobody")
]
ThreadOption = Annotated[str, typer.Option(metavar="NAME", help="a conversation of its own; left out, the main one")]
MessageArgument = Annotated[list[str], typer.Argument(metavar="MESSAGE", help="what to tell the team")]


class ListedStatus(StrEnum):
    """How a conversation goes."""

    ACTIVE = "active"
    COMPACT_PENDING = "compact-pending"
    ARCHIVED = "archived"
    OPEN = "open"
    WAITING = "waiting"
    EXHAUSTED = "exhausted"


@app.command("list")
def list_teams(
    team: Annotated[str | None, typer.Option(metavar="TEAM", callback=_require_name, help="only this team and its conversations")] = None,
    asker: Annotated[
        str | None,
        typer.Option("--from", metavar="TEAM", callback=_require_name, help="only conversations that this team began, or `nobody`"),
    ] = None,
    status: Annotated[
        ListedStatus | None,
        typer.Option(help="only such conversations: `open` have a message without an answer, `waiting` wait for a human"),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the teams, their conversations, and how these go."""
    setup = load_setup()
    _require_teams(setup, *filter(None, (team, asker)))
    teams = {name: section for name, section in setup.config.teams.items() if team in (None, name)}

    async def look() -> tuple[list[PairFigures], dict[str, "ConversationStatus"], dict[SessionId, tuple[str, ...]], bool]:
        async with open_gate(setup) as wired:
            figures = wired.teams.talk.figures(asker)
            # This only speeds up the next listing, so a full or read-only disk must not prevent this one.
            with suppress(CurtainwallError, OSError):
                if not asker:
                    await wired.teams.archive.keep_sums(wired.teams.talk.sums)
            asks = {it.session: open_approvals(wired, it.session) for it in figures if team in (None, it.pair.team)}
            figures = [it for it in figures if it.session in asks and (status is None or _has_status(it, asks[it.session], status))]
            is_idle = any(it.open and not is_worked_on(wired, it.session) for it in figures)
            return figures, _standings(wired), asks, is_idle

    figures, transcripts, asks, is_idle = asyncio.run(look()) if setup.home.database.exists() else ([], {}, {}, False)
    if output is Output.JSON:
        cards = [
            {
                "team": name,
                "project": section.project,
                "agent": section.agent,
                "description": section.description,
                "askers": section.askers,
                "colour": section.colour,
            }
            for name, section in sorted(teams.items())
        ]
        conversations = [
            {**figures_json(it), "approvals": asks[it.session], **transcript_json(transcripts.get(it.session))} for it in figures
        ]
        show_json({"teams": cards, "conversations": conversations, "totals": sum_figures(figures)})
        return
    if not teams:
        hint("no team is configured; write `[teams.NAME]` into the configuration, or `curtainwall teams import FILE`")
        return
    rows = [(name, it.agent, it.mode.value, it.project, it.description) for name, it in sorted(teams.items())]
    show(columns(("team", "agent", "mode", "project", "about"), rows))
    for name, section in sorted(teams.items()):
        if not Path(section.project).expanduser().is_dir():
            note(f"{name}: `{inert(section.project)}` is no directory here; the team can be asked once it is")
    if figures:
        show("")
        conversations = [
            (it.pair, status_words(it, asks[it.session]), it.messages, it.open, it.tokens, lifetime(it), when(it.used)) for it in figures
        ]
        show(columns(("conversation", "status", "messages", "open", "tokens", "lifetime", "last used"), conversations))
        totals = sum_figures(figures)
        show("")
        messages_text, conversations_text = counted(int(totals["messages"]), "message"), counted(len(figures), "conversation")
        show(f"{messages_text} in {conversations_text}, {totals['average']:.1f} each, {totals['tokens']} tokens")
    for it in figures:
        if asks[it.session]:
            note(f"{inert(str(it.pair))} {waits_for(asks[it.session])}")
        if it.exhausted:
            note(f"{inert(str(it.pair))} waits, {shortage_text(it.session, it.exhausted)}")
        transcript = transcripts.get(it.session)
        if transcript is not None and transcript.state == "broken":
            note(f"{inert(str(it.pair))}: the agent's conversation is lost ({transcript.why}); the next message begins a new one")
    if is_idle:
        hint(_NOBODY_WORKS)


@app.command()
def ask(
    team: TeamArgument,
    question: MessageArgument,
    asker: FromOption = NOBODY,
    thread: ThreadOption = "",
    timeout: Annotated[str, typer.Option(metavar="TIME", help="how long to wait, as `90s` or `5m`; left out, as `peers.wait` says")] = "",
    output: OutputOption = Output.TEXT,
) -> int:
    """Ask a team and print its answer; whoever asks again is remembered.

    Exit codes: 0 answered, 1 no answer will come, 3 it takes longer (the message says how to fetch it).
    """
    wait, text = _seconds(timeout), _message(question)

    reported: set[str] = set()

    async def ask_team(teams: Teams) -> TeamReply:
        reports = (_report_approvals(teams, team, thread, reported), _report_shortages(teams, team, thread, reported))
        tasks = [asyncio.create_task(task) for task in reports]
        try:
            async with teams.leaving():
                return await teams.ask(team, text, thread=thread, wait=wait)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return show_reply(_with(asker, ask_team), asker, thread, output, reported)


@app.command()
def send(
    team: TeamArgument, message: MessageArgument, asker: FromOption = NOBODY, thread: ThreadOption = "", output: OutputOption = Output.TEXT
) -> int:
    """Send a team a message and do not wait; `teams history` shows the answer when it is there."""
    text = _message(message)
    return _sent(_with(asker, lambda teams: teams.send(team, text, thread=thread), works=False), asker, thread, output)


@app.command()
def notify(
    team: TeamArgument,
    message: MessageArgument,
    asker: FromOption = NOBODY,
    thread: ThreadOption = "",
    days: Annotated[float | None, typer.Option(help="for how many days it may wait; left out, as `peers.notice-days` says")] = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Tell a team something; it is delivered exactly once, as soon as an agent works for the team."""
    text = _message(message)
    if days is not None and not math.isfinite(days):
        raise Misuse("--days: write a number of days, as `7` or `0.5`")
    return _sent(_with(asker, lambda teams: teams.notify(team, text, thread=thread, days=days), works=False), asker, thread, output)


@app.command()
def history(
    team: TeamArgument,
    asker: FromOption = NOBODY,
    thread: ThreadOption = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="only so many last messages")] = 50,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a conversation with a team: every message, its handle, and its answer."""
    setup = load_setup()
    _require_teams(setup, team, asker)

    async def look() -> tuple[list[tuple[TeamExchange, dict[str, JsonValue]]], str]:
        async with open_gate(setup) as wired:
            pair = Pair(asker=asker, team=team, thread=thread)
            session = wired.teams.talk.session_of(pair)
            if session is None:
                return [], ""
            asks, worked_on = approvals_along(wired, wired.teams.talk.chain(pair)), is_worked_on(wired, session)
            exchanges, shortages = wired.teams.talk.exchanges(pair)[-limit:], wired.teams.talk.shortages(pair)
            entries = [(it, exchange_document(it, asks)) for it in exchanges]
            if shortages:
                return entries, inert("; ".join(map(str, shortages)))
            return entries, _NOBODY_WORKS if not worked_on and any(it.is_open for it in exchanges) else ""

    entries, remark = asyncio.run(look()) if setup.home.database.exists() else ([], "")
    if output is Output.JSON:
        show_json([it for _, it in entries])
        return
    if not entries:
        command = inert(f"curtainwall teams ask {team}{conversation_options(asker, thread)}")
        hint(f"there is no such conversation with `{inert(team)}` yet; `{command} …` begins one")
    for each, it in entries:
        show(exchange_text(it, when(each.at)))
    if remark:
        note(remark)


@app.command()
def cancel(
    team: TeamArgument,
    handle: Annotated[str, typer.Argument(metavar="[HANDLE]", help="left out, the newest message without an answer")] = "",
    asker: FromOption = NOBODY,
    thread: ThreadOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Take a message back, or stop the work on it."""
    cancelled = _with(asker, lambda teams: teams.cancel(team, handle or None, thread=thread), works=False)
    _done(team, "cancelled", output, handle=cancelled)


@app.command()
def fork(
    team: TeamArgument,
    new_thread: Annotated[str, typer.Argument(metavar="NEW", help="the name of the new thread")],
    asker: FromOption = NOBODY,
    thread: ThreadOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Begin another conversation that knows what this one does."""
    if not new_thread.strip():
        raise Misuse("the name of the new thread is empty")
    _with(asker, lambda teams: teams.fork(team, new_thread, thread=thread), works=False)
    _done(team, "forked", output, thread=new_thread)


@app.command()
def compact(
    team: TeamArgument,
    instructions: Annotated[list[str] | None, typer.Argument(metavar="[INSTRUCTIONS]", help="what the summary should keep")] = None,
    asker: FromOption = NOBODY,
    thread: ThreadOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Ask for a summary in place of the older messages of a conversation."""
    _with(asker, lambda teams: teams.compact(team, " ".join(instructions or ()), thread=thread), works=False)
    _done(team, "compact-pending", output)
    if not is_served(find_home()):
        note(_NOBODY_WORKS)


@app.command()
def wake(team: TeamArgument, asker: FromOption = NOBODY, thread: ThreadOption = "", output: OutputOption = Output.TEXT) -> None:
    """Get a team's agent ready in the process that works for the teams."""
    _done(team, _with(asker, lambda teams: teams.wake(team, thread=thread), works=False), output)


@app.command()
def sleep(team: TeamArgument, asker: FromOption = NOBODY, thread: ThreadOption = "", output: OutputOption = Output.TEXT) -> None:
    """Let a team's agent rest, unless it is at work; the next message starts it again."""
    _done(team, _with(asker, lambda teams: teams.sleep(team, thread=thread), works=False), output)


@app.command()
def archive(team: TeamArgument, asker: FromOption = NOBODY, thread: ThreadOption = "", output: OutputOption = Output.TEXT) -> None:
    """Archive a conversation and free its space; the next message brings it back."""
    _done(team, _with(asker, lambda teams: teams.archive(team, thread=thread), works=False), output)


@app.command()
def adopt(
    team: TeamArgument,
    conversation: Annotated[str, typer.Argument(metavar="[ID]", help="left out, those that could be adopted are listed")] = "",
    asker: FromOption = NOBODY,
    thread: ThreadOption = "",
    file: Annotated[Path | None, typer.Option(help="the transcript, where it lies elsewhere; it is copied")] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="nothing sensitive was read in it; left out, it counts as if something was")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let a team that Claude Code serves go on with a conversation: one that lost its log, or one of your own in the project."""
    # Start-up time: local agents take long to load.
    from curtainwall.teams.adoption import adopt, adoptable_conversations

    pair, setup = Pair(asker=asker, team=team, thread=thread), load_setup()
    _require_teams(setup, team, asker)

    async def do() -> Sequence["StoredConversation"]:
        async with open_gate(setup) as wired:
            if conversation:
                await adopt(wired.teams, pair, conversation, file, is_clean=clean)
                return ()
            return adoptable_conversations(wired.teams, pair)

    conversations = asyncio.run(do())
    documents = [
        {"id": it.conversation, "file": str(it.path), "size": it.size, "changed": timestamp(int(it.changed * 1000))} for it in conversations
    ]
    if output is Output.JSON:
        show_json({"adopted": conversation} if conversation else documents)
    elif conversation:
        show(f"{pair} goes on with {conversation}")
    elif documents:
        rows = [(it.conversation, when(int(it.changed * 1000)), it.size, it.path) for it in conversations]
        show(columns(("conversation", "changed", "bytes", "file"), rows))
    else:
        note(f"there is no conversation that `{inert(str(pair))}` could adopt; name one with its ID and --file")


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="a `teams.json` of Iris")], output: OutputOption = Output.TEXT
) -> None:
    """Take over the teams of a `teams.json`, served by Claude Code as there; what it permits is not taken over."""
    home = find_home()
    imported = import_teams(home.config, source)
    if output is Output.JSON:
        show_json([{"team": team.name, **team.settings, "notes": list(team.notes)} for team in imported.teams])
        return
    for text in imported.notes:
        note(inert(text))
    for team in imported.teams:
        show(f"{inert(team.name)}: {inert(str(team.settings['project']))}")
        for text in team.notes:
            note(f"  {inert(text)}")
    hint(f"added to {home.config}; `curtainwall teams list` shows all")


def _require_teams(setup: Setup, *teams: str) -> None:
    for team in teams:
        if team not in ("", NOBODY):
            require_team(team, setup.config.teams)


def _message(words: list[str]) -> str:
    text = " ".join(words)
    if not text.strip():
        raise Misuse("the message is empty; say what to tell the team")
    return text


def _done(team: str, status: str, output: Output, **more: str) -> None:
    """Report what was done with a conversation."""
    if output is Output.JSON:
        show_json({"team": team, **more, "status": status})
    else:
        show(inert(": ".join((status, *more.values()))))


def _sent(reply: TeamReply, asker: str, thread: str, output: Output) -> int:
    """Report what happened to a message that nobody waits for, and who will work on it if nobody does now."""
    code = show_reply(reply, asker, thread, output)
    if code == DONE and not is_served(find_home()):
        hint(_NOBODY_WORKS)
    return code


def _with(asker: str, do: Callable[[Teams], Awaitable[T]], *, works: bool = True) -> T:
    async def run() -> T:
        async with open_teams("" if asker == NOBODY else asker, works=works) as teams:
            return await do(teams)

    return asyncio.run(run())


async def _report_approvals(teams: Teams, team: str, thread: str, reported: set[str]) -> None:
    async for approval in teams.new_approvals(team, thread=thread):
        reported.add(approval)
        note(f"{inert(team)} {waits_for((approval,))}")


async def _report_shortages(teams: Teams, team: str, thread: str, reported: set[str]) -> None:
    async for shortage in teams.new_shortages(team, thread=thread):
        reported.update(shortage.kinds if shortage.team == team else [f"{shortage.session} {kind}" for kind in shortage.kinds])
        note(inert(str(shortage)))


def _has_status(figures: PairFigures, approvals: Sequence[str], status: ListedStatus) -> bool:
    match status:
        case ListedStatus.OPEN:
            return bool(figures.open)
        case ListedStatus.WAITING:
            return bool(approvals)
        case ListedStatus.EXHAUSTED:
            return bool(figures.exhausted)
        case _:
            return figures.status == status.value


def _standings(wired: GatedSessions) -> dict[str, "ConversationStatus"]:
    if not any(team.agent == LOCAL for team in wired.setup.config.teams.values()):
        return {}
    # Start-up time: local agents take long to load.
    from curtainwall.teams.adoption import recent_on_disk

    return {str(conversation.session): conversation.standing for conversation in recent_on_disk(wired.teams)}


def _seconds(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(parse_duration(text))
    except ValueError as fault:
        raise Misuse(f"--timeout: {fault}") from None
