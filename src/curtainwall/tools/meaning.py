"""What a call means: from the words of an agent to canonical arguments, the resources they stand for, and the digest of it all."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from os.path import isdir, islink
from shlex import quote
from typing import Final

from pydantic import JsonValue

from curtainwall.facts import (
    Masker,
    PathRoots,
    ShellCommand,
    Unclear,
    canonical_path,
    canonical_remotes,
    canonical_url,
    contains_mask,
    holds_what_runs,
    parse_script,
    paths_in_revision,
    quoted,
    writes_what_runs,
)
from curtainwall.facts.secrets.names import is_secret_key
from curtainwall.model import (
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
    runs_later,
    subject_digest,
)
from curtainwall.tools.catalogue import Catalogue, CatalogueEntry
from curtainwall.tools.native import NATIVE_TOOLS
from curtainwall.tools.schema_check import RULE, kind_of

MAX_RESOURCES: Final = 256

# Of a long argument a message shows the beginning; so much of it is enough to see a secret that begins there.
_QUOTABLE = 8_192
_LOOKED_AT = 1_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

_READING: Final = frozenset({Role.READ_PATH, Role.FETCH_URL, Role.READ_REMOTE})
_OURS = frozenset(spec.server for spec in NATIVE_TOOLS)

# In the sandbox these are nobody's files, and every second command line sends something to one of them.
_NOBODYS = frozenset(f"/dev/{name}" for name in ("full", "null", "random", "stderr", "stdin", "stdout", "urandom", "zero"))


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a call is made: the scene its paths are read in, the session's working directory, our own ports, and what is secret."""

    scene: PathRoots
    working_directory: str
    masker: Masker
    own_ports: frozenset[int] = frozenset()


def prepare(catalogue: Catalogue, tool: str, arguments: JsonValue, setting: Setting) -> Prepared:
    """Check the arguments and find out what they mean; raise `BadCall` for everything that is not certain."""
    try:
        entry = catalogue.entry(tool)
        entry.check(arguments)
        assert isinstance(arguments, dict)
        return _prepared(entry, arguments, setting)
    except Unclear as fault:
        raise BadCall(RULE, _without_secrets(fault.message, arguments, setting.masker)) from fault
    except BadCall as bad:
        raise BadCall(bad.rule, _without_secrets(str(bad), arguments, setting.masker)) from bad
    except Exception as fault:
        # Whatever breaks the reading of an argument must deny the call.
        raise BadCall(RULE, f"the arguments of `{tool}` could not be read ({type(fault).__name__})") from fault


