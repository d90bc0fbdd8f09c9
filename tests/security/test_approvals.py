"""Answers that would count for something else: changed subjects, other scopes, late ones, replays; and cards that lie."""

import io
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.channels.asks.cards import card_lines, whole_card
from curtainwall.channels.terminal.output import OutputStream
from curtainwall.channels.terminal.renderer import Renderer
from curtainwall.cli import asks as cards
from curtainwall.model import (
    AlreadyAnswered,
    AnswerApproval,
    ApprovalAsked,
    ApprovalId,
    CallDenied,
    CallDropped,
    CallId,
    CallPermitted,
    CallRequest,
    CallRequested,
    GrantGiven,
    GrantScope,
    LabelsAdded,
    NotAllowed,
    NotFound,
    PendingAsk,
    Subject,
)
from curtainwall.policy import judge
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import Rules, card_text, covers_of, inert
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    BOB,
    NOW,
    POLICY,
    SENSITIVE,
    answer,
    asked,
    changed,
    fetch,
    finished,
    given,
    move,
    proceed,
    raise_of,
    read,
    ready,
    source,
    wish,
    write,
)  # fmt: skip
from tests.support.houses import FarSide, house, open_session, policy, run, tools
from tests.support.in_process import Places, Said, session_in
from tests.support.stores import NOON

Run = Callable[..., Said]


def test_an_answer_for_a_subject_that_means_something_else_by_now_permits_nothing() -> None:
    ask = wish("c1", write("/etc/x"))
    given(ready(), asked(ask), answer(ask)).when(proceed(ask, changed(ask.subject))).then(CallDropped)


def test_a_link_that_is_turned_while_the_human_thinks_is_asked_anew(tmp_path: Path) -> None:
    workspace = tmp_path.resolve() / "W"
    workspace.mkdir()
    (workspace / "link").symlink_to("/etc/hosts")

    async def work() -> None:
        far = FarSide(tmp_path / "far")
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, workspace)
            gate = SessionGate(opened, tools(far))
            wanted = CallRequest(tool="filesystem.write_file", arguments={"path": "link", "content": "x"})
            assert (await gate.request(session, wanted, wait=False)).waiting
            async with opened.hold(session) as actor:
                (approval,) = actor.state.approvals
                os.unlink(workspace / "link")
                (workspace / "link").symlink_to("/etc/passwd")
                await opened.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
                (told,) = await gate.resume_answered(session)
                assert told.waiting
                assert far.lines == []
                (asked_anew,) = actor.state.approvals.values()
                assert [cover.value for cover in asked_anew.asked.covers] == ["/etc/passwd"]

    run(work())


def test_a_label_that_came_while_the_human_thought_is_asked_about() -> None:
    ask = wish("c1", fetch("evil.org"))
    labelled = LabelsAdded(at=NOW, labels=(source(SENSITIVE),))
    given(ready(), asked(ask), answer(ask), labelled).when(proceed(ask)).then(ApprovalAsked)


def test_a_grant_from_before_a_label_does_not_answer_the_rule_that_the_label_woke() -> None:
    first, second = wish("c1", fetch("evil.org")), wish("c2", fetch("evil.org", "/other"))
    before = given(ready(), asked(first), answer(first, scope=GrantScope.SESSION), proceed(first), finished(first))
    before.when(asked(second)).then(CallRequested, CallPermitted)
    before.happened(LabelsAdded(at=NOW, labels=(source(SENSITIVE),))).when(asked(second)).then(CallRequested, ApprovalAsked)


def test_a_grant_for_reading_alone_does_not_answer_a_move() -> None:
    first, second = wish("c1", read("/etc/a")), wish("c2", move("/etc/a", "/srv/own/a"))
    given(ready(), asked(first), answer(first, scope=GrantScope.SESSION)).when(asked(second)).then(CallRequested, ApprovalAsked)


@pytest.mark.parametrize(
    ("granted", "wanted"),
    [
        ("filesystem.list_directory", "git.show"),
        ("filesystem.list_directory", "filesystem.directory_tree"),
        ("filesystem.list_directory", "filesystem.search_files"),
        ("filesystem.create_directory", "git.checkout"),
    ],
)
def test_a_grant_for_a_directory_does_not_answer_a_call_about_all_beneath_it(tmp_path: Path, granted: str, wanted: str) -> None:
    outside, workspace, far = tmp_path.resolve() / "O", tmp_path.resolve() / "W", FarSide(tmp_path / "far")
    (outside / ".git").mkdir(parents=True)
    workspace.mkdir()
    more: dict[str, dict[str, JsonValue]] = {
        "git.show": {"ref": "HEAD"},
        "git.checkout": {"ref": "old"},
        "filesystem.search_files": {"pattern": "*"},
    }

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, workspace)
            gate = SessionGate(opened, tools(far))
            told: list[str] = []
            for tool in (granted, granted, wanted, wanted):
                request = CallRequest(tool=tool, arguments={"path": str(outside), **more.get(tool, {})})
                if (await gate.request(session, request, wait=False)).waiting:
                    async with opened.hold(session) as actor:
                        ((approval, open_),) = actor.state.approvals.items()
                        told += [cover.value for cover in open_.asked.covers]
                        await opened.send(session, AnswerApproval(by=ANN, approval=approval, granted=True, scope=GrantScope.SESSION))
                        await gate.resume_answered(session)
            # Each is asked about once, by what it touches, and answered from then on.
            assert told == [str(outside), f"{outside}/**"]
            assert len(far.lines) == 4

    run(work())


