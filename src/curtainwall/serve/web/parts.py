"""The ports of the web pages: rules to try calls with, new sessions, records, jobs and teams."""

import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast

from pydantic import JsonValue

from curtainwall.channels.cron import FiringRow, JobHistories, JobRow, firing_rows, job_rows
from curtainwall.channels.status import HealthNow
from curtainwall.channels.web import CallTrial, CallTrialResult, HealthFinding, NewSession, Spending, TeamSummary
from curtainwall.compose.agents import RunningAgents, default_mode, default_model_of
from curtainwall.compose.gate import GatedSessions
from curtainwall.compose.setup import Setup
from curtainwall.compose.tools import judging_tools
from curtainwall.compose.trial import INVALID, Judge, TrialResult, explain_trial, judge_for
from curtainwall.config.agents import model_for
from curtainwall.config.web_people import WEB
from curtainwall.facts import read_json
from curtainwall.host.files.tail import lines_backwards
from curtainwall.model import (
    BadCall,
    Basis,
    CommandRefused,
    CurtainwallError,
    DecidingRule,
    Log,
    Millis,
    Mode,
    ModelFailed,
    ModelResponded,
    NotFound,
    Opened,
    Payload,
    Route,
    RuleStatus,
    SessionId,
    SessionQuery,
    Usage,
    Who,
    Workspace,
    denial,
    session_stream,
)
from curtainwall.policy import RuleCard
from curtainwall.runtime.results import load
from curtainwall.serve.firings import JobFirings
from curtainwall.serve.jobs import jobs_in, status_in
from curtainwall.session import lift
from curtainwall.teams.chains import Chain
from curtainwall.teams.pairs import Pair, PairFigures

_COUNTED = frozenset({"ModelResponded", "ModelFailed"})
_EVERY_SESSION = 1_000_000
_LINE_START = re.compile(rb'\{"seq":\d+,"at":"([0-9T:.Z-]{1,40})"')


class WebRuleTrials:
    """The rules currently in force."""

    def __init__(self, setup: Callable[[], Setup]) -> None:
        self._setup = setup

    def rules(self) -> Sequence[RuleStatus]:
        """Return every rule in force with its general status."""
        setup = self._setup()
        own = (_standing_of(card, f"only for {whose}") for card, whose in setup.own_cards.items())
        return [*map(_standing_of, setup.policy.rules), *own]

    def warnings(self) -> Sequence[str]:
        """Return warnings about the rules for their readers."""
        return self._setup().warnings

    def tools(self) -> Sequence[str]:
        """Return the names of all tools."""
        return sorted(spec.full_name for spec in judging_tools(self._setup()).listing())

    def try_call(self, trial: CallTrial) -> CallTrialResult:
        """Return what the rules say about a call, whatever it contains; nothing is run."""
        setup = self._setup()
        judge = judge_for(setup, self._workspace(setup, trial.project), trial.mode, frozenset(trial.labels))
        ruling = _ruling(judge, trial)
        explanation = explain_trial(setup, judge, ruling, trial.tool)
        subject = ruling.subject
        return CallTrialResult(
            effect=ruling.verdict.effect,
            reason=ruling.verdict.reason,
            resources=tuple((resource.role.value, resource.value) for resource in subject.resources) if subject else (),
            rules=tuple(map(_deciding_rule, explanation.rules)),
            facts=explanation.facts,
            labels=explanation.labels,
            changes=explanation.changes,
        )

    def _workspace(self, setup: Setup, project: str) -> Workspace:
        if not project:
            return Workspace(path=str(setup.home.sessions / "check" / "workspace"), own=True)
        return setup.workspace_at(_directory(project), own=False)


