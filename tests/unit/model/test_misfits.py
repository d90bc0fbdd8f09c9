"""What does not fit is said in our words: where, and what would."""

from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from curtainwall.model import explain_invalid


def _never(text: str) -> str:
    raise ValueError("it isn't ours")


class Form(BaseModel):
    """One field for each way in which something can be wrong."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field("a", min_length=1)
    key: str = Field("a" * 8, min_length=8, max_length=9)
    count: int = Field(1, gt=0, le=5)
    share: float = Field(0.5, ge=0, lt=1.5)
    flag: bool = True
    some: list[int] = Field([1, 2], min_length=2, max_length=3)
    one: list[int] = Field([1], min_length=1)
    table: dict[str, int] = Field({})
    choice: Literal["park", "deny"] = "park"
    ours: Annotated[str, AfterValidator(_never)] = ""


@pytest.mark.parametrize(
    ("told", "place", "words"),
    [
        ({"name": ""}, ("name",), "must not be empty"),
        ({"name": 3}, ("name",), "must be a text"),
        ({"key": "short"}, ("key",), "must have at least 8 characters"),
        ({"key": "much too long"}, ("key",), "must have at most 9 characters"),
        ({"count": "3"}, ("count",), "must be a whole number"),
        ({"count": 0}, ("count",), "must be more than 0"),
        ({"count": 6}, ("count",), "must be at most 5"),
        ({"share": "x"}, ("share",), "must be a number"),
        ({"share": -1.0}, ("share",), "must be at least 0"),
        ({"share": 1.5}, ("share",), "must be less than 1.5"),
        ({"flag": 1}, ("flag",), "must be true or false"),
        ({"some": [1]}, ("some",), "must have at least 2 entries"),
        ({"some": [1, 2, 3, 4]}, ("some",), "must have at most 3 entries"),
        ({"some": [1, "x"]}, ("some", 1), "must be a whole number"),
        ({"one": []}, ("one",), "must not be empty"),
        ({"table": []}, ("table",), "must be an object"),
        ({"choice": "ask"}, ("choice",), "must be `park` or `deny`"),
        ({"ours": "x"}, ("ours",), "cannot be used: it isn't ours"),
        ({"other": 1}, ("other",), "is not known here"),
    ],
)
def test_a_misfit_is_a_place_and_words_that_follow_its_name(told: JsonValue, place: tuple[int | str, ...], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate(told)
    assert explain_invalid(caught.value) == (place, words)
