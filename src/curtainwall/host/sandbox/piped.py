"""A running process that is talked to through pipes."""

import asyncio
from asyncio.subprocess import Process


class Piped:
    """The three streams of a process that was started with all of them as pipes."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return where its input goes."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return what it prints."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        """Return what it complains about."""
        assert self._process.stderr is not None
        return self._process.stderr
