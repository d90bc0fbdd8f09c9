"""Hooks of a trusted workspace, fired with something happening between the look at their programs and the run."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from curtainwall.facts import Masker
from curtainwall.model import HookReply, Mode, Place, SessionId, Workspace
from curtainwall.tools.hooks import HookSettings, HookSurroundings, Pins, UserHooks, workspace_hooks
from tests.support.hooking import ENVIRON, call
from tests.support.houses import run


class Seam(Mapping[str, str]):
    """The user's environment, which is read between the look and the run; then, and only once, something else happens as well."""

    def __init__(self, values: Mapping[str, str], then: Callable[[], None]) -> None:
        self._values = values
        self._then = then
        self.passed = 0

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        self.passed += 1
        if self.passed == 1:
            self._then()
        return iter(self._values)


def bring(work: Path, *hooks: dict[str, Any]) -> None:
    (work / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": list(hooks)}]}}))


def trusted(tmp_path: Path, work: Path) -> Pins:
    (tmp_path / "home").mkdir(exist_ok=True)
    pins = Pins(tmp_path / "home" / "pins.json")
    pins.set(str(work), workspace_hooks(work, {}).digest)
    return pins


def fired(pins: Pins, work: Path, then: Callable[[], None], *, mode: Mode = Mode.DEFAULT, own: bool = False) -> HookReply:
    """Fire the hooks before a call, with an attack between the look and the run that is seen to happen."""
    seam = Seam(ENVIRON, then)
    hooks = UserHooks(HookSettings(), HookSurroundings(Masker(b"k" * 32), seam), pins)
    reply = run(hooks.before_call(call(), Place(session=SessionId("s1"), workspace=Workspace(path=str(work), own=own), mode=mode)))
    assert seam.passed == 1
    return reply


def said(reply: HookReply) -> str:
    assert reply.says is not None
    assert reply.says.effect == "deny"
    return reply.says.reason
