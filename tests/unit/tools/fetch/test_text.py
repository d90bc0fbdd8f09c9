"""What a server sent as something to read: pages, JSON, characters; and nothing that a hostile page can blow up."""

import json
import time

import pytest

from curtainwall.tools.fetch.text import Media, decode_text, page_text, render_text

BASE = "https://example.org/docs/page"
HTML = Media("text/html")
JSON = Media("application/json")


def test_a_page_is_told_as_text_with_its_links() -> None:
    page = """<!DOCTYPE html><html><head><title>A &amp; B</title><style>p { color: red }</style>
    <script>if (a < b) document.write("<p>never")</script></head><body>
    <h1>Hello <b>there</b></h1><p>Some   text with <a href="/x?a=1&amp;b=2">a link</a>,
    <code>x &lt; y</code>.<br>Next.</p><ul><li>one<li>two<ul><li>inner</ul></ul><ol><li>first<li>second</ol>
    <pre>a
      b</pre><img alt="a cat" src="data:x"><!-- <p>hidden --><p>1 < 2
    <a title="a > b" href=other>more</a> <a href="javascript:x()">js</a>"""
    assert page_text(page, BASE) == (
        "# A & B\n\n# Hello there\n\nSome text with [a link](https://example.org/x?a=1&b=2), `x < y`.\nNext.\n\n"
        "- one\n- two\n  - inner\n\n1. first\n2. second\n\n```\na\n      b\n```\n\n"
        "![a cat]\n\n1 < 2 [more](https://example.org/docs/other) js"
    )


def test_a_table_has_a_line_for_each_row() -> None:
    assert page_text("<table><tr><th>k<th>v</tr><tr><td>1<td>2</table>", BASE).splitlines() == ["| k | v", " | 1 | 2"]


@pytest.mark.parametrize(
    "page", ["", "<", "<a", "a<b", "<>", "</", "<!--", "<script>x", "</a></ul></pre></code>", "<a href=", '<a href="x', "&#x110000;"]
)
def test_broken_pages_are_read_all_the_same(page: str) -> None:
    assert isinstance(page_text(page, BASE), str)


MILLION = 1_000_000


@pytest.mark.parametrize(
    "piece",
    ["<", "<a", '<a="', '<a="x>', "<a href=x>", "<li>", "<ul>", "<!--", "<!-->", "<script>", "<title>", "&#1111111", "&#" + "9" * 9000,
     "<a " + "a" * 16_000 + ">", "<a " + "a='\"' b=\">\" " * 1000 + ">", "<pre>", "\n", " "],
)  # fmt: skip
def test_a_hostile_page_takes_time_and_room_in_proportion(piece: str) -> None:
    page = (piece * (MILLION // len(piece) + 1))[:MILLION]
    start = time.process_time()
    text = page_text(page, "https://example.org/" + "d/" * 10_000)
    assert time.process_time() - start < 10
    assert len(text) < 8 * MILLION


def test_json_is_laid_out() -> None:
    assert render_text('{"a":[1,"\\u00e9"]}', JSON, BASE) == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
    assert render_text('{"a":1}', Media("application/problem+json"), BASE) == '{\n  "a": 1\n}'


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, "9" * 5_000, "[" * 900 + "]" * 900, json.dumps(["x"] * 400_000)])
def test_json_that_cannot_be_laid_out_well_stays_as_it_came(text: str) -> None:
    assert render_text(text, JSON, BASE) == text


def test_plain_text_stays_but_for_what_acts_on_a_terminal() -> None:
    assert render_text("a\r\nb\tc\x1b[31m\x00", Media("text/plain"), BASE) == "a\nb\tc\ufffd[31m\ufffd"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("grün".encode(), "text/plain", "grün"),
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        ("grün".encode("utf-16"), "text/plain", "grün"),
        (b"\xef\xbb\xbfx", "text/plain; charset=latin-1", "x"),
        ("日本".encode("shift_jis"), 'text/html; charset="Shift_JIS"', "日本"),
        (b'<meta charset="windows-1252">\x80', "text/html", '<meta charset="windows-1252">€'),
        (b"a\xff", "text/plain", "a\ufffd"),
        (b"abc", "text/plain; charset=punycode", "abc"),
        (b"abc", "text/plain; charset=zlib", "abc"),
        (b"abc", "text/plain; charset=unicode_escape", "abc"),
        (b"abc", "text/plain; charset=no-such", "abc"),
        (b"abc", "", "abc"),
        (b"{}", "application/vnd.api+json", "{}"),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        (b"abc", "application/octet-stream", "abc"),
        (b"\x89PNG\0", "image/png", None),
        (b"PK\0\0", "application/octet-stream", None),
        (b"\xff\xd8\xff", "", None),
    ],
)
def test_characters_come_from_bytes_as_the_server_says(body: bytes, content_type: str, text: str | None) -> None:
    assert decode_text(body, Media.of(content_type)) == text


def test_a_page_without_a_type_is_known_by_its_first_line() -> None:
    assert render_text("<!doctype html><p>x", Media(""), BASE) == "x"
