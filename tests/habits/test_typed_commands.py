"""What pages tell people to type is there: each command of `curtainwall`, with its options."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.cli.completion_table import described
from tests.support.repository import DOCS, ROOT, name_of

COMMANDS = described()
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
INLINE = re.compile(r"`(?:curtainwall|cw) ([^`]+)`")
LINE = re.compile(r"^(?:\$ )?(?:curtainwall|cw) (.+)$", re.MULTILINE)
# On a line of its own, what it does stands behind blanks or a hash.
REMARK = re.compile(r"\s{2,}|\s#")
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")


def typed_on(page: Path) -> list[str]:
    """Return what a page has people type after the program's name, without the command of somebody else that follows `--`."""
    text = page.read_text(encoding="utf-8")
    words = [" ".join(found.split()) for found in INLINE.findall(text)] + [REMARK.split(found)[0] for found in LINE.findall(text)]
    return [found.partition(" -- ")[0].replace("\\|", "|") for found in words]


def strange_in(typed: str) -> Iterator[str]:
    """Yield the words that are neither a command nor an option of it; `a|b` stands for both."""
    name, _, rest = typed.partition(" ")
    if name not in COMMANDS[""]["commands"]:
        if name not in COMMANDS[""]["options"]:
            yield name
        return
    below = COMMANDS[name]["commands"]
    subs = [sub for sub in rest.partition(" ")[0].split("|") if re.fullmatch(r"[a-z-]+", sub)] if below else []
    yield from (sub for sub in subs if sub not in below)
    known = {option for path in (name, *(f"{name} {sub}" for sub in subs)) for option in COMMANDS.get(path, COMMANDS[""])["options"]}
    yield from (option for option in OPTION.findall(rest) if option not in known)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_has_people_type_is_there(page: Path) -> None:
    assert {typed: strange for typed in typed_on(page) if (strange := [*strange_in(typed)])} == {}


def test_commands_are_found_on_the_pages() -> None:
    assert len({typed for page in PAGES for typed in typed_on(page)}) > 50


@pytest.mark.parametrize("typed", ["begin TASK", "sessions lst", "sessions list --newest", "approvals list|shew"])
def test_what_is_not_there_is_seen(typed: str) -> None:
    assert [*strange_in(typed)] != []
