"""Tool hosts behind the `ToolHost` port: the native tools with plans, and the hub that adds the tools of servers."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from pydantic import JsonValue

from curtainwall.facts import Masker, PathRoots, quoted
from curtainwall.model import (
    GIT_PUSH,
    PROPOSE_PLAN,
    BadCall,
    CallPermitted,
    Place,
    Prepared,
    Role,
    RuleId,
    SessionId,
    SessionViews,
    Subject,
    ToolResult,
    ToolSpec,
    ViewFailed,
    ViewUse,
    is_beneath,
    subject_digest,
    working_in,
    works_on_view,
)
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.meaning import Setting, prepare
from curtainwall.tools.runners import CannotDo, Refiner, Runner, run_in_thread
from curtainwall.tools.schema_check import RULE

if TYPE_CHECKING:
    # Start-up time: most installations have no servers.
    from curtainwall.tools.servers import Servers

PrepareCall = Callable[[str, JsonValue], Prepared]
"""Prepares one call, or raises `BadCall`."""


def prepare_plan(plan: Prepared, prepare: PrepareCall) -> Prepared:
    """Return the plan with its prepared steps; raise `BadCall` that names an invalid step."""
    listed = cast("list[dict[str, JsonValue]]", plan.arguments["steps"])
    steps = tuple(_step(number, step_arguments, prepare) for number, step_arguments in enumerate(listed, 1))
    # The plan's digest covers each step's digest, so it covers every argument of every step.
    canonical: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "digest": step.digest} for step in steps]}
    raw: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "arguments": dict(step.raw)} for step in steps]}
    of_plan = plan.subject
    update = {
        "raw": raw,
        "canonical": canonical,
        "digest": subject_digest(of_plan.kind, of_plan.tool, canonical, of_plan.resources),
        "masked": any(step.masked for step in steps),
        "hidden": {mask: outline for step in steps for mask, outline in step.hidden.items()},
        "steps": steps,
    }
    return Prepared(subject=of_plan.model_copy(update=update), arguments=canonical)


def _step(place: int, step: dict[str, JsonValue], prepare: PrepareCall) -> Subject:
    tool = str(step["tool"])
    if tool == PROPOSE_PLAN:
        raise BadCall(RULE, f"step {place} of the plan is a plan; list its steps here")
    try:
        return prepare(tool, step["arguments"]).subject
    except BadCall as bad:
        raise BadCall(bad.rule, f"step {place} of the plan: {bad}") from bad


def _chained(*refiners: Refiner | None) -> Refiner:
    """Return a refiner that does what all of these do, in order."""

    def refine(prepared: Prepared, place: Place) -> Prepared:
        for each in refiners:
            prepared = prepared if each is None else each(prepared, place)
        return prepared

    return refine


INSIDE: Final = "/workspace"
"""The path of the workspace inside an agent's container, as the agent names it in calls."""

PrepareStep = Callable[[str, JsonValue, Place], Prepared]
"""Prepares one call of a plan for any server."""

_LONG = 100_000

_ON_VIEW: Final = ("filesystem.", "git.", "shell.")
_VIEW_RULE: Final = RuleId("view-edit")
_NO_VIEW: Final = "review-mode"
_NOT_IN_VIEW: Final = {
    "git.clone": "files are all that reaches the project, and a repository in it would not; clone into another directory",
    "git.pull": "commits stay in the view, so the project would get the files without them; have the user pull, or use the mode `ask`",
}
_CHANGES: Final = frozenset({Role.WRITE_PATH, Role.DELETE_PATH})


