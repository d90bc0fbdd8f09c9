"""Subjects: an agent's requests and their meaning in roles and resources, and how the text of a resource is compared and shown."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

from pydantic import Field, JsonValue

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import Digest


class Role(StrEnum):
    """The meaning of an argument, which is also the action that policy judges."""

    USE_TOOL = "use-tool"
    READ_PATH = "read-path"
    WRITE_PATH = "write-path"
    DELETE_PATH = "delete-path"
    FETCH_URL = "fetch-url"
    SEND_URL = "send-url"
    READ_REMOTE = "read-remote"
    WRITE_REMOTE = "write-remote"
    RUN_COMMAND = "run-command"
    USE_CREDENTIAL = "use-credential"
    MESSAGE_TEAM = "message-team"
    RAISE_BUDGET = "raise-budget"


PATH_ROLES: Final = (Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH)
"""The roles whose resources are paths."""


OWN_SERVERS: Final = frozenset({"session", "filesystem", "fetch", "git", "shell", "egress", "teams"})
"""The names reserved for our own tools; no external server has one of them."""


def is_external(tool: str) -> bool:
    """Tell whether a tool, named as `server.tool`, belongs to an external server, so that we cannot know what a call does."""
    return tool.partition(".")[0] not in OWN_SERVERS


class ToolEffect(StrEnum):
    """The strongest effect that a tool can have."""

    INSPECT = "inspect"
    MODIFY = "modify"
    EXECUTE = "execute"
    SEND = "send"


class SubjectKind(StrEnum):
    """The five kinds of requests that leave a session."""

    TOOL_CALL = "tool-call"
    EGRESS = "egress"
    CREDENTIAL = "credential"
    PEER_MESSAGE = "peer-message"
    BUDGET_RAISE = "budget-raise"


class Scope(StrEnum):
    """Which part of the network a host belongs to."""

    PUBLIC = "public"
    PRIVATE = "private"
    FORBIDDEN = "forbidden"


class HostFacts(Frozen):
    """The target of a URL. `host` is IDNA-normalised and lower-case; an address is in its canonical form."""

    kind: Literal["host"] = "host"
    host: str
    port: int
    secure: bool
    scope: Scope


class CommandFacts(Frozen):
    """One simple command. `parsed` is false if the shell grammar could not determine what would run."""

    kind: Literal["command"] = "command"
    program: str
    parsed: bool


class ToolFacts(Frozen):
    """The tool itself, as a resource."""

    kind: Literal["tool"] = "tool"
    server: str
    effect: ToolEffect


class PathFacts(Frozen):
    """Properties of a path beyond its name: changing it changes what runs later unasked, or everything beneath it is meant too."""

    kind: Literal["path"] = "path"
    runs_later: bool
    whole: bool = False


Facts = HostFacts | CommandFacts | ToolFacts | PathFacts
"""Distinguished by their keys: no two share a required one. `kind` is a default and therefore not stored."""


class Resource(Frozen):
    """One canonical value and the role it plays.

    The value is what grants are compared with: a path's real path, a URL's origin (`https://docs.python.org`), a remote's
    `host/owner/repo`, a command's text, a tool's `server.tool`, a team's, credential's or budget's name.
    """

    role: Role
    value: str
    facts: Facts | None = None


def _is_empty(mapping: Mapping[str, str]) -> bool:
    # Most calls have none, and their events are stored as by earlier versions.
    return not mapping


def _is_none(value: object) -> bool:
    return value is None


class ShownFile(Frozen):
    """One change in the list of a change set: the path that an answer may name, and what happened to it in words.

    `source` is the old path of a renamed file.
    """

    path: str
    words: str
    source: str = ""
    runs_later: bool = False


class ShownDifference(Frozen):
    """The lines of one file's difference, each with its line numbers, and how many more there are."""

    path: str
    lines: tuple[str, ...]
    left_out: int = 0


