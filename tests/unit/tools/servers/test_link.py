"""What our side of the protocol stands on: names as the SDK has them, and bounds on what a line may be."""

import asyncio
from collections.abc import Mapping

import mcp_types
import pytest
from mcp_types.jsonrpc import METHOD_NOT_FOUND
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from curtainwall.tools.servers import client
from curtainwall.tools.servers.stdio import Allowance, Overrun, read_frames
from tests.support.houses import run


def test_the_protocols_words_are_those_of_the_sdk() -> None:
    assert client.HANDSHAKES == HANDSHAKE_PROTOCOL_VERSIONS
    assert client.MODERN == LATEST_MODERN_VERSION
    assert client.METHOD_NOT_FOUND == METHOD_NOT_FOUND
    keys = (mcp_types.PROTOCOL_VERSION_META_KEY, mcp_types.CLIENT_INFO_META_KEY, mcp_types.CLIENT_CAPABILITIES_META_KEY)
    assert tuple(client.ENVELOPE) == keys
    assert isinstance(client.ENVELOPE, Mapping)


def read(content: bytes, longest: int = 1_000) -> list[object]:
    async def story() -> list[object]:
        reader = asyncio.StreamReader()
        reader.feed_data(content)
        reader.feed_eof()
        return [frame async for frame, _ in read_frames(reader, longest)]

    return run(story())


def test_lines_are_objects_or_nothing() -> None:
    lines = [b'{"a": 1}', b"", b"  ", b"[1]", b"null", b"{", b'{"a": NaN}', b'{"a": "\\ud800"}', b"\xff", b'{"b": 2}', b"no end"]
    assert read(b"\n".join(lines)) == [{"a": 1}, None, None, None, None, None, None, {"b": 2}]


def test_a_line_without_an_end_is_not_kept() -> None:
    with pytest.raises(Overrun, match="a line of more than"):
        read(b"x" * 200_000)
    assert read(b'{"a": "' + b"x" * 900 + b'"}\n') != []


def spent(times: int, size: int) -> None:
    """Send so many frames of a size, all at once."""
    allowance = Allowance()
    for _ in range(times):
        allowance.spend(size)


@pytest.mark.parametrize(("times", "size"), [(20_000, 100), (10, 8 * 1024 * 1024)])
def test_what_nobody_asked_for_is_bounded(times: int, size: int) -> None:
    spent(times // 10, size // 10)
    with pytest.raises(Overrun, match="floods"):
        spent(times, size)
