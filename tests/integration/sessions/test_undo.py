"""Undo and redo: what was accepted is taken back and applied again, exactly, and never over something that nobody saw."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.compose.knowledge import HouseKnowledge
from curtainwall.model import (
    APPLY_CHANGES,
    ApprovalAnswered,
    CallRequest,
    CallRequested,
    ChangeMode,
    CloseSession,
    CommandRefused,
    Mode,
    NotAllowed,
    StepsAsked,
    TurnStatus,
    ViewChoice,
    ViewMechanism,
    Who,
)
from curtainwall.operations.history import ChangeHistory, StepOutcome, plan_lines, step_status, steps_of
from curtainwall.tools.changes import manifest_of
from tests.support.covers import covers
from tests.support.reviews import ANN, Edit, Reviewed, attended, gated, reviewed
from tests.support.views import plant, tree_of
from tests.support.waiting import run

FILES = {"a.txt": "one\ntwo\nthree\n", "src/b.py": "x = 1\n", "docs/c.md": "# c\n", "old/deep/d.txt": "d\n", "run.sh": "echo\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    plant(made, FILES)
    (made / "link").symlink_to("a.txt")
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "home"


def write(name: str, text: str) -> Edit:
    def edit(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    return edit


def every_kind_of_change(root: Path) -> None:
    """Add, modify, delete and rename files, change modes, and replace links, files and directories by each other."""
    (root / "a.txt").write_text("one\n2\nthree\n")
    (root / "new/inner").mkdir(parents=True)
    (root / "new/inner/n.txt").write_text("n\n")
    (root / "new/empty").mkdir()
    (root / "docs/c.md").unlink()
    os.rename(root / "src/b.py", root / "src/renamed.py")
    (root / "run.sh").chmod(0o755)
    (root / "link").unlink()
    (root / "link").symlink_to("run.sh")
    (root / "added-link").symlink_to("a.txt")
    shutil.rmtree(root / "old")
    (root / "old").write_text("a file now\n")


async def accept(here: Reviewed, *edits: Edit) -> None:
    await here.work(*edits)
    await here.answer()


def history_of(here: Reviewed) -> ChangeHistory:
    return here.wired.history()


async def undo(here: Reviewed, count: int = 1, *, force: bool = False) -> tuple[StepOutcome, ...]:
    history = history_of(here)
    return await history.carry_out(await history.plan(here.session, ANN, StepsAsked(count=count, force=force)), ANN)


async def redo(here: Reviewed, count: int = 1, *, force: bool = False) -> tuple[StepOutcome, ...]:
    history = history_of(here)
    return await history.carry_out(await history.plan(here.session, ANN, StepsAsked(redo=True, count=count, force=force)), ANN)


def states(here: Reviewed) -> list[str]:
    return [step_status(step) for step in steps_of(here.wired.sessions, here.session).steps]


@covers("undo.exact")
@pytest.mark.parametrize("mechanism", [ViewMechanism.OVERLAY, ViewMechanism.COPY])
def test_undo_restores_the_tree_and_redo_brings_the_changes_back(home: Path, project: Path, mechanism: ViewMechanism) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            state = home / "sessions" / here.session / "view"
            state.mkdir(mode=0o700, parents=True)
            (state / "mechanism.json").write_text(ViewChoice(mechanism=mechanism, reason="chosen here").model_dump_json())
            await accept(here, every_kind_of_change)
            changed = tree_of(project)
            assert changed != before
            for _ in range(3):
                (outcome,) = await undo(here)
                assert (outcome.is_done, tree_of(project), states(here)) == (True, before, ["taken back"])
                (outcome,) = await redo(here)
                assert (outcome.is_done, tree_of(project), states(here)) == (True, changed, ["applied"])
            seen: list[bool] = []
            await here.work(lambda root: seen.append(tree_of(f"{root}/") == changed))
            assert (seen, here.asks) == ([True], 7), "the view shows the project, and nothing of it is asked about again"

    run(story())


@covers("undo.steps")
def test_steps_are_taken_back_one_after_the_other_also_by_another_process(home: Path, project: Path) -> None:
    async def story() -> None:
        trees = [tree_of(project)]
        async with reviewed(home, project) as here:
            for number in range(3):
                await accept(
                    here,
                    write("a.txt", f"{number}\n"),
                )
                trees.append(tree_of(project))
            session = here.session
            assert [outcome.number for outcome in await undo(here, 2)] == [3, 2]
            assert (tree_of(project), states(here)) == (trees[1], ["applied", "taken back", "taken back"])
        async with gated(home) as wired, attended(wired, session) as here:
            here.messages = 10
            assert [outcome.number for outcome in await redo(here)] == [2]
            assert tree_of(project) == trees[2]
            await undo(here)
            await undo(here)
            assert tree_of(project) == trees[0]
            with pytest.raises(CommandRefused, match="nothing that could be taken back"):
                await undo(here)
            assert [outcome.number for outcome in await redo(here, 3)] == [1, 2, 3]
            assert tree_of(project) == trees[3]
            with pytest.raises(CommandRefused, match="nothing that could be applied again"):
                await redo(here)
            with pytest.raises(CommandRefused, match="only 3 steps"):
                await undo(here, 4)

    run(story())


def test_what_was_taken_back_cannot_be_applied_again_on_top_of_something_new(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            await undo(here)
            await accept(here, write("b.txt", "2\n"))
            assert states(here) == ["taken back, cannot be applied again", "applied"]
            with pytest.raises(CommandRefused, match="nothing that could be applied again"):
                await redo(here)

    run(story())


@covers("undo.only-what-was-applied")
def test_only_what_was_accepted_and_applied_is_taken_back(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(every_kind_of_change)
            # It becomes a conflict when it is applied.
            (project / "run.sh").write_text("mine\n")
            await here.answer(only=("a.txt", "run.sh", "new/inner/n.txt"))
            assert states(here) == ["applied in part"]
            assert (project / "new/inner/n.txt").exists()
            before = {**FILES, "run.sh": "mine\n"}
            await undo(here)
            now = tree_of(project)
            assert {path: now[path][2].decode() for path in before} == before
            assert "new" not in now

    run(story())


Change = Callable[[Path], object]


@covers("undo.refused-after-edits")
@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda root: (root / "a.txt").write_text("mine\n"), "a.txt"),
        (lambda root: (root / "a.txt").unlink(), "a.txt"),
        (lambda root: (root / "run.sh").chmod(0o600), "run.sh"),
        (lambda root: (root / "docs/c.md").write_text("again\n"), "docs/c.md"),
        (lambda root: (root / "new/inner/mine.txt").write_text("mine\n"), "new/inner"),
        (lambda root: os.rename(root / "src/renamed.py", root / "src/mine.py"), "src/renamed.py"),
        (lambda root: (root / "src/b.py").write_text("mine\n"), "src/b.py"),
        (lambda root: ((root / "link").unlink(), (root / "link").symlink_to("/etc/passwd")), "link"),
        (lambda root: ((root / "old").unlink(), os.mkfifo(root / "old")), "old"),
        (lambda root: shutil.rmtree(root / "docs"), "docs/c.md"),
    ],
)
def test_undo_is_refused_by_name_where_a_file_was_changed_since(home: Path, project: Path, edit: Change, path: str) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, every_kind_of_change)
            edit(project)
            now = tree_of(project)
            logged = len(here.events)
            with pytest.raises(CommandRefused) as refused:
                await undo(here)
            assert f"`{path}`" in str(refused.value)
            assert (tree_of(project), len(here.events)) == (now, logged)

    run(story())


@covers("undo.forced")
def test_forced_the_present_state_is_shown_overwritten_and_can_be_brought_back(home: Path, project: Path) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await accept(here, every_kind_of_change)
            (project / "a.txt").write_text("one\nmine\nthree\n")
            os.rename(project / "src/renamed.py", project / "src/mine.py")
            shutil.rmtree(project / "docs")
            changed = tree_of(project)
            history = history_of(here)
            plan = await history.plan(here.session, ANN, StepsAsked(force=True))
            lines = "\n".join(plan_lines(plan))
            assert "- mine" in lines, "what would be lost is shown"
            assert "+ two" in lines
            (outcome,) = await history.carry_out(plan, ANN)
            assert outcome.is_done
            assert tree_of(project) == {**before, "src/mine.py": ("file", 0o644, b"x = 1\n")}
            await redo(here)
            assert tree_of(project) == changed, "redo brings back what was overwritten"
            with pytest.raises(CommandRefused):
                await undo(here)

    run(story())


def test_forced_a_directory_with_files_of_the_user_stays(home: Path, project: Path) -> None:
    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await accept(here, every_kind_of_change)
            (project / "new/inner/mine.txt").write_text("mine\n")
            (outcome,) = await undo(here, force=True)
            assert outcome.is_done
            left = {path for path in tree_of(project) if path not in before}
            assert left == {"new", "new/inner", "new/inner/mine.txt"}

    run(story())


def test_what_was_confirmed_is_not_done_if_the_project_changed_meanwhile(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            (project / "a.txt").write_text("mine\n")
            history = history_of(here)
            plan = await history.plan(here.session, ANN, StepsAsked(force=True))
            (project / "a.txt").write_text("mine, and newer\n")
            with pytest.raises(CommandRefused, match="has changed since this was shown"):
                await history.carry_out(plan, ANN)
            assert (project / "a.txt").read_text() == "mine, and newer\n"

    run(story())


@covers("undo.one-mechanism")
def test_undo_is_a_call_at_the_gate_that_its_person_answers_and_the_agent_is_told(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            await undo(here)
            calls = [event for event in here.events if isinstance(event, CallRequested) and event.subject.tool == APPLY_CHANGES]
            answers = [event for event in here.events if isinstance(event, ApprovalAnswered)]
            assert (len(calls), len(answers), answers[1].by, answers[1].only) == (2, 2, ANN, ("a.txt",))
            assert calls[1].subject.canonical["takes_back"] == calls[0].call
            assert calls[1].subject.canonical["asked_by"] == str(ANN)
            assert here.told[1] == "The user takes back step 1 of your accepted changes: 1 change was applied (`a.txt`)"
            assert here.state.proposal is not None
            assert here.state.proposal.call == calls[0].call, "it is no proposal of the agent's"
            assert (here.agent.turns, await here.stands()) == (1, TurnStatus.DONE)

    run(story())


def test_what_the_agent_has_not_presented_yet_stays_in_its_view(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            await here.work(write("a.txt", "2\n"))
            await here.answer(granted=False)
            await undo(here)
            assert (project / "a.txt").read_text() == FILES["a.txt"]
            seen: list[str] = []
            await here.work(lambda root: seen.append((root / "a.txt").read_text()))
            assert seen == ["2\n"]

    run(story())


@covers("undo.at-rest")
def test_undo_is_refused_while_a_turn_works_or_waits(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            await here.work(write("b.txt", "2\n"))
            with pytest.raises(CommandRefused, match="waits for an answer"):
                await undo(here)
            await here.answer(granted=False)
            refusals: list[str] = []

            def try_from_inside(_: Path) -> None:
                with pytest.raises(CommandRefused) as refused:
                    asyncio.run_coroutine_threadsafe(undo(here), loop).result(20)
                refusals.append(str(refused.value))

            loop = asyncio.get_running_loop()
            await here.work(try_from_inside)
            assert refusals == ["the agent is working in this session; interrupt it, or wait until its turn ends"]
            assert (project / "a.txt").read_text() == "1\n"
            await undo(here)
            assert (project / "a.txt").read_text() == FILES["a.txt"]

    run(story())


def test_only_operators_take_changes_back(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project, Mode.REVIEW) as here:
            await accept(here, write("a.txt", "1\n"))
            with pytest.raises(NotAllowed):
                await history_of(here).plan(here.session, Who(name="eve", channel="matrix:room"), StepsAsked())

    run(story())


def test_another_sessions_accepted_set_on_the_same_file_is_in_the_way(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "first\n"))
            first = here.session
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "second\n"))
            second = here.session
        async with gated(home) as wired, attended(wired, first) as one, attended(wired, second) as two:
            with pytest.raises(CommandRefused, match=r"`a\.txt`: it is no longer as this step left it"):
                await undo(one)
            await undo(two)
            assert (project / "a.txt").read_text() == "first\n"
            await undo(one)
            assert (project / "a.txt").read_text() == FILES["a.txt"]

    run(story())


@covers("undo.contents")
def test_a_content_that_is_gone_or_damaged_refuses_the_step_and_changes_nothing(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, every_kind_of_change)
            now = tree_of(project)
            contents = home / "sessions" / here.session / "view/contents"
            kept = {path: path.read_bytes() for path in contents.iterdir()}
            (of_a,) = [path for path, content in kept.items() if content == FILES["a.txt"].encode()]
            of_a.unlink()
            with pytest.raises(CommandRefused, match=r"missing or damaged .*`a\.txt`"):
                await undo(here)
            of_a.write_text("one\ntwo\nTHREE\n")
            with pytest.raises(CommandRefused, match="missing or damaged"):
                await undo(here)
            assert tree_of(project) == now
            of_a.write_bytes(kept[of_a])
            await undo(here)

    run(story())


def test_what_a_rule_denies_by_now_is_not_taken_back(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            session = here.session
        (home / "policy").mkdir(mode=0o700, exist_ok=True)
        rule = f'@id("no-a") forbid (principal, action == Action::"write-path", resource == Path::"{project}/a.txt");\n'
        (home / "policy/own.cedar").write_text(rule)
        async with gated(home) as wired, attended(wired, session) as here:
            (outcome,) = await undo(here)
            assert (outcome.is_done, (project / "a.txt").read_text()) == (False, "1\n")
            assert states(here) == ["applied"]

    run(story())


def test_a_closed_session_is_opened_for_undo_and_closed_again(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            await here.wired.registry.send(here.session, CloseSession(by=ANN, reason="done"))
            session = here.session
        async with gated(home) as wired:
            history = wired.history()
            plan = await history.plan(session, ANN, StepsAsked())
            await history.carry_out(plan, ANN)
            assert (project / "a.txt").read_text() == FILES["a.txt"]
            assert wired.sessions.state(session).closed == "done"

    run(story())


@covers("undo.after-a-crash")
def test_an_undo_that_was_never_answered_is_dropped_by_the_next(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            (step,) = (await history_of(here).plan(here.session, ANN, StepsAsked())).steps
            stored = await here.wired.store.blobs.put(manifest_of(step.changes))
            arguments: dict[str, JsonValue] = {"changes": stored.digest, "takes_back": step.takes_back}
            request = CallRequest(tool=APPLY_CHANGES, arguments=arguments, by_house=True)
            assert (await here.wired.gate.request(here.session, request, wait=False)).waiting
            await undo(here)
            assert (here.state.approvals, here.state.calls, states(here)) == ({}, {}, ["taken back"])
            assert (project / "a.txt").read_text() == FILES["a.txt"]

    run(story())


def test_another_process_that_looks_after_the_session_lends_it(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            command = (sys.executable, "-m", "curtainwall", "sessions", "undo", here.session, "--yes")
            environ = {**os.environ, "CURTAINWALL_HOME": str(home)}
            done = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True, timeout=60)
            assert (done.returncode, (project / "a.txt").read_text()) == (0, FILES["a.txt"]), done.stderr
            seen: list[str] = []
            await here.work(lambda root: seen.append((root / "a.txt").read_text()))
            assert (seen, states(here)) == ([FILES["a.txt"]], ["taken back"])

    run(story())


@covers("undo.slash-words")
def test_a_slash_word_shows_it_first_and_its_code_does_exactly_that(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            history = history_of(here)
            shown = (await history.move(here.session, ANN, StepsAsked())).split("\n")
            assert shown[0] == f"takes back step 1: 1 file (1 modified) in {project}"
            code = shown[-1].partition("`/undo ")[2][:8]
            with pytest.raises(CommandRefused, match="the code of something else"):
                await history.move(here.session, ANN, StepsAsked(), "00000000")
            assert (project / "a.txt").read_text() == "1\n"
            assert await history.move(here.session, ANN, StepsAsked(), code) == "step 1 was taken back: 1 change was applied"
            knowledge = HouseKnowledge(here.wired.sessions, here.wired.masker, here.wired.views)
            assert knowledge.changes(here.session).split("\n")[-1] == "step 1: taken back"
            assert (project / "a.txt").read_text() == FILES["a.txt"]
            with pytest.raises(CommandRefused):
                await history.move(here.session, ANN, StepsAsked(), code)

    run(story())


def test_plan_mode_denies_undo_and_says_so(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accept(here, write("a.txt", "1\n"))
            await here.wired.registry.send(here.session, ChangeMode(by=ANN, mode=Mode.PLAN))
            (outcome,) = await undo(here)
            assert (outcome.is_done, "plan" in outcome.words.lower()) == (False, True), outcome
            for mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS):
                await here.wired.registry.send(here.session, ChangeMode(by=ANN, mode=mode))
                await undo(here)
                assert (project / "a.txt").read_text() == FILES["a.txt"]
                await redo(here)
            assert states(here) == ["applied"]

    run(story())


@covers("undo.exact")
def test_a_thousand_files_are_taken_back_and_applied_again(home: Path, project: Path) -> None:
    def many(root: Path) -> None:
        for number in range(1000):
            path = root / f"dir{number % 10}" / f"file-with-a-rather-long-name-{number:04}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{number}\n" * 3)
        (root / "a.txt").unlink()

    async def story() -> None:
        before = tree_of(project)
        async with reviewed(home, project) as here:
            await here.work(many)
            await here.answer(only=tuple(sorted(here.ask.subject.changes.paths)))
            changed = tree_of(project)
            assert len(changed) > 1000
            await undo(here)
            assert tree_of(project) == before
            await redo(here)
            assert tree_of(project) == changed

    run(story())
