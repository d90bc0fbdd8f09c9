"""A channel of one's own: a chat over TCP, one line a message. `docs/channels.md` shows a smaller one, and what both stand on.

    TCP_CHAT_PEOPLE="ann=wonderland bob=builder" python examples/tcp_chat.py --port 7070
    nc 127.0.0.1 7070
    ann wonderland kitchen          who speaks, the word that proves it, and the place
    1 list the files here           a number of one's own for each message, and the message

Whoever is named in `[channels.tcp] operators` may also answer asks and use slash words; others only talk.
"""

import argparse
import asyncio
import hmac
import os

import curtainwall
from curtainwall.channels.chat import Chat

LONGEST_LINE = 64 * 1024


class TcpChat:
    """The service: everything that a house needs to know of a channel is its name, how it runs, and how it is."""

    name = "tcp"

    def __init__(self, chat: Chat, port: int, people: dict[str, str]) -> None:
        self._chat = chat
        self._port = port
        self._people = people
        self._is_open = False

    async def run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=LONGEST_LINE)
        self._is_open = True
        print(f"listening on port {server.sockets[0].getsockname()[1]}", flush=True)
        try:
            await server.serve_forever()
        finally:
            self._is_open = False

    def health(self) -> str:
        return "" if self._is_open else "the port is not open"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            name, word, place = (await reader.readline()).decode().split(maxsplit=2)
            if not hmac.compare_digest(word.encode(), self._people.get(name, os.urandom(8).hex()).encode()):
                writer.write(b"! who are you?\n")
                return
            reference = place.strip()
            tasks += (asyncio.create_task(self._tell(reference, writer)), asyncio.create_task(self._show(reference, writer)))
            while line := (await reader.readline()).decode(errors="replace"):
                message, _, text = line.strip().partition(" ")
                # The number is the sender's own, so that a line which is sent again after a crash is taken once.
                heard = await self._chat.receive(reference, name, text, f"{name}/{message}")
                for answer in heard.lines:
                    await self._write(writer, "!" if heard.refused else "-", answer)
                await self._write(writer, "=", f"{message} {'again' if heard.again else 'taken'}")
        except (ConnectionError, ValueError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()

    async def _tell(self, reference: str, writer: asyncio.StreamWriter) -> None:
        """Tell what is said there, from where it was last told; the key lets the other side drop what it has seen."""
        async for said in self._chat.replies(reference):
            await self._write(writer, "<" if said.kind == "agent" else "-", f"{said.key} {said.text}")

    async def _show(self, reference: str, writer: asyncio.StreamWriter) -> None:
        """Show asks that are routed there, and by whom they were settled."""
        async for card in self._chat.asks(reference):
            if card.settled is None:
                lines = [card.tag, *(line.text for line in card.lines), f"/approve {card.approval} or /deny {card.approval}"]
            else:
                lines = [f"{card.approval} was {card.settled.how} {f'by {card.settled.by}' if card.settled.by else ''}".strip()]
            for line in lines:
                await self._write(writer, "?", line)

    async def _write(self, writer: asyncio.StreamWriter, mark: str, text: str) -> None:
        for line in text.split("\n"):
            writer.write(f"{mark} {line}\n".encode())
        await writer.drain()


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, default=7070)
    port = options.parse_args().port
    pairs = (pair.partition("=") for pair in os.environ.get("TCP_CHAT_PEOPLE", "").split())
    people = {name: secret for name, _, secret in pairs}
    async with curtainwall.serving() as house:
        house.supervisor.start([TcpChat(house.chat("tcp"), port, people)])
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
