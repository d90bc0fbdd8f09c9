"""Sending to rooms: markdown as harmless HTML, each message exactly once, cut to what an event can hold, and edited where more is known."""

import asyncio
import html
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from curtainwall.channels.matrix.encryption import DeviceKeys
from curtainwall.channels.matrix.homeserver import Homeserver, HomeserverRefused, unreachable
from curtainwall.channels.matrix.library import ClientError, LocalProtocolError, OlmUnverifiedDeviceError, RoomSendResponse, SendRetryError
from curtainwall.channels.matrix.memory import Memory, transaction
from curtainwall.model import TryLater

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

PIECE: Final = 4_000
"""How many characters stand in one event at most; what is longer goes on in a thread."""

_LARGEST_EVENT: Final = 40_000
_PREVIEW: Final = 200
_BOUND: Final = 120.0

Content = dict[str, object]


@dataclass(frozen=True, slots=True)
class RoomMessage:
    """Something to say: plain, with a form of its own, or as a remark of ours; `mention` names who should look."""

    text: str
    html: str | None = None
    notice: bool = False
    thread: str = ""
    reply_to: str = ""
    mention: tuple[str, ...] = ()


class MatrixOutbox:
    """Our voice in every room.

    INVARIANT: what is said has a name. The homeserver takes the same name once, and we remember what it was given for it.
    """

    def __init__(self, homeserver: Homeserver, sealing: DeviceKeys, memory: Memory) -> None:
        self._homeserver = homeserver
        self._sealing = sealing
        self._memory = memory
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def say(self, room: str, name: str, words: RoomMessage) -> str:
        """Say something once, and return the id of its event; saying it again returns the same."""
        known = self._memory.get(f"sent {name}")
        if known is not None:
            return known
        event = await self._send(room, name, content_of(words))
        await self._memory.set({f"sent {name}": event})
        return event

    async def change(self, room: str, name: str, event: str, words: RoomMessage) -> None:
        """Replace what was said by something else; the name is this change's own."""
        await self._send(room, name, replacement(event, content_of(words)))

    async def typing(self, room: str, *, seconds: int) -> None:
        """Show that somebody is at work; where that fails nobody misses anything."""
        try:
            await self._homeserver.typing(room, seconds=seconds)
        except (TryLater, HomeserverRefused):
            return

    async def _send(self, room: str, name: str, content: Content) -> str:
        client = self._homeserver.client
        if room not in client.rooms:
            raise HomeserverRefused(f"nothing can be said in `{room}`: we are not in there")
        async with self._turns[room]:
            try:
                async with asyncio.timeout(_BOUND):
                    await self._sealing.ready(room)
                    response = await client.room_send(room, "m.room.message", content, transaction(name), ignore_unverified_devices=True)
            except (ClientError, TimeoutError, OSError) as fault:
                # The library waits for ever on a sharing of keys that was cut off.
                client.sharing_session.pop(room, None)
                raise unreachable(self._homeserver.account, fault) from fault
            except (LocalProtocolError, OlmUnverifiedDeviceError, SendRetryError) as fault:
                raise TryLater(f"nothing can be said in `{room}` yet: {fault}") from fault
        if isinstance(response, RoomSendResponse):
            return response.event_id
        if response.status_code in ("M_FORBIDDEN", "M_NOT_FOUND", "M_TOO_LARGE", "M_GUEST_ACCESS_FORBIDDEN"):
            raise HomeserverRefused(f"nothing can be said in `{room}`: {response.message}")
        raise TryLater(f"nothing could be said in `{room}`: {response.message}")


def content_of(words: RoomMessage) -> Content:
    """Return an event's content; where both forms would be too much for one event, the plain one is enough."""
    content: Content = {"msgtype": "m.notice" if words.notice else "m.text", "body": words.text or "…"}
    content["m.mentions"] = {"user_ids": list(words.mention)} if words.mention else {}
    if words.html is not None:
        content |= {"format": "org.matrix.custom.html", "formatted_body": words.html}
        if len(json.dumps(content, ensure_ascii=False).encode()) > _LARGEST_EVENT:
            del content["format"], content["formatted_body"]
    if words.thread:
        latest = {"event_id": words.reply_to or words.thread}
        content["m.relates_to"] = {
            "rel_type": "m.thread",
            "event_id": words.thread,
            "is_falling_back": not words.reply_to,
            "m.in_reply_to": latest,
        }
    elif words.reply_to:
        content["m.relates_to"] = {"m.in_reply_to": {"event_id": words.reply_to}}
    return content


def replacement(event: str, content: Content) -> Content:
    """Return what replaces an event; clients that do not know replacements show a preview."""
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
    """Return a text in pieces that an event can hold, cut between lines where that is possible; code stays code.

    What is longer than one event begins with a short piece, of which `first` is the size.
    """
    found: list[str] = []
    size = PIECE if len(text) <= PIECE else first
    while len(text) > size:
        cut = text.rfind("\n", size // 2, size)
        cut = size if cut < 0 else cut
        piece, text = text[:cut], text[cut:].removeprefix("\n")
        fence = _open_fence(piece)
        found.append(f"{piece}\n```" if fence else piece)
        text = f"{fence}\n{text}" if fence else text
        size = PIECE
    return [*found, text]


def _open_fence(piece: str) -> str:
    """Return how a block of code begins that is still open at the end of a piece."""
    opened = ""
    for line in piece.split("\n"):
        stripped = line.strip()
        if stripped.startswith("```"):
            opened = "" if opened else stripped[:40]
    return opened


_LONGEST = 20_000


def to_html(text: str) -> str | None:
    """Return the text as HTML, or None where it has no form that would be worth it."""
    if len(text) > _LONGEST:
        return None
    form = _reader().render(text).rstrip("\n")
    plain = form.removeprefix("<p>").removesuffix("</p>")
    return form if "<" in plain else None


def with_code(text: str) -> str | None:
    """Return a line of ours in which what stands between backticks is code, whoever wrote that; None where nothing does."""
    parts = text.split("`")
    if len(parts) % 2 == 0 or len(parts) == 1 or "\n" in text:
        return None
    return "".join(f"<code>{html.escape(part)}</code>" if number % 2 else html.escape(part) for number, part in enumerate(parts))


@cache
def _reader() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # imported late: only a channel that speaks needs it

    # Tags that somebody wrote stay text; a picture would tell its server who reads, and links of other kinds would run something.
    return (
        MarkdownIt("commonmark", {"html": False, "breaks": True, "linkify": False}).enable("table").enable("strikethrough").disable("image")
    )
