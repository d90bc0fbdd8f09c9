"""`curtainwall teams`: ask teams, tell them something, and see how their conversations go."""

import asyncio
import math
import shlex
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import JsonValue

from curtainwall.channels.plain import counted
from curtainwall.cli.screen import Misuse, Output, OutputOption, columns, note, show, show_json, timestamp
from curtainwall.cli.teams_import import import_teams
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.store import is_served
from curtainwall.config.agents import LOCAL
from curtainwall.config.fields import parse_duration, show_duration
from curtainwall.host.home import find_home
from curtainwall.host.user import when
from curtainwall.library.teams import JsonObject, TeamReply, Teams, approvals_along, is_worked_on, open_approvals, open_teams
from curtainwall.model import NOBODY, CurtainwallError
from curtainwall.session import inert
from curtainwall.teams.callers import require_team
from curtainwall.teams.pairs import Pair, PairFigures, TeamExchange, shortage_text
from curtainwall.teams.tools import exchange_json, figures_json

if TYPE_CHECKING:
    from curtainwall.agents.external.process import ConversationStatus, StoredConversation

app = typer.Typer()

DONE, FAILED, PARKED = 0, 1, 3
T = TypeVar("T")
_NOBODY_WORKS = "nobody works for the teams now: `curtainwall serve` does, and so does whoever runs `curtainwall teams ask` next"

TeamArgument = Annotated[str, typer.Argument(metavar="TEAM", help="as in `[teams.TEAM]`")]
FromOption = Annotated[str, typer.Option("--from", metavar="TEAM", help="the team that asks; left out, nobody")]
ThreadOption = Annotated[str, typer.Option(metavar="NAME", help="a conversation of its own; left out, the main one")]
MessageArgument = Annotated[list[str], typer.Argument(metavar="MESSAGE", help="what to tell the team")]


@app.command("list")
def list_teams(output: OutputOption = Output.TEXT) -> None:
    """List the teams, their conversations, and how these go."""
    setup = load_setup()
    teams = setup.config.teams

    async def look() -> tuple[list[PairFigures], dict[str, "ConversationStatus"], dict[str, tuple[str, ...]], bool]:
        async with open_gate(setup) as wired:
            told = wired.teams.talk.figures()
            # Only there to be quicker the next time: a disk that takes nothing is no reason not to tell.
            with suppress(CurtainwallError, OSError):
                await wired.teams.archive.keep_sums(wired.teams.talk.sums)
            is_idle = any(it.open and not is_worked_on(wired, it.session) for it in told)
            return told, _standings(wired), {it.session: open_approvals(wired, it.session) for it in told}, is_idle

    told, standings, asks, is_idle = asyncio.run(look()) if setup.home.database.exists() else ([], {}, {}, False)
    if output is Output.JSON:
        cards = [
            {
                "team": name,
                "project": team.project,
                "agent": team.agent,
                "description": team.description,
                "askers": team.askers,
                "colour": team.colour,
            }
            for name, team in sorted(teams.items())
        ]
        pairs = [{**figures_json(it), "approvals": asks[it.session], **_transcript_json(standings.get(it.session))} for it in told]
        show_json({"teams": cards, "conversations": pairs, "totals": _totals(told)})
        return
    if not teams:
        note("no team is configured; write `[teams.NAME]` into the configuration, or `curtainwall teams import FILE`")
        return
    rows = [(name, team.agent, team.mode.value, team.project, team.description) for name, team in sorted(teams.items())]
    show(columns(("team", "agent", "mode", "project", "about"), rows))
    for name, team in sorted(teams.items()):
        if not Path(team.project).expanduser().is_dir():
            note(f"{name}: `{inert(team.project)}` is no directory here; the team can be asked once it is")
    if told:
        show("")
        status = {it.session: _status(it, asks[it.session]) for it in told}
        pairs = [(it.pair, status[it.session], it.messages, it.open, it.tokens, _lifetime(it), when(it.used)) for it in told]
        show(columns(("conversation", "status", "messages", "open", "tokens", "lifetime", "last used"), pairs))
        totals = _totals(told)
        show("")
        many, talks = counted(int(totals["messages"]), "message"), counted(len(told), "conversation")
        show(f"{many} in {talks}, {totals['average']:.1f} each, {totals['tokens']} tokens")
    for it in told:
        if asks[it.session]:
            note(f"{inert(str(it.pair))} {_waits_for(asks[it.session])}")
        if it.exhausted:
            note(f"{inert(str(it.pair))} waits, {shortage_text(it.session, it.exhausted)}")
        stands = standings.get(it.session)
        if stands is not None and stands.state == "broken":
            note(f"{inert(str(it.pair))}: the agent's conversation is lost ({stands.why}); the next message begins a new one")
    if is_idle:
        note(_NOBODY_WORKS)


