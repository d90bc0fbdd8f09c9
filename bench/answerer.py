"""The other process: it answers approvals, or writes response files, as it is told on its standard input."""

import asyncio
import json
import sys
import time
from pathlib import Path

from bench.sample import YOU, open_house
from curtainwall.model import AnswerApproval, ApprovalId, SessionId


async def main(home: Path) -> None:
    """Answer line by line until the input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with open_house(home) as house:
        print("ready", flush=True)
        while line := await lines.readline():
            told = json.loads(line)
            began = time.monotonic_ns()
            if "file" in told:
                _write(Path(told["file"]))
            else:
                await house.send(SessionId(told["session"]), AnswerApproval(by=YOU, approval=ApprovalId(told["approval"]), granted=True))
            print(began, flush=True)


def _write(file: Path) -> None:
    draft = file.with_suffix(".draft")
    draft.write_text('{"decision": "approved"}', encoding="utf-8")
    draft.replace(file)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
