"""One message of the agent while it comes: by word of mouth, from the log in pieces, and at last whole. The log has the last word."""


class Saying:
    """What the agent is saying, and how much of it somebody has taken to show for good.

    The same text arrives up to three times: live, in the log's pieces, and whole. Live text may also run ahead of the log into the next
    message, or come late, when the whole message is known already.
    """

    def __init__(self) -> None:
        self._live = ""
        self._logged = ""
        self._owed = ""
        self._taken = ""

    @property
    def text(self) -> str:
        """The message as far as it is known."""
        return self._live if len(self._live) >= len(self._logged) else self._logged

    @property
    def tail(self) -> str:
        """What is known and was not taken yet."""
        return self.text.removeprefix(self._taken)

    def heard(self, piece: str) -> None:
        """Take in live text."""
        if self._owed:
            if self._owed.startswith(piece):
                self._owed = self._owed[len(piece) :]
                return
            piece = piece.removeprefix(self._owed)
            self._owed = ""
        self._live += piece

    def logged(self, piece: str) -> None:
        """Take in a piece that the log keeps."""
        self._logged += piece

    def take(self, count: int) -> str:
        """Return so many characters of the tail; they are shown for good."""
        piece = self.tail[:count]
        self._taken += piece
        return piece

    def spoke(self, whole: str) -> str:
        """End with the whole message, and return what of it is still to be shown."""
        rest = whole.removeprefix(self._taken)
        ahead = self._live[len(whole) :] if self._live.startswith(whole) else ""
        self._owed = whole[len(self._live) :] if whole.startswith(self._live) else ""
        self._live, self._logged, self._taken = ahead, "", ""
        return rest

    def broke_off(self) -> str:
        """End where the text stands, because no more will come, and return what is still to be shown."""
        rest = self.tail
        self._live = self._logged = self._taken = self._owed = ""
        return rest
