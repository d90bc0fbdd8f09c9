"""Masking of text that arrives in pieces: what could still become part of a secret is held back until it cannot."""

import re

from curtainwall.facts.secrets.masks import Masker
from curtainwall.facts.secrets.names import EXPECTS, MAX_LINE, MOST_BLOCK_LINES, is_netrc_line
from curtainwall.facts.secrets.private_keys import BEGUN_PREFIX, LINE_PREFIX, MAX_PEM, PEM_START, body_before, last_key_end

# Words after which a secret may follow in the same line, behind blanks.
_EXPECTS = re.compile(
    rf"{EXPECTS.pattern}|-----|machine[ \t]|default[ \t]|curl|mysql|mariadb|docker|podman|buildah|helm|oras|:(?:5432|\*):|[\[(][ \t]*[\"']"
    r"|(?:name|value)[\"']?[ \t]*[:=]",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"[:=>][ \t]{0,64}(?:[|>][0-9+-]{0,2}[ \t]{0,32}(?:#[^\n]{0,200})?)?\r?\n?\Z")
_PAIR_GOES_ON = re.compile(r"(?:[\"'],?|[\[(,])[ \t]{0,64}\r?\n?\Z")
_LAST_GAP = re.compile(r"[ \t\n](?=[^ \t\n]*\Z)")
_SOMETHING = ". "
_MOST_HELD = 4 * MAX_PEM
_LOOKED_AT = 32 * 1024
_MARGIN = 8 * 1024


class StreamMasker:
    """Masks a text piece by piece: all that is given out, put together, is the masked whole.

    Up to one line is held back, a private key to its end, and never more than 128 KiB of what might be a secret.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""
        self._before = ""

    def feed(self, piece: str) -> str:
        """Take the next piece and return what can be shown now."""
        self._held += piece
        cut = self._safe_cut()
        out, self._held = self._held[:cut], self._held[cut:]
        return self._masked(out)

    def finish(self) -> str:
        """Return the rest."""
        out, self._held = self._held, ""
        return self._masked(out)

    def _masked(self, out: str) -> str:
        if not out:
            return ""
        shown = self._masker.mask_text(self._before + out)[len(self._before) :]
        # What goes on in the middle of a line must not be taken for its beginning.
        self._before = "" if out.endswith("\n") else _SOMETHING
        return shown

    def _safe_cut(self) -> int:
        """Return how much of what is held cannot be part of a secret that goes on."""
        held = self._held
        limit = self._masker.begun_known(held)
        begun = held.find(PEM_START)
        while begun >= 0:
            ended = held.find("-----END ", begun)
            closed = held.find("-----", ended + 9) if ended >= 0 else -1
            if closed < 0 and len(held) - begun <= 2 * MAX_PEM:
                # The line in front of a key may make it part of something longer.
                limit = min(limit, held.rfind("\n", 0, begun) + 1)
                break
            begun = held.find(PEM_START, begun + 1)
        line = held.rfind("\n", 0, limit) + 1
        gap = _LAST_GAP.search(held, line, limit) if not _EXPECTS.search(held, line, limit) else None
        # How far a line is indented counts, so what it begins with is not given out alone.
        cut = gap.end() if gap and not LINE_PREFIX.fullmatch(held, line, gap.end()) else line
        if len(held) - cut > _MOST_HELD:
            cut = len(held) - _MOST_HELD // 2
        cut = begun_before(held, cut)
        for span in reversed(self._masker.spans(held)):
            if span.start < cut < span.end:
                # What stands in front, in the same line, may be why it is a secret.
                start = held.rfind("\n", 0, span.start) + 1
                cut = begun_before(held, start) if len(held) - start <= _MOST_HELD else span.end
        return cut


def masked_excerpt(masker: Masker, text: str, limit: int) -> str:
    """Return the beginning of a text without secrets, nor the first part of one that is cut off; a text of any length takes little time."""
    if len(text) <= _LOOKED_AT:
        shown = masker.mask_text(text)
    else:
        looked_at, shown = text[:_LOOKED_AT], ""
        # A secret that begins before this is whole in what was looked at, or known not to be.
        room = min(masker.begun_known(looked_at), _LOOKED_AT - _MARGIN)
        for piece in masker.pieces(looked_at):
            shown += piece.shown if piece.is_hidden else piece.shown[: max(room, 0)]
            room -= len(piece.real)
            if room <= 0:
                break
        shown += "…"
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def begun_before(text: str, end: int) -> int:
    """Return from which line on a text up to here may be part of a secret that goes on in the lines behind it."""
    body = body_before(text, end, last_key_end(text, end), BEGUN_PREFIX)
    first = text.rfind("\n", 0, body) + 1 if body < end else end
    at = text.rfind("\n", 0, first) + 1
    line = text[at:first]
    for _ in range(MOST_BLOCK_LINES + 16):
        if _goes_on(line):
            first = min(first, at)
        elif len(line.lstrip(" \t+-").split(maxsplit=1)) > 1 or len(line) > MAX_LINE:
            break
        if at == 0:
            break
        above = text.rfind("\n", 0, at - 1) + 1
        line, at = text[above:at], above
    return first


def _goes_on(line: str) -> bool:
    """Tell whether what a line ends in may give a secret away that begins on the next."""
    last = line[-400:]
    return bool(_GOES_ON.search(last)) or is_netrc_line(line.rstrip("\n")) or bool(_PAIR_GOES_ON.search(last) and EXPECTS.search(last))