def _prepared(entry: CatalogueEntry, arguments: dict[str, JsonValue], setting: Setting) -> Prepared:
    # Instructions are masked before anyone sees or follows them, and nothing is written.
    if entry.itself.value != FOLLOW_INSTRUCTIONS and contains_mask(arguments):
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
    raw = {key: _masked(_said_of(entry, key), value, setting.masker) for key, value in arguments.items()}
    shown = {
        key: raw[key] if key in raw and arguments[key] is value else _masked(_said_of(entry, key), value, setting.masker)
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
    """Return an external tool as it is in a call that, by a case of the user's, only reads; one that sends may send what it reads."""
    if not isinstance(itself.facts, ToolFacts) or itself.facts.effect is ToolEffect.SEND:
        return itself
    return itself.model_copy(update={"facts": itself.facts.model_copy(update={"effect": ToolEffect.INSPECT})})


def _kind(entry: CatalogueEntry, resources: tuple[Resource, ...]) -> SubjectKind:
    if entry.spec.server == EGRESS_SERVER:
        return SubjectKind.EGRESS
    return SubjectKind.PEER_MESSAGE if any(it.role is Role.MESSAGE_TEAM for it in resources) else SubjectKind.TOOL_CALL


def _without_secrets(message: str, arguments: JsonValue, masker: Masker) -> str:
    """Return a refusal's words masked; what they quote is masked before it is cut, or half a secret would be left."""
    waiting, left = [arguments], _LOOKED_AT
    while waiting and left:
        value, left = waiting.pop(), left - 1
        if isinstance(value, str):
            if (told := quoted(value)) in message:
                message = message.replace(told, quoted(masker.mask_text(value[:_QUOTABLE])))
        elif isinstance(value, list | dict):
            waiting += value if isinstance(value, list) else value.values()
    return masker.mask_text(message)


def _said_of(entry: CatalogueEntry, key: str) -> str:
    """Return what an argument's name says about its value: the name of a credential is no secret, and people are asked about it by name."""
    names = (meaning.argument for meaning in entry.spec.meanings if Role.USE_CREDENTIAL in meaning.roles)
    return "name" if key in names else key


def _masked(key: str, value: JsonValue, masker: Masker) -> JsonValue:
    """Return an argument as the log may hold it; its name is the schema's, so only what the name says about the value counts."""
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
    """One call being read: what stands canonical so far, and which resources that names."""

    __slots__ = ("arguments", "canonical", "is_ours", "only_reads", "resources", "setting")

    def __init__(self, entry: CatalogueEntry, arguments: Mapping[str, JsonValue], setting: Setting) -> None:
        self.arguments = arguments
        self.setting = setting
        self.is_ours = entry.spec.server in _OURS
        self.canonical: dict[str, JsonValue] = dict(arguments)
        self.only_reads = False
        self.resources: dict[tuple[Role, str, Facts | None], Resource] = {}

    def take(self, meaning: Meaning) -> None:
        """Read one argument."""
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
        """Note a resource; the same one twice is one."""
        key = (role, value, facts)
        if key in self.resources:
            return
        if len(self.resources) + 1 >= MAX_RESOURCES:
            raise BadCall(RULE, f"the call touches more than {MAX_RESOURCES} things; ask for fewer at once")
        self.resources[key] = Resource(role=role, value=value, facts=facts)

    def add_path(self, role: Role, path: str, *, whole: bool = False) -> None:
        """Note a canonical path, with what the disk says of a change there, and whether all beneath it is meant."""
        workspace = self.setting.scene.workspace
        later = role is not Role.READ_PATH and (
            writes_what_runs(path, workspace) or (role is Role.DELETE_PATH and not runs_later(path, workspace) and holds_what_runs(path))
        )
        self.add(role, path, PathFacts(runs_later=later, whole=whole) if later or whole else None)

    def scene(self, meaning: Meaning) -> PathRoots:
        """Return the scene in which an argument is read: where its relative paths start."""
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
    scene = reading.scene(meaning)
    path = canonical_path(text, scene) if meaning.follows else _canonical_entry(text, scene)
    # What a server does with a directory that it is given, nobody knows.
    whole = meaning.whole or (not reading.is_ours and isdir(path))
    for role in roles:
        reading.add_path(role, path, whole=whole)
    return path


def _read_revision(reading: _Reading, text: str, meaning: Meaning, roles: tuple[Role, ...]) -> str:
    scene = reading.scene(meaning)
    for path in paths_in_revision(text, scene.cwd, scene.workspace):
        for role in roles:
            reading.add_path(role, path)
    return text


def _canonical_entry(text: str, scene: PathRoots) -> str:
    """Return what a path names when its last component is not followed, as the kernel deletes and renames."""
    above, slash, name = text.rpartition("/")
    if name in {"", ".", ".."} or "\0" in name or (not slash and name.startswith("~")):
        return canonical_path(text, scene)
    parent = canonical_path((above or "/") if slash else ".", scene)
    entry = f"{parent.rstrip('/')}/{name}"
    is_mount = any(inside == entry for inside, _ in scene.mounts)
    return entry if not is_mount and islink(entry) else canonical_path(text, scene)


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
    repository = None if meaning.within is None else reading.scene(meaning).cwd
    setting, push = reading.setting, Role.WRITE_REMOTE in roles
    # A repository that the agent may not see is not looked at before that is approved: its config would show in the refusal.
    looked_at = repository if repository is not None and setting.scene.shows(repository) else None
    if looked_at != repository and ":" not in text:
        raise Unclear(f"the repository is outside the workspace, so its remote {quoted(text)} is not looked up; write the remote's URL")
    remotes = canonical_remotes(text, repository=looked_at, push=push, workspace=setting.scene.workspace, own_ports=setting.own_ports)
    for remote in remotes:
        for role in roles:
            reading.add(role, remote.value, remote.host)
    if repository is None and len(remotes) == 1:
        return remotes[0].url
    # A name stays, for the branches that follow it; the final URLs stand beside it, so that an approval is bound to them.
    reading.canonical["urls"] = [remote.url for remote in remotes]
    return text


def _masked_command(command: ShellCommand, masker: Masker) -> tuple[str, bool]:
    """Return a command as the log may hold it, and whether each word is still there: a mask over several would hide some from rules."""
    shown = masker.mask_text(command.text)
    return shown, shown == command.text or shown == " ".join(masker.mask_text(quote(word)) for word in command.words)


def _read_command(reading: _Reading, text: str, meaning: Meaning, roles: tuple[Role, ...]) -> str:
    script = parse_script(text)
    for command in script.commands:
        # Resources stand in the log as they are; the digest knows the unmasked text from the arguments.
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