@app.command()
def ask(
    team: TeamArgument,
    question: MessageArgument,
    asker: FromOption = "",
    thread: ThreadOption = "",
    timeout: Annotated[str, typer.Option(metavar="TIME", help="how long to wait, as `90s` or `5m`; left out, as `peers.wait` says")] = "",
    output: OutputOption = Output.TEXT,
) -> int:
    """Ask a team and print its answer; whoever asks again is remembered.

    Exit codes: 0 answered, 1 no answer will come, 3 it takes longer (the message says how to fetch it).
    """
    wait, text = _seconds(timeout), _message(question)

    known: set[str] = set()

    async def asked(teams: Teams) -> TeamReply:
        tellers = (_report_approvals(teams, team, thread, known), _report_shortages(teams, team, thread, known))
        watching = [asyncio.create_task(each) for each in tellers]
        try:
            async with teams.leaving():
                return await teams.ask(team, text, thread=thread, wait=wait)
        finally:
            for each in watching:
                each.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    return _tell(_with(asker, asked), asker, thread, output, known)


@app.command()
def send(
    team: TeamArgument, message: MessageArgument, asker: FromOption = "", thread: ThreadOption = "", output: OutputOption = Output.TEXT
) -> int:
    """Send a team a message and do not wait; `teams history` shows the answer when it is there."""
    text = _message(message)
    return _sent(_with(asker, lambda teams: teams.send(team, text, thread=thread), works=False), asker, thread, output)


