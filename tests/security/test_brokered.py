"""A foreign agent attacks from inside its container, with its own shell: whatever it tries, it stays inside."""

import json
import shlex
from pathlib import Path

from curtainwall.agents.external.container.runs import copy_for_root
from tests.integration.brokered.conftest import SHELL, Brokered, brokered, configuration, docker_engine, short_path
from tests.integration.container.test_containers import LOOK_AROUND
from tests.integration.container.test_containers import SHELL as PLAIN_SHELL
from tests.support.contained import contained
from tests.support.covers import covers
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.ports import free_port, is_heard
from tests.support.serving import health
from tests.support.talking import run
from tests.support.upstream import KEY, Says
from tests.support.waiting import until

__all__ = ["brokered", "docker_engine", "short_path"]

ROGUE = '[agents.rogue]\nimage = "curtainwall-test:1"\ncommand = ["sh"]\nproviders = { anthropic = "ANTHROPIC_API_KEY" }\n'
# Whatever a user permits, our own ports are no part of it.
WIDE_OPEN = """
@id("wide-open") @title("Every connection") @reason("The test wants to see what even this does not open.")
permit (principal, action == Action::"send-url", resource) when { context.tool == "egress.connect" };
"""
SPEAK_TLS = """
const net = require('net'), tls = require('tls'), fs = require('fs'), host = 'api.anthropic.com', body = JSON.stringify(
  {model: 'm', max_tokens: 9, stream: true, messages: [{role: 'user', content: 'which key is it?'}]});
const ask = (key, then) => {
  const hello = `CONNECT ${host}:443 HTTP/1.1\\r\\nHost: ${host}\\r\\n\\r\\n`;
  const way = net.connect(18080, '127.0.0.1', () => way.write(hello));
  way.once('data', () => {
    const safe = tls.connect({socket: way, servername: host, ca: fs.readFileSync('/etc/curtainwall/ca.pem')}, () => safe.write(
      `POST /v1/messages HTTP/1.1\\r\\nhost: ${host}\\r\\nx-api-key: ${key}\\r\\ncontent-type: application/json\\r\\n` +
      `connection: close\\r\\ncontent-length: ${body.length}\\r\\n\\r\\n${body}`));
    safe.on('data', bytes => fs.appendFileSync('/workspace/bytes', bytes));
    safe.on('close', then);
  });
};
setTimeout(() => process.exit(1), 30000);
ask(process.env.ANTHROPIC_API_KEY, () => {
  fs.appendFileSync('/workspace/bytes', '-- with a key of its own --');
  ask('sk-ant-api03-' + 'x'.repeat(90), () => process.exit(0));
});
"""


