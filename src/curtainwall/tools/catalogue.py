"""The catalogue of every tool that can be called, by name; a tool that is not in it does not exist."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache

from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.model import BadCall, Broken, Case, Meaning, Resource, Role, ToolFacts, ToolSpec, is_as_strict, is_external, record
from curtainwall.tools.schema_check import Check, compile_check

_LONGEST_NAME = 128
# Roles that interpret a value in the same way; the roles of one argument belong to one such group.
_ALIKE: tuple[frozenset[Role], ...] = (
    frozenset({Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH}),
    frozenset({Role.FETCH_URL, Role.SEND_URL}),
    frozenset({Role.READ_REMOTE, Role.WRITE_REMOTE}),
    frozenset({Role.RUN_COMMAND}),
    frozenset({Role.USE_CREDENTIAL}),
    frozenset({Role.MESSAGE_TEAM}),
    frozenset({Role.RAISE_BUDGET}),
)


@record
class CatalogueEntry:
    """A tool with its precomputed check, its resource, and the arguments that name credentials."""

    spec: ToolSpec
    check: Check
    itself: Resource
    credentials: frozenset[str]


def _late_check(schema: Mapping[str, JsonValue]) -> Check:
    """Return a lazily compiled check for one of our own tools: their schemas are known to be sound, and there are many."""
    made = cache(lambda: compile_check(schema))
    return lambda arguments: made()(arguments)  # noqa: PLW0108 - it is made with the first call


class Catalogue:
    """The tools by their full names, each there once."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._entries: dict[str, CatalogueEntry] = {}
        for spec in specs:
            name = spec.full_name
            if name in self._entries:
                raise Broken(f"the tool {quoted(name)} is in the catalogue twice")
            try:
                _require_sound_meanings(spec)
                check = compile_check(spec.schema_) if is_external(name) else _late_check(spec.schema_)
            except Broken as fault:
                raise Broken(f"the tool {quoted(name)} is refused: {fault}") from fault
            itself = Resource(role=Role.USE_TOOL, value=name, facts=ToolFacts(server=spec.server, effect=spec.effect))
            credentials = frozenset(meaning.argument for meaning in spec.meanings if Role.USE_CREDENTIAL in meaning.roles)
            self._entries[name] = CatalogueEntry(spec, check, itself, credentials)

    def find(self, tool: str) -> ToolSpec | None:
        """Return the tool of that full name, or None."""
        entry = self._entries.get(tool)
        return entry.spec if entry else None

    def entry(self, tool: str) -> CatalogueEntry:
        """Return the tool with its check; raise `BadCall` with a suggestion if it is unknown."""
        try:
            return self._entries[tool]
        except (KeyError, TypeError):
            raise BadCall("unknown-tool", f"there is no tool {quoted(tool)}{self._meant(tool)}") from None

    def listing(self, server: str | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools of one server or of all, by name."""
        return tuple(self._entries[name].spec for name in sorted(self._entries) if server in {None, self._entries[name].spec.server})

    def _meant(self, tool: object) -> str:
        if not isinstance(tool, str) or len(tool) > _LONGEST_NAME:
            return ""
        near = get_close_matches(tool, self._entries, n=1, cutoff=0.6)
        if not near:
            last = tool.rpartition(".")[2]
            near = [name for name, entry in self._entries.items() if entry.spec.name == last][:1]
        return f"; did you mean `{near[0]}`?" if near else "; the list of tools says which there are"


def _require_sound_meanings(spec: ToolSpec) -> None:
    """Raise `Broken` for meanings that name no argument, depend on a later one, or get looser without an exact value."""
    properties = spec.schema_.get("properties")
    known = properties if isinstance(properties, dict) else {}
    seen: list[str] = []
    for meaning in spec.meanings:
        named = [meaning.argument, *(case.argument for case in meaning.cases)]
        for argument in named:
            if argument not in known:
                raise Broken(f"a meaning speaks of {quoted(argument)}, which its schema does not name")
        if meaning.argument in seen:
            raise Broken(f"the argument {quoted(meaning.argument)} has two meanings")
        if meaning.within is not None and meaning.within not in seen:
            raise Broken(f"{quoted(meaning.argument)} starts from {quoted(meaning.within)}, which must come before it")
        if not meaning.roles:
            raise Broken(f"the argument {quoted(meaning.argument)} plays no role")
        for case in meaning.cases:
            _require_sound_case(meaning, case)
        played = {*meaning.roles, *(role for case in meaning.cases for role in case.roles)}
        if not any(played <= group for group in _ALIKE):
            raise Broken(f"the roles of {quoted(meaning.argument)} do not go together: {', '.join(sorted(played))}")
        seen.append(meaning.argument)


def _require_sound_case(meaning: Meaning, case: Case) -> None:
    if not case.roles:
        raise Broken(f"a case leaves {quoted(meaning.argument)} without a role")
    if any(isinstance(value, list | dict) for value in case.equals):
        raise Broken(f"a case of {quoted(meaning.argument)} must name plain values")
    if not case.equals and not is_as_strict(case.roles, meaning.roles):
        raise Broken(f"a case makes {quoted(meaning.argument)} looser without an exact value that says so")
