"""Hooks and their matchers in the format of Claude Code's settings. An unsupported entry is refused, or left out with a note."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from curtainwall.facts import Unclear, Url, canonical_url
from curtainwall.model import Broken, canonical_json, explain_invalid, record

_EVERYTHING: Final = frozenset({"", "*"})
# A text of only these characters is a list of names; the dot is ours, as in `filesystem.write_file`.
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


@record
class Matcher:
    """A compiled matcher. `exact` holds the names of a list; otherwise `pattern` must match a whole name."""

    text: str
    exact: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None

    def finds(self, names: Iterable[str]) -> str | None:
        """Return the first name that matches, or None."""
        for name in names:
            if self.exact is not None:
                is_meant = name in self.exact
            else:
                is_meant = self.pattern is None or self.pattern.fullmatch(name[:_LONGEST]) is not None
            if is_meant:
                return name
        return None


def compile_matcher(text: str) -> Matcher:
    """Compile a matcher: empty or `*` for everything, names separated by `|`, or a regular expression."""
    if text.strip() in _EVERYTHING:
        return Matcher(text)
    if _NAMES.fullmatch(text):
        return Matcher(text, exact=frozenset(part.strip() for part in re.split(r"[|,]", text)))
    try:
        return Matcher(text, pattern=re.compile(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the matcher `{text}` is no regular expression: {error}") from None


def tool_names(tool: str) -> tuple[str, ...]:
    """Return the names of a tool: ours, the one that MCP clients use, and those of its counterparts in Claude Code."""
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


@record
class CommandHook:
    """A command hook: a shell line, or with `arguments` a program that is started without a shell."""

    line: str
    arguments: tuple[str, ...] | None = None
    shell: str = "/bin/sh"

    def __str__(self) -> str:
        return " ".join((self.line, *(self.arguments or ())))

    @property
    def identity(self) -> str:
        return f"Program(line={self.line!r}, arguments={self.arguments!r}, shell={self.shell!r})"


@record
class HttpHook:
    """An HTTP hook: the URL for the event, and the variables that its headers may use."""

    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.url.text

    @property
    def identity(self) -> str:
        facts = self.url.facts
        scope = f"<Scope.{facts.scope.name}: {facts.scope.value!r}>"
        host = f"HostFacts(kind='host', host={facts.host!r}, port={facts.port!r}, secure={facts.secure!r}, scope={scope})"
        url = f"Url(text={self.url.text!r}, origin={self.url.origin!r}, facts={host})"
        return f"Endpoint(url={url}, headers={self.headers!r}, variables={self.variables!r})"


@record
class Hook:
    """One hook: its event, matcher, action, time limit and directory.

    If the command must not run as written, `runs` is the same command with copies of its programs, and `alone` says what they lack.
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
        """Return its name in rules, grants and the log: readable, and different as soon as anything about the hook changes.

        The text that is hashed must stay as it is, down to the class names of 0.1.0: rules and grants refer to hooks by this name.
        """
        identity: list[JsonValue] = [self.event, self.matcher.text, self.action.identity, self.seconds, self.directory]
        label = self.action.url.facts.host if isinstance(self.action, HttpHook) else _program_name(str(self.action))
        return f"{_STRANGE.sub('-', label)[:40].strip('-') or 'hook'}-{hashlib.sha256(canonical_json(identity)).hexdigest()[:6]}"


@record
class HookSettings:
    """The hooks of one source in order, and a note for each entry that was left out."""

    hooks: tuple[Hook, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, event: str) -> tuple[Hook, ...]:
        """Return the hooks of one event."""
        return tuple(hook for hook in self.hooks if hook.event == event)

    def for_tool(self, event: str, tool: str) -> tuple[Hook, ...]:
        """Return the hooks of one event that match a tool."""
        return tuple(hook for hook in self.of(event) if hook.matcher.finds(tool_names(tool)) is not None)


class _Common(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

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
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    matcher: str = ""
    hooks: list[JsonValue]


_HANDLER: TypeAdapter[_Command | _Http] = TypeAdapter(
    Annotated[_Command | _Http, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)


def read_settings(content: JsonValue, *, directory: str, strict: bool = False) -> HookSettings:
    """Return the hooks in settings; `directory` is where their programs start. Raise `Broken`.

    Claude Code shares its settings file with us, so unknown entries are only noted, unless they guard a call: a guard that we cannot
    honour must not vanish. With `strict`, everything unknown is refused.
    """
    if not isinstance(content, dict):
        raise Broken("settings are a JSON object")
    hooks = content.get("hooks", {})
    if not isinstance(hooks, dict):
        raise Broken("`hooks` must be an object with the names of events as keys")
    if content.get("disableAllHooks") is True:
        return HookSettings(notes=("`disableAllHooks` is set: none of these hooks runs",))
    reading = _SettingsReader(directory, strict=strict)
    for event, groups in hooks.items():
        reading.take(event, groups)
    return HookSettings(tuple(reading.hooks), tuple(reading.notes))


class _SettingsReader:
    """A reader of settings that collects hooks and notes."""

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
        for position, item in enumerate(groups):
            where = f"{event}[{position}]"
            try:
                group = _Group.model_validate(item)
                matcher = compile_matcher("" if event in _WITHOUT_MATCHER else group.matcher)
            except ValueError as error:
                self._leave_out(where, _explain(error), guards=event == "PreToolUse")
                continue
            for number, handler in enumerate(group.hooks):
                try:
                    self.hooks.append(self._hook(event, matcher, handler))
                except (ValueError, Unclear) as error:
                    self._leave_out(f"{where}.hooks[{number}]", _explain(error), guards=event == "PreToolUse")

    def _hook(self, event: str, matcher: Matcher, item: JsonValue) -> Hook:
        handler = _HANDLER.validate_python(item)
        action: CommandHook | HttpHook
        if isinstance(handler, _Http):
            action = HttpHook(canonical_url(handler.url), tuple(handler.headers.items()), tuple(handler.allowedEnvVars))
        else:
            if any("\0" in text for text in (handler.command, *(handler.args or ()))):
                raise ValueError("a command cannot hold a NUL")
            arguments = None if handler.args is None else tuple(handler.args)
            action = CommandHook(handler.command, arguments, _SHELLS[handler.shell])
        return Hook(event, matcher, action, handler.timeout, self._directory)

    def _leave_out(self, where: str, reason: str, *, guards: bool = False) -> None:
        if self._strict or guards:
            raise Broken(f"`hooks.{where}` cannot be honoured: {reason}")
        self.notes.append(f"`hooks.{where}` is left out: {reason}")


def _program_name(line: str) -> str:
    """Return the program that a line starts, or the script if the program is only its interpreter."""
    names = [PurePosixPath(word.strip("\"'")).name for word in line.split()[:2]]
    return names[1] if len(names) > 1 and names[0] in _RUN_SCRIPTS and not names[1].startswith("-") else (names or [""])[0]


def _explain(error: Exception) -> str:
    if isinstance(error, Unclear):
        return error.message
    if not isinstance(error, ValidationError):
        return str(error)
    if error.errors(include_url=False, include_context=False)[0]["type"] == "union_tag_invalid":
        return "its `type` must be `command` or `http`"
    place, words = explain_invalid(error)
    key = ".".join(map(str, place[1:] if place[:1] in {("command",), ("http",)} else place))
    return f"{f'`{key}`' if key else 'it'} {words.replace('known', 'supported')}"
