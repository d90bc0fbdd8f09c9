"""A program that holds what looks like a secret, in a process that dies at its n-th commit.

`python -m tests.support.written_crash PLACE N before|after`
"""

import sys
from pathlib import Path

from tests.support.crashing import NOTED, play

PASSWORD = "Tr0ub4dor-and-3"


def program(outside: Path) -> str:
    """Return a program that writes the same words into its workspace and, after a question, outside of it."""
    return f"""
{NOTED}
password = "{PASSWORD}"
own = await noted("own", filesystem.write_file(path="own.py", content='password = "' + password + '"'))
asked = await noted("asked", filesystem.write_file(path="{outside}/asked.py", content='password = "' + password + '"'))
print([own, asked])
"""


if __name__ == "__main__":
    play(program(Path(sys.argv[1]).resolve() / "outside"))
