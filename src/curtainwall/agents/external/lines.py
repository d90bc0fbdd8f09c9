"""What an agent writes, in pieces as it comes, told line by line; a line without an end costs no more than what is kept of it. Pure."""


class Lines:
    """The lines of one stream. Of one that is too long only the beginning is kept, which makes it unreadable."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._half = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in a piece, without their ends."""
        *ends, rest = piece.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            self._add(end)
            lines.append(self.rest())
        self._add(rest)
        return lines

    def rest(self) -> bytes:
        """Return the line that has not ended, and forget it."""
        half, self._half = bytes(self._half), bytearray()
        return half

    def _add(self, piece: bytes) -> None:
        # Looked at once, and never more than there is room for: otherwise each piece would cost as much as all before it.
        room = self._longest - len(self._half)
        self._half += piece if len(piece) <= room else piece[:room]
