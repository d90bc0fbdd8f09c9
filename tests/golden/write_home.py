"""Writes a whole home as an installed version of the program leaves it: sessions with standing approvals of every kind, and an open ask.

Run it once for a release, with that release installed: `PROGRAM=…/bin/curtainwall python tests/golden/write_home.py VERSION`. The program
is driven from outside, by its own commands. A log is chained and names its paths, so a home can be opened at `ROOT` alone.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path("/tmp/curtainwall-golden-home")
HOME, USER, PROJECT, OUTSIDE = ROOT / "home", ROOT / "user", ROOT / "project", ROOT / "outside"

SERVER = r"""#!/bin/sh
# A tool server that pays whom it is told to.
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id": *\([0-9][0-9]*\).*/\1/p')
  schema='{"type":"object","properties":{"to":{"type":"string"},"amount":{"type":"integer"}},"required":["to","amount"]}'
  case "$line" in
    *'"initialize"'*) told='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"pay","version":"1"}}' ;;
    *'"tools/list"'*) told='{"tools":[{"name":"send","description":"Pay.","inputSchema":'$schema'},
      {"name":"refund","description":"Pay back.","inputSchema":'$schema'}]}' ;;
    *'"tools/call"'*) told='{"content":[{"type":"text","text":"paid"}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$(printf '%s' "$told" | tr -d '\n')"
done
"""

RULES = """@id("commands-ask") @title("Commands ask")
forbid (principal, action == Action::"run-command", resource) unless { context.approved };
"""

FOR_SESSION = [
    {"tool": "pay.send", "arguments": {"to": "bob", "amount": 1}},
    {"tool": "filesystem.read_file", "arguments": {"path": str(OUTSIDE / "notes.txt")}},
    {"tool": "shell.run", "arguments": {"command": "echo hello"}},
]
FOR_PROJECT = [
    {"tool": "pay.refund", "arguments": {"to": "bob", "amount": 1}},
    {"tool": "filesystem.read_file", "arguments": {"path": str(OUTSIDE / "more.txt")}},
]

STILL_OPEN: dict[str, object] = {"tool": "filesystem.read_file", "arguments": {"path": str(OUTSIDE / "third.txt")}}


def environment() -> dict[str, str]:
    """Return the surroundings in which the home was written, and has to be opened."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    return {**kept, "HOME": str(USER), "CURTAINWALL_HOME": str(HOME), "LOGNAME": "ann", "USER": "ann"}


def program(*words: str, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [os.environ["PROGRAM"], *words], env=environment(), cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode not in codes:
        sys.exit(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def session(name: str, calls: list[dict[str, object]], scope: str | None) -> None:
    """Let an agent make calls that ask, each approved for longer than once; without a scope, the first one stays open."""
    script = ROOT / f"{name}.jsonl"
    script.write_text("".join(f"{json.dumps(call)}\n" for call in calls) + '{"text": "That was all."}\n')
    told = program("start", "--workspace", str(PROJECT), "--model", f"script:{script}", "--name", name, "--on-ask", "park", "--output",
                   "json", "do it", codes=(3,))  # fmt: skip
    which = str(json.loads(told)["session"])
    for place in range(len(calls) if scope is not None else 0):
        (ask,) = json.loads(program("approvals", "list", "--output", "json"))
        program("approve", str(ask["id"]), "--for", str(scope))
        program("start", "--resume", which, "--on-ask", "park", "--output", "json", codes=(0 if place == len(calls) - 1 else 3,))


def main() -> None:
    name = sys.argv[1]
    if ROOT.exists():
        sys.exit(f"`{ROOT}` is there already; remove it first")
    for path in (HOME, USER, PROJECT, OUTSIDE):
        path.mkdir(parents=True, mode=0o700)
    (ROOT / "pay.sh").write_text(SERVER)
    for each in ("notes.txt", "more.txt", "third.txt"):
        (OUTSIDE / each).write_text("noted\n")
    program("servers", "add", "pay", "--read", str(ROOT / "pay.sh"), "--", "sh", str(ROOT / "pay.sh"))
    program("servers", "annotate", "pay", "--write")
    (HOME / "policy").mkdir(exist_ok=True)
    (HOME / "policy" / "mine.cedar").write_text(RULES)
    session("for the session", FOR_SESSION, "session")
    session("for the project", FOR_PROJECT, "project")
    session("still open", [STILL_OPEN], None)
    place = Path(__file__).parent / f"{name}-home.tar.gz"
    with tarfile.open(place, "w:gz") as archive:
        archive.add(ROOT, ".", filter=_plain)
    shutil.rmtree(ROOT)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is made anew at each start, and say nothing of whose files these were."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    is_kept = (member.isfile() or member.isdir()) and not member.name.startswith(("./home/run/", "./home/logs/"))
    return member if is_kept else None


if __name__ == "__main__":
    main()
