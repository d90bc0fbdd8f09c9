"""Where markdown that is still being written can be cut: behind whole blocks, never inside a fence or a list item."""

import re

_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")


def whole_blocks(text: str) -> int:
    """Return how many characters at the start of a text are blocks that nothing which follows can change."""
    end, at = 0, 0
    fence = ""
    is_open = is_behind_blank = False
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            is_new = is_behind_blank and is_open and not fence and line[0] not in " \t\r" and not _may_become_fence(line)
            return at if is_new else end
        found = _FENCE.match(line)
        is_blank = not line.strip()
        if not fence and is_behind_blank and is_open and not is_blank and line[0] not in " \t":
            end, is_open = at, False
        at += len(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
        is_open = is_open or not is_blank
        is_behind_blank = is_blank
    return end


def _may_become_fence(line: str) -> bool:
    # A block can end before a fence as well, but while only its first letters are there nobody knows.
    return line.strip() in ("`", "``", "~", "~~")
