"""A web service that embeds a session: messages come in over HTTP, and asks are answered there.

    python examples/library/web_service.py

It serves on a free port, talks to itself as a client would, and ends. Anyone who reaches the port can answer asks, so a real
service needs a login in front of it.
"""

import asyncio
import json
import socket
import tempfile
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import curtainwall


class Service:
    """One session behind three routes."""

    def __init__(self, session: curtainwall.Session) -> None:
        self._session = session

    async def send(self, request: Request) -> JSONResponse:
        try:
            reply = await self._session.send((await request.json())["text"])
        except curtainwall.CurtainwallError as fault:
            return JSONResponse({"error": str(fault)}, status_code=400)
        return JSONResponse({"status": reply.status, "text": reply.text})

    async def list_asks(self, _: Request) -> JSONResponse:
        return JSONResponse([{"id": ask.approval, "shown": ask.shown} for ask in self._session.pending])

    async def answer(self, request: Request) -> JSONResponse:
        try:
            await self._session.answer(request.path_params["id"], granted=(await request.json())["granted"])
            reply = await self._session.go_on()
        except curtainwall.CurtainwallError as fault:
            return JSONResponse({"error": str(fault)}, status_code=400)
        return JSONResponse({"status": reply.status, "text": reply.text})


@asynccontextmanager
async def serving(root: Path) -> AsyncGenerator[str]:
    """Serve until the context is left, and yield the address."""
    async with curtainwall.open_session(workspace=root / "project", model="demo", home=root / "home") as session:
        service = Service(session)
        routes = [
            Route("/messages", service.send, methods=["POST"]),
            Route("/asks", service.list_asks),
            Route("/asks/{id}", service.answer, methods=["POST"]),
        ]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
            running = asyncio.create_task(server.serve([listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
                await running


def fetch(url: str, body: dict[str, object] | None = None) -> str:
    """Ask the service as a client would."""
    content = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, content), timeout=60) as answer:
        return answer.read().decode()


async def main(root: Path) -> None:
    async with serving(root) as address:
        print(await asyncio.to_thread(fetch, f"{address}/messages", {"text": "write 'bread' to todo.txt"}))
        (ask,) = json.loads(await asyncio.to_thread(fetch, f"{address}/asks"))
        print(f"asked: {ask['shown'].splitlines()[0]}")
        print(await asyncio.to_thread(fetch, f"{address}/asks/{ask['id']}", {"granted": True}))
    print(f"todo.txt: {(root / 'project' / 'todo.txt').read_text()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        (root / "project").mkdir()
        (root / "project" / "todo.txt").write_text("milk")
        asyncio.run(main(root))
