import pytest

from curtainwall.host.files.later import only_tracks

CONFIG = """[core]
\tbare = false
\thooksPath = /safe
[remote "origin"]
\turl = https://example.com/x.git
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
"""
FOLLOWS = '[branch "x"]\n\tremote = origin\n\tmerge = refs/heads/x\n\tvscode-merge-base = origin/main\n'


def test_branches_that_follow_others_may_come_and_go() -> None:
    assert only_tracks(CONFIG, CONFIG + FOLLOWS)
    assert only_tracks(CONFIG + FOLLOWS, CONFIG)
    assert only_tracks(CONFIG, CONFIG)


@pytest.mark.parametrize(
    "now",
    [
        CONFIG + "[core]\n\tfsmonitor = evil\n",
        CONFIG + "\tdescription = x\n",
        CONFIG + '[branch "x"] remote = origin\n',
        CONFIG + '[branch "x"]\n\tremote = ../evil\n',
        CONFIG + '[branch "x"]\n\tremote = evil\n',
        CONFIG + '[branch "x"]\n\tremote = ..\n',
        CONFIG + '[remote "evil"]\n[branch "x"]\n\tremote = evil\n',
        CONFIG + '[branch "x"]\n\tremote = evil:a/b\n',
        CONFIG + '[branch "x"]\n\tpushRemote = evil\n',
        CONFIG + '[Branch "x"]\n\tremote = origin\n',
        CONFIG + '[include]\n\tpath = evil\n',
        CONFIG.replace("\thooksPath", '[branch "x"]\n\thooksPath'),
        CONFIG.replace("\thooksPath = /safe\n", ""),
        CONFIG.replace("origin\n", "origin\\\n"),
        CONFIG.replace("/safe", "/evil"),
    ],
)  # fmt: skip
def test_anything_else_is_another_config(now: str) -> None:
    assert not only_tracks(CONFIG, now)


def test_what_goes_on_in_the_next_line_is_not_read() -> None:
    begun = "[core]\n\teditor = vi \\\n"
    assert not only_tracks(begun + "\tx\n", begun + '[branch "x"]\n\tx\n')
