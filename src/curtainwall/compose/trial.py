"""Judging without a session: one line of JSON in, one verdict out, whatever the line holds. Nothing is written."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath
from typing import BinaryIO

from pydantic import JsonValue

from curtainwall.compose.setup import Setup
from curtainwall.compose.tools import judging_tools
from curtainwall.facts import links_to, read_json
from curtainwall.model import BadCall, CommandRefused, Effect, Label, Mode, Place, SessionId, Subject, ToolHost, Verdict, Workspace, denial
from curtainwall.policy import SessionFacts, judge
from curtainwall.session import Rules, SessionState, standing_answer

INVALID = "invalid-arguments"
POLICY_ERROR = "policy-error"
LONGEST_LINE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, and the subject it is about where the call meant something."""

    verdict: Verdict
    subject: Subject | None = None

    def told(self) -> dict[str, JsonValue]:
        """Return what `policy check` prints."""
        verdict, subject = self.verdict, self.subject
        resources: list[JsonValue] = [{"role": it.role.value, "value": it.value} for it in subject.resources] if subject else []
        return {"effect": verdict.effect.value, "because": [*verdict.because], "reason": verdict.reason, "resources": resources}


@dataclass(frozen=True, slots=True)
class Judge:
    """A session that is only imagined: where it works, in which mode, what it has touched."""

    rules: Rules
    tools: ToolHost
    facts: SessionFacts

    def line(self, content: bytes) -> Ruling:
        """Judge one line; what is no call is denied."""
        try:
            tool, arguments = read_call(content)
            return self.call(tool, arguments)
        except BadCall as bad:
            return Ruling(denial(bad.rule, str(bad)))
        except Exception as fault:  # noqa: BLE001 - fail closed: whatever a line does to us, it is not allowed
            return Ruling(denial(INVALID, f"this call cannot be judged ({type(fault).__name__})"))

    def call(self, tool: str, arguments: JsonValue) -> Ruling:
        """Judge one call as the gate would, standing answers of the mode included; raise `BadCall` for one without a meaning."""
        place = Place(session=SessionId(self.facts.session), workspace=self.facts.workspace)
        subject = self.tools.prepare(tool, arguments, place).subject
        verdict = judge(self.rules.policy, subject, self.facts)
        if verdict.effect is not Effect.ASK:
            return Ruling(verdict, subject)
        answer = standing_answer(SessionState(mode=self.facts.mode), subject, verdict, self.rules)
        if answer is None:
            return Ruling(verdict, subject)
        reason = f"`{answer}` answers what otherwise asks: {verdict.reason}"
        return Ruling(verdict.model_copy(update={"effect": Effect.ALLOW, "reason": reason}), subject)


def refusal_of(fault: str) -> Callable[[bytes], Ruling]:
    """Return what judges where there are no rules to judge by: it denies every line, because of the fault."""
    ruling = Ruling(denial(POLICY_ERROR, f"nothing is judged until this is repaired: {fault}"))
    return lambda _line: ruling


def judge_for(setup: Setup, workspace: Workspace, mode: Mode, labels: frozenset[str]) -> Judge:
    """Return the judge of an imagined session."""
    facts = SessionFacts(
        session="check", agent="builtin", workspace=workspace, mode=mode, channel="local", labels=frozenset(map(Label, labels))
    )
    return Judge(setup.rules, judging_tools(setup), facts)


def workspace_for(setup: Setup, workspace: Path | None, project: Path | None) -> tuple[Workspace, str]:
    """Return the workspace to judge in, and what should be said about it.

    Left out, it is the current directory, as the session's own. Where that could be no workspace at all (such as `~`), it is one
    that is not there, so that a pipe still gets its verdicts.
    """
    # No session could work beside its own rule file; a call may still be judged there.
    besides = frozenset(
        name for path in setup.given for name in (normpath(path.absolute()), str(path.resolve()), *links_to(normpath(path.absolute())))
    )
    if project is not None:
        return setup.workspace_at(project, own=False, besides=besides), ""
    if workspace is not None:
        return setup.workspace_at(workspace, own=True, besides=besides), ""
    try:
        return setup.workspace_at(Path.cwd(), own=True, besides=besides), ""
    except (CommandRefused, OSError) as refusal:
        stand_in = Workspace(path=str(setup.home.sessions / "check" / "workspace"), own=True)
        return stand_in, f"{refusal}; judging as in an empty workspace of its own"


def lines_of(source: BinaryIO) -> Iterator[bytes]:
    """Return the lines of a stream; of one that is too long only the beginning, which is more than `read_call` takes."""
    while line := source.readline(LONGEST_LINE + 2):
        rest = line
        while not rest.endswith(b"\n") and len(rest) > LONGEST_LINE:
            rest = source.readline(LONGEST_LINE + 2)
        yield line


def read_call(content: bytes) -> tuple[str, JsonValue]:
    """Return tool and arguments of a line `{"tool": …, "arguments": {…}}`; raise `BadCall` for anything else."""
    if len(content) > LONGEST_LINE + 1:
        raise BadCall(INVALID, f"the line is longer than {LONGEST_LINE} bytes")
    try:
        told = read_json(content.decode())
    except UnicodeDecodeError:
        raise BadCall(INVALID, "the line is not UTF-8") from None
    except RecursionError:
        raise BadCall(INVALID, "the line is nested too deeply") from None
    except json.JSONDecodeError as error:
        why = f"{error.msg.lower()} at character {error.pos}" if content.strip() else "it is blank"
        raise BadCall(INVALID, f"the line is no JSON: {why}") from None
    except ValueError as error:
        raise BadCall(INVALID, f"the line is no JSON: {error}") from None
    if not isinstance(told, dict) or told.keys() != {"tool", "arguments"}:
        raise BadCall(INVALID, 'write `{"tool": "server.tool", "arguments": {…}}`, with these two keys alone')
    tool = told["tool"]
    if not isinstance(tool, str):
        raise BadCall(INVALID, "`tool` must be a string")
    return tool, told["arguments"]
