"""How each tool of each server stands: reviewed and with roles, or not to be called, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from curtainwall.facts import quoted
from curtainwall.model import BadCall, Broken, ToolSpec
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.servers.offered import Offered
from curtainwall.tools.servers.reviews import Review, Reviews
from curtainwall.tools.servers.spec import ServerSpec


class Standing(StrEnum):
    """Whether a tool can be called."""

    READY = "ready"
    NO_ROLES = "no roles"
    CHANGED = "changed"
    UNUSABLE = "unusable"
    NEW = "not reviewed"


@dataclass(slots=True)
class _Kept:
    """A server's review as it was read, and what it makes possible."""

    review: Review
    stamp: tuple[int, int] | None
    specs: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    faults: dict[str, str] = field(default_factory=dict[str, str])
    catalogue: Catalogue = field(default_factory=lambda: Catalogue(()))


class Shelf:
    """The tools of all servers, from what was declared and what was reviewed. Nothing is started for this."""

    def __init__(self, specs: Mapping[str, ServerSpec], reviews: Reviews) -> None:
        self._specs = specs
        self._reviews = reviews
        self._kept: dict[str, _Kept] = {}

    @property
    def servers(self) -> Iterable[str]:
        """Return the names of all servers."""
        return self._specs

    def catalogue(self, server: str) -> Catalogue:
        """Return the tools of a server that have roles and were reviewed."""
        return self._of(server).catalogue

    def listing(self) -> tuple[ToolSpec, ...]:
        """Return every tool that can be called now, by name."""
        return tuple(spec for server in sorted(self._specs) for spec in self._ready(server))

    def see_that_it_may(self, server: str, tool: str) -> None:
        """Raise `BadCall` for a tool that cannot be called, with what a human can do about it."""
        name = f"{server}.{tool}"
        match self.standing(server, tool):
            case Standing.READY:
                return
            case Standing.CHANGED:
                raise BadCall(
                    "tool-changed",
                    f"{quoted(name)} describes itself otherwise than when it was reviewed, so it is suspended; "
                    f"a human can look at it with `curtainwall servers annotate {server}`",
                )
            case Standing.UNUSABLE:
                raise BadCall("unknown-tool", f"{quoted(name)} cannot be used: {self._of(server).faults[tool]}")
            case Standing.NEW:
                known = f"; `{server}` has {_some(self._ready(server))}" if self._ready(server) else ""
                raise BadCall(
                    "unknown-tool",
                    f"no tool {quoted(name)} was reviewed{known}; a human can review what the server offers with "
                    f"`curtainwall servers annotate {server} --write`",
                )
            case Standing.NO_ROLES:
                raise BadCall(
                    "unknown-tool",
                    f"{quoted(name)} has no roles, so nothing says what its arguments mean; "
                    f"a human can give it some with `curtainwall servers annotate {server} --write`",
                )

    def standing(self, server: str, tool: str) -> Standing:
        """Return how a tool stands."""
        kept = self._of(server)
        if tool not in kept.review.tools:
            return Standing.NEW
        if tool in kept.review.changed:
            return Standing.CHANGED
        if tool not in self._specs[server].tools:
            return Standing.NO_ROLES
        return Standing.UNUSABLE if tool in kept.faults else Standing.READY

    def fault(self, server: str, tool: str) -> str:
        """Return why a tool is unusable, or nothing."""
        return self._of(server).faults.get(tool, "")

    def seen(self, server: str, now: Mapping[str, Offered]) -> None:
        """Compare what a server offers now with what was reviewed, and suspend what has changed."""
        kept = self._of(server)
        review = kept.review.compared(now)
        if review.changed != kept.review.changed:
            self._reviews.write(server, review)
            self._kept.pop(server)

    def review(self, server: str) -> Review:
        """Return what was reviewed of a server."""
        return self._of(server).review

    def _ready(self, server: str) -> tuple[ToolSpec, ...]:
        kept = self._of(server)
        return tuple(spec for name, spec in sorted(kept.specs.items()) if name not in kept.review.changed)

    def _of(self, server: str) -> _Kept:
        """Return what is known of a server, read anew where a human has reviewed it since."""
        stamp = self._reviews.stamp(server)
        kept = self._kept.get(server)
        if kept is None or kept.stamp != stamp:
            kept = self._kept[server] = _Kept(self._reviews.read(server) or Review(), stamp)
            for name, roles in self._specs[server].tools.items():
                tool = kept.review.tools.get(name)
                if tool is None:
                    continue
                try:
                    spec = tool.spec(server, roles)
                    Catalogue((spec,))
                except Broken as fault:
                    kept.faults[name] = str(fault)
                else:
                    kept.specs[name] = spec
            kept.catalogue = Catalogue(kept.specs.values())
        return kept


def _some(specs: tuple[ToolSpec, ...]) -> str:
    names = [f"`{spec.name}`" for spec in specs]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
