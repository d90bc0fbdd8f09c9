"""Sends to rooms: safe HTML from markdown, each message exactly once, split to fit an event, and edited when more is known."""

import asyncio
import html
import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from curtainwall.channels.matrix.encryption import DeviceKeys
from curtainwall.channels.matrix.homeserver import Homeserver, HomeserverRefused, unreachable
from curtainwall.channels.matrix.library import ClientError, LocalProtocolError, OlmUnverifiedDeviceError, RoomSendResponse, SendRetryError
from curtainwall.channels.matrix.memory import Memory, transaction
from curtainwall.model import TryLater, record

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

PIECE: Final = 4_000
"""The most characters in one event; longer text continues in a thread."""

_LARGEST_EVENT: Final = 40_000
_PREVIEW: Final = 200
_BOUND: Final = 120.0

Content = dict[str, object]


@record
class RoomMessage:
    """A message to send: plain text, optionally with HTML, or as a notice; `mention` lists the users to notify."""

    text: str
    html: str | None = None
    notice: bool = False
    thread: str = ""
    reply_to: str = ""
    mention: tuple[str, ...] = ()


class MatrixOutbox:
    """Sends our messages to every room.

    INVARIANT: every message has a name. The homeserver accepts a name once, and we remember the event id it returned.
    """

    def __init__(self, homeserver: Homeserver, keys: DeviceKeys, memory: Memory) -> None:
        self._homeserver = homeserver
        self._keys = keys
        self._memory = memory
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def say(self, room: str, name: str, message: RoomMessage) -> str:
        """Send a message once, and return its event id; sending it again returns the same id."""
        sent = self._memory.get(f"sent {name}")
        if sent is not None:
            return sent
        event = await self._send(room, name, content_of(message))
        await self._memory.set({f"sent {name}": event})
        return event

    async def change(self, room: str, name: str, event: str, message: RoomMessage) -> None:
        """Replace an earlier message; the name belongs to this change."""
        await self._send(room, name, replacement(event, content_of(message)))

    async def typing(self, room: str, *, seconds: int) -> None:
        """Show a typing notification; failures do not matter."""
        try:
            await self._homeserver.typing(room, seconds=seconds)
        except (TryLater, HomeserverRefused):
            return

    async def _send(self, room: str, name: str, content: Content) -> str:
        client = self._homeserver.client
        if room not in client.rooms:
            raise HomeserverRefused(f"nothing can be said in `{room}`: we are not in there")
        async with self._locks[room]:
            try:
                async with asyncio.timeout(_BOUND):
                    await self._keys.ready(room)
                    response = await client.room_send(room, "m.room.message", content, transaction(name), ignore_unverified_devices=True)
            except (ClientError, TimeoutError, OSError) as error:
                # The library would wait for ever on a key exchange that was cut off.
                client.sharing_session.pop(room, None)
                raise unreachable(self._homeserver.account, error) from error
            except (LocalProtocolError, OlmUnverifiedDeviceError, SendRetryError) as error:
                raise TryLater(f"nothing can be said in `{room}` yet: {error}") from error
        if isinstance(response, RoomSendResponse):
            return response.event_id
        if response.status_code in ("M_FORBIDDEN", "M_NOT_FOUND", "M_TOO_LARGE", "M_GUEST_ACCESS_FORBIDDEN"):
            raise HomeserverRefused(f"nothing can be said in `{room}`: {response.message}")
        raise TryLater(f"nothing could be said in `{room}`: {response.message}")


def content_of(message: RoomMessage) -> Content:
    """Return an event's content; without HTML if both forms would not fit into one event."""
    content: Content = {"msgtype": "m.notice" if message.notice else "m.text", "body": message.text or "…"}
    content["m.mentions"] = {"user_ids": list(message.mention)} if message.mention else {}
    if message.html is not None:
        content |= {"format": "org.matrix.custom.html", "formatted_body": message.html}
        if len(json.dumps(content, ensure_ascii=False).encode()) > _LARGEST_EVENT:
            del content["format"], content["formatted_body"]
    if message.thread:
        latest = {"event_id": message.reply_to or message.thread}
        content["m.relates_to"] = {
            "rel_type": "m.thread",
            "event_id": message.thread,
            "is_falling_back": not message.reply_to,
            "m.in_reply_to": latest,
        }
    elif message.reply_to:
        content["m.relates_to"] = {"m.in_reply_to": {"event_id": message.reply_to}}
    return content


def replacement(event: str, content: Content) -> Content:
    """Return the content that replaces an event; clients without support for edits show a preview."""
    inner = {name: value for name, value in content.items() if name != "m.relates_to"}
    preview = str(content["body"])[:_PREVIEW]
    return {
        "msgtype": content["msgtype"],
        "body": f"* {preview}",
        "m.mentions": {},
        "m.new_content": inner,
        "m.relates_to": {"rel_type": "m.replace", "event_id": event},
    }


def pieces(text: str, first: int = PIECE) -> Sequence[str]:
    """Split a text into pieces that fit an event, between lines if possible; code blocks are closed and reopened.

    If one event is not enough, the first piece is short: at most `first` characters.
    """
    parts: list[str] = []
    size = PIECE if len(text) <= PIECE else first
    while len(text) > size:
        cut = text.rfind("\n", size // 2, size)
        cut = size if cut < 0 else cut
        piece, text = text[:cut], text[cut:].removeprefix("\n")
        fence = _open_fence(piece)
        parts.append(f"{piece}\n```" if fence else piece)
        text = f"{fence}\n{text}" if fence else text
        size = PIECE
    return [*parts, text]


def _open_fence(piece: str) -> str:
    """Return the opening line of a code block that is still open at the end of a piece."""
    opened = ""
    for line in piece.split("\n"):
        stripped = line.strip()
        if stripped.startswith("```"):
            opened = "" if opened else stripped[:40]
    return opened


_LONGEST = 20_000


def to_html(text: str) -> str | None:
    """Return the text as HTML, or None if it needs no formatting."""
    if len(text) > _LONGEST:
        return None
    markup = _markdown().render(text).rstrip("\n")
    plain = markup.removeprefix("<p>").removesuffix("</p>")
    return markup if "<" in plain else None


def with_code(text: str) -> str | None:
    """Return one of our lines with the parts between backticks as code, escaped; None if there are none."""
    parts = text.split("`")
    if len(parts) % 2 == 0 or len(parts) == 1 or "\n" in text:
        return None
    return "".join(f"<code>{html.escape(part)}</code>" if number % 2 else html.escape(part) for number, part in enumerate(parts))


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # imported late: only a channel that speaks needs it

    # Tags in the text stay text; an image would tell its server who reads, and other kinds of links could run something.
    return (
        MarkdownIt("commonmark", {"html": False, "breaks": True, "linkify": False}).enable("table").enable("strikethrough").disable("image")
    )
