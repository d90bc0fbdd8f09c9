"""The tools in review mode, on a view with the real kernel, the real sandbox and the real git: the project stays as it is."""

import asyncio
import hashlib
import os
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    BadCall,
    CallPermitted,
    Meaning,
    Mode,
    Prepared,
    Role,
    RuleId,
    ToolEffect,
    ToolResult,
    ToolSpec,
    ViewChoice,
    ViewMechanism,
    Workspace,
)
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from tests.support.covers import covers
from tests.support.git_server import GitServer, git, serving
from tests.support.machines import Machine, permit
from tests.support.views import NOBODY, give_to, inside, plant
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("bubblewrap")

FILES = {"a.txt": "a\n", "d/b": "b\n", "d/e/c": "c\n", ".gitignore": "*.log\n"}


def fingerprint(machine: Machine) -> str:
    """Return a digest of everything in the project, `.git` included: names, modes, contents and times of change."""
    digest = hashlib.sha256()
    for above, directories, files in os.walk(machine.workspace):
        directories.sort()
        for name in sorted((*directories, *files)):
            path = os.path.join(above, name)
            status = os.lstat(path)
            digest.update(f"{path} {status.st_mode} {status.st_ino} {status.st_mtime_ns}".encode())
            if os.path.isfile(path) and not os.path.islink(path):
                digest.update(Path(path).read_bytes())
    return digest.hexdigest()


def made(root: Path, mechanism: ViewMechanism = ViewMechanism.OVERLAY) -> Machine:
    machine = Machine.at(root, own=False, mode=Mode.REVIEW)
    state = machine.root / "house/sessions/s1/view"
    state.mkdir(parents=True)
    (state / "mechanism.json").write_text(ViewChoice(mechanism=mechanism, reason="chosen here").model_dump_json())
    plant(machine.workspace, FILES)
    git("init", "--quiet", "--initial-branch=main", cwd=machine.workspace)
    git("add", ".", cwd=machine.workspace)
    git("commit", "--quiet", "-m", "first", cwd=machine.workspace)
    return machine


@pytest.fixture(params=[ViewMechanism.OVERLAY, ViewMechanism.COPY])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Machine]:
    machine = made(tmp_path, request.param)
    before = fingerprint(machine)
    yield machine
    machine.views.leave(machine.place.session)
    assert fingerprint(machine) == before


@pytest.fixture
def overlay(tmp_path: Path) -> Generator[Machine]:
    machine = made(tmp_path)
    yield machine
    machine.views.leave(machine.place.session)


def changed(machine: Machine) -> dict[str, str]:
    return {change.path: change.kind.value for change in machine.changes().changes}


@covers("views.the-project-stays-untouched", "views.calls-work-on-the-view")
def test_every_file_tool_works_on_the_view(machine: Machine) -> None:
    work = str(machine.workspace)
    machine.done("filesystem.write_file", path="new.txt", content="new\n")
    machine.done("filesystem.edit_file", path="a.txt", edits=[{"oldText": "a", "newText": "edited"}])
    assert machine.done("filesystem.read_file", path=f"{work}/a.txt") == "edited\n"
    machine.done("filesystem.create_directory", path="x/y")
    machine.done("filesystem.move_file", source="new.txt", destination="x/new.txt")
    machine.done("filesystem.move_file", source="d", destination="x/d")
    machine.done("filesystem.delete_file", path="x/d/b")
    read = machine.call("filesystem.read_multiple_files", paths=["x/d/e/c", "x/new.txt", "d/b"]).value
    assert [("error" if "error" in each else each["content"]) for each in cast("list[dict[str, str]]", read)] == ["c\n", "new\n", "error"]
    listed = cast("dict[str, list[dict[str, str]]]", machine.call("filesystem.list_directory", path=".").value)
    assert [each["name"] for each in listed["entries"]] == [".git", ".gitignore", "a.txt", "x"]
    found = cast("dict[str, list[str]]", machine.call("filesystem.search_files", path=".", pattern="*").value)
    assert found["matches"] == [f"{work}/{name}" for name in (".gitignore", "a.txt", "x", "x/d", "x/d/e", "x/d/e/c", "x/new.txt", "x/y")]
    assert "new.txt" in str(machine.call("filesystem.directory_tree", path=".").value)
    info = cast("dict[str, JsonValue]", machine.call("filesystem.get_file_info", path="x/new.txt").value)
    assert (info["path"], info["size"]) == (f"{work}/x/new.txt", 4)
    assert machine.call("filesystem.list_allowed_directories").value == [work]
    assert changed(machine) == {
        "a.txt": "modified",
        "d": "deleted",
        "d/b": "deleted",
        "d/e": "deleted",
        "x": "added",
        "x/d": "added",
        "x/d/e": "added",
        "x/d/e/c": "renamed",
        "x/new.txt": "added",
        "x/y": "added",
    }


