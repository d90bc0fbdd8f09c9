"""Answers as they are heard inside a container, and what is mounted there."""

from pathlib import Path

from curtainwall.compose.external.containers import ContainerGate
from curtainwall.compose.secret_files import mounted_labels
from curtainwall.model import Answer, CallId, CallRequest, Effect, SessionId, ToolResult, Verdict
from tests.support.covers import covers
from tests.support.policies import policy, session
from tests.support.talking import run

HERE = "/home/ann/project"


class Echo:
    """A gate that answers with what it is asked for."""

    async def request(self, session: SessionId, request: CallRequest, **_: object) -> Answer:
        verdict = Verdict(effect=Effect.ALLOW, because=(), reason=f"it is in {HERE}")
        return Answer(call=CallId("c"), verdict=verdict, result=ToolResult(ok=request.tool != "git.status", value=request.arguments))

    async def resume(self, session: SessionId, call: CallId) -> Answer:
        raise NotImplementedError

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        raise NotImplementedError


@covers("brokered.paths")
def test_paths_are_told_as_the_agent_knows_them_and_texts_as_they_are() -> None:
    gate = ContainerGate(Echo(), HERE, "/workspace")

    def heard(tool: str) -> object:
        value = {f"{HERE}/a": [f"`{HERE}/b`", f"{HERE}", f"{HERE}-2/c", f"{HERE}.old", 1, None]}
        answer = run(gate.request(SessionId("s"), CallRequest(tool=tool, arguments=value)))
        assert answer.verdict.reason == "it is in /workspace"
        assert answer.result is not None
        return answer.result.value

    seen = {"/workspace/a": ["`/workspace/b`", "/workspace", f"{HERE}-2/c", f"{HERE}.old", 1, None]}
    assert heard("filesystem.list_directory") == seen
    assert heard("git.status") == seen, "a failure is our words, whatever the tool"
    assert heard("filesystem.read_file") == {f"{HERE}/a": [f"`{HERE}/b`", HERE, f"{HERE}-2/c", f"{HERE}.old", 1, None]}


@covers("brokered.mounted-is-read")
def test_a_workspace_brings_the_labels_of_what_lies_in_it(tmp_path: Path) -> None:
    mine = f'@id("mine") @label("finance") permit (principal, action == Action::"label", resource in Path::"{tmp_path}/books");'
    facts = session(str(tmp_path), own=False)
    assert [(it.label, it.origin) for it in mounted_labels(policy(mine), facts)] == [("finance", f"the mount of {tmp_path}")]
    assert mounted_labels(policy(), facts) == ()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "id_rsa").touch()
    assert [(it.label, it.origin) for it in mounted_labels(policy(), facts)] == [("sensitive", f"the mount of {tmp_path}/deep/id_rsa")]
