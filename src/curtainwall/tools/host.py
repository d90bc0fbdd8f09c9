"""The native tools behind the `ToolHost` port: what a call means in its session, and the runner that carries it out."""

from collections.abc import Callable, Mapping
from functools import partial

from pydantic import JsonValue

from curtainwall.facts import Masker, Scene
from curtainwall.model import PROPOSE_PLAN, BadCall, CallPermitted, Place, Prepared, ToolResult, ToolSpec
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.closers import Closer
from curtainwall.tools.meaning import Setting, prepare
from curtainwall.tools.plans import plan_of
from curtainwall.tools.runners import CannotDo, Runner
from curtainwall.tools.schema_check import RULE
from curtainwall.tools.threads import in_turn

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
        closers: Mapping[str, Closer] | None = None,
        of_others: Closer | None = None,
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
        scene = Scene(workspace=place.workspace.path, home=self._home, mounts=self._mounts(place))
        working_directory = place.git_directory or place.workspace.path
        prepared = prepare(self.catalogue, tool, arguments, Setting(scene, working_directory, self._masker, self._own_ports))
        if tool == PROPOSE_PLAN:
            return plan_of(prepared, lambda each, its: self._step(each, its, place, step or self.prepare))
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
        masked = await in_turn(place.session, partial(self.masked, result.value)) if is_long else self.masked(result.value)
        return result if masked is result.value else ToolResult(ok=result.ok, value=masked)