@covers("views.calls-work-on-the-view")
def test_commands_file_tools_and_git_see_one_view(machine: Machine) -> None:
    machine.done("filesystem.write_file", path="a.txt", content="from a file tool\n")
    assert machine.out("pwd; cat a.txt; echo from a command > made") == f"{machine.workspace}\nfrom a file tool\n"
    assert machine.done("filesystem.read_file", path="made") == "from a command\n"
    assert machine.done("git.status").splitlines() == ["## main", " M a.txt", "?? made"]
    assert "+from a file tool" in machine.done("git.diff")
    machine.done("git.add", files=["a.txt", "made"])
    machine.done("git.commit", message="second")
    machine.done("git.branch", name="side")
    machine.done("git.checkout", ref="side")
    machine.done("git.init", path="inner")
    assert "second" in machine.done("git.log")
    assert "+from a command" in machine.done("git.show", ref="HEAD")
    assert machine.out("git log --format=%s; git branch --show-current") == "second\nfirst\nside\n"
    changes = machine.changes()
    assert [change.path for change in changes.changes] == ["a.txt", "inner", "made"]
    assert changes.git == (".git", "inner/.git")


def test_commands_may_write_what_runs_later_and_nothing_is_set_aside(machine: Machine) -> None:
    result = machine.sh("echo one > .git/hooks/pre-commit; echo two > .envrc; mkdir -p .vscode; echo '{}' > .vscode/tasks.json")
    assert result == {"exit_code": 0, "stdout": "", "stderr": "", "cut": False, "timed_out": False}
    assert machine.out("cat .git/hooks/pre-commit .envrc") == "one\ntwo\n"
    assert changed(machine) == {".envrc": "added", ".vscode": "added", ".vscode/tasks.json": "added"}


def test_commands_run_at_the_same_time_in_one_view(machine: Machine) -> None:
    async def both() -> list[ToolResult]:
        first = machine.prepare("shell.run", command="touch one; until [ -e two ]; do sleep 0.02; done; echo saw two", timeout=60)
        second = machine.prepare("shell.run", command="touch two; until [ -e one ]; do sleep 0.02; done; echo saw one", timeout=60)
        return await asyncio.gather(machine.run(first), machine.run(second))

    assert ["saw " in str(result.value) for result in asyncio.run(both())] == [True, True]


def test_what_changed_in_an_earlier_turn_is_still_there_in_the_next(machine: Machine) -> None:
    machine.out("echo first > first")
    machine.views.leave(machine.place.session)
    assert machine.out("cat first; rm first") == "first\n"
    assert changed(machine) == {}


def test_a_directory_of_the_project_moves_with_everything_in_it_and_keeps_what_it_is(machine: Machine) -> None:
    machine.out("chmod 755 d/b; ln -s b d/link; mkdir d/empty; touch -d @1000 d/b")
    machine.done("filesystem.move_file", source="d", destination="moved")
    assert machine.out("stat -c '%n %a %Y' moved/b; readlink moved/link; ls -d moved/empty; ls d 2>&1 || true").splitlines()[:3] == [
        "moved/b 755 1000",
        "b",
        "moved/empty",
    ]