class WebSessionStarter:
    """Starts sessions from the web, which continue in this process."""

    def __init__(self, work: RunningAgents) -> None:
        self._work = work

    async def begin(self, request: NewSession, by: Who) -> Opened:
        """Open a session whose agent works here; raise a refusal that says what is wrong with the request."""
        usual = self._work.desk.usual
        workspace = _directory(request.workspace) if request.workspace else None
        here, agent = Route(channel=WEB, reference=by.name), request.agent or usual.agent
        config = self._work.wired.setup.config
        is_usual = request.mode is Mode.DEFAULT and config.sessions.mode is None
        mode = default_mode(config, agent, workspace) if is_usual else request.mode
        spec = replace(
            usual,
            agent=agent,
            model=request.model or self._model_of(agent),
            workspace=workspace,
            name=request.name,
            mode=mode,
            routes=(here,),
        )
        opened = await self._work.desk.begin(spec, by)
        note = f"`{workspace}` is given to `{agent}`, which can read and change everything in it without asking"
        return Opened(session=opened.session, notes=(note,) if mode is not request.mode else ())

    def _model_of(self, agent: str) -> str:
        wired, usual = self._work.wired, self._work.desk.usual
        return usual.model if agent == usual.agent else model_for(wired.setup.config.agents, agent, default_model_of(wired))

    def attend(self, session: SessionId) -> None:
        """Let the session's agent continue here, unless another process already runs it."""
        self._work.turns.attend(session)

    def models(self) -> Sequence[str]:
        """Return the models to choose from, the default first."""
        configured = (f"{name}:{model.model}" for name, model in self._work.wired.setup.config.models.items() if model.model)
        return tuple(dict.fromkeys((self._work.desk.usual.model, *configured, "demo")))

    def mode(self) -> Mode:
        """Return the mode that is chosen unless somebody says otherwise."""
        return self._work.wired.setup.config.sessions.mode or Mode.DEFAULT

    def agents(self) -> Sequence[str]:
        """Return the agents to choose from, the default first."""
        return tuple(dict.fromkeys((self._work.desk.usual.agent, *self._work.agents.names)))


class WebRecords:
    """Stored records, read from the log and the files beside it."""

    def __init__(self, wired: GatedSessions, health: HealthNow) -> None:
        self._wired = wired
        self._health = health
        self._spent = SpendingByDay(wired.store.log)

    def audit(self, session: SessionId, until: str) -> Iterator[Mapping[str, JsonValue]]:
        """Yield a session's audit backwards, from its last line that is not later than a time."""

        def is_wanted(line: bytes) -> bool:
            match = _LINE_START.match(line)
            return match is None or match[1].decode() <= until

        for line in lines_backwards(self._wired.setup.home.session(session).audit, is_wanted):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"type": "unreadable line", "line": line[:500]}
            yield cast("dict[str, JsonValue]", entry) if isinstance(entry, dict) else {"type": "unreadable line"}

    def spending(self, since: Millis) -> Sequence[Spending]:
        """Return the usage of each day since a time, oldest first."""
        rows = self._wired.store.index.sessions(SessionQuery(since=since, limit=_EVERY_SESSION))
        return self._spent.total([row.session for row in rows])

    def health(self) -> Sequence[HealthFinding]:
        """Return the state of the services, and what this machine can guarantee."""
        now = self._health()
        files = "the old ones stay in force" if now.fault_in_files else ""
        own = [
            HealthFinding(
                "configuration and rules", _standing(now.fault_in_files), now.fault_in_files or "in force as they are written", files
            )
        ]
        if now.wait_for_restart:
            own.append(HealthFinding("restart", "warn", f"tables {', '.join(now.wait_for_restart)} hold from the next start on"))
        # Start-up time: the page of health is seldom looked at.
        from curtainwall.compose.doctor import examine

        services = [HealthFinding(name, _standing(fault), fault or "runs") for name, fault in now.services.items()]
        return [
            *own,
            *services,
            *(HealthFinding(finding.name, finding.status, finding.what, finding.todo) for finding in examine(self._wired.setup.home)),
        ]

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload, or a note if it is lost."""
        try:
            return load(payload, self._wired.store.blobs)
        except CurtainwallError as error:
            return f"[{error}]"


class SpendingByDay:
    """Model usage by day; each session's log is read incrementally."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._read: dict[SessionId, int] = {}
        self._days: dict[SessionId, dict[str, Spending]] = defaultdict(dict)

    def total(self, sessions: Sequence[SessionId]) -> Sequence[Spending]:
        """Return the sums over these sessions, oldest day first."""
        sums: dict[str, Spending] = {}
        with self._lock:
            for session in sessions:
                self._catch_up(session)
                for day, spent in self._days[session].items():
                    sums[day] = _sum(sums.get(day, Spending(day)), spent)
        return [sums[day] for day in sorted(sums)]

    def _catch_up(self, session: SessionId) -> None:
        days = self._days[session]
        for entry in self._log.read(session_stream(session), self._read.get(session, 0)):
            self._read[session] = entry.seq
            if entry.kind not in _COUNTED:
                continue
            event = lift(entry)
            if isinstance(event, ModelResponded | ModelFailed):
                day = datetime.fromtimestamp(event.at / 1000, UTC).date().isoformat()
                days[day] = _sum(days.get(day, Spending(day)), _spent(day, event.usage))


