"""A homeserver that lies: it answers what a client needs to go on, and its syncs bring whatever an enemy would send."""

import json
import random
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WALL, ANN, EVE = "@wall:enemy.test", "@ann:enemy.test", "@eve:enemy.test"
ROOM = "!room:enemy.test"
DIRECT = "!direct:enemy.test"
"""The room that it makes when it is asked for one."""
_KINDS = (
    "m.room.message",
    "m.room.encrypted",
    "m.reaction",
    "m.room.member",
    "m.room.encryption",
    "m.room.redaction",
    "m.room.name",
    "",
    7,
)
_WORDS: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", "\x00", "\ud800", "x" * 70_000, [], {}, [[[]]], {"a": {}}, "$card", ANN, EVE, ROOM,
    "m.text", "m.replace", "m.annotation", "m.thread", "m.megolm.v1.aes-sha2", "👍", "/approve", "/disable all", "/mode bypass",
)  # fmt: skip


@dataclass
class Enemy:
    """What the homeserver was told, and the syncs that it still has to send."""

    port: int = 0
    batches: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    synced: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def user(self, name: str) -> str:
        return f"@{name}:enemy.test"


def garbage(seed: int, count: int, ids: list[str]) -> Iterator[Any]:
    """Yield events that an enemy would send, among them orders in the name of the operator; the same for the same seed."""
    chance = random.Random(seed)
    for number in range(count):
        yield chance.choice((_order, _shaped, _shaped, _wild, _cipher))(chance, number, ids)


def _head(chance: random.Random, number: int) -> dict[str, Any]:
    return {"event_id": f"$e{number}", "sender": chance.choice((ANN, ANN, EVE, WALL)), "origin_server_ts": number}


def _order(chance: random.Random, number: int, ids: list[str]) -> dict[str, Any]:
    """Return an order without encryption, or a sign, by whoever the homeserver likes."""
    approval = chance.choice(ids)
    if chance.random() < 0.5:
        relation = {"rel_type": "m.annotation", "event_id": chance.choice(("$sent1", "$sent2", "$sent3", f"$e{number}")), "key": "👍"}
        return {**_head(chance, number), "type": "m.reaction", "content": {"m.relates_to": relation}}
    body = chance.choice(
        (f"/approve {approval}", f"/approve {approval} project", "/mode bypass", "/disable write-outside", f"approve {approval}")
    )
    return {**_head(chance, number), "type": "m.room.message", "content": {"msgtype": "m.text", "body": body}}


def _shaped(chance: random.Random, number: int, ids: list[str]) -> dict[str, Any]:
    event = {**_head(chance, number), "type": chance.choice(_KINDS), "content": _content(chance)}
    if chance.random() < 0.3:
        event[chance.choice(("event_id", "sender", "type", "content", "unsigned", "state_key", "origin_server_ts"))] = chance.choice(_WORDS)
    if chance.random() < 0.1:
        event.pop(chance.choice(tuple(event)))
    return event


def _content(chance: random.Random) -> dict[str, Any]:
    names = (
        "msgtype",
        "body",
        "m.relates_to",
        "m.new_content",
        "algorithm",
        "ciphertext",
        "sender_key",
        "session_id",
        "device_id",
        "membership",
    )
    content = {name: chance.choice(_WORDS) for name in chance.sample(names, chance.randrange(len(names)))}
    if chance.random() < 0.4:
        content["m.relates_to"] = {name: chance.choice(_WORDS) for name in ("rel_type", "event_id", "key", "m.in_reply_to")}
    return content


def _cipher(chance: random.Random, number: int, ids: list[str]) -> dict[str, Any]:
    content = {
        "algorithm": "m.megolm.v1.aes-sha2",
        "ciphertext": "AwgA" * chance.randrange(50),
        "sender_key": "k" * 43,
        "session_id": f"s{number % 7}",
        "device_id": "D",
    }
    if chance.random() < 0.5:
        content[chance.choice(tuple(content))] = chance.choice(_WORDS)
    return {**_head(chance, number), "type": "m.room.encrypted", "content": content}


def _wild(chance: random.Random, number: int, ids: list[str]) -> Any:
    return chance.choice(_WORDS)


def sync(token: int, events: list[Any], chance: random.Random) -> dict[str, Any]:
    """Return a sync that brings events, with more garbage around them."""
    encryption = {
        **_head(chance, 0),
        "event_id": "$enc",
        "type": "m.room.encryption",
        "state_key": "",
        "content": {"algorithm": "m.megolm.v1.aes-sha2"},
    }
    joined = {"type": "m.room.member", "origin_server_ts": 0, "content": {"membership": "join"}}
    members = [{**joined, "event_id": f"$j{user}", "sender": user, "state_key": user} for user in (WALL, ANN, EVE)]
    rubbish = [chance.choice(_WORDS) for _ in range(5)]
    return {
        "next_batch": f"t{token}",
        "rooms": {
            "join": {
                ROOM: {
                    "state": {"events": [encryption, *members, *rubbish]},
                    "timeline": {"events": events, "limited": False, "prev_batch": "p"},
                },
                "!other": chance.choice(_WORDS),
                "": chance.choice(_WORDS),
            },
            "invite": {"!elsewhere": {"invite_state": {"events": rubbish}}, "!x": chance.choice(_WORDS)},
            "leave": chance.choice(_WORDS),
        },
        "to_device": {"events": [*rubbish, {"type": "m.room.encrypted", "sender": EVE, "content": chance.choice(_WORDS)}]},
        "device_lists": chance.choice(({"changed": rubbish}, *_WORDS)),
        "device_one_time_keys_count": chance.choice(({"signed_curve25519": 50}, *_WORDS)),
    }


@contextmanager
def hostile() -> Generator[Enemy]:
    """Run the homeserver on loopback."""
    enemy = Enemy()
    answers: dict[str, Any] = {
        "login": {"user_id": WALL, "device_id": "WALL", "access_token": "t", "home_server": "enemy.test"},
        "upload": {"one_time_key_counts": {"signed_curve25519": 50}},
        "query": {"device_keys": {ANN: {}, EVE: {}, WALL: {}}, "failures": {}},
        "createRoom": {"room_id": DIRECT},
        ANN: {"membership": "join"},
        "claim": {"one_time_keys": {}, "failures": {}},
        "joined_members": {"joined": {user: {"display_name": None, "avatar_url": None} for user in (WALL, ANN, EVE)}},
    }

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            path = self.path.partition("?")[0]
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            last = path.rpartition("/")[2]
            if last == "sync":
                told = self._sync()
            elif "/send/" in path:
                enemy.sent.append(json.loads(body))
                told = {"event_id": f"$sent{len(enemy.sent)}"}
            else:
                told = answers.get(last, {})
            content = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _sync(self) -> dict[str, Any]:
            since = self.path.partition("since=t")[2].partition("&")[0]
            place = int(since) if since.isdigit() else 0
            enemy.synced = max(enemy.synced, place)
            if place < len(enemy.batches):
                return enemy.batches[place]
            enemy.is_over.wait(1)
            return {"next_batch": f"t{place}"}

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the names are the base class's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as http:
        http.daemon_threads = True
        enemy.port = http.server_port
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield enemy
        finally:
            enemy.is_over.set()
            http.shutdown()
            thread.join()
