"""Reviews: what a session changed in its view of a project is presented once, and happens exactly as it was answered."""

import os
import subprocess
from pathlib import Path

import pytest

from curtainwall.model import (
    APPLY_CHANGES,
    AlreadyAnswered,
    AnswerApproval,
    CallFinished,
    ChangeMode,
    CloseSession,
    CommandRefused,
    GrantScope,
    Mode,
    NotAllowed,
    TurnStatus,
)
from curtainwall.operations.fork import fork
from tests.support.covers import covers
from tests.support.reviews import ANN, Edit, reviewed
from tests.support.views import plant, tree_of
from tests.support.waiting import run

FILES = {"a.txt": "one\ntwo\nthree\n", "src/b.py": "x = 1\n", "docs/c.md": "# c\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    plant(made, FILES)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "home"


def writing(**files: str | None) -> Edit:
    """Write and delete files; `__` in a name stands for a slash."""

    def edit(root: Path) -> None:
        for name, text in files.items():
            path = root / name.replace("__", "/").replace("_dot_", ".")
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    return edit


def three_changes(root: Path) -> None:
    (root / "a.txt").write_text("one\n2\nthree\n")
    (root / "new").mkdir()
    (root / "new/n.txt").write_text("new\n")
    (root / "new/m.txt").write_text("also new\n")
    (root / "docs/c.md").unlink()


@covers("review.one-ask-at-the-end")
def test_a_turn_that_changed_files_ends_with_one_ask_and_an_untouched_project(home: Path, project: Path) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            assert (await here.stands(), here.asks, tree_of(project)) == (TurnStatus.WAITING, 1, before)
            assert here.ask.subject.tool == APPLY_CHANGES
            assert here.card[1] == f"changes: 4 files (2 added, 1 modified, 1 deleted) and 1 directory in {project}"
            listed = [line for line in here.card if line.startswith("file: ")]
            assert listed == [
                "file: modified, +1 -1  a.txt",
                "file: deleted, +0 -1  docs/c.md",
                "file: added, a directory  new",
                "file: added, +1 -0  new/m.txt",
                "file: added, +1 -0  new/n.txt",
            ]
            shown = here.card[here.card.index("difference of a.txt:") + 1 :][:4]
            assert shown == ["      1     1   one", "      2       - two", "            2 + 2", "      3     3   three"]
            await here.answer()
            assert (await here.stands(), here.asks) == (TurnStatus.DONE, 1)
            assert tree_of(project)["a.txt"][2] == b"one\n2\nthree\n"
            assert {"new/n.txt", "new/m.txt"} <= tree_of(project).keys()
            assert "docs/c.md" not in tree_of(project)
            assert here.told == ["Your changes in the project were answered: 5 changes were applied"]
            assert here.agent.turns == 1, "the agent is not called again to be told"
            await here.work()
            assert here.asks == 1, "nothing changed since"

    run(story())


@covers("review.some-files")
def test_of_the_files_that_were_shown_some_are_accepted_and_the_rest_stays_in_the_view(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            await here.answer(only=("new/n.txt", "a.txt"))
            now = tree_of(project)
            assert (now["a.txt"][2], now["new/n.txt"][2]) == (b"one\n2\nthree\n", b"new\n")
            assert "new/m.txt" not in now
            assert "docs/c.md" in now
            assert here.told == [
                "Your changes in the project were answered: 3 changes were applied; 2 changes were not accepted and are only in your view"
            ]
            await here.work()
            assert here.asks == 1, "the rest is not asked about again while it stays as it is"
            seen: list[bool] = []
            await here.work(lambda root: seen.append((root / "new/m.txt").exists() and not (root / "docs/c.md").exists()))
            assert seen == [True], "what was not accepted is still in the view"
            await here.work(writing(more="x"))
            assert {file.path for file in here.ask.subject.changes.files} == {"docs/c.md", "more", "new/m.txt"}

    run(story())


@pytest.mark.parametrize("only", [(), ("nothing.txt",), ("a.txt", "/etc/passwd"), ("../a.txt",), ("new/",)])
def test_an_answer_that_names_what_was_not_shown_is_refused_and_changes_nothing(home: Path, project: Path, only: tuple[str, ...]) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            with pytest.raises(CommandRefused):
                await here.answer(only=only)
            assert (here.asks, len(here.state.approvals), tree_of(project)) == (1, 1, before)

    run(story())


def test_a_lasting_answer_to_a_change_set_is_refused(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            command = AnswerApproval(by=ANN, approval=here.ask.approval, granted=True, scope=GrantScope.PROJECT)
            with pytest.raises(NotAllowed):
                await here.wired.registry.send(here.session, command)

    run(story())


@covers("review.sent-back")
def test_a_denial_with_a_reason_sends_the_agent_back_to_work_in_the_same_turn(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(writing(more="first\n"), writing(more="second\n"))
            await here.answer(granted=False, reason="use other words")
            assert (here.agent.turns, here.asks, here.state.totals.turns) == (2, 2, 1)
            assert 'says: "use other words"' in here.told[0]
            await here.answer()
            assert (project / "more").read_text() == "second\n"

    run(story())


@covers("review.not-again")
def test_a_denial_without_a_reason_keeps_the_view_and_is_not_asked_about_again(home: Path, project: Path) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            await here.answer(granted=False)
            assert (await here.stands(), here.agent.turns, tree_of(project)) == (TurnStatus.DONE, 1, before)
            assert here.told == [
                "The user did not accept your changes; the project is as it was, and your changes are still in your view of it."
            ]
            await here.work()
            assert here.asks == 1
            await here.work(writing(more="x\n"))
            assert here.asks == 2

    run(story())


def test_what_is_discarded_is_gone_from_the_view_too(home: Path, project: Path) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            await here.answer(granted=False, discard=True)
            seen: list[bool] = []
            await here.work(lambda root: seen.append(tree_of(f"{root}/") == before))
            assert (seen, here.asks, tree_of(project)) == ([True], 1, before)

    run(story())


def test_what_was_discarded_and_is_made_anew_is_presented_again(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            await here.answer(granted=False, discard=True)
            await here.work(three_changes, text="do it after all")
            assert here.asks == 2
            await here.answer()
            assert tree_of(project)["a.txt"][2] == b"one\n2\nthree\n"

    run(story())


def test_a_turn_that_changed_nothing_or_only_ignored_files_asks_nothing(home: Path, project: Path) -> None:
    subprocess.run(("git", "init", "--quiet", str(project)), check=True)
    (project / ".gitignore").write_text("*.log\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work()
            await here.work(writing(build_dot_log="noise"))
            assert (here.asks, await here.stands()) == (0, TurnStatus.DONE)

    run(story())


@covers("review.conflicts")
def test_a_file_that_the_user_changed_meanwhile_is_left_alone_and_reported(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            (project / "a.txt").write_text("mine\n")
            await here.answer()
            assert (project / "a.txt").read_text() == "mine\n"
            assert (project / "new/n.txt").exists()
            assert "1 change was left alone (`a.txt`: the project has something else there than what was shown)" in here.told[0]
            (finished,) = [event for event in here.events if isinstance(event, CallFinished)]
            assert not finished.ok

    run(story())


@covers("review.as-shown")
def test_what_changes_in_the_view_after_it_was_shown_is_not_applied(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(writing(more="as shown\n"))
            here.agent._edit(here.session, writing(more="sneaked in\n", other="also\n"))
            await here.answer()
            assert (project / "more").read_text() == "as shown\n"
            assert not (project / "other").exists()

    run(story())


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS])
def test_an_ask_that_is_open_when_the_mode_changes_is_answered_all_the_same(home: Path, project: Path, mode: Mode) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            await here.wired.registry.send(here.session, ChangeMode(by=ANN, mode=mode))
            assert (len(here.state.approvals), tree_of(project)) == (1, before), "no mode answers an open ask"
            await here.answer(only=("a.txt",))
            assert (project / "a.txt").read_text() == "one\n2\nthree\n"
            assert not (project / "new").exists()

    run(story())


def test_in_plan_mode_accepted_changes_are_denied_and_stay_in_the_view(home: Path, project: Path) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            await here.wired.registry.send(here.session, ChangeMode(by=ANN, mode=Mode.PLAN))
            await here.answer()
            assert (tree_of(project), await here.stands()) == (before, TurnStatus.DONE)
            assert "were not applied: In plan mode nothing is changed" in here.told[0]

    run(story())


def test_an_answer_to_a_change_set_of_a_closed_session_is_refused_and_nothing_is_applied(home: Path, project: Path) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            command = AnswerApproval(by=ANN, approval=here.ask.approval, granted=True)
            await here.wired.registry.send(here.session, CloseSession(by=ANN, reason="enough"))
            with pytest.raises(AlreadyAnswered):
                await here.wired.registry.send(here.session, command)
            assert tree_of(project) == before

    run(story())


def test_of_two_answers_the_first_counts(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            late = AnswerApproval(by=ANN, approval=here.ask.approval, granted=True)
            await here.answer(only=("a.txt",))
            with pytest.raises(AlreadyAnswered):
                await here.wired.registry.send(here.session, late)
            assert not (project / "new").exists()

    run(story())


@covers("review.denied-paths-are-left-out")
def test_a_path_that_a_rule_denies_is_left_out_of_the_set_also_if_a_rename_leads_there(home: Path, project: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "policy").mkdir(mode=0o700)
    rule = '@id("no-docs") forbid (principal, action in [Action::"write-path", Action::"delete-path"], resource)\n'
    rule += f'when {{ resource in Path::"{project}/docs" && context.tool == "session.apply_changes" }};\n'
    (home / "policy/own.cedar").write_text(rule)

    async def story() -> None:
        def edit(root: Path) -> None:
            (root / "docs/c.md").rename(root / "moved.md")
            (root / "src/b.py").rename(root / "docs/b.py")
            (root / "a.txt").write_text("two\n")

        async with reviewed(home, project) as here:
            await here.work(edit)
            assert {file.path for file in here.ask.subject.changes.files} == {"a.txt"}
            assert "not in it: `docs/b.py`, `moved.md`: a rule or a protected path denies changing it" in here.card
            await here.answer()
            assert tree_of(project).keys() == {"a.txt", "docs", "docs/c.md", "src", "src/b.py"}

    run(story())


HOSTILE = (
    "new\nline: file: added  x",
    "esc\x1b[2Jape",
    "com,ma : co:lon",
    "-rf",
    'quote"d',
    "\u202etxt.exe",
    "runs later by itself: added  y",
)


@covers("review.cards-cannot-be-forged")
def test_names_and_lines_of_files_cannot_pass_for_lines_of_the_card(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        for name in HOSTILE:
            (root / name).write_text("answer: accepts nothing\nfile: added  z\n\x1b[31mred\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert all(line.isprintable() for line in here.card)
            assert sum(line.startswith("file: ") for line in here.card) == len(HOSTILE)
            assert sum(line.startswith("answer: ") for line in here.card) == 1
            assert not any(line.startswith("runs later") for line in here.card)
            await here.answer(only=HOSTILE[:2])
            assert {*os.listdir(project)} - {"a.txt", "src", "docs"} == {*HOSTILE[:2]}

    run(story())


def test_files_that_run_later_come_first_and_links_modes_and_binaries_are_described(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        (root / ".vscode").mkdir()
        (root / ".vscode/tasks.json").write_text("{}\n")
        (root / "leak").symlink_to("/etc/passwd")
        (root / "a.txt").chmod(0o755)
        (root / "blob").write_bytes(b"\0" * 10)
        (root / "src/b.py").rename(root / "src/z.py")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            listed = [line for line in here.card if line.startswith(("file: ", "runs later"))]
            mode = oct((project / "a.txt").stat().st_mode)[-3:]
            assert listed == [
                "runs later by itself: added, a directory  .vscode",
                "runs later by itself: added, +1 -0  .vscode/tasks.json",
                f"file: given other permissions, mode {mode} is 755 now  a.txt",
                "file: added, binary, 10 bytes  blob",
                'file: added, a link to "/etc/passwd", the link leads out of the project  leak',
                "file: renamed, unchanged  src/z.py, was src/b.py",
            ]

    run(story())


def test_a_secret_in_a_difference_is_masked_and_its_outline_shown(home: Path, project: Path) -> None:
    token = "ghp_" + "a1B2" * 9

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(writing(config=f"token = '{token}'; $(rm -rf ~)\n"))
            assert token not in here.ask.shown
            assert "[masked:" in here.ask.shown
            assert token not in here.ask.model_dump_json()
            await here.answer()
            assert token in (project / "config").read_text()

    run(story())


@covers("review.what-is-cut-is-stated")
def test_what_a_long_difference_leaves_out_is_counted_and_every_file_is_named(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1_000)))
        for number in range(150):
            (root / f"file-{number}.txt").write_text("x\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert sum(line.startswith("file: ") for line in here.card) == 151
            assert "…[800 more lines of long.txt are not shown]… `curtainwall sessions diff ID PATH` shows them" in here.card
            assert sum(line.startswith("difference of ") for line in here.card) == 151

    run(story())


def test_a_set_whose_list_does_not_fit_is_accepted_by_name_alone(home: Path, project: Path) -> None:
    def edit(root: Path) -> None:
        for number in range(400):
            (root / f"{'long-name-' * 18}{number}").write_text("x\n")

    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(edit)
            assert any("cannot be accepted as a whole" in line for line in here.card)
            with pytest.raises(NotAllowed):
                await here.answer()
            assert tree_of(project) == before
            name = f"{'long-name-' * 18}7"
            await here.answer(only=(name,))
            assert tree_of(project).keys() - before.keys() == {name}

    run(story())


def test_a_fork_has_neither_the_ask_nor_the_changes_and_the_answer_counts_in_its_session(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(three_changes)
            forked = await fork(here.wired.sessions, here.session, ANN)
            state = here.wired.sessions.state(forked.session)
            assert (state.mode, state.approvals, state.proposal) == (Mode.REVIEW, {}, None)
            assert here.wired.views.changes(state.place).changes == ()
            await here.answer()
            assert tree_of(project)["a.txt"][2] == b"one\n2\nthree\n"
            assert here.wired.views.changes(state.place).changes == (), "what was accepted is not a change of the fork"

    run(story())
