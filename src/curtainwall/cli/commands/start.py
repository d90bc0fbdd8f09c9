"""`curtainwall start`: a conversation with an agent on this terminal, or one task."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.channels.plain import counted
from curtainwall.channels.terminal import (
    ChannelPorts,
    ConversationSettings,
    OneShotSettings,
    OwnerWatch,
    converse,
    leave,
    on_end_signal,
    one_shot,
    wait_until_settled,
    wants_colour,
)
from curtainwall.cli.asks import card_text
from curtainwall.cli.global_options import is_quiet
from curtainwall.cli.modes import parse_mode
from curtainwall.cli.screen import Misuse, confirm, hint, note, require_directory
from curtainwall.compose.agents import ContainerKind, RunningAgents, all_agents, model_finder, remember_image, run_agents, session_spec
from curtainwall.compose.ask_files import ask_files_of
from curtainwall.compose.gate import GatedSessions, open_gate, session_hooks
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.telemetry import exporting, reported
from curtainwall.config.agents import DEVCONTAINER, SHIPPED
from curtainwall.host.user import local_user
from curtainwall.model import (
    GIT_CLONE,
    HERE,
    Answer,
    AnswerApproval,
    ApprovalAnswered,
    Broken,
    CallFinished,
    CallId,
    CallRequest,
    CallRequested,
    ChangeMode,
    ChangeModel,
    CommandRefused,
    Mode,
    NotFound,
    Opening,
    SessionId,
    Who,
    record,
    session_stream,
)
from curtainwall.operations.lookup import find_session, holder_of
from curtainwall.operations.open import SessionSpec, complete_opening, open_new
from curtainwall.session import inert

_DENIED = "whoever started this task has every ask denied (--on-ask deny)"


@record
class RepoClone:
    """Clones a repository for one session, and reports to its user."""

    wired: GatedSessions
    line: ChannelPorts
    session: SessionId
    by: Who
    task: str | None
    telling: OneShotSettings

    async def begin(self, url: str) -> int | None:
        """Clone a repository into the workspace; return an exit code if that has to wait for somebody."""
        hint(f"cloning {inert(url)}")
        request = CallRequest(tool=GIT_CLONE, arguments={"url": url, "path": HERE})
        return await self._settle(await self.wired.gate.request(self.session, request, wait=False))

    async def go_on(self) -> int | None:
        """Continue a clone that began before the session was left; return an exit code if it still waits.

        The task needs the repository: if the clone failed, ask for it again, and raise the reason if it is denied.
        """
        # The clone comes before the first turn; later calls of the same tool belong to the agent, which continues them.
        if self.line.desk.view(self.session).turns or self._uncloned() is None:
            return None
        async with self.wired.registry.hold(self.session) as actor:
            waiting = [call for call, it in actor.state.calls.items() if it.turn is None and it.subject.tool == GIT_CLONE]
        for call in waiting:
            if (code := await self._settle(await self.wired.gate.resume(self.session, call))) is not None:
                return code
        if (url := self._uncloned()) is None:
            return None
        note("the repository was not cloned when the session began, so that is asked for again; a session without --repo does without it")
        return await self.begin(url)

    def _uncloned(self) -> str | None:
        """Return the repository that the session should have begun with, if its clone was requested and did not succeed."""
        urls: dict[CallId, str] = {}
        for event in (recorded.event for recorded in self.line.feed.read(session_stream(self.session))):
            match event:
                case CallRequested(turn=None, subject=subject) if subject.tool == GIT_CLONE and subject.raw.get("path") == HERE:
                    urls[event.call] = str(subject.raw.get("url"))
                case CallFinished(ok=True) if event.call in urls:
                    return None
                case _:
                    continue
        return next(reversed(urls.values()), None)

    async def _settle(self, answer: Answer) -> int | None:
        while answer.waiting:
            ask = next((it for it in self.line.desk.view(self.session).pending if it.call == answer.call), None)
            if ask is not None and self.telling.on_ask == "park":
                return await leave(self.line, self.session, self.by, self.task, self.telling, interrupted=False)
            if ask is not None and self.telling.on_ask == "deny":
                denial = AnswerApproval(by=self.by, approval=ask.approval, granted=False, reason=_DENIED)
                await self.line.desk.send(self.session, denial)
            elif ask is not None and not await wait_until_settled(self.line, self.session, self.by, ask, self.telling):
                return await leave(self.line, self.session, self.by, self.task, self.telling, interrupted=True)
            answer = await self._continued(answer.call)
        if answer.result is None or not answer.result.ok:
            if answer.result is None:
                raise CommandRefused(f"the repository was not cloned: {inert(answer.verdict.reason)}")
            raise CommandRefused(f"the repository was not cloned: {inert(str(answer.result.value))}; {self._again()}")
        return None

    async def _continued(self, call: CallId) -> Answer:
        try:
            return await self.wired.gate.resume(self.session, call)
        except NotFound:
            # A denial closes the call, and the log shows who denied it.
            events = [it.event for it in self.line.feed.read(session_stream(self.session))]
            answer = next((it for it in reversed(events) if isinstance(it, ApprovalAnswered)), None)
            why = (
                "nobody answered in time"
                if answer is None
                else f"denied by {answer.by.name}{f': {answer.reason}' if answer.reason else ''}"
            )
            raise CommandRefused(f"the repository was not cloned: {inert(why)}; {self._again()}") from None

    def _again(self) -> str:
        return f"`curtainwall start --resume {self.session}{' TASK' if self.task else ''}` asks for it again"


_LONGEST_INPUT = 4 * 1024 * 1024


class ResultFormat(StrEnum):
    """The format of the result of one task."""

    TEXT = "text"
    JSON = "json"
    STREAM_JSON = "stream-json"


class OnAsk(StrEnum):
    """What happens when a human is asked."""

    WAIT = "wait"
    PARK = "park"
    DENY = "deny"


@record
class _StartOptions:
    """What the command line asks for."""

    task: str | None
    agent: str
    model: str | None
    workspace: Path | None
    repo: str | None
    mode: Mode | None
    name: str
    resume: str | None
    fork: str | None
    image: str | None
    shape: ResultFormat
    on_ask: OnAsk
    is_terminal: bool
    """A person types and sees the conversation."""
    is_seen: bool
    """The person also sees questions, which go to stderr."""


def _named_workspace(text: str) -> Path:
    """Return the workspace that the option names; an empty text would be the current directory, given to the agent by mistake."""
    if not text:
        raise Misuse("--workspace is empty; name a directory, or leave it out")
    return Path(text)


def start(
    task: Annotated[list[str] | None, typer.Argument(metavar="TASK", help="one task; left out, a conversation begins")] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"builtin, claude-local, or in a container: {', '.join(SHIPPED)}, or one of [agents.NAME]; left out, as [sessions] says",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="demo, script:FILE, anthropic:NAME, openai:NAME …; docs/models.md has more")] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", parser=_named_workspace, help="a project to work in; left out, the session gets a directory of its own"
        ),
    ] = None,
    repo: Annotated[
        str | None, typer.Option(metavar="URL", help="a git repository to clone into the session's own workspace first")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="for agents in containers: build on this image, `dev`, or `devcontainer` as the project says"),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            parser=parse_mode,
            metavar="MODE",
            help="ask (default), review (changes are presented together), plan (reads only), accept-edits, bypass",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="what to call the session")] = "",
    resume: Annotated[str | None, typer.Option(metavar="ID", help="go on with a session")] = None,
    fork: Annotated[str | None, typer.Option(metavar="ID", help="begin with what another session knows")] = None,
    policy: Annotated[list[Path] | None, typer.Option(help="a rule file to add; may be given more than once")] = None,
    output: Annotated[ResultFormat, typer.Option(help="how one task is told")] = ResultFormat.TEXT,
    on_ask: Annotated[OnAsk | None, typer.Option(help="what to do when a human is asked; wait on a terminal, park otherwise")] = None,
) -> int:
    """Work with an agent: a conversation, or one task.

    Exit codes: 0 done, 1 failed, 2 usage, 3 parked on an approval or a budget (the message says how to go on), 130 interrupted,
    129 and 143 ended by SIGHUP or SIGTERM.
    """
    require_directory(workspace, "--workspace")
    _check_options(workspace=workspace, repo=repo, resume=resume, fork=fork, agent=agent)
    if image == "":
        raise Misuse("--image is empty; name an image, or leave it out")
    setup = load_setup(policy or ())
    if agent is not None and agent not in all_agents(setup.config):
        raise Misuse(f"there is no agent `{agent}` here; there are: {', '.join(all_agents(setup.config))}")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    is_seen = is_terminal and sys.stderr.isatty()
    full_task = _with_input(" ".join(task or ()).strip())
    if task and full_task is None:
        raise Misuse("the task is empty; say what to do, or leave it out for a conversation")
    if full_task is None and resume is None and not is_terminal:
        raise Misuse("there is no terminal for a conversation; give a TASK, or pipe one in")
    if full_task is None and is_terminal and output is not ResultFormat.TEXT:
        raise Misuse("--output is for one task; give a TASK")
    if model is not None and model.startswith("script:"):
        # The session keeps this name, and may be resumed from any directory.
        model = f"script:{Path(model.removeprefix('script:')).expanduser().absolute()}"
    options = _StartOptions(
        full_task, agent or setup.config.sessions.agent, model, workspace, repo, mode, name, resume, fork, image, output,
        on_ask or (OnAsk.WAIT if is_seen else OnAsk.PARK), is_terminal, is_seen,
    )  # fmt: skip
    with exporting(note):
        return asyncio.run(_until_ended(options, setup))


def _check_options(*, workspace: Path | None, repo: str | None, resume: str | None, fork: str | None, agent: str | None) -> None:
    if resume is not None and fork is not None:
        raise Misuse("give --resume or --fork, not both")
    if (resume or fork) and (workspace or repo):
        raise Misuse("a session that goes on keeps its workspace; leave --workspace and --repo out")
    if (resume or fork) and agent:
        raise Misuse("a session that goes on keeps its agent; leave --agent out")
    if workspace and repo:
        raise Misuse("a repository is cloned into a workspace of the session's own; give --workspace or --repo, not both")


def _with_input(task: str) -> str | None:
    """Return the task with the piped input, or None if there is neither."""
    if sys.stdin.isatty():
        return task or None
    piped = sys.stdin.buffer.read(_LONGEST_INPUT + 1) if not _is_nothing() else b""
    if len(piped) > _LONGEST_INPUT:
        raise Misuse(f"more than {_LONGEST_INPUT} bytes were piped in; put them into a file and name that")
    text = piped.decode("utf-8", "replace").strip()
    return "\n\n".join(filter(None, (task, text))) or None


def _is_nothing() -> bool:
    """Tell whether stdin is closed or is /dev/null."""
    try:
        return os.path.samestat(os.fstat(0), os.stat(os.devnull))
    except OSError:
        return True


async def _until_ended(options: _StartOptions, setup: Setup) -> int:
    """Work until done. If a signal ends the work, close everything first: a command may have left something in a project."""
    codes: list[int] = []
    work = asyncio.ensure_future(_started(options, setup))

    def end(code: int) -> None:
        if not codes:
            work.cancel()
        codes.append(code)

    on_end_signal(end)
    try:
        return await work
    except asyncio.CancelledError:
        if not codes:
            raise
        return codes[0]


async def _started(options: _StartOptions, setup: Setup) -> int:
    by = local_user()
    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(open_gate(setup))
        await stack.enter_async_context(reported(wired))
        spec = session_spec(wired, options.agent, options.model, options.workspace, options.mode, options.name)
        work = await stack.enter_async_context(run_agents(wired, model_finder(wired), replace(spec, name="")))
        base = await _require_agent(options, work, spec)
        ends = options.resume is None or find_session(wired.store.index, options.resume).status == "closed"
        session = await _session(options, work, spec, by)
        if base:
            await remember_image(work.journal, session, base, wired.registry.clock)
        _ask_about_hooks(options, work, session)
        await stack.enter_async_context(ask_files_of(wired, session))
        await stack.enter_async_context(session_hooks(wired, session))
        line = work.line
        settings = OneShotSettings(
            shape=options.shape.value,
            on_ask=options.on_ask.value,
            out=sys.stdout,
            err=sys.stderr,
            colour=wants_colour(sys.stdout),
            keys=options.is_seen,
            quiet=is_quiet(),
            attend=work.turns.attend,
            owner_watch=OwnerWatch(partial(holder_of, wired.store)),
            ends=ends,
        )
        clone = RepoClone(wired, line, session, by, options.task, settings)
        parked = await clone.go_on() if options.resume is not None else None
        if options.repo is not None:
            parked = await clone.begin(options.repo)
        return parked if parked is not None else await _talk(options, work, line, session, by, settings)


async def _require_agent(options: _StartOptions, work: RunningAgents, spec: SessionSpec) -> str:
    """Check that the agent and its model exist before opening anything, so that a mistake on the command line has no effect.

    Return the image to build on, if the user named one.
    """
    existing = options.resume or options.fork
    agent = spec.agent if existing is None else find_session(work.wired.store.index, existing).agent
    kind = work.agents.kind_of(agent)
    if options.model is not None or existing is None:
        kind.require_model(agent, options.model or spec.model)
    if existing is None:
        await work.desk.require_view(spec)
    if not isinstance(kind, ContainerKind):
        if options.image is not None:
            raise Misuse(f"--image is for agents in containers; `{agent}` is none")
        await kind.require_ready(agent)
        return ""
    base = _base_image(options, work, spec)
    if options.is_seen and await kind.lacks_image(agent, base):
        on = f" on `{inert(base)}`" if base else ""
        confirm(f"there is no image for `{agent}`{on} yet, and building it takes a few minutes. Build it now?", yes=False)
        async for line in kind.build(agent, base):
            hint(inert(line))
    await kind.require_ready(agent, base)
    if spec.workspace is not None:
        if spec.mode is Mode.PLAN:
            note(f"`{agent}` can read everything in `{inert(str(spec.workspace))}`, and change nothing there")
        elif spec.mode is Mode.REVIEW:
            shown = "you are shown what it changed before anything is applied"
            note(f"`{agent}` can read everything in `{inert(str(spec.workspace))}` and works on a copy; {shown}")
        else:
            grants = "can read and change everything in it without asking"
            note(f"`{inert(str(spec.workspace))}` is given to `{agent}`, which {grants}; --mode plan lets it read alone")
    return base


def _base_image(options: _StartOptions, work: RunningAgents, spec: SessionSpec) -> str:
    """Return the image that the user wants the agent to be built on; empty for the configured one."""
    if options.image != DEVCONTAINER:
        return options.image or ""
    # Start-up time: the engine's client takes long to load, and only this needs it here.
    from curtainwall.agents.external.container import devcontainer_image

    existing = options.resume or options.fork
    row = None if existing is None else find_session(work.wired.store.index, existing)
    workspace = spec.workspace if row is None else None if row.own_workspace else Path(row.workspace)
    if workspace is None:
        raise Misuse("--image devcontainer needs a project; give --workspace")
    base = devcontainer_image(workspace)
    note(f"`devcontainer.json` of the project names the image `{inert(base)}`; nothing else in that file is used")
    return base


async def _session(options: _StartOptions, work: RunningAgents, spec: SessionSpec, by: Who) -> SessionId:
    wired = work.wired
    if options.fork is not None:
        opened = await work.desk.open(Opening(how="fork", of=find_session(wired.store.index, options.fork).session, name=options.name), by)
        for line in opened.notes:
            note(line)
        session = opened.session
    elif options.resume is not None:
        row = find_session(wired.store.index, options.resume)
        session = row.session
        if row.status == "closed" and options.task is None and not options.is_terminal:
            raise CommandRefused(f"session `{session}` is closed and nothing waits in it; give a TASK to open it again")
        await complete_opening(wired.registry, session, by)
    else:
        return await open_new(wired.sessions, spec, by)
    if options.model is not None:
        await work.desk.send(session, ChangeModel(by=by, model=options.model))
    if options.mode is not None:
        await work.desk.send(session, ChangeMode(by=by, mode=options.mode))
    return session


async def _talk(
    options: _StartOptions, work: RunningAgents, line: ChannelPorts, session: SessionId, by: Who, task_settings: OneShotSettings
) -> int:
    if options.task is not None or not options.is_terminal:
        return await one_shot(line, session, by, options.task, task_settings)
    home = work.wired.setup.home
    settings = ConversationSettings(
        colour=task_settings.colour,
        log_places=lambda which: (f"log: {home.database}", f"audit: {home.session(which).audit}"),
        attend=work.turns.attend,
        history=home.root / "logs" / "typed",
        mask=work.wired.masker.mask_text,
        is_dumb=os.environ.get("TERM") == "dumb",
        owner_watch=task_settings.owner_watch,
    )
    return await converse(line, session, by, settings)


def _ask_about_hooks(options: _StartOptions, work: RunningAgents, session: SessionId) -> None:
    """Ask once about a project's hooks; without a terminal, only report that they do not run."""
    from curtainwall.compose.hooks import pins_of
    from curtainwall.tools.hooks import HookTrust, workspace_hooks

    view = work.desk.view(session)
    if view.workspace.own:
        return
    pins = pins_of(work.wired.setup.home)
    trusted = dict(pins.all())
    try:
        hooks = workspace_hooks(view.workspace.path, trusted)
    except Broken as fault:
        # A project's files must not prevent work in it; hooks that cannot be read do not run.
        note(f"the hooks of `{inert(view.workspace.path)}` cannot be read and do not run: {inert(str(fault))}")
        return
    if hooks.trust in (HookTrust.NONE, HookTrust.PINNED):
        return
    note(f"`{inert(hooks.workspace)}` brings {counted(len(hooks.settings.hooks), 'hook')} that would run as you, outside any sandbox:")
    for hook in hooks.settings.hooks:
        note(card_text((f"{hook.event}: {inert(str(hook.action))}",), 2))
    if not options.is_seen:
        note(f"they do not run; read them, then `curtainwall hooks trust {inert(hooks.workspace)}`")
        return
    try:
        confirm("Trust them as they are now?", yes=False)
    except (typer.Abort, typer.Exit):
        note("they do not run")
        return
    pins.set(hooks.workspace, hooks.digest)
