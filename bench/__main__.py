"""The command: `python -m bench [NAME…] [--json] [--strict]`."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from types import FrameType

from bench import machine
from bench.agent_turns import agent_turns
from bench.answering import answering
from bench.appending import appending, many_writers
from bench.browsing import browsing
from bench.containing import containing
from bench.crowd import crowd
from bench.disk import NotADisk, fresh_directory
from bench.folding import folding, resuming
from bench.listing import listing
from bench.mcp_socket import mcp_socket
from bench.measuring import Figure
from bench.native_calls import native_calls
from bench.parked_agents import parked_agents
from bench.parking import parking
from bench.processing import processing
from bench.programs import programs
from bench.proxying import proxying
from bench.starting import starting
from bench.table import as_json, render
from bench.team_programs import team_programs
from bench.team_talk import team_talk
from bench.turning import turning
from bench.verdicts import verdicts
from bench.views import views

BENCHMARKS = {
    "append": appending,
    "writers": many_writers,
    "turn": turning,
    "resume": resuming,
    "fold": folding,
    "list": listing,
    "crowd": crowd,
    "verdict": verdicts,
    "answer": answering,
    "parked": parking,
    "mcp": mcp_socket,
    "native": native_calls,
    "code": programs,
    "agent": agent_turns,
    "parked-agents": parked_agents,
    "start": starting,
    "proxy": proxying,
    "process": processing,
    "container": containing,
    "web": browsing,
    "teams": team_talk,
    "team-programs": team_programs,
    "views": views,
}


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(143)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether anything went wrong (with `--strict`: or was missed)."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the promises beside a peer or this machine's own limit.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark `{unknown[0]}`; there are {', '.join(BENCHMARKS)}")
    # Whoever ends us early must not leave the directory behind.
    signal.signal(signal.SIGTERM, _end)
    try:
        with fresh_directory() as place:
            facts = machine.describe(place)
            if not given.json:
                _tell(facts)
            figures = _measure(given.names or list(BENCHMARKS), place)
    except NotADisk as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    after = {"load afterwards": machine.load(), "pace afterwards": machine.pace()}
    print(as_json(figures, {**facts, **after}) if given.json else f"\n{render(figures)}")
    if not given.json:
        _tell(after)
    return 1 if given.strict and any(figure.met is False for figure in figures) else 0


def _tell(facts: dict[str, str]) -> None:
    for name, value in facts.items():
        print(f"{name:>15}  {value}")
    sys.stdout.flush()


def _measure(names: list[str], place: Path) -> list[Figure]:
    figures: list[Figure] = []
    for name in names:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        home = place / name
        home.mkdir()
        figures += asyncio.run(BENCHMARKS[name](home))
    return figures


if __name__ == "__main__":
    sys.exit(main())
