"""Tools that an embedding program adds: Python functions with declared effects and roles, which run only through the gate."""

import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from keyword import iskeyword
from pathlib import PurePath
from typing import Annotated, Any, Final, Generic, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints, overload

from pydantic import JsonValue, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from curtainwall.facts import quoted
from curtainwall.model import (
    OWN_SERVERS,
    Broken,
    CallPermitted,
    CurtainwallError,
    Digest,
    Meaning,
    Place,
    Prepared,
    Role,
    ToolEffect,
    ToolResult,
    ToolSpec,
    canonical_json,
    explain_invalid,
)
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.runners import CannotDo, run_in_thread
from curtainwall.tools.servers.offered import LONGEST_DESCRIPTION, clean_text, harmless_schema
from curtainwall.tools.servers.spec import ToolRoles, fault_of_roles

SERVER: Final = "app"
"""The first part of a tool's name, unless its declaration names another."""

LARGEST_RESULT: Final = 8 * 1024 * 1024

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Roles = Mapping[str, Role | str | Collection[Role | str]]
"""The meaning of arguments, by name: one role, or several."""


class BadTool(CurtainwallError):
    """A function cannot be a tool as it is declared; the message says what to change."""


class Tool(Generic[P, R_co]):
    """A function that agents can call through the gate. Your own program calls it as before, without the gate."""

    def __init__(self, function: Callable[P, R_co], spec: ToolSpec, adapters: Mapping[str, TypeAdapter[Any]]) -> None:
        self.spec = spec
        self.__doc__ = function.__doc__
        self.__name__ = spec.name
        self._function = function
        self._adapters = adapters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.spec.full_name!r}, effect={self.spec.effect.value!r})"

    def bind(self, prepared: Prepared, _place: Place) -> Prepared:
        """Return a call that is bound to this declaration: a yes to it answers no tool of the same name that is declared otherwise."""
        declared = canonical_json([prepared.subject.digest, self.spec.model_dump(mode="json")])
        digest = Digest(hashlib.sha256(declared).hexdigest())
        return replace(prepared, subject=prepared.subject.model_copy(update={"digest": digest}))

    async def run(self, prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        """Run a permitted call with its canonical arguments; whatever the function raises is the result of a failed call."""
        name = self.spec.full_name
        try:
            arguments = {argument: self._adapters[argument].validate_python(value) for argument, value in prepared.arguments.items()}
        except ValidationError as error:
            raise CannotDo(f"an argument of `{name}` {explain_invalid(error)[1]}") from error
        call = partial(cast("Callable[..., object]", self._function), **arguments)
        try:
            # A function that blocks must not stop every other session.
            is_async = inspect.iscoroutinefunction(self._function)
            value = call() if is_async else await run_in_thread(place.session, call)
            if inspect.isawaitable(value):
                value = await cast("Awaitable[object]", value)
        except CannotDo:
            raise
        except Exception as error:
            raise CannotDo(f"`{name}` failed: {type(error).__name__}: {error}") from error
        return ToolResult(ok=True, value=_json_of(name, value))


def _json_of(name: str, value: object) -> JsonValue:
    try:
        content = to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise CannotDo(f"`{name}` ran, and its result cannot be written as JSON ({type(value).__name__})") from error
    if len(content) > LARGEST_RESULT:
        raise CannotDo(f"`{name}` ran, and its result is larger than {LARGEST_RESULT // 1024 // 1024} MiB")
    return cast("JsonValue", json.loads(content))


@overload
def tool(function: Callable[P, R_co], /) -> Tool[P, R_co]: ...


@overload
def tool(
    *, effect: ToolEffect | str = ..., roles: Roles | None = ..., server: str = ..., name: str = ..., description: str = ...
) -> Callable[[Callable[P, R_co]], Tool[P, R_co]]: ...


def tool(
    function: Callable[P, R_co] | None = None,
    /,
    *,
    effect: ToolEffect | str = ToolEffect.SEND,
    roles: Roles | None = None,
    server: str = SERVER,
    name: str = "",
    description: str = "",
) -> Tool[P, R_co] | Callable[[Callable[P, R_co]], Tool[P, R_co]]:
    """Declare a function as a tool, `server.name`: its strongest effect, and the roles of the arguments that name something outside.

    Without an effect it counts as one that sends, and every call asks. An argument without a role is content: no rule looks at it.
    Raise `BadTool` for a declaration that could not be judged.
    """

    def declare(declared: Callable[P, R_co]) -> Tool[P, R_co]:
        short = name or getattr(declared, "__name__", "")
        try:
            _require_name(server, short)
            strongest = _effect(effect)
            about = clean_text(description or inspect.getdoc(declared) or "", LONGEST_DESCRIPTION)
            if not about:
                raise BadTool("say what it does, in a docstring or with `description`")
            parameters, adapters = _parameters(declared)
            meanings = _meanings(parameters, roles or {})
            if fault := fault_of_roles(ToolRoles(strongest, meanings), is_confined=False):
                raise BadTool(fault)
            schema = harmless_schema(_schema(parameters, adapters))
            spec = ToolSpec(server=server, name=short, description=about, schema_=schema, effect=strongest, meanings=meanings)
            # The catalogue refuses meanings that contradict each other, and schemas that cannot be checked.
            Catalogue((spec,))
        except (BadTool, Broken) as fault:
            raise BadTool(f"the tool {quoted(short)}: {fault}") from fault
        return Tool(declared, spec, adapters)

    return declare if function is None else declare(function)


def require_distinct(tools: Iterable[Tool[..., object]], taken: Collection[str]) -> None:
    """Raise `BadTool` if two tools have the same name, or one has the name of a server that is ours or configured."""
    names: set[str] = set()
    for each in tools:
        if each.spec.server in OWN_SERVERS:
            raise BadTool(f"the tool `{each.spec.full_name}`: `{each.spec.server}` is reserved for our own tools")
        if each.spec.server in taken:
            raise BadTool(f"the tool `{each.spec.full_name}`: `[servers.{each.spec.server}]` is configured; choose another `server`")
        if each.spec.full_name in names:
            raise BadTool(f"there are two tools `{each.spec.full_name}`; give one another `name`")
        names.add(each.spec.full_name)


def _require_name(server: str, name: str) -> None:
    for word in (server, name):
        if not isinstance(word, str) or not _NAME.fullmatch(word) or iskeyword(word):  # pyright: ignore[reportUnnecessaryIsInstance] - from a program
            raise BadTool(f"{quoted(word)} cannot be a name: use lower-case letters, digits and `_`, and begin with a letter")
    if server in OWN_SERVERS:
        raise BadTool(f"`{server}` is reserved for our own tools; choose another `server`")


def _effect(effect: ToolEffect | str) -> ToolEffect:
    try:
        return ToolEffect(effect)
    except ValueError:
        raise BadTool(f"its effect must be one of {', '.join(f'`{each}`' for each in ToolEffect)}, not {quoted(effect)}") from None


def _parameters(function: Callable[..., object]) -> tuple[Mapping[str, inspect.Parameter], Mapping[str, TypeAdapter[Any]]]:
    """Return the parameters of a function, and what turns JSON into the value of each."""
    if not callable(function):
        raise BadTool("only a function can be a tool")
    try:
        parameters, hints = inspect.signature(function).parameters, get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise BadTool(f"its signature cannot be read ({error})") from error
    adapters: dict[str, TypeAdapter[Any]] = {}
    for argument, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadTool(f"its parameter `{argument}` has no name that an agent could use; give every parameter a plain name")
        if argument not in hints:
            raise BadTool(f"its parameter `{argument}` has no type")
        try:
            adapters[argument] = TypeAdapter(hints[argument])
        except PydanticUserError as error:
            raise BadTool(f"no JSON can be made into the type of its parameter `{argument}`") from error
    return {argument: parameter.replace(annotation=hints[argument]) for argument, parameter in parameters.items()}, adapters


def _schema(parameters: Mapping[str, inspect.Parameter], adapters: Mapping[str, TypeAdapter[Any]]) -> dict[str, JsonValue]:
    try:
        named, shared = TypeAdapter.json_schemas([(argument, "validation", adapter) for argument, adapter in adapters.items()])
    except PydanticUserError as error:
        raise BadTool(f"its arguments cannot be described in JSON ({str(error).splitlines()[0]})") from error
    required = [argument for argument, parameter in parameters.items() if parameter.default is parameter.empty]
    properties = {argument: named[argument, "validation"] for argument in adapters}
    schema: dict[str, object] = {"type": "object", "properties": properties, "required": required, "$defs": shared.get("$defs", {})}
    return cast("dict[str, JsonValue]", schema)


def _meanings(parameters: Mapping[str, inspect.Parameter], roles: Roles) -> tuple[Meaning, ...]:
    if unknown := sorted(set(roles) - set(parameters)):
        raise BadTool(f"it has no parameter `{unknown[0]}`, which `roles` names")
    for argument, parameter in parameters.items():
        if argument not in roles and _is_path(parameter.annotation):
            raise BadTool(f"its parameter `{argument}` is a path; say in `roles` whether it is read, written or deleted")
    return tuple(_meaning(parameters[argument], named) for argument, named in roles.items())


def _meaning(parameter: inspect.Parameter, named: Role | str | Collection[Role | str]) -> Meaning:
    argument, default = parameter.name, parameter.default
    try:
        played = tuple(Role(role) for role in ((named,) if isinstance(named, str) else named))
    except (TypeError, ValueError):
        raise BadTool(f"{quoted(argument)} has a role that is not known: {quoted(str(named))}") from None
    # INVARIANT: the function's default value is judged like a value from an agent.
    if default is parameter.empty or default is None:
        return Meaning(argument=argument, roles=played)
    if not isinstance(default, str | PurePath):
        raise BadTool(f"the default of `{argument}` cannot be judged; make it a text, or `None`")
    return Meaning(argument=argument, roles=played, default=str(default))


def _is_path(annotation: object) -> bool:
    """Tell whether a type is that of paths, also behind `Annotated`, `| None` or a list."""
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return True
    parts = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return any(map(_is_path, parts))
