"""How canonical paths lie to each other: by whole components."""

import pytest

from curtainwall.model import ancestors, is_beneath


@pytest.mark.parametrize(
    ("path", "root", "beneath"),
    [
        ("/w", "/w", True),
        ("/w/a", "/w", True),
        ("/w-evil/a", "/w", False),
        ("/", "/w", False),
        ("/w", "/w/a", False),
        ("/anything", "/", True),
        ("/", "/", True),
    ],
)
def test_beneath_compares_whole_components(path: str, root: str, beneath: bool) -> None:
    assert is_beneath(path, root) is beneath


def test_ancestors_go_up_to_the_root() -> None:
    assert ancestors("/a/b/c") == ("/a/b", "/a", "/")
    assert ancestors("/a") == ("/",)
    assert ancestors("/") == ()