@app.command()
def notify(
    team: TeamArgument,
    message: MessageArgument,
    asker: FromOption = "",
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
    asker: FromOption = "",
    thread: ThreadOption = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="only so many last messages")] = 50,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a conversation with a team: every message, its handle, and its answer."""
    setup = load_setup()
    _require_teams(setup, team, asker)

    async def look() -> tuple[list[tuple[TeamExchange, dict[str, JsonValue]]], str]:
        async with open_gate(setup) as wired:
            pair = Pair(asker=asker or NOBODY, team=team, thread=thread)
            session = wired.teams.talk.session_of(pair)
            if session is None:
                return [], ""
            asks, worked_on = approvals_along(wired, wired.teams.talk.chain(pair)), is_worked_on(wired, session)
            found, short = wired.teams.talk.exchanges(pair)[-limit:], wired.teams.talk.shortages(pair)
            told = [(it, _exchange_document(it, asks, worked_on=worked_on)) for it in found]
            if short:
                return told, inert("; ".join(map(str, short)))
            return told, _NOBODY_WORKS if not worked_on and any(it.is_open for it in found) else ""

    told, more = asyncio.run(look()) if setup.home.database.exists() else ([], "")
    if output is Output.JSON:
        show_json([it for _, it in told])
        return
    if not told:
        begins = inert(f"curtainwall teams ask {team}{_options(asker, thread)}")
        note(f"there is no such conversation with `{inert(team)}` yet; `{begins} …` begins one")
    for each, it in told:
        show(_exchange(it, when(each.at)))
    if more:
        note(more)


@app.command()
def adopt(
    team: TeamArgument,
    conversation: Annotated[str, typer.Argument(metavar="[ID]", help="left out, those that could be adopted are listed")] = "",
    asker: FromOption = "",
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

    pair, setup = Pair(asker=asker or NOBODY, team=team, thread=thread), load_setup()
    _require_teams(setup, team, asker)

    async def do() -> Sequence["StoredConversation"]:
        async with open_gate(setup) as wired:
            if conversation:
                await adopt(wired.teams, pair, conversation, file, is_clean=clean)
                return ()
            return adoptable_conversations(wired.teams, pair)

    found = asyncio.run(do())
    told = [{"id": it.conversation, "file": str(it.path), "size": it.size, "changed": timestamp(int(it.changed * 1000))} for it in found]
    if output is Output.JSON:
        show_json({"adopted": conversation} if conversation else told)
    elif conversation:
        show(f"{pair} goes on with {conversation}")
    elif told:
        rows = [(it.conversation, when(int(it.changed * 1000)), it.size, it.path) for it in found]
        show(columns(("conversation", "changed", "bytes", "file"), rows))
    else:
        note(f"there is no conversation that `{inert(str(pair))}` could adopt; name one with its ID and --file")


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="a `teams.json` of Iris")], output: OutputOption = Output.TEXT
) -> None:
    """Take over the teams of a `teams.json`, served by Claude Code as there; what it permits is not taken over."""
    home = find_home()
    taken = import_teams(home.config, source)
    if output is Output.JSON:
        show_json([{"team": team.name, **team.settings, "notes": list(team.notes)} for team in taken.teams])
        return
    for words in taken.notes:
        note(inert(words))
    for team in taken.teams:
        show(f"{inert(team.name)}: {inert(str(team.settings['project']))}")
        for words in team.notes:
            note(f"  {inert(words)}")
    note(f"added to {home.config}; `curtainwall teams list` shows all")


def _require_teams(setup: Setup, *teams: str) -> None:
    for team in teams:
        if team not in ("", NOBODY):
            require_team(team, setup.config.teams)


def _message(words: list[str]) -> str:
    text = " ".join(words)
    if not text.strip():
        raise Misuse("the message is empty; say what to tell the team")
    return text


def _sent(reply: TeamReply, asker: str, thread: str, output: Output) -> int:
    """Tell what became of a message that nobody waits for, and who works on it where nobody does now."""
    code = _tell(reply, asker, thread, output)
    if code == DONE and not is_served(find_home()):
        note(_NOBODY_WORKS)
    return code


def _with(asker: str, do: Callable[[Teams], Awaitable[T]], *, works: bool = True) -> T:
    async def run() -> T:
        async with open_teams(asker, works=works) as teams:
            return await do(teams)

    return asyncio.run(run())


async def _report_approvals(teams: Teams, team: str, thread: str, known: set[str]) -> None:
    async for approval in teams.new_approvals(team, thread=thread):
        known.add(approval)
        note(f"{inert(team)} {_waits_for((approval,))}")


async def _report_shortages(teams: Teams, team: str, thread: str, known: set[str]) -> None:
    async for short in teams.new_shortages(team, thread=thread):
        known.update(short.kinds if short.team == team else [f"{short.session} {kind}" for kind in short.kinds])
        note(inert(str(short)))


def _status(told: PairFigures, approvals: Sequence[str]) -> str:
    return "waiting for a human" if approvals else "budget used up" if told.exhausted else told.status


def _waits_for(approvals: Sequence[str]) -> str:
    return f"waits for a human: {', '.join(f'`curtainwall approve {approval}`' for approval in approvals)}"


def _exchange_document(exchange: TeamExchange, approvals: Sequence[str], *, worked_on: bool) -> dict[str, JsonValue]:
    """Return a message and its answer, and where there is none yet, what a human has to do, or that nobody works on it now."""
    told = exchange_json(exchange)
    if approvals and exchange.state in ("working", "held"):
        return {**told, "approvals": [*approvals]}
    return {**told, "status": "begun"} if exchange.state == "working" and not worked_on else told


def _tell(reply: TeamReply, asker: str, thread: str, output: Output, known: Collection[str] = ()) -> int:
    """Tell what became of a message; `known` is what a human was told to answer, or to allow more of, already."""
    news = reply.approvals if output is Output.JSON else [approval for approval in reply.approvals if approval not in known]
    # The reply names a tool; from here it is fetched by a command, which is named below.
    unanswered = f"{reply.team} {_waits_for(news)}" if news else f"{reply.team} has not answered yet; nothing is lost"
    short = [*reply.exhausted, *(f"{it.session} {kind}" for it in reply.further for kind in it.kinds)]
    if any(output is Output.JSON or each not in known for each in short):
        unanswered = reply.text.rpartition("; ")[0]
    text = unanswered if reply.status == "waiting" else reply.text
    code = {"done": DONE, "sent": DONE, "accepted": DONE, "waiting": PARKED}.get(reply.status, FAILED)
    if output is Output.JSON:
        further = [{"team": it.team, "session": it.session, "exhausted": it.kinds} for it in reply.further]
        extras = {"fault": reply.fault, "approvals": reply.approvals, "exhausted": reply.exhausted, "further": further}
        more = {key: value for key, value in extras.items() if value}
        show_json({"team": reply.team, "handle": reply.handle, "status": reply.status, **more, "text": text})
        return code
    if reply.status == "done":
        show(reply.text)
    elif code == DONE:
        show(f"{reply.status}: {reply.handle}")
    else:
        note(f"{reply.status}: {inert(text)}")
    if reply.status == "waiting":
        note(f"`curtainwall teams history {reply.team}{_options(asker, thread)}` shows the answer to {reply.handle} when it is there")
    return code


def _options(asker: str, thread: str) -> str:
    """Return what names a conversation on the command line."""
    return f"{f' --from {shlex.quote(asker)}' if asker else ''}{f' --thread {shlex.quote(thread)}' if thread else ''}"


def _exchange(told: JsonObject, at: str) -> str:
    lines = [f"{at}  {told['handle']}  {told['by']}: {told['message']}"]
    answer, asks = told.get("answer") or told.get("reason"), told.get("approvals")
    if isinstance(asks, list):
        lines.append(f"  {_waits_for([str(it) for it in asks])}")
    elif "exhausted" in told:
        lines.append("  begun, and a budget is used up")
    elif "further" in told:
        lines.append("  begun, and a budget is used up of a team that it waits for")
    elif told["status"] == "begun":
        lines.append("  begun, and nobody works on it now")
    else:
        lines.append(f"  {told['status']}{f': {answer}' if answer else ''}")
    return "\n".join(inert(line) for line in lines)


def _totals(told: list[PairFigures]) -> dict[str, float]:
    messages = sum(it.messages for it in told)
    return {
        "messages": messages,
        "average": messages / len(told) if told else 0.0,
        "tokens": sum(it.tokens for it in told),
        "dollars": round(sum(it.dollars for it in told), 6),
        "lifetime": sum((it.used - it.created) / 1000 for it in told) / len(told) if told else 0.0,
    }


def _standings(wired: GatedSessions) -> dict[str, "ConversationStatus"]:
    if not any(team.agent == LOCAL for team in wired.setup.config.teams.values()):
        return {}
    # Start-up time: local agents take long to load.
    from curtainwall.teams.adoption import recent_on_disk

    return {str(told.session): told.standing for told in recent_on_disk(wired.teams)}


def _transcript_json(stands: "ConversationStatus | None") -> dict[str, object]:
    if stands is None:
        return {}
    return {"transcript": {"id": stands.conversation, "state": stands.state, "why": stands.why, "unclaimed": len(stands.orphans)}}


def _lifetime(told: PairFigures) -> str:
    return show_duration((told.used - told.created) / 1000)


def _seconds(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(parse_duration(text))
    except ValueError as fault:
        raise Misuse(f"--timeout: {fault}") from None
