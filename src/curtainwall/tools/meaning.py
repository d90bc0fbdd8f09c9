"""Interpret a call: turn an agent's arguments into canonical arguments, the resources they name, and a digest of both."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from os.path import isdir, islink
from shlex import quote
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from curtainwall.facts import (
    Masker,
    PathRoots,
    Unclear,
    canonical_path,
    canonical_url,
    contains_mask,
    holds_what_runs,
    quoted,
    require_no_url,
    writes_what_runs,
)
from curtainwall.facts.secrets.names import is_secret_key
from curtainwall.model import (
    APPLY_CHANGES,
    EGRESS_SERVER,
    FOLLOW_INSTRUCTIONS,
    BadCall,
    CommandFacts,
    Facts,
    Meaning,
    PathFacts,
    Prepared,
    Resource,
    Role,
    Subject,
    SubjectKind,
    ToolEffect,
    ToolFacts,
    on_disk,
    record,
    runs_later,
    subject_digest,
)
from curtainwall.tools.catalogue import Catalogue, CatalogueEntry
from curtainwall.tools.native import NATIVE_TOOLS
from curtainwall.tools.schema_check import RULE, kind_of

if TYPE_CHECKING:
    from curtainwall.facts import ShellCommand

MAX_RESOURCES: Final = 256

# A message shows the beginning of a long argument; this much is enough to recognise a secret that begins there.
_QUOTABLE = 8_192
_LOOKED_AT = 1_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

_READING: Final = frozenset({Role.READ_PATH, Role.FETCH_URL, Role.READ_REMOTE})
_OURS = frozenset(spec.server for spec in NATIVE_TOOLS)

# These device files are harmless in the sandbox, and many command lines use them.
_NOBODYS = frozenset(f"/dev/{name}" for name in ("full", "null", "random", "stderr", "stdin", "stdout", "urandom", "zero"))


@record
class Setting:
    """The context of a call: the roots of its paths, the session's working directory, our own ports, and the masker of secrets."""

    scene: PathRoots
    working_directory: str
    masker: Masker
    own_ports: frozenset[int] = frozenset()


def prepare(catalogue: Catalogue, tool: str, arguments: JsonValue, setting: Setting) -> Prepared:
    """Check and interpret the arguments; raise `BadCall` for anything uncertain."""
    try:
        entry = catalogue.entry(tool)
        entry.check(arguments)
        assert isinstance(arguments, dict)
        return _prepared(entry, arguments, setting)
    except Unclear as error:
        raise BadCall(RULE, _without_secrets(error.message, arguments, setting.masker)) from error
    except BadCall as bad:
        raise BadCall(bad.rule, _without_secrets(str(bad), arguments, setting.masker)) from bad
    except Exception as error:
        # Any error while interpreting an argument must deny the call.
        raise BadCall(RULE, f"the arguments of `{tool}` could not be read ({type(error).__name__})") from error


def _prepared(entry: CatalogueEntry, arguments: dict[str, JsonValue], setting: Setting) -> Prepared:
    # Instructions are masked before use, and nothing is written. Of change sets, only remarks about paths are in the call.
    if entry.itself.value not in (FOLLOW_INSTRUCTIONS, APPLY_CHANGES) and contains_mask(arguments):
        raise BadCall(
            "masked-arguments",
            "an argument holds a masked secret; writing it would destroy the real one: change the other lines with `filesystem.edit_file`",
        )
    reading = _Reading(entry, arguments, setting)
    for meaning in entry.spec.meanings:
        reading.take(meaning)
    itself = _reduced(entry.itself) if reading.only_reads else entry.itself
    canonical, resources = reading.canonical, (itself, *reading.resources.values())
    name = itself.value
    kind = _kind(entry, resources)
    raw = {key: _masked(entry, key, value, setting.masker) for key, value in arguments.items()}
    shown = {
        key: raw[key] if key in raw and arguments[key] is value else _masked(entry, key, value, setting.masker)
        for key, value in canonical.items()
    }
    is_masked = raw != arguments
    if is_masked and (credential := setting.masker.credential_in(arguments)):
        raise BadCall("known-credential", f"an argument holds the credential `{credential}`, which never travels in a call; leave it out")
    subject = Subject(
        kind=kind,
        tool=name,
        effect=entry.spec.effect,
        raw=raw,
        canonical=shown,
        resources=resources,
        digest=subject_digest(kind, name, canonical, resources),
        masked=is_masked,
        hidden={**setting.masker.outlines(arguments, raw), **setting.masker.outlines(canonical, shown)} if is_masked else {},
    )
    return Prepared(subject=subject, arguments=canonical)


def _reduced(itself: Resource) -> Resource:
    """Return a tool with a lower effect for a call that, by the user's case, only reads; one that sends may send what it reads."""
    if not isinstance(itself.facts, ToolFacts) or itself.facts.effect is ToolEffect.SEND:
        return itself
    return itself.model_copy(update={"facts": itself.facts.model_copy(update={"effect": ToolEffect.INSPECT})})


