"""A record is what `dataclass(frozen=True, slots=True)` makes, without the time that takes."""

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from curtainwall.model import record


class Plain:
    """Has one field of each sort."""

    name: str
    size: int = 1
    parts: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False, repr=False)
    late: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("too small")


def made(by: Callable[[type], type]) -> Any:
    """Return a class of those fields that a decorator made."""
    return by(type("Plain", (), {**vars(Plain), "__annotations__": Plain.__annotations__}))


USES: dict[str, Callable[[Any], object]] = {
    "repr": lambda cls: repr(cls("a", 2)),
    "repr with another name": lambda cls: repr(cls("a", note="n", late=True)),
    "equal": lambda cls: cls("a", 2) == cls("a", 2, note="n"),
    "not equal": lambda cls: cls("a", 2) == cls("a", 3),
    "equal to something else": lambda cls: cls("a") == ("a", 1, ()),
    "hash": lambda cls: hash(cls("a", 2, note="n")) == hash(("a", 2, (), False)),
    "defaults": lambda cls: asdict(cls("a")),
    "fields": lambda cls: [(it.name, it.type, it.kw_only) for it in fields(cls)],
    "slots": lambda cls: cls.__slots__,
    "match": lambda cls: cls.__match_args__,
    "replace": lambda cls: asdict(replace(cls("a"), size=7)),
    "copies": lambda cls: asdict(copy.copy(cls("a", 2, ("b",), "n"))) if cls is not Plain else None,
    "checks itself": lambda cls: cls("a", -1),
    "a field too few": lambda cls: cls(),
    "a field too many": lambda cls: cls("a", 1, (), "", True),
    "an unknown field": lambda cls: cls("a", colour="red"),
    "an attribute that is no field": lambda cls: cls("a").colour,
    "text": lambda cls: cls.__doc__,
}


def came_of(use: Callable[[Any], object], cls: Any) -> object:
    try:
        return use(cls)
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_record_behaves_as_a_frozen_dataclass_with_slots(use: Callable[[Any], object]) -> None:
    # Each is the first use of a new class, when nothing of it is compiled yet.
    assert came_of(use, made(record)) == came_of(use, made(dataclass(frozen=True, slots=True)))


@record
class Point:
    """Can be found by its name, as pickles need it."""

    x: int
    y: list[int] = field(default_factory=list[int])


@record
class _Silent:
    x: int


def test_a_record_cannot_be_changed() -> None:
    point: Any = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x"), lambda: setattr(point, "z", 2)):
        with pytest.raises(FrozenInstanceError):
            change()
    assert point == Point(1)


def test_copies_and_pickles_of_a_record_are_equal_to_it() -> None:
    point = Point(1, [2])
    for other in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert other == point
        assert other is not point
    assert copy.copy(point).y is point.y
    assert copy.deepcopy(point).y is not point.y


def test_methods_of_its_own_are_kept() -> None:
    @record
    class Quiet:
        key: str

        def __repr__(self) -> str:
            return "Quiet()"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Quiet)

        def __hash__(self) -> int:
            return 1

    assert (repr(Quiet("a")), Quiet("a") == Quiet("b"), hash(Quiet("a"))) == ("Quiet()", True, 1)


def test_a_value_that_was_made_without_its_class_being_called_compares_too() -> None:
    # Pydantic makes instances like this.
    one, two = object.__new__(_Silent), object.__new__(_Silent)
    object.__setattr__(one, "x", 1)
    object.__setattr__(two, "x", 1)
    assert one == two


def test_nothing_is_compiled_before_a_record_is_used_and_then_it_is_the_method_of_a_dataclass() -> None:
    @record
    class Unused:
        x: int

    assert "x" not in inspect.signature(Unused).parameters
    Unused(1)
    assert list(inspect.signature(Unused).parameters) == ["x"]
    assert _Silent.__doc__ == "_Silent"
