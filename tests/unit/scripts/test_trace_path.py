"""The script that traces paths counts calls in the order in which they are made, and nothing that only runs while modules are imported."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

PROGRAM = {
    "__init__.py": "",
    "__main__.py": "import asyncio, sys\nfrom curtainwall.first import door\n\nasyncio.run(door.enter())\nsys.exit(0)\n",
    "first/__init__.py": "",
    "first/door.py": """
        import sqlite3
        from curtainwall.second import room

        class Made:
            value = room.while_imported()

        async def enter():
            await room.rest()
            again()
            print('{"session": "s"}')

        def again():
            pass
    """,
    "second/__init__.py": "",
    "second/room.py": """
        import asyncio
        from curtainwall.third import unused

        def while_imported():
            return unused.never()

        async def rest():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    """,
    "third/__init__.py": "",
    "third/unused.py": "def never():\n    return 1\n",
}


def test_a_path_is_told_in_the_order_of_its_calls(tmp_path: Path) -> None:
    for name, text in PROGRAM.items():
        file = tmp_path / "curtainwall" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line.removeprefix(" " * 8) for line in text.split("\n")))
    words = [sys.executable, str(ROOT / "scripts" / "trace-path"), "--src", str(tmp_path), "--path", "message", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["message"]
    assert told["files"] == ["first/door.py", "second/room.py"]
    assert told["packages"] == ["first", "second"]
    assert told["calls"] == 3, "a coroutine that goes on is not called again"
    assert told["crossings"] == 2
    assert "curtainwall.third.unused" in told["modules"]


def test_a_directory_without_the_program_is_refused(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "trace-path"), "--src", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 2
    assert f"`{tmp_path}` holds no `curtainwall`" in done.stderr