def test_files_move_across_the_edge_of_the_view_as_copies(machine: Machine) -> None:
    outside = machine.root / "outside"
    outside.mkdir()
    machine.done("filesystem.move_file", source="d/e", destination=str(outside / "e"))
    assert (outside / "e/c").read_text() == "c\n"
    machine.done("filesystem.move_file", source=str(outside / "e"), destination="back")
    assert machine.out("cat back/c") == "c\n"
    assert not (outside / "e").exists()


def test_the_project_itself_cannot_be_moved_or_replaced(machine: Machine) -> None:
    with pytest.raises(BadCall):
        machine.prepare("filesystem.move_file", source=".", destination="../away")
    machine.fault("filesystem.move_file", source="a.txt", destination=".")
    machine.fault("filesystem.move_file", source=str(machine.root / "house/curtainwall.db"), destination=".")
    assert "stays as it is" in machine.fault("filesystem.write_file", path=".", content="")
    assert "stays as it is" in machine.fault("filesystem.delete_file", path=".")


@covers("views.a-call-runs-where-it-was-judged")
def test_a_call_that_was_judged_in_the_view_never_runs_on_the_project(machine: Machine) -> None:
    prepared = machine.prepare("filesystem.write_file", path="a.txt", content="x")
    for mode in (mode for mode in Mode if mode is not Mode.REVIEW):
        result = asyncio.run(machine.as_(mode).run(prepared))
        assert (result.ok, str(result.value).split(";")[0]) == (False, "the mode of the session changed after this call was judged")


@covers("views.a-call-runs-where-it-was-judged")
def test_a_call_that_was_judged_on_the_project_never_runs_in_the_view(machine: Machine) -> None:
    prepared = machine.as_(Mode.DEFAULT).prepare("filesystem.write_file", path="a.txt", content="x")
    assert not asyncio.run(machine.run(prepared)).ok
    assert changed(machine) == {}


@covers("views.a-call-runs-where-it-was-judged")
def test_what_was_allowed_for_a_view_alone_does_not_run_on_the_project(machine: Machine) -> None:
    other = machine.as_(Mode.DEFAULT)
    prepared = other.prepare("filesystem.write_file", path="a.txt", content="x")
    allowed = permit(prepared)
    for_view = allowed.model_copy(update={"verdict": allowed.verdict.model_copy(update={"because": (RuleId("view-edit"),)})})
    assert not asyncio.run(other.tools.run(prepared, for_view, other.place)).ok


@covers("views.as-any-user")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can work for somebody else")
def test_as_root_everything_in_somebody_elses_project_is_made_for_its_owner(tmp_path: Path) -> None:
    machine = made(tmp_path)
    give_to(machine.workspace, NOBODY)
    before = fingerprint(machine)
    machine.done("filesystem.write_file", path="by-tool", content="x")
    machine.done("filesystem.create_directory", path="dir/by-tool")
    assert machine.out("id -u; echo x > dir/by-command; echo more >> by-tool; cat by-tool") == "1000\nxmore\n"
    machine.done("git.add", files=["by-tool"])
    machine.done("git.commit", message="second")
    machine.done("filesystem.move_file", source="d", destination="dir/d")
    owners = machine.out("find . -not -user agent; echo end")
    assert owners == "end\n"
    assert changed(machine)["dir/by-command"] == "added"
    assert fingerprint(machine) == before


def test_an_own_workspace_has_no_view_in_review_mode(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path, mode=Mode.REVIEW)
    machine.done("filesystem.write_file", path="a", content="mine\n")
    assert machine.out("echo more >> a; cat a") == "mine\nmore\n"
    assert (machine.workspace / "a").read_text() == "mine\nmore\n"


