"""`record`, the decorator of small immutable classes: what `dataclass(frozen=True, slots=True)` makes, in a tenth of its time."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, make_dataclass
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass with slots. It has no base class with fields.

    Start-up time: `dataclass` writes and compiles six methods for each class, and a command defines hundreds of classes and uses few. Here
    only `__init__` is compiled, when the class is first called.
    """
    # Without a text, `dataclass` would write one from the signature, which takes long.
    cls.__doc__ = cls.__doc__ or cls.__name__
    own = set(vars(cls))
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in {"__init__": _init(made), **_comparison(made), **_COMMON}.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _init(cls: Any) -> Callable[..., None]:
    def init(self: object, *arguments: Any, **named: Any) -> None:
        cls.__init__ = _compiled_init(cls)
        cls.__init__(self, *arguments, **named)

    return init


def _compiled_init(cls: Any) -> Callable[..., None]:
    """Return the method as `dataclass` compiles it, which depends on the fields alone."""
    after = {"__post_init__": cls.__post_init__} if hasattr(cls, "__post_init__") else {}
    names = [(it.name, it.type, it) for it in fields(cls)]
    twin: Any = make_dataclass(cls.__qualname__, names, namespace={"__doc__": cls.__doc__, **after}, repr=False, eq=False, frozen=True)
    init: Callable[..., None] = twin.__init__
    return init


def _comparison(cls: Any) -> dict[str, Callable[..., Any]]:
    names = [it.name for it in fields(cls) if it.compare]
    values = attrgetter(*names) if names else _nothing

    def eq(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def digest(self: object) -> int:
        return hash(values(self))

    return {"__eq__": eq, "__hash__": digest}


def _nothing(_self: object) -> tuple[()]:
    return ()


def _repr(self: Any) -> str:
    shown = (f"{it.name}={getattr(self, it.name)!r}" for it in fields(self) if it.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *_value: object) -> NoReturn:
    raise FrozenInstanceError(f"`{name}` of `{type(self).__name__}` cannot be changed")


def _state(self: Any) -> list[object]:
    return [getattr(self, it.name) for it in fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    """Give a copy its values; they cannot be set the usual way."""
    for it, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, it.name, value)


_COMMON: Final = {
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,
    "__setstate__": _restore,
}
