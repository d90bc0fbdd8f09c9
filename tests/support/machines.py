"""A machine with a user's home, a session's workspace and the confined tools, as a hostile agent would find them."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, cast

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.host import Bounds, ShareLimits, Shares, ViewsOfSessions
from curtainwall.host.home import Home
from curtainwall.model import (
    SET_WORKING_DIR,
    CallId,
    CallPermitted,
    ChangeSet,
    Effect,
    Mode,
    PermitId,
    Place,
    Prepared,
    SessionId,
    ToolResult,
    Verdict,
    Workspace,
)
from curtainwall.policy import SECRET_PATTERNS, is_secret_name
from curtainwall.tools import (
    NATIVE_TOOLS,
    Catalogue,
    NativeTools,
    Sandboxes,
    WithheldFiles,
    filesystem_runners,
    git_refiners,
    git_runners,
    move_refiners,
    shell_runners,
)

SECRET = "sk-ant-" + "q" * 40


def permit(prepared: Prepared) -> CallPermitted:
    """Return a permit for exactly this call."""
    verdict = Verdict(effect=Effect.ALLOW, because=(), reason="", findings=())
    return CallPermitted(at=0, call=CallId("c"), permit=PermitId("p"), digest=prepared.subject.digest, verdict=verdict)


@dataclass(frozen=True)
class Machine:
    """A home with a key and a workspace in it, and the tools of a session there."""

    root: Path
    tools: NativeTools
    place: Place
    views: ViewsOfSessions
    chosen: dict[SessionId, str] = field(default_factory=dict)
    """Where git works in each session, as its log would say."""

    @classmethod
    def at(cls, root: Path, *, own: bool = True, mode: Mode = Mode.DEFAULT, bounds: Bounds | None = None, **limits: int) -> Self:
        """Make one below a directory; `limits` are those of sessions, where they are not to be those of this machine."""
        root = Path(os.path.realpath(root))
        for name in ("home/work", "home/.ssh", "house/sessions"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "home/.ssh/id_ed25519").write_text(SECRET)
        (root / "house/curtainwall.db").write_text(SECRET)
        (root / "home/.gitconfig").write_text("[user]\n\tname = Ann\n\temail = ann@example.org\n")
        environ = {"PATH": os.environ["PATH"], "HOME": str(root / "home")}
        sandboxes = Sandboxes(shares=Shares(ShareLimits(**limits))) if limits else Sandboxes()
        masker = Masker(b"k" * 32)
        runners = {
            **filesystem_runners(masker),
            **shell_runners(bounds or Bounds(seconds=60), sandboxes),
            **git_runners(
                sandboxes=sandboxes,
                protected=[str(root / "home/.ssh"), str(root / "house")],
                environ=environ,
                withheld=WithheldFiles(SECRET_PATTERNS, is_secret_name),
            ),
        }
        views = ViewsOfSessions(Home(root / "house"))
        tools = NativeTools(
            Catalogue(NATIVE_TOOLS),
            home=str(root / "home"),
            masker=masker,
            runners=runners,
            refiners={**git_refiners(masker, is_secret_name), **move_refiners(masker, lambda _path, _place: False)},
            views=views,
        )
        workspace = Workspace(path=str(root / "home/work"), own=own)
        return cls(root, tools, Place(session=SessionId("s1"), workspace=workspace, mode=mode), views)

    @property
    def workspace(self) -> Path:
        return self.root / "home/work"

    def as_(self, mode: Mode) -> Self:
        """Return the same machine with the session in another mode."""
        return replace(self, place=replace(self.place, mode=mode))

    def in_session(self, session: str) -> Self:
        """Return the same machine as another session has it."""
        return replace(self, place=replace(self.place, session=SessionId(session)))

    def prepare(self, tool: str, **arguments: JsonValue) -> Prepared:
        place = replace(self.place, git_directory=self.chosen.get(self.place.session, ""))
        return self.tools.prepare(tool, arguments, place)

    async def run(self, prepared: Prepared) -> ToolResult:
        result = await self.tools.run(prepared, permit(prepared), self.place)
        if result.ok and prepared.subject.tool == SET_WORKING_DIR:
            self.chosen[self.place.session] = str(prepared.arguments["path"])
        return result

    def call(self, tool: str, **arguments: JsonValue) -> ToolResult:
        return asyncio.run(self.run(self.prepare(tool, **arguments)))

    def done(self, tool: str, **arguments: JsonValue) -> str:
        """Return what a git tool said."""
        result = self.call(tool, **arguments)
        assert result.ok, result.value
        return cast("str", result.value)

    def fault(self, tool: str, **arguments: JsonValue) -> str:
        """Return why a tool could not do it."""
        result = self.call(tool, **arguments)
        assert not result.ok, result.value
        return cast("str", result.value)

    def changes(self) -> ChangeSet:
        """Return what the session has changed in its view."""
        return self.views.changes(self.place)

    def sh(self, command: str, **arguments: JsonValue) -> Mapping[str, JsonValue]:
        """Run a command in the sandbox and return all about it."""
        result = self.call("shell.run", command=command, **arguments)
        assert result.ok, result.value
        return cast("Mapping[str, JsonValue]", result.value)

    def out(self, command: str) -> str:
        """Return what a command printed, which must have succeeded."""
        told = self.sh(command)
        assert told["exit_code"] == 0, told
        return cast("str", told["stdout"])
