"""A terminal of paper: it follows what a program writes to a terminal, and remembers what a person would see, also what scrolled away."""

import io
import re
import unicodedata

_PART = re.compile(
    r"\x1b\[(?P<private>\??)(?P<numbers>[0-9;]*)(?P<letter>[A-Za-z])|\x1b\](?P<title>[^\x07\x1b]*)(?:\x07|\x1b\\)|(?P<one>.)", re.DOTALL
)


class Screen(io.StringIO):
    """What stands on a screen of so many rows and columns; anything that it does not know is a fault."""

    def __init__(self, rows: int = 24, columns: int = 80) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns
        self.gone: list[str] = []
        self.cleared = 0
        self._grid = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0

    def write(self, text: str) -> int:
        for part in _PART.finditer(text):
            if part["letter"]:
                self._follow(part["letter"], part["private"], [int(number or 0) for number in part["numbers"].split(";")])
            elif part["one"]:
                self._put(part["one"])
        return super().write(text)

    @property
    def text(self) -> str:
        """Everything that a person can see, or could by scrolling back."""
        return "\n".join([*self.gone, *("".join(row).rstrip() for row in self._grid)]).rstrip()

    @property
    def visible(self) -> str:
        """What stands on the screen now."""
        return "\n".join("".join(row).rstrip() for row in self._grid)

    def _follow(self, letter: str, private: str, numbers: list[int]) -> None:
        count = numbers[0] or 1
        match letter:
            case "A":
                self._row = max(self._row - count, 0)
            case "B":
                self._row = min(self._row + count, self.rows - 1)
            case "C":
                self._column = min(self._column + count, self.columns - 1)
            case "D":
                self._column = max(self._column - count, 0)
            case "H":
                self._row, self._column = 0, 0
            case "J":
                self.cleared += numbers[0] == 2
                self._grid[self._row][self._column :] = [" "] * (self.columns - self._column)
                for row in range(0 if numbers[0] == 2 else self._row + 1, self.rows):
                    self._grid[row] = [" "] * self.columns
            case "K":
                self._grid[self._row][self._column :] = [" "] * (self.columns - self._column)
            case "m":
                pass
            case _:
                assert private, f"nobody knows what {letter} with {numbers} does"

    def _put(self, letter: str) -> None:
        match letter:
            case "\r":
                self._column = 0
            case "\n":
                self._down()
            case "\b":
                self._column = max(self._column - 1, 0)
            case _:
                assert letter.isprintable(), f"{letter!a} reached the terminal"
                width = 2 if unicodedata.east_asian_width(letter) in "WF" else 1
                if self._column + width > self.columns:
                    self._column = 0
                    self._down()
                self._grid[self._row][self._column] = letter
                self._column += width

    def _down(self) -> None:
        if self._row < self.rows - 1:
            self._row += 1
            return
        self.gone.append("".join(self._grid.pop(0)).rstrip())
        self._grid.append([" "] * self.columns)
