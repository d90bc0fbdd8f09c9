"""The table `[matrix]`: what it takes, and what it says where something is missing."""

import pytest

from curtainwall.config.loader import parse_config
from tests.support.covers import covers

START = '[channels.matrix]\noperators = ["@ann:example.org"]\n[matrix]\nhomeserver = "https://example.org"\nuser = "@wall:example.org"\n'
WHOLE = f'{START}password-env = "WALL_PASSWORD"\n'
FINGERPRINT = "abcd " * 10 + "abc"


def test_a_whole_table_is_taken() -> None:
    section = parse_config(f'{WHOLE}devices = ["@ann:example.org {FINGERPRINT}"]').matrix
    assert section.pinned == {"@ann:example.org": frozenset({FINGERPRINT.replace(" ", "")})}
    assert (section.variables, section.files, section.trust_homeserver) == (("WALL_PASSWORD",), (), False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WHOLE.replace('[channels.matrix]\noperators = ["@ann:example.org"]\n', ""), "`channels.matrix.operators` is missing"),
        (WHOLE.replace('["@ann:example.org"]', "[]"), "channels.matrix.operators"),
        (WHOLE.replace('user = "@wall:example.org"\n', ""), "`user` is missing"),
        (START, "exactly one of `password-env`"),
        (f'{WHOLE}token-env = "T"', "exactly one of `password-env`"),
        (f'{WHOLE}rooms = ["#alias:example.org"]', "write a room by its id"),
        (f'{WHOLE}users = ["bob"]', "@ann:example.org"),
        (f'{WHOLE}devices = ["@ann:example.org {"a" * 44}"]', "a fingerprint has 43 letters"),
        (f"{WHOLE}passwort = 1", "unknown key"),
    ],
)
@covers("matrix.config")
def test_what_does_not_hold_together_is_told(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_config(text)
