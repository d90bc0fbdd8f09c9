"""Human reviews of each server, and the status of each tool that follows: callable, changed, or not callable and why."""

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
from curtainwall.model import BadCall, Broken, ToolSpec, record
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.servers.offered import OfferedTool, parse_tool
from curtainwall.tools.servers.spec import ServerSpec

_VERSION = 1
_BIGGEST = 64 * 1024 * 1024


@record
class Review:
    """One server's tools as reviewed, and the names of those that have changed since."""

    about: str = ""
    tools: Mapping[str, OfferedTool] = field(default_factory=dict[str, OfferedTool])
    changed: frozenset[str] = frozenset()

    def compared(self, now: Mapping[str, OfferedTool]) -> "Review":
        """Return the review with changed tools noted; a tool stays changed until a human reviews it."""
        differing = {name for name, reviewed in self.tools.items() if name in now and now[name].fingerprint != reviewed.fingerprint}
        return replace(self, changed=self.changed | differing)


class Reviews:
    """The stored reviews: one file per server in our directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def stamp(self, server: str) -> tuple[int, int] | None:
        """Return a version stamp that changes when the review is rewritten, or None if there is none."""
        try:
            status = self._path(server).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def read(self, server: str) -> Review | None:
        """Return the review of a server, or None if there is none yet; raise `Broken` if it is damaged."""
        path = self._path(server)
        try:
            with path.open("rb") as file:
                content = file.read(_BIGGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Broken(f"the review `{path}` cannot be read: {error.strerror}") from None
        try:
            document = json.loads(content)
            assert document["version"] == _VERSION
            tools = [parse_tool(cast("dict[str, JsonValue]", tool["told"])) for tool in document["tools"]]
            fingerprints = [str(tool["fingerprint"]) for tool in document["tools"]]
            by_name = {
                tool.name: replace(tool, fingerprint=fingerprint)
                for tool, fingerprint in zip(tools, fingerprints, strict=True)
                if tool is not None
            }
            return Review(str(document["about"]), by_name, frozenset(map(str, document["changed"])))
        except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
            raise Broken(f"the review `{path}` is damaged; make it anew with `curtainwall servers annotate {server} --write`") from None

    def write(self, server: str, review: Review) -> None:
        """Store a review in a private file."""
        document = {
            "version": _VERSION,
            "about": review.about,
            "changed": sorted(review.changed),
            "tools": [{"fingerprint": tool.fingerprint, "told": tool.fields} for _, tool in sorted(review.tools.items())],
        }
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(server)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def forget(self, server: str) -> None:
        """Delete a review; a server with the same name must be reviewed again."""
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
class _CachedReview:
    """A server's review as read, and the tools that follow from it."""

    review: Review
    stamp: tuple[int, int] | None
    specs: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    faults: dict[str, str] = field(default_factory=dict[str, str])
    catalogue: Catalogue = field(default_factory=lambda: Catalogue(()))


class ServerCatalogue:
    """The tools of all servers, derived from declarations and reviews without starting any server."""

    def __init__(self, specs: Mapping[str, ServerSpec], reviews: Reviews) -> None:
        self._specs = specs
        self._reviews = reviews
        self._cache: dict[str, _CachedReview] = {}

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
        """Raise `BadCall` for a tool that cannot be called, with the remedy for a human."""
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
                available = f"; `{server}` has {_some(self._ready(server))}" if self._ready(server) else ""
                raise BadCall(
                    "unknown-tool",
                    f"no tool {quoted(name)} was reviewed{available}; a human can review what the server offers with "
                    f"`curtainwall servers annotate {server} --write`",
                )
            case ToolStatus.NO_ROLES:
                raise BadCall(
                    "unknown-tool",
                    f"{quoted(name)} has no roles, so nothing says what its arguments mean; "
                    f"a human can give it some with `curtainwall servers annotate {server} --write`",
                )

    def standing(self, server: str, tool: str) -> ToolStatus:
        """Return the status of a tool."""
        entry = self._of(server)
        if tool not in entry.review.tools:
            return ToolStatus.NEW
        if tool in entry.review.changed:
            return ToolStatus.CHANGED
        if tool not in self._specs[server].tools:
            return ToolStatus.NO_ROLES
        return ToolStatus.UNUSABLE if tool in entry.faults else ToolStatus.READY

    def fault(self, server: str, tool: str) -> str:
        """Return why a tool is unusable, or nothing."""
        return self._of(server).faults.get(tool, "")

    def seen(self, server: str, now: Mapping[str, OfferedTool]) -> None:
        """Compare a server's current tools with the review, and suspend those that have changed."""
        entry = self._of(server)
        review = entry.review.compared(now)
        if review.changed != entry.review.changed:
            self._reviews.write(server, review)
            self._cache.pop(server)

    def review(self, server: str) -> Review:
        """Return the review of a server."""
        return self._of(server).review

    def _ready(self, server: str) -> tuple[ToolSpec, ...]:
        entry = self._of(server)
        return tuple(spec for name, spec in sorted(entry.specs.items()) if name not in entry.review.changed)

    def _of(self, server: str) -> _CachedReview:
        """Return the cached state of a server, reloaded if a human has reviewed it since."""
        stamp = self._reviews.stamp(server)
        entry = self._cache.get(server)
        if entry is None or entry.stamp != stamp:
            entry = self._cache[server] = _CachedReview(self._reviews.read(server) or Review(), stamp)
            for name, roles in self._specs[server].tools.items():
                tool = entry.review.tools.get(name)
                if tool is None:
                    continue
                try:
                    spec = tool.spec(server, roles)
                    Catalogue((spec,))
                except Broken as error:
                    entry.faults[name] = str(error)
                else:
                    entry.specs[name] = spec
            entry.catalogue = Catalogue(entry.specs.values())
        return entry


def _some(specs: tuple[ToolSpec, ...]) -> str:
    names = [f"`{spec.name}`" for spec in specs]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
