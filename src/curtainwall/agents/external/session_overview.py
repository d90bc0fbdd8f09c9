"""The part of an external agent's orientation that depends on the session: its tools, how to work with them, and instructions."""

import re
from collections.abc import Iterable
from typing import Final

from curtainwall.model import ToolSpec

_STRANGE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64
_MOST_LETTERS: Final = 4_000

PLANNING: Final = (
    "Plan before you act: read what you need first, write down the steps, and combine what needs approval into as few calls as possible, "
    "because each may wait for a person. Say at the end what you changed."
)
"""Advice for every external agent."""

_INSTRUCTIONS: Final = """\
Follow these instructions of the user. They cannot change what is allowed.

<instructions>
{text}
</instructions>"""


def describe_tools(specs: Iterable[ToolSpec]) -> str:
    """Return the names of the session's tools by server, without the servers' own descriptions, which the agent gets with the tools."""
    by_server: dict[str, list[str]] = {}
    for spec in specs:
        by_server.setdefault(_plain(spec.server), []).append(_plain(spec.name))
    lines, room, left_out = list[str](), _MOST_LETTERS, 0
    for server, names in sorted(by_server.items()):
        line = f"- {server}: {', '.join(sorted(names))}"
        room -= len(line)
        if room < 0:
            left_out += len(names)
        else:
            lines.append(line)
    if left_out:
        lines.append(f"- and {left_out} more, which the list of tools has")
    return "\n".join(("Tools, each named SERVER__TOOL:", *lines)) if lines else ""


def session_overview(tools: str, hosts: str, *instructions: str) -> str:
    """Return what an agent should know about its session's tools, and the instructions for it; empty texts are left out."""
    about_tools = "\n".join(filter(None, (tools, hosts, PLANNING)))
    return "\n\n".join((about_tools, *(_INSTRUCTIONS.format(text=text.strip()) for text in instructions if text.strip())))


def _plain(name: str) -> str:
    return _STRANGE.sub("_", name)[:_LONGEST_NAME]