def _spent(day: str, usage: Usage) -> Spending:
    sure = usage.tokens_basis is Basis.MEASURED and usage.dollars_basis is Basis.MEASURED
    return Spending(day, usage.input_tokens, usage.output_tokens, usage.dollars, 1, not sure)


def _sum(one: Spending, other: Spending) -> Spending:
    return Spending(
        one.day,
        one.tokens_in + other.tokens_in,
        one.tokens_out + other.tokens_out,
        one.dollars + other.dollars,
        one.requests + other.requests,
        one.estimated or other.estimated,
    )


def _ruling(judge: Judge, trial: CallTrial) -> TrialResult:
    try:
        return judge.call(trial.tool, read_json(trial.arguments))
    except BadCall as error:
        return TrialResult(denial(error.rule, str(error)))
    except (ValueError, RecursionError) as error:
        return TrialResult(denial(INVALID, f"the arguments are no JSON: {error}"))


def _deciding_rule(card: RuleCard) -> DecidingRule:
    return DecidingRule(rule=card.id, source=card.source, reason=card.title)


def _standing_of(card: RuleCard, why: str = "") -> RuleStatus:
    return RuleStatus(
        rule=card.id,
        title=card.title,
        reason=card.reason,
        kind=card.kind,
        source=card.source,
        text=card.text,
        status="active",
        why=why,
        asked=0,
        labels=(),
    )


def _standing(fault: str) -> Literal["ok", "fail"]:
    return "fail" if fault else "ok"


def _directory(path: str) -> Path:
    """Return a directory named by a person on another machine, where a relative path means nothing."""
    if "\0" in path or not path.startswith(("/", "~/")):
        raise CommandRefused("name a workspace by its whole path, from `/` or `~/` on")
    try:
        directory = Path(path).expanduser()
        if not directory.is_dir():
            raise CommandRefused(f"`{path}` is no directory")
    except (OSError, ValueError, RuntimeError):
        raise CommandRefused("this workspace cannot be looked at") from None
    return directory


class WebJobs:
    """The jobs currently in force."""

    def __init__(self, wired: GatedSessions, firings: JobFirings) -> None:
        self._wired = wired
        self._firings = firings
        self._histories = JobHistories(wired.registry.feed)
        self._status_of = status_in(wired.store)

    def rows(self) -> Sequence[JobRow]:
        """Return the jobs: when each is due next, and what happened to its last firing."""
        return job_rows(jobs_in(self._wired.setup.config), self._histories.all(), self._status_of, self._wired.registry.clock.now())

    def firings(self, most: int) -> Sequence[FiringRow]:
        """Return the latest firings, newest first."""
        return firing_rows(self._histories.all(), self._status_of, most)

    async def run(self, job: str, by: Who) -> SessionId:
        """Fire a job now, with its session working here; the house log records who started it."""
        if job not in self._wired.setup.config.cron:
            raise NotFound("there is no such job")
        firing = await self._firings.claim_now(job)
        await self._firings.note({"what": "wanted", "job": job, "due": firing.due, "by": str(by)})
        return await self._firings.fire(firing)


class WebTeamPairs:
    """The configured teams, and the figures of their conversations from the log."""

    def __init__(self, wired: GatedSessions) -> None:
        self._wired = wired

    def teams(self) -> Sequence[TeamSummary]:
        """Return the configured teams."""
        return [
            TeamSummary(
                name,
                team.agent,
                team.mode,
                team.project,
                team.description,
                None if team.askers is None else tuple(team.askers),
                team.colour or "",
            )
            for name, team in sorted(self._wired.setup.config.teams.items())
        ]

    def pairs(self) -> Sequence[PairFigures]:
        """Return the figures of every conversation, the most active first."""
        return self._wired.teams.talk.figures()

    def chain(self, pair: Pair) -> Chain | None:
        """Return a pair's conversation with those that it waits for, if it has any messages."""
        return self._wired.teams.talk.chain(pair)
