"""A real homeserver on loopback, and people on it with real clients of their own."""

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nio import AsyncClient, AsyncClientConfig, MegolmEvent, RoomCreateResponse, RoomSendResponse, SyncResponse
from nio.events import Event

from tests.support.ports import free_port
from tests.support.real_parts import SYNAPSE

SERVER = "curtain.test"
_SECRET = "for tests"
_PATIENCE = 90.0

_CONFIG = """
server_name: "{server}"
pid_file: {root}/homeserver.pid
listeners:
  - {{bind_addresses: ["127.0.0.1"], port: {port}, type: http, tls: false, resources: [{{names: [client], compress: false}}]}}
database: {{name: sqlite3, args: {{database: {root}/homeserver.db}}}}
log_config: "{root}/log.yaml"
media_store_path: {root}/media
registration_shared_secret: "{secret}"
report_stats: false
macaroon_secret_key: "a"
form_secret: "b"
signing_key_path: "{root}/signing.key"
trusted_key_servers: []
suppress_key_server_warning: true
enable_registration: false
presence: {{enabled: false}}
bcrypt_rounds: 4
rc_message: {{per_second: {rate}, burst_count: {burst}}}
rc_login: {{address: {{per_second: 1000, burst_count: 1000}}, account: {{per_second: 1000, burst_count: 1000}}}}
rc_joins: {{local: {{per_second: 1000, burst_count: 1000}}}}
rc_invites:
  per_room: {{per_second: 1000, burst_count: 1000}}
  per_user: {{per_second: 1000, burst_count: 1000}}
  per_issuer: {{per_second: 1000, burst_count: 1000}}
"""
_LOG = """
version: 1
formatters: {{precise: {{format: '%(asctime)s %(name)s %(levelname)s %(message)s'}}}}
handlers: {{file: {{class: logging.FileHandler, formatter: precise, filename: "{root}/homeserver.log"}}}}
root: {{level: WARNING, handlers: [file]}}
disable_existing_loggers: false
"""


@dataclass
class Synapse:
    """A running homeserver; `stop` and `start` let it go away for a while."""

    root: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None
    suffix: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def user(self, name: str) -> str:
        return f"@{name}{self.suffix}:{SERVER}"

    def settle(self, *names: str) -> None:
        """Let people with new accounts live here, so that no test meets the devices of another."""
        self.suffix = f"-{secrets.token_hex(3)}"
        for name in names:
            self.register(name)

    def start(self) -> None:
        command = [str(SYNAPSE), "-m", "synapse.app.homeserver", "--config-path", str(self.root / "homeserver.yaml")]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        with (self.root / "out.log").open("ab") as out:
            self.process = subprocess.Popen(command, cwd=self.root, env=environ, stdout=out, stderr=out)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=2).read()
                return
            except OSError:
                assert self.process.poll() is None, (self.root / "out.log").read_text()
                time.sleep(0.1)
        raise AssertionError("the homeserver does not come up")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def register(self, name: str, password: str = "secret") -> str:
        """Make a user and return its id; one that is there already is left as it is."""
        nonce = json.load(urllib.request.urlopen(f"{self.url}/_synapse/admin/v1/register", timeout=30))["nonce"]
        name = f"{name}{self.suffix}"
        text = b"\0".join((nonce.encode(), name.encode(), password.encode(), b"notadmin"))
        mac = hmac.new(_SECRET.encode(), text, hashlib.sha1).hexdigest()
        told = {"nonce": nonce, "username": name, "password": password, "admin": False, "mac": mac}
        request = urllib.request.Request(f"{self.url}/_synapse/admin/v1/register", json.dumps(told).encode(), method="POST")
        urllib.request.urlopen(request, timeout=30).read()
        return f"@{name}:{SERVER}"

    @contextmanager
    def database(self) -> Generator[sqlite3.Connection]:
        """Open the homeserver's own database, as whoever owns the machine can, and keep what was changed in there."""
        with closing(sqlite3.connect(self.root / "homeserver.db", timeout=30)) as database, database:
            yield database


@contextmanager
def running(root: Path, *, rate: float = 10_000, burst: int = 10_000) -> Generator[Synapse]:
    """Run a homeserver with a directory of its own."""
    root.mkdir(parents=True, exist_ok=True)
    server = Synapse(root, free_port())
    told = {"root": root, "port": server.port, "server": SERVER, "secret": _SECRET, "rate": rate, "burst": burst}
    (root / "homeserver.yaml").write_text(_CONFIG.format(**told))
    (root / "log.yaml").write_text(_LOG.format(**told))
    command = [str(SYNAPSE), "-m", "synapse.app.homeserver", "--config-path", str(root / "homeserver.yaml"), "--generate-keys"]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=120)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass
class Heard:
    """One thing that somebody saw in a room: its newest text, and how often it was changed."""

    event: str
    sender: str
    text: str
    source: dict[str, Any]
    encrypted: bool = False
    changes: int = 0
    thread: str = ""


