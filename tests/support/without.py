"""The program as if some libraries were not installed."""

import os
import subprocess
import sys
from pathlib import Path

# Runs the program as if some libraries were not installed.
_WITHOUT = """
import sys
absent = set(sys.argv.pop(1).split(","))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in absent):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from curtainwall.cli.entry import program
program()
"""
_LIBRARIES = {"docker": "aiodocker", "matrix": "nio,aiohttp", "web": "jinja2,markupsafe", "otel": "opentelemetry.sdk"}


def without(extra: str, home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the libraries of an extra."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "CURTAINWALL_HOME": str(home / "cw"), "TOKEN": "t" * 40, **more}
    libraries = ",".join(_LIBRARIES.values()) if extra == "all" else _LIBRARIES[extra]
    command = (sys.executable, "-c", _WITHOUT, libraries, *words)
    return subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True, timeout=100, check=False)
