"""What a human reads before the tools of a server are taken over: new ones whole, changed ones line by line, inert and never cut."""

from collections.abc import Iterator, Mapping

from curtainwall.channels.text.plain import exact_rows
from curtainwall.cli.screen import room
from curtainwall.model import in_order
from curtainwall.session import visible
from curtainwall.tools.servers import Offered, Review, comparison, statement

_LEAD = "# "
_SPELT_OUT = "= "


def review_text(before: Review, offered: Mapping[str, Offered]) -> str:
    """Return all that is new in what a server offers, as comments beside the roles that are proposed; nothing where nothing is new."""
    most = room()
    rows: list[str] = []
    for line in _review(before, offered):
        rows += [line] if most is None else exact_rows(line, most - len(_LEAD))
    return "\n".join(f"{_LEAD}{row}" for row in rows)


def new_tools(before: Review, offered: Mapping[str, Offered]) -> list[str]:
    """Return the names of the tools that nobody has reviewed yet."""
    return sorted(offered.keys() - before.tools.keys())


def changed_tools(before: Review, offered: Mapping[str, Offered]) -> list[str]:
    """Return the names of the tools that are described otherwise than when they were reviewed, or were in the meantime."""
    return sorted((before.compared(offered).changed & offered.keys()) - {*new_tools(before, offered)})


def _review(before: Review, offered: Mapping[str, Offered]) -> Iterator[str]:
    for name in new_tools(before, offered):
        yield f"`{name}` is new. The server says:"
        for line in statement(offered[name]):
            yield from _seen("  ", line)
    for name in changed_tools(before, offered):
        lines = comparison(before.tools[name], offered[name])
        if not lines:
            yield f"`{name}` was described otherwise in the meantime, and is now as it was reviewed; what it said then is not kept"
            continue
        yield f"`{name}` has changed since it was reviewed (- then, + now):"
        for line in lines:
            if line.skipped:
                yield f"  …[{line.skipped} lines are as they were reviewed]…"
            yield from _seen(f"{line.mark} ", line.text)
    for name in sorted(before.tools.keys() - offered.keys()):
        yield f"`{name}` is no longer offered"


def _seen(mark: str, line: str) -> Iterator[str]:
    """Yield a line with everything visible that is in it, and spelt out beneath it where letters may look like others."""
    yield f"{mark}{visible(in_order(line))}"
    if not line.isascii():
        yield f"{mark}{_SPELT_OUT}{''.join(letter if letter.isascii() else _escaped(letter) for letter in line)}"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()
