"""Hooks as Claude Code's settings write them, with their matchers. What cannot be honoured is refused, or left out and named."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from curtainwall.facts import Unclear, Url, canonical_url
from curtainwall.model import Broken, canonical_json, explain_invalid

_EVERYTHING: Final = frozenset({"", "*"})
# A text of these alone is a list of names; the dot is ours, as in `filesystem.write_file`.
_NAMES = re.compile(r"[A-Za-z0-9_.\- ]+(?:[|,][A-Za-z0-9_.\- ]+)*")
_LONGEST: Final = 256

_CLAUDE: Final[Mapping[str, tuple[str, ...]]] = {
    "shell.run": ("Bash",),
    "filesystem.read_file": ("Read",),
    "filesystem.read_multiple_files": ("Read",),
    "filesystem.write_file": ("Write",),
    "filesystem.edit_file": ("Edit", "MultiEdit"),
    "filesystem.search_files": ("Glob", "Grep"),
    "filesystem.list_directory": ("LS",),
    "filesystem.directory_tree": ("LS",),
    "fetch.get": ("WebFetch",),
}
CLAUDE_NAMES: Final = frozenset(name for names in _CLAUDE.values() for name in names)
"""Claude Code's own tools that have a counterpart here."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """A matcher, ready to be asked. `exact` are the names of a list; otherwise `pattern` has to fit a name from end to end."""

    text: str
    exact: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None

    def finds(self, names: Iterable[str]) -> str | None:
        """Return the first of the names that is meant, or None."""
        for name in names:
            if self.exact is not None:
                is_meant = name in self.exact
            else:
                is_meant = self.pattern is None or self.pattern.fullmatch(name[:_LONGEST]) is not None
            if is_meant:
                return name
        return None


def compile_matcher(text: str) -> Matcher:
    """Return the matcher that a text writes: nothing or `*` for all, names with `|` between them, or a regular expression."""
    if text.strip() in _EVERYTHING:
        return Matcher(text)
    if _NAMES.fullmatch(text):
        return Matcher(text, exact=frozenset(part.strip() for part in re.split(r"[|,]", text)))
    try:
        return Matcher(text, pattern=re.compile(text))
    except (re.error, RecursionError, OverflowError) as fault:
        raise ValueError(f"the matcher `{text}` is no regular expression: {fault}") from None


def tool_names(tool: str) -> tuple[str, ...]:
    """Return the names of a tool: ours, the one that MCP clients know, and Claude Code's where it has the like."""
    return (tool, f"mcp__{tool.replace('.', '__', 1)}", *_CLAUDE.get(tool, ()))


SECONDS: Final = 60.0
EVENTS: Final = (
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "StopFailure",
    "PreCompact",
    "PostCompact",
    "Notification",
)
_WITHOUT_MATCHER: Final = frozenset({"UserPromptSubmit", "Stop"})
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")
_RUN_SCRIPTS: Final = frozenset("sh bash zsh env exec python python3 node ruby perl uv npx".split())
_SHELLS: Final = {None: "/bin/sh", "sh": "/bin/sh", "bash": "bash"}


@dataclass(frozen=True, slots=True)
class CommandHook:
    """A command hook: a line for the shell, or with `arguments` a program that is started without one."""

    line: str
    arguments: tuple[str, ...] | None = None
    shell: str = "/bin/sh"

    def __str__(self) -> str:
        return " ".join((self.line, *(self.arguments or ())))


