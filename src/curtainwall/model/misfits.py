"""What is wrong with data from outside, in our own words rather than a library's."""

from collections.abc import Mapping

from pydantic import ValidationError

Place = tuple[int | str, ...]

_WORDS: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "json_invalid": "is no JSON",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "is not written as it must be",
    "union_tag_invalid": "is of no kind that is known here",
    "union_tag_not_found": "does not say of which kind it is",
    "value_error": "cannot be used: {error}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_SHORT = ("string_too_short", "too_short")
_KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("string_",), "a text"),
    (("bool_",), "true or false"),
    (("int_",), "a whole number"),
    (("float_", "decimal_", "finite_"), "a number"),
    (("tuple_", "list_", "set_", "frozen_set_"), "a list"),
    (("dict_", "mapping_", "model_", "dataclass_"), "an object"),
)


def misfit(error: ValidationError, which: int = 0) -> tuple[Place, str]:
    """Return where data does not fit and how, as what can follow its name; of several faults the first, or the one that is wanted."""
    first = error.errors(include_url=False, include_input=False)[which]
    told = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in first.get("ctx", {}).items()}
    # Only here the library quotes; what our own checks say stays as it is written.
    told["expected"] = told.get("expected", "something else").replace("'", "`")
    words = _WORDS.get(first["type"])
    if first["type"] in _SHORT and told.get("min_length") == "1":
        words = "must not be empty"
    if words is not None:
        return first["loc"], words.format_map({"error": "something else", **told})
    kind = next((kind for starts, kind in _KINDS if first["type"].startswith(starts)), None)
    return first["loc"], "cannot be used" if kind is None else f"must be {kind}"
