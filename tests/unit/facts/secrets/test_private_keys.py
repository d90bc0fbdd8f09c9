"""Private keys in PEM, whole and cut off, as tools print them."""

import json
import re
from collections.abc import Callable

import pytest

from curtainwall.facts import Masker
from tests.support.covers import covers

MASKER = Masker(b"key")
BODY = [
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
    "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu",
    "NMoSfm76oqFvAp8Gy0iz5sxjZmSnXyCdPEovGhLa0VzMaQ8s+CLOyS56YyCFGeJZ",
]
LAST = "qqZ7yQ=="
START, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
OTHER = ["x" * 20 + line[20:] for line in BODY]

PREFIXES: dict[str, Callable[[int, str], str]] = {
    "grep -n": lambda n, line: f"{n + 8}:{line}",
    "grep -rn": lambda n, line: f"etc/ssl/key.pem:{n + 8}:{line}",
    "grep -C": lambda n, line: f"key.pem-{n + 8}-{line}",
    "grep -r": lambda n, line: f"deploy/key.pem:{line}",
    "cat -n": lambda n, line: f"{n + 8:6}\t{line}",
    "less -N": lambda n, line: f"{n + 8:7} {line}",
    "bat": lambda n, line: f"{n + 8:4} | {line}",
    "diff added": lambda _, line: f"+{line}",
    "diff removed": lambda _, line: f"-{line}",
    "quoted": lambda _, line: f"> {line}",
    "comment": lambda _, line: f"# {line}",
    "slashes": lambda _, line: f"// {line}",
    "indented": lambda _, line: f"        {line}",
    "logs": lambda _, line: f"web-1  | {line}",
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("part", ["whole", "cut off", "without its beginning"])
@covers("facts.private-keys-are-found")
def test_no_line_of_a_key_survives_whatever_stands_in_front_of_it(prefix: str, part: str) -> None:
    lines = {"whole": [START, *BODY, LAST, END], "cut off": [START, *BODY], "without its beginning": [*BODY, LAST, END]}[part]
    text = "\n".join(PREFIXES[prefix](number, line) for number, line in enumerate(lines))
    for found in (text, f"some words\n{text}\nsome (more) words.", f"{text}\n".replace("\n", "\r\n"), json.dumps(text)):
        masked = MASKER.mask_text(found)
        assert [line for line in (*BODY, LAST) if line in masked] == []
    assert "some words\n" in MASKER.mask_text(f"some words\n{text}\nsome (more) words.")


@pytest.mark.parametrize("prefix", PREFIXES)
@covers("facts.private-keys-are-found")
def test_a_key_that_is_cut_off_does_not_swallow_the_beginning_of_the_next(prefix: str) -> None:
    lines = [START, *BODY[:2], START, *OTHER, LAST, END, START, BODY[2]]
    text = "\n".join(PREFIXES[prefix](number, line) for number, line in enumerate(lines))
    masked = MASKER.mask_text(text)
    assert [line for line in (*BODY, *OTHER, LAST) if line in masked] == []
    assert len(re.findall(r"\[masked:private-key:", masked)) == 3


def test_a_key_in_a_json_string_ends_with_its_string() -> None:
    text = json.dumps({"private_key": "\n".join([START, *BODY, LAST]) + "\n", "client_email": "robot@example.org"})
    masked = MASKER.mask_text(text)
    assert "robot@example.org" in masked
    assert '"client_email"' in masked
    assert not any(line in masked for line in (*BODY, LAST))


def test_what_follows_a_key_in_a_listing_is_left_alone() -> None:
    text = f"a.pem:1:{START}\na.pem:2:{BODY[0]}\na.pem:3:{LAST}\nb.py:1:import\nc.py:7:nothing"
    assert MASKER.mask_text(text).endswith("\nb.py:1:import\nc.py:7:nothing")


def test_certificates_and_public_keys_are_left_alone() -> None:
    for kind in ("CERTIFICATE", "PUBLIC KEY", "RSA PUBLIC KEY"):
        text = "\n".join([f"-----BEGIN {kind}-----", *BODY, f"-----END {kind}-----"])
        assert MASKER.mask_text(text) == text
