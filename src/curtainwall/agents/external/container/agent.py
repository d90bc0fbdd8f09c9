"""External agents in containers, for any number of sessions: history, container, sockets, and then the turn."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from curtainwall.agents.external import ExternalHistory, LiveText
from curtainwall.agents.external.container.adapters import Adapter
from curtainwall.agents.external.container.folders import mountable, sealed_mounts, settle_owner, skill_mounts, with_places
from curtainwall.agents.external.container.rights import GuardedFolders, RightsWatch, guard_project, rights_in, set_aside_left
from curtainwall.agents.external.container.spec import ContainerFolders, ContainerGone, ContainerRequest, LentProgram
from curtainwall.agents.external.container.turn import EXTENSION, ContainerPorts, ContainerTurn
from curtainwall.model import (
    AWAKE,
    CompactionSkipped,
    ExtensionNoted,
    HeldFile,
    Mode,
    NotFound,
    Place,
    SessionId,
    SessionViews,
    TryLater,
    TurnAt,
    TurnResult,
    TurnStatus,
    ViewFailed,
    ViewUse,
    Workspace,
    held_noted,
    session_stream,
    works_on_view,
)

T = TypeVar("T")
_KEPT_EVERY = 5.0


@asynccontextmanager
async def enter_beside(context: AbstractAsyncContextManager[T]) -> AsyncGenerator[Callable[[], Awaitable[T]]]:
    """Enter a context in another task, and yield a function that waits for it or raises its error; leave both contexts together."""
    entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def hold() -> None:
        async with context as value:
            entered.set_result(value)
            await leave.wait()

    holding = asyncio.create_task(hold())

    async def wait() -> T:
        await asyncio.wait((holding, entered), return_when=asyncio.FIRST_COMPLETED)
        if holding.done():
            holding.result()
        return entered.result()

    try:
        yield wait
    finally:
        if entered.done():
            leave.set()
        else:
            holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)


class ContainerAgent:
    """Runs external agents for any number of sessions. Memory is only a cache; the log holds everything."""

    def __init__(self, around: ContainerPorts) -> None:
        self._around = around
        self._histories: dict[SessionId, ExternalHistory] = {}
        self._wards: dict[SessionId, RightsWatch] = {}
        self._kept: dict[SessionId, asyncio.Task[None]] = {}
        """Watches projects in which a container keeps running after its turn."""

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done or has to wait; if a stricter mode revokes the container, continue in another."""
        while (result := await self._work(at)) is None:
            pass
        return result

    async def _work(self, at: TurnAt) -> TurnResult | None:
        """Work in one container; return None if it was revoked."""
        await self._freeze_kept(at.session)
        granted = self._synced(at.session).asks.granted_in(at.turn)
        for call in granted:
            await self._around.gate.drop(at.session, call, "the agent was gone when the answer came")
        past = self._synced(at.session)
        waits_for = past.asks.open_in(at.turn)
        if waits_for and not granted and not past.asks.refusals:
            # The program that asked is gone and nothing was answered since: the agent could only ask again.
            return TurnResult(status=TurnStatus.WAITING, waits_for=waits_for)
        assert past.workspace is not None
        around, adapter = self._around, self._around.adapters.find(past.agent)
        telling = LiveText(at, around.journal, around.clock, around.masker)
        async with (
            self._folders(at.session, past, past.workspace) as folders,
            guard_project(folders, around.fleet.clean, is_free=past.mode is Mode.BYPASS) as guard,
        ):
            await self._tell(guard, telling)
            ward = await self._ward(at.session, past, guard.folders)
            result = await self._within(ward, self._worked(at, past, adapter, guard, ward, telling))
        if guard.is_watched_on:
            self._kept[at.session] = asyncio.create_task(self._watch_kept(at.session, folders.orientation))
        if result is None:
            await telling.note(_revocation_note(ward))
        await self._tell(guard, telling)
        self._synced(at.session)
        return result

    @asynccontextmanager
    async def _folders(self, session: SessionId, past: ExternalHistory, workspace: Workspace) -> AsyncGenerator[ContainerFolders]:
        """Lend the directories of a session. In review mode its workspace is a view, in which nothing works any more afterwards."""
        around = self._around
        folders = around.folders_of(session, workspace, past.mode)
        if not works_on_view(workspace, past.mode):
            yield folders
            return
        if around.views is None:
            raise ViewFailed("there are no views of projects in this program; use the mode `ask`")
        # INVARIANT: nothing in a container writes while the view is brought up to date, or while its changes are read.
        await around.fleet.still(session)
        use = await _entered(around.views, Place(session=session, workspace=workspace, mode=past.mode, agent=past.agent))
        try:
            if not use.entrance.directory:
                raise ViewFailed(f"the view of `{workspace.path}` is not one that a container sees; start a new session")
            yield replace(folders, workspace=Path(use.entrance.directory), project=folders.workspace)
        finally:
            try:
                await asyncio.shield(around.fleet.still(session))
            finally:
                use.close()

    async def _watch_kept(self, session: SessionId, orientation: Path) -> None:
        """Set aside what the rest of a turn leaves in a project that runs on its own, until its container is gone."""
        fleet = self._around.fleet
        is_over = False
        while not is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(_KEPT_EVERY):
                    await fleet.wait_until_gone(session)
            is_over = not fleet.has(session)
            held = await asyncio.shield(asyncio.to_thread(set_aside_left, orientation, is_over=is_over))
            if held:
                masked = [file.model_copy(update={"path": self._mask(file.path), "aside": self._mask(file.aside)}) for file in held]
                await self._around.journal.record(session, (held_noted(masked, self._around.clock.now()),))

    def _mask(self, path: str | None) -> str | None:
        return None if path is None else self._around.masker.mask_text(path)

    async def _freeze_kept(self, session: SessionId) -> None:
        """Before a turn, freeze what an earlier one left running.

        INVARIANT: nothing changes the project between the last look and the list of files that count as the user's.
        """
        watching = self._kept.pop(session, None)
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._around.fleet.freeze(session)

    async def _tell(self, guard: GuardedFolders, telling: LiveText) -> None:
        """Show the notes about a watched project, and record what was set aside, so that it can be restored."""
        for note in guard.notes:
            await telling.note(note)
        if guard.held:
            held = [_masked(file, telling) for file in guard.held]
            await telling.record(held_noted(held, self._around.clock.now(), is_reported=True))
        guard.notes.clear()
        guard.held.clear()

    async def _ward(self, session: SessionId, past: ExternalHistory, folders: ContainerFolders) -> RightsWatch:
        """Start to watch that the session's mode allows what its container can do."""
        around, workspace = self._around, past.workspace
        assert workspace is not None
        if (before := self._wards.pop(session, None)) is not None:
            await before.end()
        ward = self._wards[session] = RightsWatch(session, rights_in(folders, past.mode))
        task = ward.begin(around.feed, past.cursor, around.fleet, lambda mode: rights_in(around.folders_of(session, workspace, mode), mode))
        task.add_done_callback(lambda _: self._wards.pop(session, None) if self._wards.get(session) is ward else None)
        return ward

    async def _within(self, ward: RightsWatch, work: Coroutine[None, None, TurnResult]) -> TurnResult | None:
        """Return the result of the work; None if a stricter mode ended it, however that looked to the agent."""
        result = None
        try:
            async with asyncio.timeout(None) as ward.work:
                result = await work
        except Exception:
            if ward.taken_by is None:
                raise
        finally:
            ward.is_at_work, ward.work = False, None
            # INVARIANT: nobody examines a project while the revoked container may still change it.
            await asyncio.shield(ward.settled())
        has_ended = result is not None and result.status in (TurnStatus.DONE, TurnStatus.WAITING)
        return result if ward.taken_by is None or has_ended else None

    async def _worked(
        self, at: TurnAt, past: ExternalHistory, adapter: Adapter, guard: GuardedFolders, ward: RightsWatch, telling: LiveText
    ) -> TurnResult:
        around, folders = self._around, guard.folders
        assert past.workspace is not None
        request = await self._request(at.session, past, adapter.name, folders, telling)
        async with (
            # The container takes longest, so it starts while its sockets are opened.
            enter_beside(around.fleet.borrow(request, telling.does)) as container,
            around.outside.open(at, folders.run, request.user, tuple(adapter.providers)) as reach,
        ):
            held = await container()
            turn = ContainerTurn(around, at, past, adapter, held, reach, telling, lambda: self._synced(at.session))
            try:
                if held.note:
                    await telling.note(held.note)
                    held.note = ""
                if ward.taken_by is not None:
                    # It did not exist yet when it should have been revoked.
                    await asyncio.shield(around.fleet.drop(at.session))
                    raise ContainerGone("the mode allows less than the container that was made for it")
                return await turn.work()
            finally:
                guard.is_watched_on = guard.is_watched and request.is_kept and around.fleet.has(at.session)
                if guard.is_watched and not guard.is_watched_on:
                    # What the agent left running must not change the project once nobody watches.
                    await asyncio.shield(around.fleet.drop(at.session))

    async def _request(
        self, session: SessionId, past: ExternalHistory, agent: str, folders: ContainerFolders, telling: LiveText
    ) -> ContainerRequest:
        """Return the container that a session needs, after preparing its directories; remember an image that the project chose."""
        around, workspace = self._around, past.workspace
        assert workspace is not None
        # It may read a file of the project.
        image = await asyncio.to_thread(around.image_of, agent, workspace, past.image)
        if image.base and image.base != past.image:
            data: dict[str, JsonValue] = {"image": image.base}
            await telling.record(ExtensionNoted(at=around.clock.now(), extension=EXTENSION, data=data))
        mode = Mode.PLAN if folders.is_readonly else past.mode
        extras = await asyncio.to_thread(around.extras_of, agent, workspace, mode)
        user, group, lent = await asyncio.to_thread(self._prepared, agent, folders, workspace)
        mounts = tuple(await asyncio.to_thread(lambda: tuple(with_places(folders, extras.mounts, user, group))))
        folders = replace(folders, shared=tuple(mount.here for mount in mounts if not mount.is_readonly and mount.here.is_dir()))
        return ContainerRequest(
            session,
            agent,
            image.name,
            folders,
            user,
            group,
            lent,
            mounts,
            extras.ports,
            extras.variables,
            extras.keeps_running,
            image.remedy,
        )

    def _prepared(self, agent: str, folders: ContainerFolders, workspace: Workspace) -> tuple[int, int, tuple[LentProgram, ...]]:
        """Return the agent's user, group and extra mounts, after preparing its directories."""
        user, group = settle_owner(folders)
        lent = (*sealed_mounts(agent, folders), *skill_mounts(agent, self._around.skills_of(workspace)))
        return user, group, (*self._around.programs_of(agent), *mountable(folders, lent, user, group))

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Record why this is skipped: an external agent keeps its own history."""
        del instructions
        why = f"{self._synced(session).agent} keeps its own conversation, and shortens it by itself"
        await self._around.journal.record(session, (CompactionSkipped(at=self._around.clock.now(), why=why),))

    def forget(self, session: SessionId) -> None:
        """Discard what is held in memory for a session; its container is removed once it has been idle long enough."""
        self._histories.pop(session, None)

    async def wake(self, session: SessionId) -> str:
        """Return the state of the container without starting it: that may happen only in a turn, after its project was examined."""
        fleet = self._around.fleet
        if fleet.has(session):
            try:
                ended = await fleet.ended(session)
            except TryLater as fault:
                return f"it cannot be told whether its container is there: {fault}"
            return f"{ended}; a new one starts with the next message" if ended else AWAKE
        return f"the container of {self._synced(session).agent} starts with the next message"

    async def sleep(self, session: SessionId) -> None:
        """Remove a session's container unless it is busy; the next message creates another."""
        await self._around.fleet.let_go(session)

    def last_words(self, session: SessionId) -> str:
        """Return the agent's last reply."""
        return self._synced(session).last_words()

    async def close(self) -> None:
        """Remove the containers of this process."""
        for ward in tuple(self._wards.values()):
            await ward.end()
        await self._around.fleet.close()
        # Their containers are gone, so each ends after a last look.
        await asyncio.gather(*self._kept.values(), return_exceptions=True)

    def _synced(self, session: SessionId) -> ExternalHistory:
        past = self._histories.setdefault(session, ExternalHistory(EXTENSION, self._around.journal.load))
        for recorded in self._around.feed.read(session_stream(session), past.cursor):
            past.take(recorded.event)
            past.cursor = recorded.seq
        if past.workspace is None:
            raise NotFound(f"there is no session `{session}`")
        return past


async def _entered(views: SessionViews, place: Place) -> ViewUse:
    """Enter a view; if nobody waits for that any more, leave it again."""
    entering = asyncio.ensure_future(asyncio.to_thread(views.enter, place))
    try:
        use = await asyncio.shield(entering)
    except asyncio.CancelledError:
        entering.add_done_callback(_close_unused)
        raise
    assert use is not None, "in review mode a project is worked on in a view"
    return use


def _close_unused(entering: "asyncio.Future[ViewUse | None]") -> None:
    if not entering.cancelled() and entering.exception() is None and (use := entering.result()) is not None:
        use.close()


def _masked(file: HeldFile, telling: LiveText) -> HeldFile:
    return file.model_copy(update={"path": telling.masked(file.path), "aside": telling.masked(file.aside) if file.aside else None})


def _revocation_note(ward: RightsWatch) -> str:
    """Describe what happened to a container that could do more than its session's mode allows."""
    now = f"the mode is `{ward.taken_by}` now"
    if ward.fault:
        return f"{now}, but the container could not be ended, so that what runs in it keeps the rights that it had: {ward.fault}"
    return f"{now}: all that ran in the container was ended, and the agent goes on in one that can do no more than this mode allows"