@covers("views.no-view-no-call")
def test_where_the_view_cannot_be_entered_every_call_fails(tmp_path: Path) -> None:
    machine = made(tmp_path, ViewMechanism.NONE)
    before = fingerprint(machine)
    for tool, arguments in (
        ("filesystem.write_file", {"path": "a.txt", "content": "x"}),
        ("shell.run", {"command": "echo x > a.txt"}),
        ("git.status", {}),
    ):
        with pytest.raises(BadCall, match="is possible here: chosen here"):
            machine.prepare(tool, **arguments)
    assert fingerprint(machine) == before


@covers("views.no-view-no-call")
def test_a_view_that_goes_missing_between_judging_and_running_fails_the_call(overlay: Machine) -> None:
    prepared = overlay.prepare("shell.run", command="echo x > a.txt")
    overlay.views.leave(overlay.place.session)
    (overlay.root / "house/sessions/s1/view/upper").rename(overlay.root / "gone")
    (overlay.root / "house/sessions/s1/view/upper").write_text("in the way")
    assert "cannot be" in str(asyncio.run(overlay.run(prepared)).value)
    assert (overlay.workspace / "a.txt").read_text() == "a\n"


def test_tools_without_views_do_not_run_in_review_mode(machine: Machine) -> None:
    async def never(_prepared: Prepared, _permit: CallPermitted, _place: object) -> ToolResult:
        raise AssertionError

    tools = NativeTools(Catalogue(NATIVE_TOOLS), home="/h", masker=Masker(b"k"), runners={"filesystem.write_file": never})
    prepared = tools.prepare("filesystem.write_file", {"path": "a.txt", "content": "x"}, machine.place)
    assert "there are no views" in str(asyncio.run(tools.run(prepared, permit(prepared), machine.place)).value)
    replaced = NativeTools(Catalogue(NATIVE_TOOLS), home="/h", masker=Masker(b"k"), without_view=("shell.run",), views=machine.views)
    with pytest.raises(BadCall, match="knows no views"):
        replaced.prepare("shell.run", {"command": "true"}, machine.place)


@covers("views.servers-cannot-change-the-project")
def test_a_tool_of_somebody_else_changes_nothing_of_the_project(machine: Machine) -> None:
    meaning = Meaning(argument="path", roles=(Role.WRITE_PATH,))
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"path": {"type": "string"}}}
    spec = ToolSpec(server="foreign", name="save", description="Save.", schema_=schema, effect=ToolEffect.MODIFY, meanings=(meaning,))
    foreign = machine.tools.beside(Catalogue((spec,)), {})
    machine.out(f"ln -s {machine.root}/elsewhere into")
    for path in ("a.txt", f"{machine.workspace}/new", "into/x"):
        with pytest.raises(BadCall, match="in the project itself, which stays as it is"):
            foreign.prepare("foreign.save", {"path": path}, machine.place)
    assert not foreign.prepare("foreign.save", {"path": str(machine.root / "elsewhere")}, machine.place).on_view


def test_a_command_that_is_cancelled_lets_go_of_the_view(machine: Machine) -> None:
    prepared = machine.prepare("shell.run", command="touch began; sleep 600")
    use = machine.views.enter(machine.place)
    assert use is not None

    async def cancel_once_begun() -> None:
        running = asyncio.create_task(machine.run(prepared))
        await asyncio.to_thread(until, (inside(use.entrance) / "began").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel_once_begun())
    machine.views.leave(machine.place.session)
    use.close()
    assert changed(machine) == {"began": "added"}


@pytest.fixture
def server(overlay: Machine) -> Generator[GitServer]:
    (overlay.root / "served").mkdir()
    with serving(overlay.root / "served") as made:
        made.make("shop.git")
        git("remote", "add", "origin", made.url("shop.git"), cwd=overlay.workspace)
        yield made


def test_a_push_publishes_what_the_project_has_and_not_what_is_in_the_view(overlay: Machine, server: GitServer) -> None:
    overlay.out("echo secret > unaccepted")
    overlay.done("git.add", files=["unaccepted"])
    overlay.done("git.commit", message="unaccepted")
    overlay.out("git config remote.origin.url http://127.0.0.1:1/elsewhere.git")
    told = overlay.done("git.push", branch="main")
    assert "commits that were made in review mode are in the view alone" in told
    log = git("-C", str(server.root / "shop.git"), "log", "--format=%s", "main")
    assert log == "first\n"


