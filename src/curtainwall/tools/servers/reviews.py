"""What a human has reviewed of each server, and so the status of each of its tools: callable, changed, or not to be called and why."""

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.model import BadCall, Broken, ToolSpec
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.servers.offered import OfferedTool, parse_tool
from curtainwall.tools.servers.spec import ServerSpec

_VERSION = 1
_BIGGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Review:
    """One server's tools as they were reviewed, and the names of those that were seen changed."""

    about: str = ""
    tools: Mapping[str, OfferedTool] = field(default_factory=dict[str, OfferedTool])
    changed: frozenset[str] = frozenset()

    def compared(self, now: Mapping[str, OfferedTool]) -> "Review":
        """Return the review with what has changed noted; what was changed once stays so until a human looks."""
        differing = {name for name, then in self.tools.items() if name in now and now[name].fingerprint != then.fingerprint}
        return replace(self, changed=self.changed | differing)


class Reviews:
    """The reviews, one file for each server in a directory of ours."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def stamp(self, server: str) -> tuple[int, int] | None:
        """Return what tells whether a review was written anew, or None where there is none."""
        try:
            found = self._path(server).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def read(self, server: str) -> Review | None:
        """Return the review of a server, or None where there is none yet; raise `Broken` for a damaged one."""
        path = self._path(server)
        try:
            with path.open("rb") as file:
                content = file.read(_BIGGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Broken(f"the review `{path}` cannot be read: {error.strerror}") from None
        try:
            told = json.loads(content)
            assert told["version"] == _VERSION
            tools = [parse_tool(cast("dict[str, JsonValue]", one["told"])) for one in told["tools"]]
            prints = [str(one["fingerprint"]) for one in told["tools"]]
            found = {one.name: replace(one, fingerprint=print_) for one, print_ in zip(tools, prints, strict=True) if one is not None}
            return Review(str(told["about"]), found, frozenset(map(str, told["changed"])))
        except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
            raise Broken(f"the review `{path}` is damaged; make it anew with `curtainwall servers annotate {server} --write`") from None

    def write(self, server: str, review: Review) -> None:
        """Keep a review, for us alone."""
        told = {
            "version": _VERSION,
            "about": review.about,
            "changed": sorted(review.changed),
            "tools": [{"fingerprint": one.fingerprint, "told": one.told} for _, one in sorted(review.tools.items())],
        }
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(server)
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(told, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    def forget(self, server: str) -> None:
        """Let go of a review; a server of the same name has to be reviewed anew."""
        self._path(server).unlink(missing_ok=True)

    def _path(self, server: str) -> Path:
        return self._directory / f"{server}.json"


class ToolStatus(StrEnum):
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


class ServerCatalogue:
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

    def require_callable(self, server: str, tool: str) -> None:
        """Raise `BadCall` for a tool that cannot be called, with what a human can do about it."""
        name = f"{server}.{tool}"
        match self.standing(server, tool):
            case ToolStatus.READY:
                return
            case ToolStatus.CHANGED:
                raise BadCall(
                    "tool-changed",
                    f"{quoted(name)} describes itself otherwise than when it was reviewed, so it is suspended; "
                    f"a human can look at it with `curtainwall servers annotate {server}`",
                )
            case ToolStatus.UNUSABLE:
                raise BadCall("unknown-tool", f"{quoted(name)} cannot be used: {self._of(server).faults[tool]}")
            case ToolStatus.NEW:
                known = f"; `{server}` has {_some(self._ready(server))}" if self._ready(server) else ""
                raise BadCall(
                    "unknown-tool",
                    f"no tool {quoted(name)} was reviewed{known}; a human can review what the server offers with "
                    f"`curtainwall servers annotate {server} --write`",
                )
            case ToolStatus.NO_ROLES:
                raise BadCall(
                    "unknown-tool",
                    f"{quoted(name)} has no roles, so nothing says what its arguments mean; "
                    f"a human can give it some with `curtainwall servers annotate {server} --write`",
                )

    def standing(self, server: str, tool: str) -> ToolStatus:
        """Return how a tool stands."""
        kept = self._of(server)
        if tool not in kept.review.tools:
            return ToolStatus.NEW
        if tool in kept.review.changed:
            return ToolStatus.CHANGED
        if tool not in self._specs[server].tools:
            return ToolStatus.NO_ROLES
        return ToolStatus.UNUSABLE if tool in kept.faults else ToolStatus.READY

    def fault(self, server: str, tool: str) -> str:
        """Return why a tool is unusable, or nothing."""
        return self._of(server).faults.get(tool, "")

    def seen(self, server: str, now: Mapping[str, OfferedTool]) -> None:
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