def call(tool: str, **arguments: object) -> str:
    """Return a shell command that calls a tool of the session, as any program inside can."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "1"}}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    ]
    return f"printf '%s\\n' {shlex.join(map(json.dumps, frames))} | socat -t 20 - UNIX-CONNECT:/run/curtainwall/mcp.sock"


@covers("brokered.no-key-inside")
def test_the_key_is_nowhere_inside(brokered: Brokered) -> None:
    brokered.configure(configuration(brokered.provider, ROGUE))
    look = """
    echo "mine: $ANTHROPIC_API_KEY"
    env >/tmp/seen; cat /proc/*/environ /proc/*/cmdline >>/tmp/seen 2>/dev/null
    find / -xdev -type f -size -2000k -not -path '/proc/*' -not -path '/usr/*' -exec cat {} + >>/tmp/seen 2>/dev/null
    find /home /etc /run /workspace /tmp -type f -not -name seen -exec cat {} + >>/tmp/seen 2>/dev/null
    wc -c </tmp/seen; cp /tmp/seen /workspace/seen
    """
    done = brokered.start("rogue", look)
    assert done["status"] == "done", done
    seen = (brokered.home / "sessions" / done["session"] / "workspace" / "seen").read_bytes()
    assert b"ANTHROPIC_API_KEY=sk-ant-" in seen, "it has a stand-in"
    assert KEY.encode() not in seen


@covers("brokered.no-key-in-tls")
def test_the_key_is_not_in_a_single_byte_that_comes_back(brokered: Brokered) -> None:
    brokered.configure(configuration(brokered.provider, ROGUE))
    brokered.provider.turns.append(Says((f"your key is {KEY}", "!")))
    done = brokered.start("rogue", f"node -e {shlex.quote(SPEAK_TLS)} </dev/null; echo done")
    assert done["status"] == "done", done
    seen = (brokered.home / "sessions" / done["session"] / "workspace" / "bytes").read_bytes()
    assert seen.startswith(b"HTTP/1.1 200 "), seen[:500]
    assert b"your key is ***" in seen, "the provider told it, and it was overwritten on the way"
    assert KEY.encode() not in seen
    assert b"HTTP/1.1 403 " in seen.partition(b"-- with a key of its own --")[2]
    assert [request.headers["x-api-key"] for request in brokered.provider.asked] == [KEY], "nothing went out with another key"


@covers("agents.own-keys")
def test_an_agent_with_a_key_of_its_own_has_neither_that_nor_the_users_and_the_users_goes_nowhere(brokered: Brokered) -> None:
    users = "sk-ant-api03-the-users-own-key-for-everything-else"
    place = brokered.scratch / "team.key"
    place.write_text(f"{KEY}\n")
    place.chmod(0o600)
    brokered.configure(configuration(brokered.provider, f'{ROGUE}[agents.rogue.keys.anthropic]\nfile = "{place}"\n'))
    look = "env >/workspace/seen; cat /proc/*/environ /etc/curtainwall/* /home/agent/.* >>/workspace/seen 2>/dev/null"
    done = brokered.start("rogue", f"{look}; node -e {shlex.quote(SPEAK_TLS)} </dev/null; echo done", ANTHROPIC_API_KEY=users)
    assert done["status"] == "done", done
    inside = brokered.home / "sessions" / done["session"]
    assert b"ANTHROPIC_API_KEY=sk-ant-" in (inside / "workspace" / "seen").read_bytes(), "it has a stand-in"
    for path in brokered.home.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not [key for key in (KEY, users) if key.encode() in content], path
    assert {request.headers["x-api-key"] for request in brokered.provider.asked} == {KEY}, "its own key alone goes out"


@covers("brokered.isolated")
def test_there_is_no_interface_no_right_and_nothing_of_ours_to_write(brokered: Brokered) -> None:
    said = brokered.start(SHELL, LOOK_AROUND)["text"]
    assert "interfaces lo\n" in said
    assert said.count("0000000000000000") == 5, "every set of capabilities is empty"
    assert "writable /home/agent /tmp /workspace \n" in said
    assert {line.removeprefix("wrote ") for line in said.splitlines() if line.startswith("wrote ")} == {
        "/workspace",
        "/home/agent",
        "/tmp",
        "/dev/shm",
    }
    everything = brokered.engine.docker("run", "--rm", "--network", "host", IMAGE, "tail", "-n", "+3", "/proc/net/dev")
    assert len(everything.splitlines()) > 1, "with the host's network there is more to be seen, so the test can see it"


@covers("brokered.no-way-to-channels")
def test_an_agent_reaches_neither_our_ports_nor_our_sockets_nor_what_channels_keep(brokered: Brokered) -> None:
    web, hooks, status = free_port(), free_port(), free_port()
    secret = brokered.scratch / "secret"
    secret.write_text("s" * 40)
    serving = (
        f'[web]\nport = {web}\n[serve]\nstatus-port = {status}\n[webhooks]\nlisten = "127.0.0.1:{hooks}"\n'
        f'[webhooks.hooks.build]\nsecret-file = "{secret}"\nprompt = "look"\n'
    )
    brokered.configure(configuration(brokered.provider, serving))
    (brokered.home / "policy").mkdir(exist_ok=True)
    (brokered.home / "policy" / "open.cedar").write_text(WIDE_OPEN)
    served = brokered.begin("serve")
    until(lambda: health(status), 90)
    for port in (web, hooks, status):
        until(lambda port=port: is_heard(port))
    watched = until(lambda: sorted((brokered.home / "run" / "watch").iterdir()), 60)[0]
    store = brokered.home / "matrix"
    store.mkdir(exist_ok=True)
    (store / "keys.db").write_text("keys")
    tries = [f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo got through to {port}" for port in (web, hooks, status)]
    for host in ("127.0.0.1", "localhost"):
        for port in (web, hooks, status):
            connect = f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n"
            tries.append(f"printf '{connect}' | socat -t 5 - TCP:127.0.0.1:18080 | head -n 1")
    tries.append(call("fetch__get", url=f"http://127.0.0.1:{web}/") + " | tail -n 1")
    tries += [f"socat -u /dev/null UNIX-CONNECT:{watched} && echo got through to a socket", f"cat {store}/keys.db && echo read the store"]
    tries.append(call("filesystem__read_file", path=str(store / "keys.db")) + " | tail -n 1")
    done = brokered.start(SHELL, "exec bash -c " + shlex.quote("\n".join(tries)))
    assert "got through" not in done["text"], done["text"]
    assert "read the store" not in done["text"]
    assert done["text"].count("HTTP/1.1 403 ") == 6, done["text"]
    assert "forbidden-address" in done["text"]
    assert "protected-path" in done["text"]
    served.interrupt()
    served.code(60)


@covers("brokered.no-self-approval")
def test_an_agent_can_neither_answer_its_asks_nor_touch_what_is_ours(brokered: Brokered) -> None:
    outside = brokered.scratch / "outside.txt"
    home = brokered.home
    attack = f"""
    ({call("filesystem__write_file", path=str(outside), content="hello")} >/tmp/answer 2>&1 &)
    sleep 2
    for place in {home} /var/run/docker.sock /run/curtainwall/watch /run/curtainwall/.. ; do ls -A $place 2>&1 | sed "s|^|$place: |"; done
    ls -A /run/curtainwall
    echo '{{"decision": "approved"}}' >/run/curtainwall/response.json && echo "wrote beside the sockets"
    rm /run/curtainwall/mcp.sock && echo "removed a socket"
    echo x >>/etc/curtainwall/message && echo "changed its orientation"
    {call("session__approve", approval="aaaaaa")} | tail -n 1
    {call("filesystem__read_file", path=str(home / "curtainwall.db"))} | tail -n 1
    {call("filesystem__write_file", path=str(home / "sessions" / "audit.jsonl"), content="")} | tail -n 1
    cat /tmp/answer | tail -n 1
    """
    running = brokered.begin("start", "--agent", SHELL, "--output", "json", "--on-ask", "wait", attack)
    asked = running.says(r"`curtainwall approve (\w{6})`", 120)
    assert running.code(120) == 0
    said = json.loads(running.out)["text"]
    for boast in ("wrote beside", "removed a socket", "changed its orientation"):
        assert boast not in said
    assert f"{home}: ls: cannot access" in said
    assert "/var/run/docker.sock: ls: cannot access" in said
    assert "egress.sock\nmcp.sock" in said
    assert "unknown-tool" in said or "there is no tool" in said
    assert said.count("protected-path") >= 2, said
    assert not outside.exists()
    assert asked not in said, "ids of asks are never told to agents"


@covers("brokered.other-sockets")
def test_an_agent_cannot_reach_the_sockets_of_another_session(brokered: Brokered) -> None:
    other = brokered.starting(SHELL, "until [ -e /workspace/go ]; do sleep 0.1; done; echo over")
    (row,) = until(brokered.sessions, 60)
    socket = brokered.home / "run" / row["id"] / "mcp.sock"
    until(socket.exists, 60)
    done = brokered.start(SHELL, f"socat -u /dev/null UNIX-CONNECT:{socket} && echo reached; ls {socket.parent} && echo seen; echo tried")
    assert done["text"] == "tried\n"
    (brokered.home / "sessions" / row["id"] / "workspace" / "go").touch()
    assert other.code(120) == 0


@covers("brokered.tunnels-denied")
def test_the_network_is_closed_but_for_models_and_each_try_is_in_the_log(brokered: Brokered) -> None:
    reach = (
        "printf 'CONNECT example.com:443 HTTP/1.1\\r\\nHost: example.com:443\\r\\n\\r\\n' | socat -t 5 - TCP:127.0.0.1:18080 | head -n 1"
    )
    done = brokered.start(SHELL, f"{reach}; {reach}")
    assert done["text"].count("403") == 2
    tried = [event["subject"] for event in brokered.told(done["session"], "CallRequested")]
    assert [(it["kind"], it["tool"], it["canonical"]) for it in tried] == [("egress", "egress.connect", {"url": "https://example.com/"})]
    (denied,) = brokered.told(done["session"], "CallDenied")
    assert denied["verdict"]["effect"] == "deny"


CHANGE_IT = """
stat -c '%u %a' /etc/curtainwall-root /etc/curtainwall-root/ca.pem
echo mine >/etc/curtainwall-root/ca.pem
rm -f /etc/curtainwall-root/ca.pem
ln -s /workspace/mine /etc/curtainwall-root/other
[ "$(cat /etc/curtainwall/ca.pem)" = "$(cat /etc/curtainwall-root/ca.pem)" ] && echo unchanged
ls /etc/curtainwall-root
"""


@covers("container.isolated")
def test_files_that_are_roots_inside_are_out_of_an_agents_reach_and_what_makes_them_has_no_rights(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, PLAIN_SHELL) as rig:
            session = await rig.open("shell")
            await rig.say(session, "echo hello")
            container = await rig.container(session)
            await copy_for_root(rig.engine, container, ("ca.pem",))
            said = (await rig.say(session, CHANGE_IT)).text
            assert said.split("\n")[:4] == ["0 755", "0 644", "unchanged", "ca.pem"], said
            status = b""
            async with rig.engine.run(container, ("/bin/cat", "/proc/self/status"), {}, as_root=True) as looking:
                while (piece := await looking.read()) is not None:
                    status += piece[1]
            told = dict(line.split(":\t", 1) for line in status.decode().splitlines() if ":\t" in line)
            assert [told[f"Cap{kind}"] for kind in ("Prm", "Eff", "Bnd", "Amb")] == ["0" * 16] * 4
            assert (told["NoNewPrivs"], told["Uid"].split()[0]) == ("1", "0")

    run(story())
