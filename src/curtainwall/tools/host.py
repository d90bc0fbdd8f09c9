"""Tool hosts behind the `ToolHost` port: the native tools with their plans, and the hub that adds those of servers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from pydantic import JsonValue

from curtainwall.facts import Masker, PathRoots
from curtainwall.model import (
    PROPOSE_PLAN,
    BadCall,
    CallPermitted,
    Place,
    Prepared,
    SessionId,
    Subject,
    ToolResult,
    ToolSpec,
    subject_digest,
)
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.meaning import Setting, prepare
from curtainwall.tools.runners import CannotDo, Refiner, Runner, run_in_thread
from curtainwall.tools.schema_check import RULE
from curtainwall.tools.servers import Servers

PrepareCall = Callable[[str, JsonValue], Prepared]
"""Prepares one call, or raises `BadCall`."""


def prepare_plan(plan: Prepared, prepare: PrepareCall) -> Prepared:
    """Return the plan with its steps; raise `BadCall` that says which step means nothing."""
    listed = cast("list[dict[str, JsonValue]]", plan.arguments["steps"])
    steps = tuple(_step(place, each, prepare) for place, each in enumerate(listed, 1))
    # Each step's own digest is part of the plan's: what a step means, down to its last argument, is what the plan means.
    canonical: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "digest": step.digest} for step in steps]}
    raw: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "arguments": dict(step.raw)} for step in steps]}
    of_plan = plan.subject
    told = {
        "raw": raw,
        "canonical": canonical,
        "digest": subject_digest(of_plan.kind, of_plan.tool, canonical, of_plan.resources),
        "masked": any(step.masked for step in steps),
        "hidden": {mask: outline for step in steps for mask, outline in step.hidden.items()},
        "steps": steps,
    }
    return Prepared(subject=of_plan.model_copy(update=told), arguments=canonical)


def _step(place: int, step: dict[str, JsonValue], prepare: PrepareCall) -> Subject:
    tool = str(step["tool"])
    if tool == PROPOSE_PLAN:
        raise BadCall(RULE, f"step {place} of the plan is a plan; list its steps here")
    try:
        return prepare(tool, step["arguments"]).subject
    except BadCall as bad:
        raise BadCall(bad.rule, f"step {place} of the plan: {bad}") from bad


Mounts = tuple[tuple[str, str], ...]

PrepareStep = Callable[[str, JsonValue, Place], Prepared]
"""Prepares one call of a plan, whichever server it is for."""

_LONG = 100_000


def no_mounts(_place: Place) -> Mounts:
    """Return the mounts of a session whose agent sees the same paths as we do."""
    return ()


class NativeTools:
    """The tools of this house in process."""

    def __init__(  # noqa: PLR0913 - each is one thing that `app` decides
        self,
        catalogue: Catalogue,
        *,
        home: str,
        masker: Masker,
        runners: Mapping[str, Runner] | None = None,
        own_ports: frozenset[int] = frozenset(),
        mounts: Callable[[Place], Mounts] = no_mounts,
        closers: Mapping[str, Refiner] | None = None,
        of_others: Refiner | None = None,
    ) -> None:
        self.catalogue = catalogue
        self._home = home
        self._masker = masker
        self._runners = dict(runners or {})
        self._own_ports = own_ports
        self._mounts = mounts
        self._closers = dict(closers or {})
        self._of_others = of_others

    def beside(self, catalogue: Catalogue, runners: Mapping[str, Runner]) -> "NativeTools":
        """Return the tools of others in the same setting: what each of their calls means is looked at `of_others`."""
        closers = {} if self._of_others is None else {spec.full_name: self._of_others for spec in catalogue.listing()}
        return NativeTools(
            catalogue,
            home=self._home,
            masker=self._masker,
            runners=runners,
            own_ports=self._own_ports,
            mounts=self._mounts,
            closers=closers,
        )

    def find(self, tool: str) -> ToolSpec | None:
        """Return the catalogue's entry for `server.tool`."""
        return self.catalogue.find(tool)

    def listing(self) -> tuple[ToolSpec, ...]:
        """Return the tools that agents are told of: those that run here, or, where none is there to be run, all that can be judged."""
        runs = self._runners or {spec.full_name for spec in self.catalogue.listing()}
        return tuple(spec for spec in self.catalogue.listing() if spec.full_name in runs and not spec.for_house)

    def prepare(self, tool: str, arguments: JsonValue, place: Place, step: PrepareStep | None = None) -> Prepared:
        """Check the arguments, find out what they mean, and mask; raise `BadCall`. `step` prepares what a plan lists."""
        scene = PathRoots(workspace=place.workspace.path, home=self._home, mounts=self._mounts(place))
        working_directory = place.git_directory or place.workspace.path
        prepared = prepare(self.catalogue, tool, arguments, Setting(scene, working_directory, self._masker, self._own_ports))
        if tool == PROPOSE_PLAN:
            return prepare_plan(prepared, lambda each, its: self._step(each, its, place, step or self.prepare))
        closer = self._closers.get(tool)
        if closer is None:
            return prepared
        try:
            return closer(prepared, place)
        except BadCall:
            raise
        except Exception as fault:
            # As with the arguments: whatever breaks the reading must deny the call.
            raise BadCall(RULE, f"what `{tool}` is about could not be read ({type(fault).__name__})") from fault

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
            result = await runner(prepared, permit, place)
        except CannotDo as fault:
            result = ToolResult(ok=False, value=str(fault))
        if result.is_logged:
            return result
        # Masking megabytes takes a while; nobody else should wait for it.
        is_long = len(str(result.value)) > _LONG
        masked = await run_in_thread(place.session, partial(self.masked, result.value)) if is_long else self.masked(result.value)
        return result if masked is result.value else ToolResult(ok=result.ok, value=masked)


