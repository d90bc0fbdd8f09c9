"""The standard streams: opened if our parent closed them, and able to print every character in every locale."""

import codecs
import os
import sys

_LOOK_ALIKES = str.maketrans({
    "…": "...", "·": "-", "→": "->", "“": "'", "”": "'", "‘": "'", "’": "'", "—": "-", "–": "-", "┃": "|", "┊": ":",
    "•": "*", "●": "*", "○": "o", "✓": "v", "✔": "v", "✗": "x", "✖": "x",
})  # fmt: skip
"""INVARIANT: no quotation mark or backslash is among the replacements, which might otherwise end a string in JSON."""


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that is closed, so that no file of ours gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def make_streams_print_everything() -> None:
    """Let stdout and stderr replace what their encoding lacks, instead of raising an error.

    ASCII is what a locale has that nobody chose, so we print UTF-8 there, as Python does in the locale C. Any other encoding was chosen,
    and stays. Names of files and arguments may hold bytes that are no text in any encoding; they are shown as escapes.
    """
    codecs.register_error("curtainwall", replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        is_ascii = codecs.lookup(stream.encoding).name == "ascii"
        # A stream may have been replaced by one that takes any text.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(encoding="utf-8" if is_ascii else None, errors="curtainwall")


def replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Return what to print for characters that an encoding lacks: a look-alike, or else an escape that is also valid in JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_LOOK_ALIKES)
    return "".join(letter if letter.isascii() else json_escape(letter) for letter in text), error.end


def json_escape(letter: str) -> str:
    """Return a character as JSON can write it in ASCII."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
