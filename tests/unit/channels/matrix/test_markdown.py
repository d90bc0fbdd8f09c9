"""Markdown becomes a little HTML, and nothing in it can load, run or call anybody."""

import pytest

from curtainwall.channels.matrix.outbox import to_html, with_code


def test_markdown_becomes_html() -> None:
    assert to_html("**a** and `b`") == "<p><strong>a</strong> and <code>b</code></p>"
    assert to_html("```py\nx < 1\n```") == '<pre><code class="language-py">x &lt; 1\n</code></pre>'


def test_text_without_form_needs_none() -> None:
    assert to_html("just words") is None


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)> **a**",
        "![a](https://example.org/track.png) **a**",
        "[a](javascript:alert(1)) **a**",
        "<script>**a**</script>",
    ],
)
def test_nothing_in_it_loads_or_runs(text: str) -> None:
    html = to_html(text)
    assert html is not None
    assert "<img" not in html
    assert "<script" not in html
    assert 'href="javascript' not in html


def test_code_in_a_line_of_ours_is_code_and_nothing_else_is_markup() -> None:
    assert with_code("say `/approve <b>` & go") == "say <code>/approve &lt;b&gt;</code> &amp; go"
    assert [with_code(text) for text in ("no code", "one ` tick", "`a`\n`b`")] == [None, None, None]
