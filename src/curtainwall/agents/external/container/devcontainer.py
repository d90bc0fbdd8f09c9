"""Reads the image that a project's `devcontainer.json` names, and nothing else: the file is the project's and may be hostile.

Mounts, arguments, commands, features and builds in it are never read.
"""

import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from curtainwall.agents.external.container.spec import ImageUnclear
from curtainwall.facts import quoted

_PLACES: Final = ((".devcontainer", "devcontainer.json"), (".devcontainer.json",))
_LONGEST: Final = 256 * 1024
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# INVARIANT: whatever the text, this takes time in proportion to its length: no character is looked at again and again. So a string or a
# comment without an end reaches to the end of the text, and comments are gone before anything looks for what follows a comma.
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*+"?)|//[^\n]*+|/\*(?:.*?\*/|.*+)', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*+"?)|,(?=\s*+[}\]])', re.DOTALL)
_IMAGE: Final = re.compile(
    r"[a-z0-9][a-z0-9._/-]{0,199}(?::[0-9]{1,5}/[a-z0-9._/-]{1,199})?(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


def devcontainer_image(workspace: Path) -> str:
    """Return the image that a project's `devcontainer.json` names; raise `ImageUnclear` if it names none."""
    for place in _PLACES:
        text = _read(workspace, place)
        if text is None:
            continue
        name = quoted("/".join(place))
        try:
            content = cast("object", json.loads(_as_json(text)))
        except (ValueError, RecursionError):
            raise ImageUnclear(f"{name} in the project is not valid JSON; name an image with `--image`") from None
        image = cast("dict[str, object]", content).get("image") if isinstance(content, dict) else None
        if not isinstance(image, str):
            raise ImageUnclear(f"{name} in the project names no `image`, and nothing else in it is used; name one with `--image`")
        if _IMAGE.fullmatch(image) is None:
            raise ImageUnclear(f"{name} in the project names {quoted(image[:100])}, which is not the name of an image")
        return image
    raise ImageUnclear(f"there is no `devcontainer.json` in {quoted(str(workspace))}; name an image with `--image`")


def _as_json(text: str) -> str:
    """Return the text without comments and without commas after the last value."""
    return _LAST_COMMA.sub(lambda match: match[1] or "", _COMMENT.sub(lambda match: match[1] or " ", text))


def _read(workspace: Path, place: tuple[str, ...]) -> str | None:
    """Return the text of a plain file below the project, or None if there is none; links are not followed."""
    opened = list[int]()
    try:
        at = os.open(workspace, _OPEN | os.O_DIRECTORY)
        opened.append(at)
        for name in place:
            at = os.open(name, _OPEN, dir_fd=at)
            opened.append(at)
        if not stat.S_ISREG(os.fstat(at).st_mode):
            return None
        data = os.read(at, _LONGEST + 1)
        return data.decode("utf-8", "replace") if len(data) <= _LONGEST else None
    except OSError:
        return None
    finally:
        for descriptor in opened:
            with suppress(OSError):
                os.close(descriptor)