class ToolHub:
    """Native tools and servers behind the `ToolHost` port."""

    def __init__(self, native: NativeTools, servers: Servers) -> None:
        self._native = native
        self._servers = servers
        self._foreign: dict[str, tuple[Catalogue, NativeTools]] = {}

    @property
    def native(self) -> NativeTools:
        """Return our own tools."""
        return self._native

    def find(self, tool: str) -> ToolSpec | None:
        """Return the entry for `server.tool`, if it can be called now."""
        server = tool.partition(".")[0]
        if server not in self._servers:
            return self._native.find(tool)
        return next((spec for spec in self._servers.shelf.listing() if spec.full_name == tool), None)

    def listing(self) -> tuple[ToolSpec, ...]:
        """Return every tool that an agent can call now."""
        return (*self._native.listing(), *self._servers.shelf.listing())

    def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Check the arguments, find out what they mean, and mask; raise `BadCall`."""
        server, _, name = tool.partition(".")
        if server not in self._servers:
            return self._native.prepare(tool, arguments, place, step=self.prepare)
        self._servers.shelf.require_callable(server, name)
        return self._of(server).prepare(tool, arguments, place)

    def masked(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret masked, for the log."""
        return self._native.masked(value)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Run the call with its canonical arguments only, and mask what comes back."""
        server = prepared.subject.tool.partition(".")[0]
        hands = self._of(server) if server in self._servers else self._native
        return await hands.run(prepared, permit, place)

    async def leave(self, session: SessionId) -> None:
        """Let go of what a session kept running."""
        await self._servers.leave(session)

    async def aclose(self) -> None:
        """Stop everything that runs."""
        await self._servers.close()

    def _of(self, server: str) -> NativeTools:
        """Return a server's tools in the setting of our own; made anew where a human has reviewed them since."""
        catalogue = self._servers.shelf.catalogue(server)
        kept = self._foreign.get(server)
        if kept is None or kept[0] is not catalogue:
            kept = self._foreign[server] = (catalogue, self._native.beside(catalogue, self._servers.runners(server)))
        return kept[1]