@covers("approvals.a-yes-to-a-command-is-for-what-was-shown")
@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
def test_a_grant_for_a_command_does_not_answer_the_same_words_where_they_run_something_else(tmp_path: Path, scope: GrantScope) -> None:
    workspace, far = tmp_path.resolve() / "W", FarSide(tmp_path / "far")
    (workspace / "a").mkdir(parents=True)
    (workspace / "b").mkdir()
    rules = Rules(policy=policy('@id("ask") forbid(principal, action == Action::"run-command", resource) unless { context.approved };'))
    shown, others = ("./deploy.sh", "a"), [("./deploy.sh", "b"), ("cd ../b && ./deploy.sh", "a"), ("PATH=. ./deploy.sh", "a")]

    async def work() -> None:
        async with house(MemoryStore(SystemClock()), rules) as opened:
            session = await open_session(opened, workspace)
            gate = SessionGate(opened, tools(far))

            async def waits(command: str, cwd: str) -> bool:
                request = CallRequest(tool="shell.run", arguments={"command": command, "cwd": cwd})
                return (await gate.request(session, request, wait=False)).waiting

            assert await waits(*shown)
            async with opened.hold(session) as actor:
                (approval,) = actor.state.approvals
                await opened.send(session, AnswerApproval(by=ANN, approval=approval, granted=True, scope=scope))
                await gate.resume_answered(session)
            assert [await waits(*again) for again in (shown, shown)] == [False, False]
            assert [await waits(*other) for other in others] == [True, True, True]
            assert len(far.lines) == 3

    run(work())


def test_a_file_that_is_named_like_a_whole_directory_is_not_granted_as_one(tmp_path: Path) -> None:
    outside, workspace = tmp_path.resolve() / "O", tmp_path.resolve() / "W"
    outside.mkdir()
    workspace.mkdir()

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, workspace)
            gate = SessionGate(opened, tools(FarSide(tmp_path / "far")))
            for tool, path in (("filesystem.read_file", f"{outside}/**"), ("filesystem.directory_tree", str(outside))):
                assert (await gate.request(session, CallRequest(tool=tool, arguments={"path": path}), wait=False)).waiting
            async with opened.hold(session) as actor:
                asked = [cover.value for it in actor.state.approvals.values() for cover in it.asked.covers]
            assert asked == [f"{outside}/./**", f"{outside}/**"]

    run(work())


def test_two_grants_that_cover_one_half_each_do_not_add_up() -> None:
    one, two, both = wish("c1", read("/etc/a")), wish("c2", read("/etc/b")), wish("c3", read("/etc/a", "/etc/b"))
    halves = given(ready(), asked(one), answer(one, scope=GrantScope.SESSION), asked(two), answer(two, scope=GrantScope.SESSION))
    halves.when(asked(both)).then(CallRequested, ApprovalAsked)


def test_an_answer_counts_once_and_a_second_one_is_told_who_was_first() -> None:
    ask = wish("c1", read("/etc/a"))
    settled = given(ready(), asked(ask), answer(ask, granted=False, by=BOB))
    settled.when(answer(ask)).then_refused("already answered by `bob`", AlreadyAnswered)
    settled.when(proceed(ask)).then_refused("no open call", NotFound)


def test_one_yes_runs_one_call_and_not_the_next_of_the_same_words() -> None:
    first, second = wish("c1", read("/etc/a")), wish("c2", read("/etc/a"))
    done = given(ready(), asked(first), answer(first), proceed(first), finished(first))
    done.when(proceed(first)).then_refused("no open call", NotFound)
    done.when(asked(second)).then(CallRequested, ApprovalAsked)


def test_an_answer_after_the_deadline_is_too_late_even_if_nobody_said_so_yet() -> None:
    ask = wish("c1", read("/etc/a"))
    given(ready()).under(deadline=1000).happened(asked(ask)).later(1000).when(answer(ask)).then_refused("too late", AlreadyAnswered)


def test_nothing_answers_a_deny() -> None:
    ask = wish("c1", read("/home/ann/.ssh/id_rsa"))
    given(ready()).when(asked(ask)).then(CallRequested, CallDenied)


def test_a_budget_is_never_granted_for_longer() -> None:
    ask = wish("c1", raise_of("tokens", 1))
    given(ready(), asked(ask)).when(answer(ask, scope=GrantScope.SESSION)).then_refused("once at a time", NotAllowed)


def test_what_was_too_long_to_be_shown_is_granted_once_alone() -> None:
    ask = wish("c1", read(*(f"/etc/{number}/{'x' * 200}" for number in range(100))))
    asking = given(ready(), asked(ask))
    asking.when(answer(ask, scope=GrantScope.SESSION)).then_refused("granted once alone", NotAllowed)
    assert not any(isinstance(event, GrantGiven) for event in asking.when(answer(ask)).events)


