"""Sessions from outside: lists, names, exports, replays, forks, and taking them away."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.sessions import Parts
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    SYSTEM,
    AddLabels,
    AgentSpoke,
    AnyCommand,
    Batch,
    Broken,
    CommandRefused,
    EndTurn,
    Label,
    LabelSource,
    MessageId,
    Mode,
    RecordProgress,
    SendMessage,
    SessionId,
    StartTurn,
    StreamId,
    TextStreamed,
    TurnId,
    TurnStatus,
    Who,
    session_stream,
)
from curtainwall.operations.fork import copy_tree, fork
from curtainwall.operations.open import SessionSpec, open_new, reset
from curtainwall.operations.remove import remove_tree
from curtainwall.operations.replay import export_lines, read_export
from curtainwall.operations.sessions import Sessions
from curtainwall.runtime import SystemClock
from curtainwall.store import MemoryStore
from curtainwall.store.memory import MemoryLog
from tests.support.covers import covers
from tests.support.houses import read
from tests.support.in_process import Places, Said, opened, session_in

Run = Callable[..., Said]
OUTSIDE = read("/etc/hostname")


def test_sessions_are_listed_and_filtered(run: Run, places: Places) -> None:
    first, _ = session_in(places.workspace)
    second, _ = session_in(places.workspace, OUTSIDE)
    assert {row["id"]: row["pending"] for row in run("sessions", "list", "--output", "json").json} == {first: 0, second: 1}
    for words, expected in (
        (("--status", "closed"), []),
        (("--agent", "builtin", "--channel", "local", "--since", "1h"), [second, first]),
        (("--agent", "other"), []),
        (("--channel", "web"), []),
        (("--since", "0s"), []),
        (("--text", "TEST"), [second, first]),
        (("--limit", "1"), [second]),
    ):
        assert [row["id"] for row in run("sessions", "list", *words, "--output", "json").json] == expected, words
    assert second in run("sessions", "list").out


def test_a_session_is_shown_by_the_beginning_of_its_id(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE, labels=("sensitive",))
    told = run("sessions", "show", session[:12], "--output", "json").json
    assert (told["id"], told["pending"], told["labels"], told["owner"]) == (session, 1, ["sensitive"], None)
    assert told["approvals"][0]["because"] == ["read-outside"]
    shown = run("sessions", "show", session).out
    assert "its own" in shown
    assert "seconds    0s of 2h (measured)" in shown, "as `sessions budget` says it"
    assert run("sessions", "show", "zzz").code == 1
    session_in(places.workspace)
    assert "more than one" in run("sessions", "show", session[:2]).err


@covers("cli.budget")
def test_a_budget_is_shown_and_raised(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace)
    assert "tokens   0 of 1,000,000 (measured)" in run("sessions", "budget", session).out
    for words, kind, limit in (
        (("tokens", "2m"), "tokens", 2_000_000),
        (("dollars", "10"), "dollars", 10),
        (("steps", "500"), "steps", 500),
        (("seconds", "4h"), "seconds", 14_400),
        (("time", "5h"), "seconds", 18_000),
    ):
        told = run("sessions", "budget", session[:8], *words, "--output", "json").json
        assert (told["session"], told["exhausted"]) == (session, [])
        assert {it["kind"]: it["limit"] for it in told["budget"]}[kind] == limit
    assert "tokens   0 of 2,000,000 (measured)" in run("sessions", "budget", session).out


@covers("cli.budget")
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("steps",), 2, "say how much in all; write `tokens 2m`"),
        (("steps", "many"), 2, "`many` is no amount; write `tokens 2m`"),
        (("apples", "3"), 2, "there is no budget of `apples`"),
        (("steps", "10"), 1, "the steps budget is already 200, and it can only be raised"),
    ],
)
def test_a_budget_that_cannot_be_meant_is_left_as_it_is(run: Run, places: Places, words: tuple[str, ...], code: int, why: str) -> None:
    session, _ = session_in(places.workspace)
    before = run("sessions", "export", session).out
    said = run("sessions", "budget", session, *words)
    assert (said.code, said.out) == (code, "")
    assert why in said.err
    assert run("sessions", "export", session).out == before


def conversation_in(places: Places) -> SessionId:
    """Return a session with five turns, of which the last was cut off, and a message that waits."""
    me = local_user()

    async def work() -> SessionId:
        async with open_gate(load_setup()) as wired:
            session = await opened(wired, places.workspace)

            async def send(*commands: AnyCommand) -> None:
                for command in commands:
                    await wired.registry.send(session, command)

            for number in range(5):
                message, turn = MessageId(f"m{number}"), TurnId(f"t{number}")
                await send(SendMessage(by=me, message=message, text=f"question {number}\x1b[2J"), StartTurn(by=SYSTEM, turn=turn))
                at = wired.registry.clock.now()
                if number < 4:
                    await send(RecordProgress(by=SYSTEM, events=(AgentSpoke(at=at, turn=turn, text=f"answer {number}"),)))
                    await send(EndTurn(by=SYSTEM, turn=turn, status=TurnStatus.DONE))
            await send(RecordProgress(by=SYSTEM, events=(TextStreamed(at=at, turn=turn, text="half an ans"),)))
            await send(SendMessage(by=me, message=MessageId("m9"), text="and this"))
            return session

    return asyncio.run(asyncio.wait_for(work(), 60))


@covers("cli.conversation")
def test_the_last_turns_and_the_queue_are_shown_shortly(run: Run, places: Places) -> None:
    session = conversation_in(places)
    shown = run("sessions", "show", session).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "before 2 more turns; `sessions history` shows them" in lines
    assert "done answer 3" in lines
    assert "working half an ans [so far]" in lines
    assert any(line.startswith("queued ") and line.endswith(": and this") for line in lines)
    assert "question 1" not in shown
    assert "\x1b" not in shown
    told = run("sessions", "show", session, "--output", "json").json
    assert [it["status"] for it in told["conversation"]] == ["done", "done", "working"]
    assert (told["conversation"][-1]["partial"], told["conversation"][-1]["messages"]) == ("half an ans", [])
    assert [it["text"] for it in told["queue"]] == ["and this"]


@covers("cli.conversation")
def test_what_was_said_is_printed_as_text(run: Run, places: Places) -> None:
    session = conversation_in(places)
    said = run("sessions", "history", session).out
    assert [line.partition(": ")[2] for line in said.splitlines()][:2] == ["question 0\\x1b[2J", "answer 0"]
    assert said.splitlines()[-1].endswith("and this [queued]")
    assert "agent: half an ans [so far]" in said
    last = run("sessions", "history", session, "-n", "1")
    assert last.out.splitlines()[0].startswith("… ")
    assert len(last.out.splitlines()) == 2
    told = run("sessions", "history", session, "--output", "json").json
    assert told[1] == {"by": None, "text": "answer 0", "end": ""}
    fork = run("sessions", "fork", session).out.strip()
    assert run("sessions", "history", fork, "--output", "json").json[1] == told[1], "what was said before the fork is part of it"


@covers("cli.conversation")
def test_a_session_in_which_nothing_was_said_has_no_history(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace)
    said = run("sessions", "history", session)
    assert (said.code, said.out, said.err) == (0, "", "nothing was said yet\n")
    assert run("audit", "tail", session).err == f"nothing was judged, asked or done in {session} yet\n"


def test_a_session_gets_another_name(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace)
    assert run("sessions", "rename", session, "night \x1b[2J shift").code == 0
    assert run("sessions", "list", "--output", "json").json[0]["name"] == "night \x1b[2J shift"
    assert "\x1b" not in run("sessions", "list").out + run("sessions", "show", session).out
    assert run("sessions", "rename", session, " ").code == 1


def test_the_session_in_which_something_happened_last_is_listed_first(run: Run, places: Places) -> None:
    first, _ = session_in(places.workspace)
    second, _ = session_in(places.workspace)
    assert [row["id"] for row in run("sessions", "list", "--output", "json").json] == [second, first]
    assert run("sessions", "rename", first, "the busy one").code == 0
    assert [row["id"] for row in run("sessions", "list", "--output", "json").json] == [first, second]


def test_a_directory_that_cannot_be_a_workspace_leaves_nothing_behind(places: Places) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            with pytest.raises(CommandRefused, match="cannot be a workspace"):
                await open_new(wired.sessions, SessionSpec("demo", places.home.parent), local_user())

    asyncio.run(story())
    assert list((places.home / "sessions").iterdir()) == []


@covers("session.closed-can-be-reopened")
def test_sessions_are_closed_unless_something_is_open_in_them(run: Run, places: Places) -> None:
    idle, _ = session_in(places.workspace)
    asks, _ = session_in(places.workspace, OUTSIDE)
    closed = run("sessions", "close", idle, asks, "--reason", "tidying up", "--output", "json")
    assert (closed.code, closed.json["closed"], [it["session"] for it in closed.json["kept"]]) == (1, [idle], [asks])
    assert "1 ask waits for an answer" in closed.json["kept"][0]["why"]
    assert run("sessions", "show", idle, "--output", "json").json["closed"] == "tidying up"
    assert "closed: tidying up" in run("sessions", "show", idle).out
    assert run("sessions", "close", asks, "--force").code == 0
    assert {row["status"] for row in run("sessions", "list", "--output", "json").json} == {"closed"}


def test_an_export_holds_the_logged_bytes_and_replays(run: Run, places: Places, tmp_path: Path) -> None:
    session, _ = session_in(places.workspace, OUTSIDE, read("a"))
    file = tmp_path / "export.jsonl"
    assert run("sessions", "export", session, "--to", file).code == 0
    assert run("sessions", "export", session, "--to", file).code == 1
    assert run("sessions", "export", session).out == file.read_text()
    assert len(run("sessions", "export", session, "--output", "json").json["entries"]) == len(file.read_text().splitlines())
    for what in (session, file):
        told = run("sessions", "replay", what, "--output", "json")
        assert (told.code, told.json["violations"], told.json["status"]) == (0, [], "waiting")


def test_a_torn_export_is_read_up_to_the_tear(run: Run, places: Places, tmp_path: Path) -> None:
    session, _ = session_in(places.workspace, OUTSIDE)
    text = run("sessions", "export", session).out
    entries = read_export(text).entries
    assert "".join(f"{line}\n" for line in export_lines(entries)) == text
    (tmp_path / "torn").write_text(text[:-20])
    said = run("sessions", "replay", tmp_path / "torn", "--output", "json")
    assert said.json["entries"] == len(entries) - 1
    assert "torn" in said.err
    assert said.json["torn"] is True
    with pytest.raises(Broken, match="line 1"):
        read_export("{}\n" + text)


def test_an_export_without_a_whole_entry_is_no_sound_session(run: Run, places: Places, tmp_path: Path) -> None:
    session, _ = session_in(places.workspace)
    (tmp_path / "cut").write_text(run("sessions", "export", session).out[:50])
    said = run("sessions", "replay", tmp_path / "cut")
    assert (said.code, said.out) == (1, "")
    assert "holds no whole entry" in said.err
    assert "no such file" in run("sessions", "replay", tmp_path / "gone.jsonl").err
    (tmp_path / "notes").write_text("milk\n")
    said = run("sessions", "replay", tmp_path / "notes")
    assert f"`{tmp_path / 'notes'}`: line 1 is no entry that `curtainwall sessions export` wrote: " in said.err


def test_a_replay_names_what_is_broken(run: Run, places: Places, tmp_path: Path) -> None:
    session, _ = session_in(places.workspace, read("a"))
    lines = run("sessions", "export", session).out.splitlines()
    without_request = [line for line in lines if '"type":"CallRequested"' not in line]
    (tmp_path / "cut").write_text("\n".join(without_request) + "\n")
    said = run("sessions", "replay", tmp_path / "cut", "--output", "json")
    assert said.code == 1
    assert any("before it was requested" in it["what"] for it in said.json["violations"])
    (tmp_path / "newer").write_text("\n".join(lines).replace("SessionReady", "SessionTeleported") + "\n")
    assert "does not know: upgrade it" in run("sessions", "replay", tmp_path / "newer").err


@pytest.mark.parametrize("how", ["edited", "removed", "exchanged"])
def test_a_replay_of_an_export_holds_every_entry_to_its_hash(run: Run, places: Places, tmp_path: Path, how: str) -> None:
    session, _ = session_in(places.workspace, read("a"), read("b"))
    lines = run("sessions", "export", session).out.splitlines()
    place = next(place for place, line in enumerate(lines) if '"type":"CallFinished"' in line)
    match how:
        case "edited":
            lines[place] = lines[place].replace('"at":', '"at": ', 1)
        case "removed":
            del lines[place]
        case _:
            lines[place], lines[place + 1] = lines[place + 1], lines[place]
    (tmp_path / "changed").write_text("\n".join(lines) + "\n")
    said = run("sessions", "replay", tmp_path / "changed", "--output", "json")
    assert said.code == 1
    assert any("does not fit its hash" in it["what"] for it in said.json["violations"])


def test_a_fork_takes_history_and_labels_and_leaves_grants_and_modes(run: Run, places: Places) -> None:
    (places.workspace / "notes").write_text("hello")
    (places.workspace / "sub").mkdir()
    (places.workspace / "sub" / "link").symlink_to("/etc/passwd")
    session, _ = session_in(places.workspace, OUTSIDE, mode=Mode.ACCEPT_EDITS, labels=("sensitive",))
    approval = run("approvals", "list", "--output", "json").json[0]["id"]
    run("approve", approval, "--for", "session")
    told = run("sessions", "fork", session, "--output", "json")
    forked = run("sessions", "show", told.json["session"], "--output", "json").json
    assert (forked["parent"], forked["labels"], forked["mode"], forked["own_workspace"]) == (session, ["sensitive"], "default", True)
    assert "mode `accept-edits` was not taken over" in told.err
    copy = Path(forked["workspace"])
    assert copy == places.home / "sessions" / forked["id"] / "workspace"
    assert (copy / "notes").read_text() == "hello"
    assert os.readlink(copy / "sub" / "link") == "/etc/passwd"
    assert [row["stream"] for row in run("grants", "list", "--output", "json").json] == [f"session:{session}"]
    assert run("sessions", "replay", forked["id"]).code == 0
    history = next(line for line in run("sessions", "export", forked["id"]).out.splitlines() if "HistoryInherited" in line)
    blob = json.loads(history)["event"]["history"]["digest"]
    assert [it["type"] for it in json.loads((places.home / "blobs" / blob[:2] / blob).read_text())] == ["CallRequested"]


@covers("sessions.a-past-comes-whole")
@pytest.mark.parametrize("how", [fork, reset])
def test_a_session_with_a_past_is_opened_in_one_commit(
    places: Places, how: Callable[[Sessions, SessionId, Who], Awaitable[object]]
) -> None:
    """Killed between two commits, it would be completed without its past by whoever comes next."""
    written: list[set[str]] = []

    class Recording(MemoryLog):
        async def append(self, batch: Batch) -> Mapping[StreamId, int]:
            written.append({type(event).__name__ for write in batch.writes for event in write.events})
            return await super().append(batch)

    async def story() -> None:
        store = MemoryStore(SystemClock())
        store.log = Recording(store.disk)
        async with open_gate(load_setup(), parts=Parts(store=store)) as wired:
            session = await opened(wired, places.workspace)
            written.clear()
            await how(wired.sessions, session, local_user())

    asyncio.run(story())
    assert [each for each in written if each] == [{"SessionOpened", "HistoryInherited", "SessionReady"}]


def test_a_fork_has_every_label_that_its_parent_got_while_it_was_copied(places: Places) -> None:
    """What the parent has written by then is in the copy."""
    for number in range(3_000):
        (places.workspace / str(number)).touch()

    async def story() -> None:
        async with open_gate(load_setup(), parts=Parts(store=MemoryStore(SystemClock()))) as wired:
            parent = await opened(wired, places.workspace)
            forking = asyncio.create_task(fork(wired.sessions, parent, local_user()))
            await asyncio.sleep(0)
            await wired.registry.send(parent, AddLabels(by=SYSTEM, labels=(LabelSource(label=Label("sensitive"), origin="/etc/x"),)))
            assert Label("sensitive") in wired.sessions.state((await forking).session).labels

    asyncio.run(story())


def test_a_copy_takes_no_more_room_than_what_was_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    with (source / "hole").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 40)
        file.write(b"end")
    (source / "data").write_bytes(os.urandom(300_000))
    for number in range(50):
        os.link(source / "data", source / f"again{number}")
    assert copy_tree(source, target).files == 52
    assert (target / "hole").stat().st_size == (1 << 40) + 3
    assert sum({entry.stat().st_ino: entry.stat().st_blocks for entry in os.scandir(target)}.values()) * 512 < 1_000_000
    with (target / "hole").open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(1 << 40)
        assert file.read() == b"end"
    assert (target / "again7").read_bytes() == (source / "data").read_bytes()


@pytest.fixture
def deep(places: Places) -> Iterator[Path]:
    """A workspace deeper than a path can be."""
    here = os.open(places.workspace, os.O_RDONLY)
    for _ in range(2_500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0o500)
        os.close(here)
        here = below
    os.close(here)
    os.chmod(places.workspace, 0o700)
    yield places.workspace
    # Not even the directories of tests could be removed with it.
    subprocess.run(["chmod", "-R", "u+w", places.workspace], check=False)
    subprocess.run(["rm", "-rf", places.workspace, places.home], check=False)


def test_no_depth_keeps_a_directory_from_being_removed(deep: Path) -> None:
    remove_tree(deep)
    assert not deep.exists()


def test_a_fork_that_cannot_be_made_leaves_nothing_behind(run: Run, places: Places, deep: Path) -> None:
    session, _ = session_in(deep)
    said = run("sessions", "fork", session)
    assert (said.code, "nested too deeply" in said.err) == (1, True)
    assert os.listdir(places.home / "sessions") == [session]


def test_a_fork_shares_a_project_and_says_so(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, own=False, mode=Mode.PLAN)
    said = run("sessions", "fork", session, "--name", "second", "--output", "json")
    assert said.json["workspace"] == str(places.workspace)
    assert said.json["mode"] == "plan"
    assert "both sessions work in the project" in said.err


def test_a_session_with_open_approvals_is_never_deleted(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace, OUTSIDE)
    said = run("sessions", "delete", session, "--yes")
    assert said.code == 1
    assert "has 1 open approval; answer" in said.err
    assert run("sessions", "clean", "--older-than", "0s", "--yes", "--output", "json").json["kept"] == [
        {"session": session, "why": "it has 1 open approval"}
    ]
    assert len(run("sessions", "list", "--output", "json").json) == 1


def test_deleting_needs_a_yes_and_the_whole_id(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace)
    assert run("sessions", "delete", session).code == 2
    assert "give the whole of it" in run("sessions", "delete", session[:10], "--yes").err
    directory = places.home / "sessions" / session
    assert directory.is_dir()
    assert run("sessions", "delete", session, "--yes").code == 0
    assert run("sessions", "list", "--output", "json").json == []
    assert not directory.exists()
    assert run("audit", "verify").code == 0, "the house's own log says that it was deleted on purpose"


@pytest.mark.parametrize(
    ("status", "stands", "told"),
    [
        (TurnStatus.DONE, "ready", "ready"),
        (TurnStatus.FAILED, "failed", "ready, the last turn failed"),
        (TurnStatus.INTERRUPTED, "interrupted", "ready, the last turn was interrupted"),
    ],
)
def test_a_turn_that_failed_or_was_interrupted_is_told_from_one_that_is_done(
    run: Run, places: Places, status: TurnStatus, stands: str, told: str
) -> None:
    async def work() -> SessionId:
        async with open_gate(load_setup()) as wired:
            session, turn = await opened(wired, places.workspace), TurnId("t1")
            await wired.registry.send(session, SendMessage(by=local_user(), message=MessageId("m1"), text="go on"))
            await wired.registry.send(session, StartTurn(by=SYSTEM, turn=turn))
            await wired.registry.send(session, EndTurn(by=SYSTEM, turn=turn, status=status))
            return session

    session = asyncio.run(asyncio.wait_for(work(), 60))
    listed = run("sessions", "list", "--status", "ready")
    assert listed.out.splitlines()[1].split()[:2] == [session, stands]
    assert ("says why a turn failed" in listed.err) == (stands == "failed")
    (row,) = run("sessions", "list", "--output", "json").json
    assert (row["status"], row["last_turn"]) == ("ready", status.value)
    assert f"status     {told}\n" in run("sessions", "show", session).out
    found = {word: run("sessions", "list", "--status", word, "--output", "json").json for word in ("ready", "failed", "interrupted")}
    assert [word for word, rows in found.items() if rows] == list(dict.fromkeys(("ready", stands)))


def test_a_turn_that_nobody_works_on_is_told_with_what_to_do(run: Run, places: Places) -> None:
    session = conversation_in(places)
    shown = run("sessions", "show", session).out
    assert f"working, but no process works on it now; `curtainwall start --resume {session}` goes on" in shown
    assert f"no process works on {session} now" in run("sessions", "list").err

    async def looked_at() -> tuple[Said, Said]:
        async with open_gate(load_setup()) as wired, wired.registry.hold(session):
            return run("sessions", "show", session), run("sessions", "list")

    held, listed = asyncio.run(asyncio.wait_for(looked_at(), 60))
    assert f"working, process {os.getpid()}" in held.out
    assert listed.err == ""


def test_cleaning_says_first_what_would_go(run: Run, places: Places) -> None:
    session, _ = session_in(places.workspace)
    assert run("sessions", "clean", "--output", "json").json == {"would_delete": [], "kept": []}
    end = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 <= end:
        pass
    assert run("sessions", "clean", "--older-than", "0s", "--dry-run", "--output", "json").json["would_delete"] == [session]
    assert run("sessions", "clean", "--older-than", "0s", "--yes", "--output", "json").json["deleted"] == [session]


@covers("sessions.a-deletion-is-completed")
def test_what_a_deletion_that_was_killed_left_behind_goes_with_the_next_cleaning(run: Run, places: Places) -> None:
    gone, kept = session_in(places.workspace)[0], session_in(places.workspace)[0]
    sockets = places.home / "run" / gone
    sockets.mkdir(parents=True)

    async def killed_behind_the_log() -> None:
        async with open_gate(load_setup()) as wired:
            await wired.registry.delete(gone, local_user())

    asyncio.run(killed_behind_the_log())
    snapshots = [places.home / "cache" / name for name in (gone, f".{gone}.1.1")]
    for path in snapshots:
        path.write_bytes(b"left behind")
    assert (places.home / "sessions" / gone).is_dir()
    run("sessions", "clean", "--dry-run")
    assert (places.home / "sessions" / gone).is_dir(), "only said"
    assert "removed the files of 1 session whose deletion had been cut off" in run("sessions", "clean").err
    assert not (places.home / "sessions" / gone).exists()
    assert not sockets.exists()
    assert not any(path.exists() for path in snapshots)
    assert (places.home / "sessions" / kept).is_dir()
    assert "removed" not in run("sessions", "clean").err


def test_a_session_in_use_stays(run: Run, places: Places) -> None:
    async def work() -> SessionId:
        async with open_gate(load_setup()) as wired:
            session = await opened(wired, places.workspace)
            async with wired.registry.hold(session):
                said = await asyncio.to_thread(run, "sessions", "delete", session, "--yes")
                assert said.code == 1
                assert "is in use by process" in said.err
                assert wired.store.log.head(session_stream(session)) == 2
            return session

    asyncio.run(work())


def test_a_tree_is_copied_without_what_does_not_belong_in_a_copy(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "run.sh").write_text("#!/bin/sh\n")
    (source / "deep" / "er" / "run.sh").chmod(0o4755)
    (source / "out").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    target.mkdir()
    done = copy_tree(source, target)
    assert (done.files, done.skipped) == (1, 1)
    assert (target / "deep" / "er" / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert os.readlink(target / "out") == "/etc"
    assert not (target / "pipe").exists()


def test_what_two_remove_at_once_is_gone_for_both(tmp_path: Path) -> None:
    for each in range(400):
        (tmp_path / "gone" / f"{each // 10}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "gone" / f"{each // 10}" / f"{each}").write_text("x")
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(remove_tree, tmp_path / "gone") for _ in range(2)]:
            done.result(60)
    assert not (tmp_path / "gone").exists()


def test_removing_follows_no_link_and_opens_closed_directories(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "gone" / "closed").mkdir(parents=True)
    (tmp_path / "gone" / "closed" / "file").write_text("x")
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "gone" / "closed").chmod(0)
    remove_tree(tmp_path / "gone")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").exists()