def test_a_fetch_fills_the_view_and_a_pull_or_a_clone_into_the_project_is_refused(
    overlay: Machine, server: GitServer, tmp_path: Path
) -> None:
    git("push", "--quiet", server.url("shop.git"), "main", cwd=overlay.workspace)
    other = tmp_path / "other"
    git("clone", "--quiet", server.url("shop.git"), str(other))
    (other / "theirs").write_text("theirs\n")
    git("add", ".", cwd=other)
    git("commit", "--quiet", "-m", "theirs", cwd=other)
    git("push", "--quiet", "origin", "main", cwd=other)
    before = fingerprint(overlay)
    overlay.done("git.fetch")
    assert overlay.out("git log --format=%s origin/main") == "theirs\nfirst\n"
    with pytest.raises(BadCall, match="have the user pull"):
        overlay.done("git.pull")
    with pytest.raises(BadCall, match="clone into another directory"):
        overlay.done("git.clone", url=server.url("shop.git"), path="inside")
    outside = overlay.root / "cloned"
    overlay.done("git.clone", url=server.url("shop.git"), path=str(outside))
    assert (outside / "theirs").read_text() == "theirs\n"
    assert fingerprint(overlay) == before


def test_programs_that_the_config_in_the_view_names_run_confined(overlay: Machine) -> None:
    marker = overlay.root / "home/ran"
    overlay.out(
        f"git config core.fsmonitor 'touch {marker}'; git config filter.x.clean 'touch {marker} ran-in-view; cat';"
        "echo '*.txt filter=x' > .gitattributes; echo changed > a.txt; mkdir -p .git/hooks;"
        f"printf '#!/bin/sh\\ntouch {marker}' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
    )
    overlay.call("git.status")
    overlay.call("git.add", files=["a.txt"])
    overlay.call("git.commit", message="with programs")
    assert not marker.exists()
    assert not (overlay.workspace / "ran-in-view").exists()


def test_a_repository_outside_the_project_is_worked_on_where_it_is(overlay: Machine) -> None:
    elsewhere = overlay.root / "elsewhere"
    git("init", "--quiet", "--initial-branch=main", str(elsewhere))
    (elsewhere / "file").write_text("file\n")
    assert "?? file" in overlay.done("git.status", path=str(elsewhere))
    overlay.done("git.add", path=str(elsewhere), files=[str(elsewhere / "file")])
    assert git("status", "--porcelain", cwd=elsewhere) == "A  file\n"


def test_two_sessions_work_on_one_project_without_seeing_each_other(overlay: Machine) -> None:
    other = overlay.in_session("s2")
    overlay.out("echo one > a.txt")
    assert other.out("cat a.txt; echo two > a.txt") == "a\n"
    assert overlay.out("cat a.txt") == "one\n"
    other.views.leave(other.place.session)


def test_an_accepted_change_is_seen_by_the_next_call_and_the_rest_stays(overlay: Machine) -> None:
    overlay.out("echo one > a.txt; echo two > new")
    changes = overlay.changes()
    assert overlay.views.settle(overlay.place, changes.only(["a.txt"]), apply=True).applied == ("a.txt",)
    assert (overlay.workspace / "a.txt").read_text() == "one\n"
    (overlay.workspace / "a.txt").write_text("the user's\n")
    assert overlay.out("cat a.txt new") == "the user's\ntwo\n"
    assert changed(overlay) == {"new": "added"}


def test_a_view_of_a_session_that_moved_to_its_own_workspace_is_not_used(overlay: Machine) -> None:
    own = replace(overlay, place=replace(overlay.place, workspace=Workspace(path=str(overlay.workspace), own=True)))
    assert not own.prepare("filesystem.read_file", path="a.txt").on_view
