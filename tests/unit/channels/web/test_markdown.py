"""Markdown of agents: readable, and nothing in it becomes markup, a picture, or a link that hides where it leads."""

import re

import pytest

from curtainwall.channels.web.render.text import LONGEST, as_html
from tests.support.covers import covers

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "![x](https://evil.example/pixel.png)",
    '<https://evil.example/"onmouseover=alert(1)>',
    '[x](https://evil.example/ "t\\" onmouseover=alert(1)")',
    '```html"><script>\n<script>alert(1)</script>\n```',
    "&lt;script&gt;&#60;script&#62;",
    "# <svg onload=alert(1)>",
    "| <b>a</b> |\n|---|\n| <script> |",
    "[a]: javascript:alert(1)\n\n[a]",
    "<!-- --><![CDATA[<script>]]>",
    "\u202ealert\u2066\x00\x1b[31m\ud800",
)
OURS = re.compile(r"</?(p|a|code|pre|em|strong|ul|ol|li|h[4-6]|table|thead|tbody|tr|th|td|blockquote|hr|br|span|s)( [^<>]*)?/?>")


@covers("web.nothing-of-others-is-markup")
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_an_agent_writes_becomes_an_element(text: str) -> None:
    html = str(as_html(text))
    left = OURS.sub("", html)
    assert "<" not in left, html
    assert not re.search(r'<[^>]*\s(on\w+\s*=|src\s*=|style\s*=|href="(?!https?:))', html, re.IGNORECASE), html
    assert all(char.isprintable() or char == "\n" for char in html), html


@covers("web.nothing-of-others-is-markup")
def test_a_link_says_where_it_leads_whatever_its_text_claims() -> None:
    html = str(as_html("[https://bank.example](https://evil.example/x)"))
    assert '<a href="https://evil.example/x" target="_blank" rel="noopener noreferrer nofollow">' in html
    assert html.rstrip().endswith("(evil.example)</p>")


def test_what_people_use_is_drawn() -> None:
    html = str(as_html("# Title\n\n- one\n- **two**\n\n`code`\n\n```python\nx = 1\n```\n\n| a |\n|---|\n| b |"))
    for piece in (
        "<h4>Title</h4>",
        "<li>one</li>",
        "<strong>two</strong>",
        "<code>code</code>",
        "<pre><code>x = 1\n</code></pre>",
        "<td>b</td>",
    ):
        assert piece in html


def test_a_message_without_end_is_cut_and_says_so() -> None:
    html = str(as_html("word " * LONGEST))
    assert "240,000 more characters are not shown" in html
    assert len(html) < 2 * LONGEST


def test_a_word_that_no_screen_could_show_is_cut_and_says_so() -> None:
    html = str(as_html("before " + "A" * 50_000 + " after"))
    assert "49,500 characters without a space are not shown" in html
    assert html.count("A") == 500
    assert "after" in html


@pytest.mark.parametrize("text", ["[" * 20_000, "> " * 5_000, "*a" * 20_000, "`" * 20_000, "|" * 20_000])
def test_hostile_markdown_takes_no_time(text: str) -> None:
    assert as_html(text)