def _kind(entry: CatalogueEntry, resources: tuple[Resource, ...]) -> SubjectKind:
    if entry.spec.server == EGRESS_SERVER:
        return SubjectKind.EGRESS
    return SubjectKind.PEER_MESSAGE if any(it.role is Role.MESSAGE_TEAM for it in resources) else SubjectKind.TOOL_CALL


def _without_secrets(message: str, arguments: JsonValue, masker: Masker) -> str:
    """Mask a refusal; quoted values are masked before they are truncated, or half a secret would remain."""
    pending, budget = [arguments], _LOOKED_AT
    while pending and budget:
        value, budget = pending.pop(), budget - 1
        if isinstance(value, str):
            if (quotation := quoted(value)) in message:
                message = message.replace(quotation, quoted(masker.mask_text(value[:_QUOTABLE])))
        elif isinstance(value, list | dict):
            pending += value if isinstance(value, list) else value.values()
    return masker.mask_text(message)


def _masked(entry: CatalogueEntry, argument: str, value: JsonValue, masker: Masker) -> JsonValue:
    """Mask an argument for the log; its name comes from the schema, so only what the name says about the value counts."""
    # The name of a credential is not secret, and approvals show it.
    key = "name" if argument in entry.credentials else argument
    if isinstance(value, str):
        return masker.mask_text(value) if _is_plain(key) else _masked_under(key, value, masker)
    return _masked_under(key, value, masker) if isinstance(value, list | dict) else value


def _masked_under(key: str, value: JsonValue, masker: Masker) -> JsonValue:
    whole = masker.mask_json({key: value})
    assert isinstance(whole, dict)
    return next(iter(whole.values()))


@lru_cache(maxsize=1024)
def _is_plain(key: str) -> bool:
    return is_secret_key(key) is None


class _Reading:
    """One call being interpreted: its canonical arguments so far, and the resources they name."""

    __slots__ = ("arguments", "canonical", "is_ours", "only_reads", "resources", "setting")

    def __init__(self, entry: CatalogueEntry, arguments: Mapping[str, JsonValue], setting: Setting) -> None:
        self.arguments = arguments
        self.setting = setting
        self.is_ours = entry.spec.server in _OURS
        self.canonical: dict[str, JsonValue] = dict(arguments)
        self.only_reads = False
        self.resources: dict[tuple[Role, str, Facts | None], Resource] = {}

    def take(self, meaning: Meaning) -> None:
        """Interpret one argument."""
        value = self.canonical.get(meaning.argument, meaning.default)
        if value is None and meaning.argument not in self.canonical:
            return
        roles = _roles(meaning, self.arguments)
        self.only_reads |= not self.is_ours and _READING.issuperset(roles) and not _READING.issuperset(meaning.roles)
        read = _read_revision if meaning.revision else _READERS[roles[0]]
        if isinstance(value, str):
            self.canonical[meaning.argument] = read(self, value, meaning, roles)
            return
        if not isinstance(value, list):
            raise BadCall(RULE, f"{quoted(meaning.argument)} must be a string or a list of strings, not {kind_of(value)}")
        if len(value) > MAX_RESOURCES:
            raise BadCall(RULE, f"{quoted(meaning.argument)} names more than {MAX_RESOURCES} things; ask for fewer at once")
        texts: list[JsonValue] = []
        for one in value:
            if not isinstance(one, str):
                raise BadCall(RULE, f"{quoted(meaning.argument)} must hold strings alone, not {kind_of(one)}")
            texts.append(read(self, one, meaning, roles))
        self.canonical[meaning.argument] = texts

    def add(self, role: Role, value: str, facts: Facts | None = None) -> None:
        """Add a resource, once."""
        key = (role, value, facts)
        if key in self.resources:
            return
        if len(self.resources) + 1 >= MAX_RESOURCES:
            raise BadCall(RULE, f"the call touches more than {MAX_RESOURCES} things; ask for fewer at once")
        self.resources[key] = Resource(role=role, value=value, facts=facts)

    def add_path(self, role: Role, path: str, *, whole: bool = False) -> None:
        """Add a canonical path, with facts about a change there and whether it covers everything beneath."""
        workspace = self.setting.scene.workspace
        later = role is not Role.READ_PATH and (
            writes_what_runs(path, workspace) or (role is Role.DELETE_PATH and not runs_later(path, workspace) and holds_what_runs(path))
        )
        self.add(role, path, PathFacts(runs_later=later, whole=whole) if later or whole else None)

    def scene(self, meaning: Meaning) -> PathRoots:
        """Return the roots for the paths of an argument, including where relative paths start."""
        scene = self.setting.scene
        if meaning.within is not None:
            start = self.canonical.get(meaning.within, scene.workspace)
            if not isinstance(start, str):
                raise BadCall(RULE, f"{quoted(meaning.within)} must be one path")
            return replace(scene, cwd=start)
        return replace(scene, cwd=self.setting.working_directory) if meaning.tracked else scene


def _roles(meaning: Meaning, arguments: Mapping[str, JsonValue]) -> tuple[Role, ...]:
    for case in meaning.cases:
        if case.argument in arguments:
            value = arguments[case.argument]
            if not case.equals or any(type(value) is type(wanted) and value == wanted for wanted in case.equals):
                return case.roles
    return meaning.roles