@dataclass(frozen=True, slots=True)
class HttpHook:
    """An http hook: where the event is posted, and the variables that its headers may name."""

    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.url.text


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook: when, for what, doing what, for how long at most, and in which directory.

    `runs` is the same command with copies of its programs, where it must not be run as it is written, and `alone` what those do not find.
    """

    event: str
    matcher: Matcher
    action: CommandHook | HttpHook
    seconds: float
    directory: str
    runs: CommandHook | None = None
    alone: str = ""

    @property
    def name(self) -> str:
        """Return what rules, grants and the log call it: readable, and another one as soon as anything about it differs."""
        told: list[JsonValue] = [self.event, self.matcher.text, repr(self.action), self.seconds, self.directory]
        word = self.action.url.facts.host if isinstance(self.action, HttpHook) else _program_name(str(self.action))
        return f"{_STRANGE.sub('-', word)[:40].strip('-') or 'hook'}-{hashlib.sha256(canonical_json(told)).hexdigest()[:6]}"


@dataclass(frozen=True, slots=True)
class HookSettings:
    """The hooks of one source, in its order, and what was left out of them, in sentences."""

    hooks: tuple[Hook, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, event: str) -> tuple[Hook, ...]:
        """Return the hooks of one event."""
        return tuple(hook for hook in self.hooks if hook.event == event)

    def for_tool(self, event: str, tool: str) -> tuple[Hook, ...]:
        """Return the hooks of one event that a tool is meant by."""
        return tuple(hook for hook in self.of(event) if hook.matcher.finds(tool_names(tool)) is not None)


class _Common(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    timeout: float = Field(SECONDS, gt=0, le=86_400, allow_inf_nan=False)
    statusMessage: str = ""  # noqa: N815 - the format's spelling


class _Command(_Common):
    type: Literal["command"]
    command: str = Field(min_length=1)
    args: list[str] | None = None
    shell: Literal["bash", "sh"] | None = None


class _Http(_Common):
    type: Literal["http"]
    url: str
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    allowedEnvVars: list[str] = Field(default_factory=list[str])  # noqa: N815 - the format's spelling


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    matcher: str = ""
    hooks: list[JsonValue]


_HANDLER: TypeAdapter[_Command | _Http] = TypeAdapter(Annotated[_Command | _Http, Field(discriminator="type")])


def read_settings(told: JsonValue, *, directory: str, strict: bool = False) -> HookSettings:
    """Return the hooks that settings name; `directory` is where their programs start. Raise `Broken`.

    A file of Claude Code's serves two programs, so what we do not know there is only noted, unless it stands before a call: a guard that
    cannot be honoured must not vanish. With `strict`, everything unknown is refused.
    """
    if not isinstance(told, dict):
        raise Broken("settings are a JSON object")
    hooks = told.get("hooks", {})
    if not isinstance(hooks, dict):
        raise Broken("`hooks` must be an object with the names of events as keys")
    if told.get("disableAllHooks") is True:
        return HookSettings(notes=("`disableAllHooks` is set: none of these hooks runs",))
    reading = _Reading(directory, strict=strict)
    for event, groups in hooks.items():
        reading.take(event, groups)
    return HookSettings(tuple(reading.hooks), tuple(reading.notes))


class _Reading:
    """Settings being read: what stands so far."""

    def __init__(self, directory: str, *, strict: bool) -> None:
        self.hooks: list[Hook] = []
        self.notes: list[str] = []
        self._directory = directory
        self._strict = strict

    def take(self, event: str, groups: JsonValue) -> None:
        """Read the groups of one event."""
        if event not in EVENTS:
            self._leave_out(event, "there is no such event here")
            return
        if not isinstance(groups, list):
            raise Broken(f"`hooks.{event}` must be a list of groups with `matcher` and `hooks`")
        for place, told in enumerate(groups):
            where = f"{event}[{place}]"
            try:
                group = _Group.model_validate(told)
                matcher = compile_matcher("" if event in _WITHOUT_MATCHER else group.matcher)
            except ValueError as fault:
                self._leave_out(where, _plain(fault), guards=event == "PreToolUse")
                continue
            for number, handler in enumerate(group.hooks):
                try:
                    self.hooks.append(self._hook(event, matcher, handler))
                except (ValueError, Unclear) as fault:
                    self._leave_out(f"{where}.hooks[{number}]", _plain(fault), guards=event == "PreToolUse")

    def _hook(self, event: str, matcher: Matcher, told: JsonValue) -> Hook:
        handler = _HANDLER.validate_python(told)
        action: CommandHook | HttpHook
        if isinstance(handler, _Http):
            action = HttpHook(canonical_url(handler.url), tuple(handler.headers.items()), tuple(handler.allowedEnvVars))
        else:
            if any("\0" in text for text in (handler.command, *(handler.args or ()))):
                raise ValueError("a command cannot hold a NUL")
            arguments = None if handler.args is None else tuple(handler.args)
            action = CommandHook(handler.command, arguments, _SHELLS[handler.shell])
        return Hook(event, matcher, action, handler.timeout, self._directory)

    def _leave_out(self, where: str, why: str, *, guards: bool = False) -> None:
        if self._strict or guards:
            raise Broken(f"`hooks.{where}` cannot be honoured: {why}")
        self.notes.append(f"`hooks.{where}` is left out: {why}")


def _program_name(line: str) -> str:
    """Return the program that a line starts, or the script where it only names what runs it."""
    names = [PurePosixPath(word.strip("\"'")).name for word in line.split()[:2]]
    return names[1] if len(names) > 1 and names[0] in _RUN_SCRIPTS and not names[1].startswith("-") else (names or [""])[0]


def _plain(fault: Exception) -> str:
    if isinstance(fault, Unclear):
        return fault.message
    if not isinstance(fault, ValidationError):
        return str(fault)
    if fault.errors(include_url=False, include_context=False)[0]["type"] == "union_tag_invalid":
        return "its `type` must be `command` or `http`"
    place, words = explain_invalid(fault)
    key = ".".join(map(str, place[1:] if place[:1] in {("command",), ("http",)} else place))
    return f"{f'`{key}`' if key else 'it'} {words.replace('known', 'supported')}"
