"""The context in which a program uses a session: opened with the program's own parts, and left without ending the session."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from curtainwall.agents.builtin import LanguageModel
from curtainwall.compose.agents import model_finder, run_agents, session_spec
from curtainwall.compose.ask_files import ask_files_of
from curtainwall.compose.gate import open_gate, session_hooks
from curtainwall.compose.sessions import Parts
from curtainwall.compose.telemetry import reported
from curtainwall.config.agents import BUILTIN
from curtainwall.host.user import local_user
from curtainwall.library.arguments import choose, limits_over, path_of, require, setup_for
from curtainwall.library.asks import OnAsk
from curtainwall.library.session import Embedding, Session, give_instructions
from curtainwall.model import ChangeModel, CommandRefused, CurtainwallError, Limits, Mode, OpeningFailed, Route
from curtainwall.operations.lookup import find_session
from curtainwall.operations.open import complete_opening, open_new
from curtainwall.tools import Runner, Tool

_ROUTE = Route(channel="local", reference="library")
_LARGEST_PROMPT = 256 * 1024
_LARGEST_ARGUMENT = 60 * 1024
"""What an external agent can be told; most are told it on their command line."""


@asynccontextmanager
async def open_session(
    *,
    resume: str | None = None,
    agent: str = BUILTIN,
    model: str | LanguageModel | None = None,
    workspace: Path | str | None = None,
    name: str = "",
    mode: Mode | None = None,
    policy: Sequence[Path] = (),
    tools: "Iterable[Tool[..., object]] | Mapping[str, Runner] | None" = None,
    parts: Parts | None = None,
    system_prompt: str | None = None,
    limits: Limits | Mapping[str, float] | None = None,
    on_ask: OnAsk | None = None,
    home: Path | str | None = None,
    config: Mapping[str, object] | None = None,
) -> AsyncGenerator[Session]:
    """Open a new session, or resume one, and let its agent work until the context is left; the session outlives the context.

    `agent` and `model` are names, as on the command line; `model` can also be your own object. A resumed session keeps its agent, its
    limits, and its model and system prompt unless you give others. `tools` are added to ours (see `tool`); a mapping replaces runners of
    ours. Raise `OpeningFailed`.
    """
    async with AsyncExitStack() as stack:
        try:
            _require_types(resume, agent, model, name, parts, system_prompt, on_ask)
            setup = setup_for(policy, home, config)
            added, replaced = _tools(tools)
            wired = await stack.enter_async_context(open_gate(setup, replaced, parts, added))
            await stack.enter_async_context(reported(wired))
            own = {} if model is None or isinstance(model, str) else {model.name: model}
            configured = model_finder(wired)

            def find_model(name: str) -> LanguageModel:
                return own.get(name) or configured(name)

            model_name = model if model is None or isinstance(model, str) else model.name
            directory = None if workspace is None else _directory(workspace)
            chosen_mode = None if mode is None else choose("mode", mode, Mode)
            spec = session_spec(wired, agent, model_name, directory, chosen_mode, name, _ROUTE)
            if limits is not None:
                if resume is not None:
                    raise CommandRefused("a resumed session keeps its limits; `raise_budget` raises one")
                spec = replace(spec, limits=limits_over(setup.limits, limits))
            work = await stack.enter_async_context(run_agents(wired, find_model, spec))
            agent_name = agent if resume is None else find_session(wired.store.index, resume, home=setup.home).agent
            if system_prompt is not None and agent_name != BUILTIN and len(system_prompt.encode()) > _LARGEST_ARGUMENT:
                raise CommandRefused(f"`{agent_name}` takes a system prompt of {_LARGEST_ARGUMENT // 1024} KiB at most")
            kind = work.agents.kind_of(agent_name)
            if resume is None or model is not None:
                # Check before opening anything: a missing model is the caller's mistake.
                kind.require_model(agent_name, spec.model if resume is None else model_name or spec.model)
            await kind.require_ready(agent_name)
            by = local_user()
            session = (
                await open_new(wired.sessions, spec, by)
                if resume is None
                else find_session(wired.store.index, resume, home=setup.home).session
            )
            await complete_opening(wired.registry, session, by)
            if model_name is not None and wired.sessions.state(session).model != model_name:
                await wired.registry.send(session, ChangeModel(by=by, model=model_name))
            if system_prompt is not None:
                await give_instructions(work, session, system_prompt)
            await stack.enter_async_context(ask_files_of(wired, session))
            await stack.enter_async_context(session_hooks(wired, session))
        except (CurtainwallError, OSError) as fault:
            raise OpeningFailed(f"the session could not be opened: {fault}") from fault
        work.turns.attend(session)
        embedding = Embedding(find_model, on_ask, system_prompt)
        try:
            yield Session(work, session, by, embedding)
        finally:
            await embedding.leave()


def _require_types(
    resume: object, agent: object, model: object, name: object, parts: object, system_prompt: object, on_ask: object
) -> None:
    """Raise `CommandRefused` for an argument of the wrong type, before anything is opened."""
    for word, value in {"resume": resume, "system_prompt": system_prompt}.items():
        if value is not None:
            require(word, value, str)
    require("agent", agent, str)
    require("name", name, str)
    is_model = model is None or isinstance(model, str) or all(hasattr(model, each) for each in ("name", "context_size", "reply"))
    if not is_model:
        raise CommandRefused("`model` must be a name, or an object with `name`, `context_size` and `reply`")
    if parts is not None:
        require("parts", parts, Parts)
    if isinstance(system_prompt, str) and len(system_prompt) > _LARGEST_PROMPT:
        raise CommandRefused(f"the system prompt has {_LARGEST_PROMPT // 1024} KiB at most")
    if on_ask is not None and not callable(on_ask):
        raise CommandRefused("`on_ask` must be a function that takes a `PendingAsk`")


def _tools(
    tools: "Iterable[Tool[..., object]] | Mapping[str, Runner] | None",
) -> "tuple[tuple[Tool[..., object], ...], Mapping[str, Runner] | None]":
    """Return the tools to add, and the runners that replace ours."""
    if tools is None or isinstance(tools, Mapping):
        return (), cast("Mapping[str, Runner] | None", tools)
    if not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a program
        raise CommandRefused("`tools` must be a list of tools")
    added = tuple(tools)
    for each in added:
        if not isinstance(each, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - from a program
            raise CommandRefused(f"`tools` holds {type(each).__name__}; declare a function as a tool with `@curtainwall.tool`")
    return added, None


def _directory(workspace: Path | str) -> Path:
    """Return the directory that a program names; a missing one is probably a typo, so do not create it."""
    path = path_of("workspace", workspace)
    if not path.is_dir():
        raise CommandRefused(f"the workspace `{workspace}` {'is no directory' if path.exists() else 'does not exist'}")
    return path
