"""Results on their way into the log: inline where their JSON is small, a blob otherwise, whatever the letters."""

import json

import pytest
from pydantic import JsonValue

from curtainwall.model import INLINE_LIMIT
from curtainwall.runtime.results import keep, load
from curtainwall.store import MemoryStore
from tests.support.stores import StillClock, run


@pytest.mark.parametrize("letter", ["a", "\x00", "é", "\U0001f600", '"', "\ud800"])
@pytest.mark.parametrize("length", [0, 1, INLINE_LIMIT // 6 - 2, INLINE_LIMIT // 6 - 1, INLINE_LIMIT // 6, INLINE_LIMIT // 2, INLINE_LIMIT])
def test_a_text_is_inline_exactly_where_its_json_is_small(letter: str, length: int) -> None:
    store, value = MemoryStore(StillClock()), letter * length
    size = len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    kept = run(keep(value, store.blobs))
    assert (kept.blob is None) == (size <= INLINE_LIMIT)
    assert load(kept, store.blobs) == value


@pytest.mark.parametrize("value", [None, 7, ["a"], {"a": "b" * INLINE_LIMIT}])
def test_what_is_no_text_is_measured_whole(value: JsonValue) -> None:
    store = MemoryStore(StillClock())
    assert load(run(keep(value, store.blobs)), store.blobs) == value