def _read_path(reading: _Reading, text: str, meaning: Meaning, roles: tuple[Role, ...]) -> str:
    require_no_url(text)
    scene = reading.scene(meaning)
    path = canonical_path(text, scene) if meaning.follows else _canonical_entry(text, scene)
    # We cannot know what a server does with a directory.
    whole = meaning.whole or (not reading.is_ours and isdir(on_disk(path)))
    for role in roles:
        reading.add_path(role, path, whole=whole)
    return path


def _read_revision(reading: _Reading, text: str, meaning: Meaning, roles: tuple[Role, ...]) -> str:
    # Start-up time: most calls name no revision.
    from curtainwall.facts import paths_in_revision

    scene = reading.scene(meaning)
    for path in paths_in_revision(text, scene.cwd, scene.workspace):
        for role in roles:
            reading.add_path(role, path)
    return text


def _canonical_entry(text: str, scene: PathRoots) -> str:
    """Resolve a path without following its last component, as the kernel does for deleting and renaming."""
    above, slash, name = text.rpartition("/")
    if name in {"", ".", ".."} or "\0" in name or (not slash and name.startswith("~")):
        return canonical_path(text, scene)
    parent = canonical_path((above or "/") if slash else ".", scene)
    entry = f"{parent.rstrip('/')}/{name}"
    is_mount = any(inside == entry for inside, _ in scene.mounts)
    return entry if not is_mount and islink(on_disk(entry)) else canonical_path(text, scene)


def _read_url(reading: _Reading, text: str, _meaning: Meaning, roles: tuple[Role, ...]) -> str:
    url = canonical_url(text, reading.setting.own_ports)
    for role in roles:
        reading.add(role, url.origin, url.facts)
    return url.text


def _read_name(reading: _Reading, text: str, meaning: Meaning, roles: tuple[Role, ...]) -> str:
    if not _NAME.fullmatch(text):
        raise Unclear(f"{quoted(meaning.argument)} must be a name of letters, digits, `_`, `.` and `-`, not {quoted(text)}")
    for role in roles:
        reading.add(role, text)
    return text


def _read_remote(reading: _Reading, text: str, meaning: Meaning, roles: tuple[Role, ...]) -> str:
    # Start-up time: most calls name no remote.
    from curtainwall.facts import canonical_remotes

    repository = None if meaning.within is None else reading.scene(meaning).cwd
    setting, push = reading.setting, Role.WRITE_REMOTE in roles
    # Do not inspect a repository outside the agent's view before approval: the refusal would reveal its config.
    looked_at = repository if repository is not None and setting.scene.shows(repository) else None
    if looked_at != repository and ":" not in text:
        raise Unclear(f"the repository is outside the workspace, so its remote {quoted(text)} is not looked up; write the remote's URL")
    remotes = canonical_remotes(text, repository=looked_at, push=push, workspace=setting.scene.workspace, own_ports=setting.own_ports)
    for remote in remotes:
        for role in roles:
            reading.add(role, remote.value, remote.host)
    if repository is None and len(remotes) == 1:
        return remotes[0].url
    # Keep the name for its tracking branches, and add the final URLs so that an approval is bound to them.
    reading.canonical["urls"] = [remote.url for remote in remotes]
    return text


def _masked_command(command: "ShellCommand", masker: Masker) -> tuple[str, bool]:
    """Mask a command for the log, and tell whether each word remains: a mask over several words would hide some from rules."""
    shown = masker.mask_text(command.text)
    return shown, shown == command.text or shown == " ".join(masker.mask_text(quote(word)) for word in command.words)


def _read_command(reading: _Reading, text: str, meaning: Meaning, roles: tuple[Role, ...]) -> str:
    # Start-up time: most calls run no command, and the parser takes a while to load.
    from curtainwall.facts import parse_script

    script = parse_script(text)
    for command in script.commands:
        # Resources are logged as they are; the digest covers the unmasked text in the arguments.
        shown, is_whole = _masked_command(command, reading.setting.masker)
        facts = CommandFacts(program=command.program, parsed=command.parsed and is_whole)
        for role in roles:
            reading.add(role, shown, facts)
    scene = reading.scene(meaning)
    for redirect in script.redirects:
        if redirect.target not in _NOBODYS:
            reading.add_path(Role.READ_PATH if redirect.kind == "read" else Role.WRITE_PATH, canonical_path(redirect.target, scene))
    return text


_Reader = Callable[[_Reading, str, Meaning, tuple[Role, ...]], str]
_READERS: Final[Mapping[Role, _Reader]] = {
    Role.READ_PATH: _read_path,
    Role.WRITE_PATH: _read_path,
    Role.DELETE_PATH: _read_path,
    Role.FETCH_URL: _read_url,
    Role.SEND_URL: _read_url,
    Role.READ_REMOTE: _read_remote,
    Role.WRITE_REMOTE: _read_remote,
    Role.RUN_COMMAND: _read_command,
    Role.USE_CREDENTIAL: _read_name,
    Role.MESSAGE_TEAM: _read_name,
    Role.RAISE_BUDGET: _read_name,
}
