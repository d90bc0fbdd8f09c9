"""What every desk promises to the channels: the one of a house on disk, and the one in memory that their tests use.

Hooks, masks and the names of models are left out: the surface of a process adds them to its desk. So are explanations.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    AnswerApproval,
    AnyCommand,
    ApprovalId,
    ChangeMode,
    CommandRefused,
    CurtainwallError,
    Desk,
    Feed,
    GrantId,
    MessageId,
    Mode,
    NotFound,
    NotReady,
    Opening,
    RenameSession,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionView,
    Who,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.desks import MemoryDesk
from tests.support.given import PROJECT, asked, fetch, ready, wish
from tests.support.houses import run
from tests.support.in_process import desk_in

ME = local_user()
NOBODY = SessionId("nobody")
PAGE = wish("c1", fetch("elsewhere.example"))


@dataclass(frozen=True)
class Offered:
    """A desk, the feed behind it, and a session that nobody has said anything in."""

    desk: Desk
    feed: Feed
    session: SessionId

    @property
    def view(self) -> SessionView:
        return self.desk.view(self.session)

    @property
    def head(self) -> int:
        return self.feed.head(session_stream(self.session))

    async def send(self, command: AnyCommand, key: str | None = None) -> int:
        return await self.desk.send(self.session, command, key)

    async def opens(self, how: Literal["new", "fork", "reset"], name: str = "", by: Who = ME) -> SessionView:
        opened = await self.desk.open(Opening(how=how, of=None if how == "new" else self.session, name=name), by)
        return self.desk.view(opened.session)


Story = Callable[[Offered], Awaitable[None]]
Tell = Callable[[Story], None]


@asynccontextmanager
async def memory(_: Path, *, in_project: bool) -> AsyncGenerator[Offered]:
    desk = MemoryDesk(*(ready(PROJECT) if in_project else ready()))
    (row,) = desk.find(SessionQuery())
    yield Offered(desk, desk, row.session)


@asynccontextmanager
async def house(place: Path, *, in_project: bool) -> AsyncGenerator[Offered]:
    user, project = place / "user", place / "project"
    for directory in (user, project):
        directory.mkdir()
    setup = load_setup(environ={"CURTAINWALL_HOME": str(place / "home"), "HOME": str(user)})
    async with open_gate(setup) as wired:
        wanted = SessionSpec("demo", project if in_project else None)
        desk = desk_in(wired)
        yield Offered(desk, wired.registry.feed, await open_new(wired.sessions, wanted, ME))


@pytest.fixture(params=[memory, house])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    def tell(story: Story, *, in_project: bool = False) -> None:
        async def told() -> None:
            async with request.param(tmp_path, in_project=in_project) as offered:
                await story(offered)

        run(told())

    return tell


@pytest.fixture
def tell(make: Callable[..., None]) -> Tell:
    return make


@pytest.fixture
def tell_in_project(make: Callable[..., None]) -> Tell:
    return lambda story: make(story, in_project=True)


def said(text: str, message: str = "m1") -> SendMessage:
    return SendMessage(by=ME, message=MessageId(message), text=text)


# Commands


def test_a_command_is_decided_and_its_place_in_the_log_returned(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        before = offered.head
        assert await offered.send(said("hello")) == offered.head > before
        assert [message.text for message in offered.view.queue] == ["hello"]
        assert await offered.send(RenameSession(by=ME, name="other")) == offered.head
        assert offered.view.name == "other"

    tell(story)


def test_a_command_that_is_refused_changes_nothing(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        before, view = offered.head, offered.view
        with pytest.raises(CommandRefused, match="a name has 200 letters at most"):
            await offered.send(RenameSession(by=ME, name="x" * 201))
        with pytest.raises(CommandRefused):
            await offered.send(AnswerApproval(by=ME, approval=ApprovalId("none"), granted=True))
        assert (offered.head, offered.view) == (before, view)

    tell(story)


def test_the_same_key_twice_is_the_same_command(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        first = await offered.send(said("hello"), "key")
        await offered.send(said("more", "m2"), "another key")
        assert await offered.send(said("hello", "m3"), "key") == first
        assert [message.text for message in offered.view.queue] == ["hello", "more"]

    tell(story)


def test_a_refusal_under_a_key_is_the_same_refusal_again(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        with pytest.raises(CommandRefused) as first:
            await offered.send(RenameSession(by=ME, name="x" * 201), "key")
        with pytest.raises(CommandRefused) as second:
            await offered.send(RenameSession(by=ME, name="short"), "key")
        assert str(first.value) == str(second.value)
        assert offered.view.name != "short"

    tell(story)


def test_a_key_counts_for_one_session_alone(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        other = await offered.opens("new")
        await offered.send(said("here"), "key")
        await offered.desk.send(other.session, said("there"), "key")
        assert [message.text for message in offered.view.queue] == ["here"]
        assert [message.text for message in offered.desk.view(other.session).queue] == ["there"]

    tell(story)


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (said("hello"), NotFound("there is no session `nobody`")),
        (RevokeGrant(by=ME, grant=GrantId("none")), NotFound("there is no session `nobody`")),
        (RenameSession(by=ME, name="x"), NotReady("there is no such session: it was never opened, or was deleted")),
    ],
)
def test_nothing_can_be_sent_to_a_session_that_is_not_there(tell: Tell, command: AnyCommand, refusal: CurtainwallError) -> None:
    async def story(offered: Offered) -> None:
        with pytest.raises(type(refusal)) as raised:
            await offered.desk.send(NOBODY, command)
        assert str(raised.value) == str(refusal)
        assert offered.feed.head(session_stream(NOBODY)) == 0
        assert [row.session for row in offered.desk.find(SessionQuery())] == [offered.session]

    tell(story)


def test_a_grant_that_is_not_there_cannot_be_revoked(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        before = offered.head
        with pytest.raises(NotFound):
            await offered.send(RevokeGrant(by=ME, grant=GrantId("none")))
        assert offered.head == before

    tell(story)


def test_an_ask_is_pending_until_the_first_answer(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        await offered.send(asked(PAGE))
        (pending,) = offered.view.pending
        (row,) = offered.desk.find(SessionQuery(prefix=offered.session))
        assert (row.status, row.pending) == ("waiting", 1)
        await offered.send(AnswerApproval(by=ME, approval=pending.approval, granted=False))
        assert offered.view.pending == ()
        with pytest.raises(CommandRefused, match="already answered"):
            await offered.send(AnswerApproval(by=ME, approval=pending.approval, granted=True))

    tell(story)


# Views


def test_a_session_that_is_not_there_has_no_view(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        with pytest.raises(NotFound, match="there is no session `nobody`"):
            offered.desk.view(NOBODY)

    tell(story)


def test_a_row_of_the_list_says_what_the_view_says(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        await offered.send(ChangeMode(by=ME, mode=Mode.PLAN))
        made = await offered.opens("fork", "second")
        for view in (offered.view, made):
            (row,) = offered.desk.find(SessionQuery(prefix=view.session))
            place = (row.workspace, row.own_workspace)
            assert (row.name, row.agent, row.model, row.mode) == (view.name, view.agent, view.model, view.mode)
            assert (row.status, row.created, row.turns, row.parent) == (view.status, view.created, view.turns, view.parent)
            assert place == (view.workspace.path, view.workspace.own)
            assert row.changed >= row.created

    tell(story)


def test_sessions_are_found_newest_first_and_no_more_than_wanted(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        second, third = await offered.opens("new", "second"), await offered.opens("new", "third")
        order = [third.session, second.session, offered.session]
        assert [row.session for row in offered.desk.find(SessionQuery())] == order
        assert [row.session for row in offered.desk.find(SessionQuery(limit=2))] == order[:2]
        assert not offered.desk.find(SessionQuery(limit=0))

    tell(story)


def test_sessions_are_found_by_what_they_are(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        other = await offered.opens("new", "A Shop")
        await offered.send(asked(PAGE))

        def found(query: SessionQuery) -> set[SessionId]:
            return {row.session for row in offered.desk.find(query)}

        both = {offered.session, other.session}
        assert found(SessionQuery(prefix=other.session)) == {other.session}
        assert found(SessionQuery(text="a sHOP")) == {other.session}
        assert found(SessionQuery(text=other.workspace.path)) == {other.session}
        assert found(SessionQuery(workspace=other.workspace.path)) == {other.session}
        assert found(SessionQuery(status="waiting")) == {offered.session}
        assert found(SessionQuery(agent=other.agent)) == both
        assert found(SessionQuery(agent="another")) == set()
        assert found(SessionQuery(channel=ME.channel)) == both
        assert found(SessionQuery(without_agent=other.agent)) == {offered.session}, "in which a human is asked something"
        assert found(SessionQuery(since=other.created)) >= {other.session}
        assert found(SessionQuery(before=min(other.created, offered.view.created))) == set()

    tell(story)


# New sessions


@pytest.mark.parametrize("how", ["new", "fork", "reset"])
def test_a_session_that_is_opened_is_ready_and_has_its_name(tell: Tell, how: Literal["new", "fork", "reset"]) -> None:
    async def story(offered: Offered) -> None:
        made = await offered.opens(how, "another")
        assert made.session != offered.session
        assert (made.name, made.status, made.queue, made.turns) == ("another", "ready", (), 0)
        assert made.parent == (None if how == "new" else offered.session)

    tell(story)


def test_a_session_without_a_name_is_named_by_where_it_comes_from(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        new, name = await offered.opens("new"), offered.view.name
        assert new.name == f"session {new.session[:6]}"
        assert (await offered.opens("fork")).name == f"{name} (fork)"
        assert (await offered.opens("reset")).name == name

    tell(story)


def test_a_fork_has_a_copy_of_the_workspace_and_a_reset_has_the_same(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        new, fork, reset = await offered.opens("new"), await offered.opens("fork"), await offered.opens("reset")
        assert all(view.workspace.own for view in (new, fork, reset))
        assert len({offered.view.workspace.path, new.workspace.path, fork.workspace.path}) == 3
        assert reset.workspace == offered.view.workspace

    tell(story)


def test_what_the_user_should_know_of_a_session_is_said(tell: Tell) -> None:
    async def story(offered: Offered) -> None:
        hows: tuple[Literal["new", "fork", "reset"], ...] = ("new", "fork", "reset")
        notes = {how: (await offered.desk.open(Opening(how=how, of=offered.session), ME)).notes for how in hows}
        assert notes == {"new": (), "fork": (), "reset": ("grants and credentials stay behind",)}

    tell(story)


def test_a_fork_of_a_session_in_a_project_shares_it_and_says_so(tell_in_project: Tell) -> None:
    async def story(offered: Offered) -> None:
        project = offered.view.workspace
        assert not project.own
        opened = await offered.desk.open(Opening(how="fork", of=offered.session), ME)
        assert offered.desk.view(opened.session).workspace == project
        assert opened.notes == (f"both sessions work in the same project `{project.path}`; what one changes, the other sees",)

    tell_in_project(story)


@pytest.mark.parametrize(("mode", "kept"), [(Mode.PLAN, Mode.PLAN), (Mode.ACCEPT_EDITS, Mode.DEFAULT)])
@pytest.mark.parametrize("how", ["fork", "reset"])
def test_plan_mode_comes_along_and_standing_answers_do_not(tell: Tell, how: Literal["fork", "reset"], mode: Mode, kept: Mode) -> None:
    async def story(offered: Offered) -> None:
        await offered.send(ChangeMode(by=ME, mode=mode))
        assert (await offered.opens(how)).mode is kept

    tell(story)


@pytest.mark.parametrize("how", ["fork", "reset"])
def test_what_is_open_in_a_session_stays_there(tell: Tell, how: Literal["fork", "reset"]) -> None:
    async def story(offered: Offered) -> None:
        await offered.send(said("hello"))
        await offered.send(asked(PAGE))
        made = await offered.opens(how)
        assert (made.queue, made.pending, made.grants) == ((), (), ())
        assert (len(offered.view.queue), len(offered.view.pending)) == (1, 1)

    tell(story)


@pytest.mark.parametrize("how", ["fork", "reset"])
def test_a_session_comes_from_one_that_is_named_and_there(tell: Tell, how: Literal["fork", "reset"]) -> None:
    async def story(offered: Offered) -> None:
        with pytest.raises(CommandRefused, match=f"say which session to {how}"):
            await offered.desk.open(Opening(how=how), ME)
        with pytest.raises(NotFound, match="there is no session `nobody`"):
            await offered.desk.open(Opening(how=how, of=NOBODY), ME)
        assert [row.session for row in offered.desk.find(SessionQuery())] == [offered.session]

    tell(story)


@pytest.mark.parametrize("how", ["new", "fork", "reset"])
def test_a_session_with_a_name_that_no_list_could_show_is_not_opened(tell: Tell, how: Literal["new", "fork", "reset"]) -> None:
    async def story(offered: Offered) -> None:
        with pytest.raises(CommandRefused, match="a name has 200 letters at most, and this one has 201"):
            await offered.opens(how, "x" * 201)
        assert [row.session for row in offered.desk.find(SessionQuery())] == [offered.session]

    tell(story)