class ChangeCard(Frozen):
    """A change set for display. It is not covered by the subject's digest, which covers every file before and after instead."""

    summary: str
    files: tuple[ShownFile, ...]
    differences: tuple[ShownDifference, ...] = ()
    notes: tuple[str, ...] = ()
    """What is not part of the set, and why."""

    @property
    def paths(self) -> frozenset[str]:
        """Return the paths that an answer may name."""
        return frozenset(file.path for file in self.files)


class Subject(Frozen):
    """One exact request at the gate.

    `raw` is what the agent wrote and `canonical` what would run, both masked, for people and the log. `masked` means that something is
    hidden in them, and `hidden` has the outline of each masked value, so that people see what could act. `digest` covers the unmasked
    canonical arguments and the resources, so an approval is bound to exactly what would run. A plan has `steps`, the subjects of the calls
    that it lists. `reads` are files that a command finds in its directory, each with a description for people: these files are never asked
    about, but they set labels as if they were read. `changes` is what people are shown of a change set.
    """

    kind: SubjectKind = SubjectKind.TOOL_CALL
    tool: str
    effect: ToolEffect
    raw: Mapping[str, JsonValue]
    canonical: Mapping[str, JsonValue]
    resources: tuple[Resource, ...]
    digest: Digest
    masked: bool = False
    hidden: Mapping[str, str] = Field(default_factory=dict[str, str], exclude_if=_is_empty)
    steps: tuple["Subject", ...] = ()
    reads: Mapping[str, str] = Field(default_factory=dict[str, str], exclude_if=_is_empty)
    changes: ChangeCard | None = Field(default=None, exclude_if=_is_none)

    @property
    def labelled_by(self) -> tuple[Resource, ...]:
        """Return everything that can set a label: the resources, then the files that may be read in addition."""
        return (*self.resources, *(Resource(role=Role.READ_PATH, value=path) for path in self.reads))

    def origin_of(self, place: int) -> str:
        """Return the description, for people, of something that can set a label, by its index among all of these."""
        touched = self.labelled_by[place].value
        return touched if place < len(self.resources) else self.reads[touched]


_SPELLING: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: JsonValue | Mapping[str, JsonValue]) -> bytes:
    """Return the canonical spelling of a JSON value, over which digests are computed."""
    return _SPELLING.encode(value).encode()


def is_deeper(value: JsonValue, levels: int) -> bool:
    """Tell whether lists and objects are nested deeper than this. How deep a value can be read depends on the version of Python."""
    level = [value]
    for _ in range(levels + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def subject_digest(kind: SubjectKind, tool: str, canonical: Mapping[str, JsonValue], resources: tuple[Resource, ...]) -> Digest:
    """Return the digest of the exact subject."""
    named: list[JsonValue] = [
        {"role": each.role.value, "value": each.value, "facts": None if each.facts is None else each.facts.model_dump(mode="json")}
        for each in resources
    ]
    parts: JsonValue = [kind.value, tool, dict(canonical), named]
    return Digest(hashlib.sha256(canonical_json(parts)).hexdigest())


FORGES: Final = frozenset({"github.com", "gitlab.com", "bitbucket.org"})
"""Hosts that ignore case in owner and repository, and treat `git@host:a/b` like `ssh://git@host/a/b`.

On other hosts case counts: two repositories must never look like one.
"""


def is_beneath(path: str, root: str) -> bool:
    """Tell whether a canonical path equals a canonical directory or lies inside it, by whole components."""
    return path == root or path.startswith(root if root == "/" else f"{root}/")


def ancestors(path: str) -> tuple[str, ...]:
    """Return every directory above a canonical path, the nearest first, without the path itself."""
    directories: list[str] = []
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        directories.append(path)
    return tuple(directories)


_LEFTWARD: Final = frozenset(("R", "AL", "AN"))


def has_leftward(text: str) -> bool:
    """Tell whether a text contains such characters."""
    return not text.isascii() and any(unicodedata.bidirectional(letter) in _LEFTWARD for letter in text)


def in_order(text: str) -> str:
    """Escape these characters, so that people read a path, a host or a command in the order in which it is used."""
    if not has_leftward(text):
        return text
    return "".join(
        letter.encode("unicode_escape").decode() if unicodedata.bidirectional(letter) in _LEFTWARD else letter for letter in text
    )