@dataclass
class Person:
    """Somebody on the homeserver, with one device and a screen."""

    client: AsyncClient
    seen: dict[str, dict[str, Heard]] = field(default_factory=dict)
    unread: list[tuple[str, MegolmEvent]] = field(default_factory=list)

    @property
    def user(self) -> str:
        return self.client.user_id

    async def look(self, wait: int = 200) -> None:
        """Take in what is new."""
        response = await self.client.sync(
            timeout=wait, sync_filter={"room": {"timeline": {"limit": 500}}}, full_state=not self.client.next_batch
        )
        assert isinstance(response, SyncResponse), response
        for room, info in response.rooms.join.items():
            for event in info.timeline.events:
                if isinstance(event, MegolmEvent):
                    self.unread.append((room, event))
                else:
                    self._see(room, event)
        for room, event in tuple(self.unread):
            event.room_id = room
            try:
                opened = self.client.decrypt_event(event)
            except Exception:  # noqa: BLE001 - the key may still come
                continue
            self.unread.remove((room, event))
            self._see(room, opened)
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        if self.client.should_query_keys:
            await self.client.keys_query()
        if self.client.should_claim_keys:
            await self.client.keys_claim(self.client.get_users_for_key_claiming())
        await self.client.send_to_device_messages()

    def _see(self, room: str, event: Any) -> None:
        source = getattr(event, "source", {})
        content = source.get("content", {})
        relation = content.get("m.relates_to", {})
        seen = self.seen.setdefault(room, {})
        if relation.get("rel_type") == "m.replace" and relation["event_id"] in seen:
            heard = seen[relation["event_id"]]
            heard.text, heard.changes = content["m.new_content"]["body"], heard.changes + 1
            heard.source = {**source, "content": content["m.new_content"]}
        elif source.get("type") == "m.room.message" and isinstance(event, Event):
            thread = relation.get("event_id", "") if relation.get("rel_type") == "m.thread" else ""
            seen[event.event_id] = Heard(event.event_id, event.sender, content.get("body", ""), source, event.decrypted, thread=thread)

    def heard(self, room: str, sender: str) -> list[Heard]:
        return [heard for heard in self.seen.get(room, {}).values() if heard.sender == sender]

    async def until(self, is_so: Callable[[], Any], bound: float = _PATIENCE) -> Any:
        """Look until something is so, with a bound, and return it."""
        end = time.monotonic() + bound
        while not (found := is_so()):
            assert time.monotonic() < end, {room: [(it.sender, it.text) for it in all_.values()] for room, all_ in self.seen.items()}
            await self.look()
        return found

    async def hears(self, room: str, sender: str, words: str, bound: float = _PATIENCE) -> Heard:
        """Wait for something with these words in it by somebody."""
        return await self.until(lambda: next((it for it in self.heard(room, sender) if words in it.text), None), bound)

    async def room(self, *others: str, encrypted: bool = True, version: str | None = None, name: str | None = None) -> str:
        """Make a room and invite others."""
        state = [{"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}] if encrypted else []
        response = await self.client.room_create(invite=list(others), initial_state=state, room_version=version, name=name)
        assert isinstance(response, RoomCreateResponse), response
        await self.look()
        return response.room_id

    async def say(self, room: str, text: str, **more: Any) -> str:
        """Write a message, encrypted where the room is."""
        content = {"msgtype": "m.text", "body": text, **more}
        response = await self.client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)
        assert isinstance(response, RoomSendResponse), response
        return response.event_id

    async def say_openly(self, room: str, kind: str, content: dict[str, Any]) -> str:
        """Write something that is not encrypted, whatever the room is."""
        path = f"{self.client.homeserver}/_matrix/client/v3/rooms/{room}/send/{kind}/{time.time_ns()}"
        headers = {"Authorization": f"Bearer {self.client.access_token}"}
        assert self.client.client_session is not None
        async with self.client.client_session.put(path, json=content, headers=headers) as response:
            told = await response.json()
            assert response.status == 200, told
            return told["event_id"]

    async def react(self, room: str, event: str, sign: str) -> str:
        return await self.say_openly(room, "m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": sign}})

    async def joined(self, room: str, user: str) -> None:
        """Wait until somebody is in a room."""

        async def is_there() -> bool:
            response = await self.client.joined_members(room)
            return any(member.user_id == user for member in getattr(response, "members", ()))

        async with asyncio.timeout(_PATIENCE):
            # Somebody whose devices are not known yet is sent no keys.
            while not await is_there() or not list(self.client.device_store.active_user_devices(user)):
                await self.look()


@asynccontextmanager
async def person(server: Synapse, name: str, directory: Path, device: str = "PHONE") -> AsyncGenerator[Person]:
    """Log somebody in with a device of their own."""
    os.makedirs(directory, exist_ok=True)
    client = AsyncClient(server.url, server.user(name), device, str(directory), AsyncClientConfig(store_name=f"{name}{device}.db"))
    try:
        response = await client.login("secret")
        assert client.access_token, response
        found = Person(client)
        await found.look()
        yield found
    finally:
        await client.close()
        if client.store is not None:
            client.store.database.close()