class NativeTools:
    """The tools that run in this process."""

    def __init__(  # noqa: PLR0913 - each is one thing that `compose` decides
        self,
        catalogue: Catalogue,
        *,
        home: str,
        masker: Masker,
        runners: Mapping[str, Runner] | None = None,
        own_ports: frozenset[int] = frozenset(),
        contained: Collection[str] = (),
        refiners: Mapping[str, Refiner] | None = None,
        server_refiner: Refiner | None = None,
        views: SessionViews | None = None,
        without_view: Collection[str] = (),
    ) -> None:
        """`without_view` are tools of ours that something else runs, which knows nothing of views."""
        self.catalogue = catalogue
        self._views = views
        self._without_view = frozenset(without_view)
        self._is_ours = True
        self._home = home
        self._masker = masker
        self._runners = dict(runners or {})
        self._own_ports = own_ports
        self._contained = frozenset(contained)
        self._refiners = dict(refiners or {})
        self._of_others = server_refiner

    def beside(self, catalogue: Catalogue, runners: Mapping[str, Runner], refiners: Mapping[str, Refiner] | None = None) -> "NativeTools":
        """Return a server's tools with the same settings; `of_others` refines each of their calls, then `refiners` do."""
        names = (spec.full_name for spec in catalogue.listing())
        refiners = {name: _chained(self._of_others, (refiners or {}).get(name)) for name in names}
        tools = NativeTools(
            catalogue,
            home=self._home,
            masker=self._masker,
            runners=runners,
            own_ports=self._own_ports,
            contained=self._contained,
            refiners=refiners,
        )
        tools._is_ours = False
        return tools

    def find(self, tool: str) -> ToolSpec | None:
        """Return the catalogue's entry for `server.tool`."""
        return self.catalogue.find(tool)

    def listing(self) -> tuple[ToolSpec, ...]:
        """Return the tools that agents see: those with a runner, or all in the catalogue if there are no runners."""
        runs = self._runners or {spec.full_name for spec in self.catalogue.listing()}
        return tuple(spec for spec in self.catalogue.listing() if spec.full_name in runs and not spec.for_house)

    def prepare(self, tool: str, arguments: JsonValue, place: Place, step: PrepareStep | None = None) -> Prepared:
        """Check, interpret and mask the arguments; raise `BadCall`. `step` prepares the steps of a plan.

        What works on a view is interpreted there: its paths are those of the project, and what they mean is what the view has.
        """
        if not works_on_view(place.workspace, place.mode):
            return self._prepare(tool, arguments, place, step)
        if not self._works_on_view(tool, place):
            prepared = self._prepare(tool, arguments, place, step)
            _require_no_change(prepared, place)
            return prepared
        if tool in self._without_view:
            raise BadCall(_NO_VIEW, f"`{tool}` is run by this program, which knows no views, so it is not there in review mode")
        try:
            # Where nothing runs, nothing is mounted to judge it.
            use = None if self._views is None else self._views.enter(place)
            with working_in(use):
                prepared = self._prepare(tool, arguments, place, step)
        except ViewFailed as fault:
            raise BadCall(_NO_VIEW, f"this cannot be judged in the session's view: {fault}") from fault
        if (why := _NOT_IN_VIEW.get(tool)) is not None and _changed_path(prepared, place) is not None:
            raise BadCall(_NO_VIEW, f"`{tool}` does not work in the project in review mode: {why}")
        return replace(prepared, on_view=True)

    def _prepare(self, tool: str, arguments: JsonValue, place: Place, step: PrepareStep | None) -> Prepared:
        mounts = ((INSIDE, place.workspace.path),) if place.agent in self._contained else ()
        scene = PathRoots(workspace=place.workspace.path, home=self._home, mounts=mounts)
        working_directory = place.git_directory or place.workspace.path
        prepared = prepare(self.catalogue, tool, arguments, Setting(scene, working_directory, self._masker, self._own_ports))
        if tool == PROPOSE_PLAN:
            return prepare_plan(prepared, lambda each, its: self._step(each, its, place, step or self.prepare))
        refiner = self._refiners.get(tool)
        if refiner is None:
            return prepared
        try:
            return refiner(prepared, place)
        except (BadCall, ViewFailed):
            raise
        except Exception as error:
            # As with the arguments, any error here must deny the call.
            raise BadCall(RULE, f"what `{tool}` is about could not be read ({type(error).__name__})") from error

    def _step(self, tool: str, arguments: JsonValue, place: Place, prepare_step: PrepareStep) -> Prepared:
        spec = self.find(tool)
        if spec is not None and spec.for_house:
            raise BadCall("unknown-tool", f"there is no tool `{tool}` for agents")
        return prepare_step(tool, arguments, place)

    def masked(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret masked, for the log."""
        return self._masker.mask_json(value)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Run the call with its canonical arguments only, and mask what comes back."""
        if permit.digest != prepared.subject.digest:
            raise BadCall(
                "wrong-permit", f"the permit `{permit.permit}` is for another subject than this call of `{prepared.subject.tool}`"
            )
        runner = self._runners.get(prepared.subject.tool)
        if runner is None:
            return ToolResult(ok=False, value="this tool cannot run on this machine yet")
        try:
            with working_in(await self._enter(prepared, permit, place)):
                result = await runner(prepared, permit, place)
        except (CannotDo, ViewFailed) as error:
            result = ToolResult(ok=False, value=str(error))
        if result.is_logged:
            return result
        # Masking megabytes takes a while and must not block the loop.
        is_long = len(str(result.value)) > _LONG
        masked = await run_in_thread(place.session, partial(self.masked, result.value)) if is_long else self.masked(result.value)
        return result if masked is result.value else ToolResult(ok=result.ok, value=masked)

    def _works_on_view(self, tool: str, place: Place) -> bool:
        # A push publishes what is in the project, so only what a human has accepted.
        is_one = self._is_ours and tool.startswith(_ON_VIEW) and tool != GIT_PUSH
        return is_one and works_on_view(place.workspace, place.mode)

    async def _enter(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ViewUse | None:
        """Return a use of the view that a call has to run in, or None if it runs on the workspace itself; raise if it may not run.

        INVARIANT: a call runs where it was judged. The mode may have changed since.
        """
        tool = prepared.subject.tool
        on_view = self._works_on_view(tool, place)
        rules = {*permit.verdict.because, *(rule for finding in permit.verdict.findings for rule in finding.because)}
        if on_view is not prepared.on_view or (_VIEW_RULE in rules and not on_view):
            raise CannotDo("the mode of the session changed after this call was judged; make it again")
        if not on_view:
            return None
        if self._views is None:
            raise CannotDo("there are no views in this program, so this does not run in review mode")
        use = await run_in_thread(place.session, partial(self._views.enter, place), _close_use)
        if use is None:
            raise CannotDo("the view of this session could not be entered")
        return use


def _close_use(use: ViewUse | None) -> None:
    if use is not None:
        use.close()


def _changed_path(prepared: Prepared, place: Place) -> str | None:
    """Return a path of the workspace that a call would change, if any."""
    changed = (it.value for it in prepared.subject.resources if it.role in _CHANGES)
    return next((path for path in changed if is_beneath(path, place.workspace.path)), None)


def _require_no_change(prepared: Prepared, place: Place) -> None:
    """Refuse a call that would change the project itself; raise `BadCall`."""
    changed = _changed_path(prepared, place)
    if changed is not None and not prepared.subject.tool.startswith("session."):
        raise BadCall(
            _NO_VIEW,
            f"`{prepared.subject.tool}` would change {quoted(changed)} in the project itself, which stays as it is in review mode; use the "
            "`filesystem` tools or `shell.run`, or leave it to the user",
        )


class ToolHub:
    """Native tools, any servers, and the tools that an embedding program adds, behind the `ToolHost` port."""

    def __init__(self, native: NativeTools, servers: "Servers | None", added: NativeTools | None = None) -> None:
        self._native = native
        self._servers = servers
        self._added = added
        self._added_servers = frozenset(spec.server for spec in added.catalogue.listing()) if added is not None else frozenset[str]()
        self._foreign: dict[str, tuple[Catalogue, NativeTools]] = {}

    @property
    def native(self) -> NativeTools:
        """Return our own tools."""
        return self._native

    def find(self, tool: str) -> ToolSpec | None:
        """Return the entry for `server.tool`, if it can be called now."""
        server, servers = tool.partition(".")[0], self._servers
        if servers is None or server not in servers:
            return self._in_process(server).find(tool)
        return next((spec for spec in servers.catalogue.listing() if spec.full_name == tool), None)

    def listing(self) -> tuple[ToolSpec, ...]:
        """Return every tool that an agent can call now."""
        added = () if self._added is None else self._added.listing()
        return (*self._native.listing(), *added, *(() if self._servers is None else self._servers.catalogue.listing()))

    def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Check, interpret and mask the arguments; raise `BadCall`."""
        server, _, name = tool.partition(".")
        servers = self._servers
        if servers is None or server not in servers:
            return self._in_process(server).prepare(tool, arguments, place, step=self.prepare)
        servers.catalogue.require_callable(server, name)
        return self._of(servers, server).prepare(tool, arguments, place)

    def masked(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret masked, for the log."""
        return self._native.masked(value)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Run the call with its canonical arguments only, and mask what comes back."""
        server, servers = prepared.subject.tool.partition(".")[0], self._servers
        tools = self._in_process(server) if servers is None or server not in servers else self._of(servers, server)
        return await tools.run(prepared, permit, place)

    async def leave(self, session: SessionId) -> None:
        """Stop the servers of a session."""
        if self._servers is not None:
            await self._servers.leave(session)

    async def aclose(self) -> None:
        """Stop everything that runs."""
        if self._servers is not None:
            await self._servers.close()

    def _in_process(self, server: str) -> NativeTools:
        """Return the tools of this process under a server's name: the embedding program's, or ours."""
        return self._added if self._added is not None and server in self._added_servers else self._native

    def _of(self, servers: "Servers", server: str) -> NativeTools:
        """Return a server's tools with our settings, rebuilt if a human has reviewed them since."""
        catalogue = servers.catalogue.catalogue(server)
        cached = self._foreign.get(server)
        if cached is None or cached[0] is not catalogue:
            cached = self._foreign[server] = (catalogue, self._native.beside(catalogue, servers.runners(server)))
        return cached[1]
