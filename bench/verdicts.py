"""How long a verdict takes: facts and shipped policy for a call with one path, beside one bare question to Cedar."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import cedarpy

from bench.measuring import Figure, Rounds, Seconds, Side, Target, interleave, repeat_plainly
from bench.sample import native_tools, shipped_rules
from curtainwall.model import Effect, Mode, Place, SessionId, Workspace
from curtainwall.policy import SessionFacts, judge, shipped
from curtainwall.policy.rules import SCHEMA

_EACH = 200
_ROUNDS, _WARM_UP = 9, 2
_TOOL = "filesystem.read_file"


async def verdicts(home: Path) -> list[Figure]:
    """Verdicts on paths never seen before, and on the same again."""
    workspace, outside = home / "workspace" / "src" / "parser", home / "elsewhere" / "notes" / "old"
    places = {Effect.ALLOW: _files(workspace), Effect.ASK: _files(outside)}
    place = Place(session=SessionId("s"), workspace=Workspace(path=str(home / "workspace"), own=True))
    facts = SessionFacts(
        session=place.session, agent="builtin", workspace=place.workspace, mode=Mode.DEFAULT, channel="local", labels=frozenset()
    )
    tools, policy = native_tools(home / "home"), shipped_rules(home / "home").policy

    def new_path(effect: Effect) -> Callable[[], None]:
        paths = iter(places[effect])

        def work() -> None:
            prepared = tools.prepare(_TOOL, {"path": next(paths)}, place)
            assert judge(policy, prepared.subject, facts).effect is effect

        return work

    known = tools.prepare(_TOOL, {"path": places[Effect.ASK][0]}, place).subject

    def same_facts() -> None:
        assert judge(policy, known, facts).effect is Effect.ASK

    def same_call() -> None:
        again = tools.prepare(_TOOL, {"path": places[Effect.ASK][0]}, place)
        assert judge(policy, again.subject, facts).effect is Effect.ASK

    bare = _bare_question(str(home / "workspace"), places[Effect.ASK][0])
    work = {"allow": new_path(Effect.ALLOW), "bare": bare, "ask": new_path(Effect.ASK), "same": same_facts, "again": same_call}
    took = await interleave({name: _side(each) for name, each in work.items()}, rounds=_ROUNDS, warm_up=_WARM_UP)
    return _figures(took)


def _bare_question(workspace: str, path: str) -> Callable[[], None]:
    """Return one question to Cedar with the shipped rules, in which everything that can be parsed before is."""
    policies = cedarpy.PolicySet.from_str("\n".join(source.text for source in shipped()))
    schema = cedarpy.Schema.from_str(SCHEMA)
    above = [str(parent) for parent in Path(path).parents]
    told = [
        {
            "uid": {"type": "Session", "id": "s"},
            "attrs": {"workspace": {"__entity": {"type": "Path", "id": workspace}}, "own": True},
            "parents": [{"type": "Agent", "id": "builtin"}],
        },
        {
            "uid": {"type": "Path", "id": path},
            "attrs": {"text": path, "runs_later": False, "secret_name": False},
            "parents": [{"type": "Path", "id": parent} for parent in above],
        },
    ]
    entities = cedarpy.Entities.from_json_str(json.dumps(told), schema)  # pyright: ignore[reportUnknownMemberType] - the library leaves this untyped
    request: dict[str, object] = {
        "principal": {"type": "Session", "id": "s"},
        "action": {"type": "Action", "id": "read-path"},
        "resource": {"type": "Path", "id": path},
        "context": {
            "tool": _TOOL,
            "mode": "default",
            "channel": "local",
            "labels": [],
            "role": "read-path",
            "judged": True,
            "approved": False,
        },
    }

    def ask() -> None:
        answer = cedarpy.is_authorized(request, policies, entities, schema)  # pyright: ignore[reportUnknownMemberType] - as above
        assert not answer.allowed
        assert not answer.diagnostics.errors

    return ask


def _figures(took: dict[str, Rounds]) -> list[Figure]:
    bare, beside = took["bare"], "bare Cedar, all parsed"
    rows = (
        (
            "verdict: allow",
            "allow",
            400.0,
            "a path in the workspace, new each time: arguments checked, path resolved, masked, digested, judged",
        ),
        ("verdict: ask", "ask", 600.0, "the same for a path outside, which needs a second question to Cedar"),
        (
            "verdict: same facts",
            "same",
            40.0,
            "`judge` on the facts of an earlier call, answered from the verdict cache; the facts are not made again",
        ),
        (
            "verdict: same call",
            "again",
            None,
            "the whole way for a call made before: facts made anew, as the gate always does, the verdict from the cache",
        ),
    )
    return [
        Figure(
            name, took[side].p50 * 1e6, "µs", bare.p50 * 1e6, beside, took[side].to(bare), None if limit is None else Target(limit), note
        )
        for name, side, limit, note in rows
    ]


def _files(directory: Path) -> list[str]:
    """Make as many real files as there will be repetitions."""
    directory.mkdir(parents=True)
    paths: list[str] = []
    for number in range((_ROUNDS + _WARM_UP) * _EACH + 1):
        path = directory / f"part-{number}.py"
        path.touch()
        paths.append(str(path))
    return paths


def _side(work: Callable[[], None]) -> Side:
    async def run(_: int) -> Sequence[Seconds]:
        return repeat_plainly(_EACH, work)

    return run
