"""An agent that wants to answer for itself: by files, by a workspace in the wrong place, by another's name."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.channels.ask_files import Response, read_response
from curtainwall.compose.ask_files import ask_files_of
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.compose.trial import workspace_for
from curtainwall.config.loader import parse_config
from curtainwall.model import AnswerApproval, ApprovalId, CommandRefused, NotAllowed, Role, Who, Workspace, session_stream
from curtainwall.session import Rules
from tests.support.given import EVE, RULES, answer, asked, given, read, ready, wish
from tests.support.houses import read as reading
from tests.support.in_process import Places, Said, opened, session_in

Run = Callable[..., Said]


@pytest.mark.parametrize("inside", ["", "escalations", "state", "orientation", "escalations/x"])
def test_a_session_directory_beside_its_workspace_is_no_workspace(places: Places, inside: str) -> None:
    session, _ = session_in(places.workspace)
    with pytest.raises(CommandRefused, match="protected path"):
        load_setup().workspace_at(places.home / "sessions" / session / inside, own=True)


def test_the_own_workspace_of_a_session_still_is_one(places: Places) -> None:
    session, _ = session_in(places.workspace)
    place = places.home / "sessions" / session / "workspace"
    assert load_setup().workspace_at(place, own=True) == Workspace(path=str(place), own=True)


@pytest.mark.parametrize("where", ["", "sessions", "run/watch", "policy", "cache"])
def test_our_home_is_no_workspace_by_any_way(places: Places, where: str) -> None:
    session_in(places.workspace)
    link = places.workspace / "link"
    link.symlink_to(places.home / where)
    for path in (places.home / where, link, places.workspace / ".." / "cw" / where):
        for own in (True, False):
            with pytest.raises(CommandRefused, match="protected path"):
                load_setup().workspace_at(path, own=own)


def test_an_agent_cannot_write_its_own_answer(places: Places) -> None:
    session, _ = session_in(places.workspace)
    protection = load_setup().policy.protection
    own = Workspace(path=str(places.home / "sessions" / session / "workspace"), own=True)
    others = ("../../curtainwall.db", "../../run/watch/x", "../../keys/audit.key", f"../../cache/{session}")
    for name in ("escalations/response-abc.json", "audit.jsonl", *others):
        path = os.path.normpath(f"{places.home}/sessions/{session}/{name}")
        for role in (Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH):
            assert protection.stops(role, path, own), (role, path)
    assert not protection.stops(Role.WRITE_PATH, f"{own.path}/x", own)
    assert protection.stops(Role.DELETE_PATH, str(Path(own.path).parent), own)


def test_the_link_that_leads_to_our_home_is_protected(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    link = places.workspace / "home"
    link.symlink_to(places.home)
    monkeypatch.setenv("CURTAINWALL_HOME", str(link))
    setup = load_setup()
    assert setup.home.root == places.home
    assert setup.policy.protection.stops(Role.DELETE_PATH, str(link), Workspace(path=str(places.user), own=True))
    with pytest.raises(CommandRefused, match="protected path"):
        setup.workspace_at(places.workspace, own=False)


@pytest.mark.parametrize("name", ["config.toml", "policy/mine.cedar"])
def test_what_config_and_rule_files_link_to_is_protected(places: Places, name: str) -> None:
    dotfiles = places.user / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "file").write_text("")
    (places.home / "policy").mkdir(parents=True)
    (places.home / name).symlink_to(dotfiles / "file")
    setup = load_setup()
    assert setup.policy.protection.stops(Role.WRITE_PATH, str(dotfiles / "file"), Workspace(path=str(places.workspace), own=True))
    with pytest.raises(CommandRefused, match="protected path"):
        setup.workspace_at(dotfiles, own=True)


_JOB = '[cron.nightly]\nschedule = "0 3 * * *"\ninstructions = "go"\n'
_TEAM = '[teams.backend]\nproject = "/srv/backend"\ndescription = "d"\n'
_FORBID = '@id("none") forbid (principal, action, resource);'


@pytest.mark.parametrize(
    ("config", "content"),
    [
        ("", _FORBID),
        (f'{_JOB}policy = "NAMED"', _FORBID),
        (f'{_TEAM}policy = "NAMED"', _FORBID),
        ('[hooks]\nfile = "NAMED"', "{}"),
        ('[notify]\nurl = "https://ntfy.example.org/x"\ntoken-file = "NAMED"', "secret"),
        ('[webhooks.hooks.x]\nsecret-file = "NAMED"\nprompt = "p"', "s" * 40),
        ('[approvals]\napprover = ["python3", "NAMED"]', "print('{}')"),
    ],
    ids=["house", "job", "team", "hooks", "token", "webhook", "approver"],
)
@pytest.mark.parametrize("way", ["a file", "a directory", "a directory that is left again"])
def test_every_link_on_the_way_to_what_is_ours_is_protected(places: Places, config: str, content: str, way: str) -> None:
    safe, middle, elsewhere = places.user / "safe", places.workspace / "rules", Workspace(path=str(places.user), own=True)
    safe.mkdir()
    middle.mkdir()
    (safe / "v3.cedar").write_text(content)
    (places.home / "policy").mkdir(parents=True)
    if way == "a file":
        turn = middle / "current.cedar"
        turn.symlink_to(safe / "v3.cedar")
        through = turn
    elif way == "a directory":
        turn = middle / "current"
        turn.symlink_to(safe)
        through = turn / "v3.cedar"
    else:
        turn = middle
        through = middle / ".." / ".." / "user" / "safe" / "v3.cedar"
    named = places.home / "policy" / "extra.cedar" if not config else places.user / "named"
    named.symlink_to(through)
    (places.home / "config.toml").write_text(config.replace("NAMED", str(named)))
    setup = load_setup()
    for path in (named, turn, safe / "v3.cedar"):
        assert setup.policy.protection.stops(Role.WRITE_PATH, str(path), elsewhere), path
    assert setup.policy.protection.stops(Role.DELETE_PATH, str(middle), elsewhere)
    with pytest.raises(CommandRefused, match=f"it contains or lies in the protected path `{turn}`"):
        setup.workspace_at(places.workspace, own=False)


def test_the_interpreter_of_an_approver_can_be_read_by_others_and_changed_by_nobody(places: Places) -> None:
    interpreter, script = places.user / "venv" / "bin" / "python", places.user / "approve.py"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(os.path.realpath(sys.executable))
    script.write_text("print('{}')")
    places.home.mkdir()
    (places.home / "config.toml").write_text(f'[approvals]\napprover = ["{interpreter}", "{script}"]')
    protection, elsewhere = load_setup().policy.protection, Workspace(path=str(places.workspace), own=False)
    assert not protection.stops(Role.READ_PATH, str(interpreter), elsewhere), "a tool server may use the same one"
    assert protection.stops(Role.READ_PATH, str(script), elsewhere)
    for path in (interpreter, os.path.realpath(sys.executable), script):
        assert protection.stops(Role.WRITE_PATH, str(path), elsewhere), path
    assert protection.stops(Role.DELETE_PATH, str(interpreter.parent), elsewhere)
    assert protection.conflict(Workspace(path=str(places.user / "venv"), own=False)) == str(interpreter)


def test_every_link_on_the_way_to_a_rule_file_that_is_given_is_protected_and_judging_beside_it_goes_on(places: Places) -> None:
    (places.user / "v3.cedar").write_text(_FORBID)
    (places.workspace / "current.cedar").symlink_to(places.user / "v3.cedar")
    (places.user / "given.cedar").symlink_to(places.workspace / "current.cedar")
    setup = load_setup([places.user / "given.cedar"])
    with pytest.raises(CommandRefused, match=r"protected path `\S+/W/current.cedar`"):
        setup.workspace_at(places.workspace, own=False)
    assert workspace_for(setup, None, places.workspace)[0].path == str(places.workspace)


def test_every_link_on_the_way_to_our_home_is_protected(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.home.mkdir()
    (places.workspace / "middle").symlink_to(places.home)
    (places.user / "first").symlink_to(places.workspace / "middle")
    monkeypatch.setenv("CURTAINWALL_HOME", str(places.user / "first"))
    with pytest.raises(CommandRefused, match=r"protected path `\S+/W/middle`"):
        load_setup().workspace_at(places.workspace, own=False)


@pytest.mark.parametrize("name", ["local", "runtime", "", " "])
def test_no_channel_is_named_like_the_house_itself(name: str) -> None:
    with pytest.raises(ValueError, match="taken"):
        parse_config(f'[channels."{name}"]\noperators = ["ann"]\n')


def test_nobody_is_no_operator() -> None:
    with pytest.raises(ValueError, match="operators"):
        parse_config('[channels.matrix]\noperators = [""]\n')


def test_a_stranger_in_the_room_answers_nothing() -> None:
    ask = wish("c1", read("/etc/passwd"))
    given(ready(), asked(ask)).when(answer(ask, by=EVE)).then_refused("not an operator", NotAllowed)
    assert not Rules(policy=RULES.policy).may_control(Who(name="ann", channel="nowhere"))


@pytest.mark.parametrize(
    "content",
    [
        b'{"decision":"approved","decision":"denied"}', b'{"decision":"denied","decision":"approved"}',
        b'{"decision":"Approved"}',
        b'{"decision":"approved","scope":"project"}', b'[["decision","approved"]]', b'"approved"', b"approved",
        b'{"decision":["approved"]}',
        b'\xef\xbb\xbf{"decision":"approved"}', b'{"decision":"approved"}{}', b'{"decision":"approved"}\0',
        b'{"decision":"\\u0061pproved "}',
    ],
)  # fmt: skip
def test_only_exactly_an_approval_in_a_file_is_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "response-abc.json"
    path.write_bytes(content)
    assert read_response(path) is Response.DENIED


def test_an_answer_by_link_or_by_another_file_system_entry_is_none(tmp_path: Path) -> None:
    (tmp_path / "real").write_text('{"decision":"approved"}')
    link, fifo, directory = (tmp_path / name for name in ("link", "fifo", "directory"))
    link.symlink_to(tmp_path / "real")
    os.mkfifo(fifo)
    directory.mkdir()
    assert [read_response(path) for path in (link, fifo, directory)] == [Response.DENIED] * 3


def test_a_response_that_was_there_before_the_request_answers_nothing(places: Places) -> None:
    places.home.mkdir()
    (places.home / "config.toml").write_text("[approvals]\nfiles = true\n")

    async def work() -> list[str]:
        async with open_gate(load_setup()) as wired:
            session = await opened(wired, places.workspace)
            directory = wired.setup.home.session(session).escalations
            answered = json.dumps({"decision": "approved"})
            asking = await wired.gate.request(session, reading("/etc/hosts"), wait=False)
            assert asking.waiting
            async with wired.registry.hold(session) as actor:
                (approval,) = actor.state.approvals
                (directory / f"response-{approval}.json").write_text(answered)
                async with ask_files_of(wired, session):
                    await asyncio.sleep(0.3)
            return [type(it.event).__name__ for it in wired.registry.feed.read(session_stream(session))]

    assert "ApprovalAnswered" not in asyncio.run(work())


def test_an_answer_to_an_approval_that_is_not_ours_is_refused(places: Places) -> None:
    async def work() -> None:
        async with open_gate(load_setup()) as wired:
            one, two = [await opened(wired, places.workspace) for _ in range(2)]
            await wired.gate.request(one, reading("/etc/hosts"), wait=False)
            async with wired.registry.hold(one) as actor:
                (approval,) = actor.state.approvals
            with pytest.raises(CommandRefused, match="no approval"):
                await wired.registry.send(two, AnswerApproval(by=Who(name="ann"), approval=ApprovalId(approval), granted=True))

    asyncio.run(work())


def test_ids_of_approvals_are_not_told_to_agents(places: Places) -> None:
    async def work() -> None:
        async with open_gate(load_setup()) as wired:
            session = await opened(wired, places.workspace)
            told = await wired.gate.request(session, reading("/etc/hosts"), wait=False)
            async with wired.registry.hold(session) as actor:
                (approval,) = actor.state.approvals
            assert approval not in repr(told)

    asyncio.run(work())