SPOOFS = [
    "\x1b[2J\x1b[1;1Htool: harmless", "a\rtool: harmless", "a\ntool: harmless", "a\u2028tool", "a\u0085b", "\u202egnp.exe",
    "a\u2066b\u2069", "a\u200bb", "\u3164", "\u2800", "a" + "\u0336" * 50, "\x9b31m", "a\x08\x08b", "\x07", "\ufeff", "\U000e0041",
    "a\ufe0fb", "\x1b]8;;http://evil\x07",
]  # fmt: skip


class Screen(io.StringIO):
    """A terminal that remembers what it was told."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [40, 80, 97, 200])
@pytest.mark.parametrize("blanks", [0, 1, 33, 60, 90])
def test_no_words_of_a_value_pass_for_a_line_of_the_card(monkeypatch: pytest.MonkeyPatch, width: int, blanks: int) -> None:
    forged = f"notes{'s' * 30}{' ' * blanks} wants read-path README{' ' * blanks} because ann said yes before"
    subject = write(f"/etc/{forged}")
    verdict = judge(POLICY, subject, given(ready()).state.facts)
    shown = card_text(subject, covers_of(verdict, subject), verdict.reason, {})
    ask = _pending(subject).model_copy(update={"shown": shown})
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", Screen())
    colours = re.compile("\x1b\\[[0-9;]*m")
    printed = Screen()
    OutputStream(printed).card(ask, "the agent asks")
    one_task = re.sub("\x1b\\[\\?7[hl]", "", printed.getvalue())
    conversation = colours.sub("", Renderer(width, True).card(card_lines(ask))).splitlines()
    for rows in (
        [row.removeprefix("┃ ") for row in conversation],
        [row.removeprefix("┃ ") for row in one_task.splitlines()],
        [row.removeprefix("  ") for row in cards.card(shown, 2).splitlines()],
        cards.card_text(line.text for line in whole_card(ask)).splitlines(),
        colours.sub("", "".join(Renderer(width, True).rows(line) for line in shown.split("\n"))).splitlines(),
    ):
        assert max(map(len, rows)) <= width
        assert [row.split(" ", 1)[0] for row in rows if row.startswith(("wants", "because", "tool:"))] == ["tool:", "wants", "because"]


@pytest.mark.parametrize("spoof", SPOOFS, ids=ascii)
def test_what_an_agent_wrote_stays_one_visible_line_of_a_card(spoof: str) -> None:
    subject = write(f"/etc/{spoof}", content=spoof)
    verdict = judge(POLICY, subject, given(ready()).state.facts)
    shown = card_text(subject, covers_of(verdict, subject), verdict.reason, {})
    lines = shown.split("\n")
    assert [line for line in lines if line.startswith("tool:")] == ["tool: filesystem.write_file"]
    assert shown.replace("\n", "").isprintable()
    assert "\u202e" not in shown
    assert inert(spoof).count("\u0336") <= 3


@pytest.mark.parametrize("spoof", ["\x1b[2J", "a\ntool: harmless", "\u202egnp.exe"], ids=ascii)
def test_the_screen_shows_hostile_words_inert(places: Places, run: Run, spoof: str) -> None:
    session, _ = session_in(places.workspace, CallRequest(tool="filesystem.read_file", arguments={"path": f"/etc/{spoof}"}))
    for words in (("approvals", "list"), ("sessions", "show", session), ("audit", "tail", session)):
        said = run(*words)
        assert "\x1b" not in said.out
        assert "\u202e" not in said.out or words[0] == "audit"
        assert not any(line.strip() == "tool: harmless" for line in said.out.splitlines())


@pytest.mark.parametrize(
    "edits",
    [
        [("\n".join(f"a{n:03}b" for n in range(400)), "\n".join(f"a{n:03}c" for n in range(400)))],
        [("\n".join(f"a{n:03}b" for n in range(100)), "\n".join(f"a{n:03}c" for n in range(100)))] * 50,
        [("a\n" * 100_000, "a\nb\n" * 100_000)],
        [("é" * 3_000_000, "\u202e" * 3_000_000)],
    ],
    ids=["similar", "many", "repeated", "one line"],
)
def test_a_card_is_drawn_at_once_whatever_an_agent_would_change(edits: list[tuple[str, str]]) -> None:
    arguments: dict[str, JsonValue] = {"path": "/a", "edits": [{"oldText": old, "newText": new} for old, new in edits]}
    changed = write("/a").model_copy(update={"tool": "filesystem.edit_file", "raw": arguments, "canonical": arguments})
    begun = time.process_time()
    card = card_lines(_pending(changed))
    assert time.process_time() - begun < 2
    assert len(card) < 80
    assert card[-1].kind == "added"


def _pending(subject: Subject) -> PendingAsk:
    return PendingAsk(
        approval=ApprovalId("abc123"), call=CallId("c1"), subject=subject, because=(), shown="", asked=NOW, deadline=NOON, shared_by=1
    )
