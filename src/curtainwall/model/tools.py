"""The description of a tool, apart from running it: name, schema, effect, and what its arguments mean."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import SessionId
from curtainwall.model.records import record
from curtainwall.model.subjects import Role, Subject, ToolEffect
from curtainwall.model.verdicts import Mode
from curtainwall.model.workspaces import Workspace

if TYPE_CHECKING:
    # Start-up time: many modules need a tool's name and no commands.
    from curtainwall.model.commands import MessagePeer

FOLLOW_INSTRUCTIONS: Final = "session.follow_instructions"
"""The call that the house makes before a new or changed instruction file counts."""

PROPOSE_PLAN: Final = "session.propose_plan"
"""Proposes several calls, to be answered as one."""

SET_WORKING_DIR: Final = "git.set_working_dir"

SHELL_RUN: Final = "shell.run"
"""Runs a command in a shell, where a project is read-only until its edits are granted as a whole."""

MOVE_FILE: Final = "filesystem.move_file"
"""Moves a file or directory; the human who approves it is shown what it is."""

GIT_CLONE: Final = "git.clone"
"""Clones a repository."""

HERE: Final = "."
"""The workspace itself, as an argument of a call."""

GIT_PUSH: Final = "git.push"
"""Pushes a branch to a remote; the human who approves it is shown the commit."""

PUSH_SECRETS: Final = "git.push_secrets"
"""An additional resource of a push whose commits contain files named like secrets, or cannot be searched for them."""

APPLY_CHANGES: Final = "session.apply_changes"
"""The call that the house makes at the end of a turn to apply what the session changed in its view of a project."""

TAKES_BACK: Final = "takes_back"
"""The argument of an application that takes an earlier one back; its value is that call."""
LEFT_ALONE: Final = "left_alone"
"""In the outcome of an application: the positions in the change set of what was accepted and not applied."""
APPLIED: Final = "applied"
"""In the outcome of an application of which something was left alone: how many changes were applied."""

LOAD_SKILL: Final = "session.load_skill"
REMEMBER: Final = "session.remember"

TRUST_SKILL: Final = "session.trust_skill"
"""An additional resource of loading a workspace skill that no human has seen in exactly this state."""

REMEMBER_FOR_ALL: Final = "session.remember_for_all"
"""An additional resource of a note that every later session can read, not only those of one project."""

EGRESS_SERVER: Final = "egress"
"""The server name of network access that external agents use outside of tools; the house makes these calls for the agent."""

CONNECT_SERVER: Final = f"{EGRESS_SERVER}.connect_server"
"""The call for a connection that a sandboxed tool server opens to a host that its user named."""


def may_change_files(workspace: Workspace, mode: Mode) -> bool:
    """Tell whether commands may change what they see of a workspace.

    In a project they could do so unseen, so edits must be granted as a whole first, or the commands work on a view of the project.
    """
    return workspace.own or mode in {Mode.REVIEW, Mode.ACCEPT_EDITS, Mode.BYPASS}


def works_on_view(workspace: Workspace, mode: Mode) -> bool:
    """Tell whether calls work on a view of the workspace, which leaves the workspace itself untouched."""
    return not workspace.own and mode is Mode.REVIEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The part of a session on which the meaning of a call depends."""

    session: SessionId
    workspace: Workspace
    mode: Mode = Mode.DEFAULT
    git_directory: str = ""
    """Where git works when a call names no path; empty for the workspace."""
    agent: str = ""
    """The session's agent."""
    team: str = ""
    """The team that the session speaks for, if any."""


class Case(Frozen):
    """Other roles for an argument, for when a second argument is exactly one of these values (`true` is not 1).

    Without values it is enough that the second argument is given. The catalogue ensures that no case makes a call looser.
    """

    argument: str
    equals: tuple[JsonValue, ...] = ()
    roles: tuple[Role, ...]


class Meaning(Frozen):
    """The roles of an argument: those of the first case that holds, otherwise `roles`.

    `default` is the value if the argument is left out. A relative value starts from the argument named in `within`; or, if `tracked`, from
    the session's working directory; otherwise from the workspace. With `follows` off, the argument means the link itself. A `revision` is
    git's term for a commit or object, and its roles apply to the paths after a colon in it. With `whole` the tool works on everything
    beneath the path, which approval of the directory alone does not cover.
    """

    argument: str
    roles: tuple[Role, ...]
    cases: tuple[Case, ...] = ()
    default: str | None = None
    within: str | None = None
    tracked: bool = False
    follows: bool = True
    revision: bool = False
    whole: bool = False


_STRONGER: Final[Mapping[Role, Role]] = {Role.FETCH_URL: Role.SEND_URL, Role.READ_REMOTE: Role.WRITE_REMOTE}


def is_as_strict(roles: Iterable[Role], others: Iterable[Role]) -> bool:
    """Tell whether some roles ask for at least everything that others ask for; a stronger role may replace a weaker one."""
    given = frozenset(roles)
    return all(role in given or _STRONGER.get(role) in given for role in others)


def fault_of_cases(roles: Sequence[Role], cases: Sequence[Case]) -> str:
    """Return why the cases of an external tool depend on the spelling of a value, and what to write instead; or "".

    A server may treat `"RM"`, `" rm"` or a missing value like `"rm"`, and we cannot know. So the roles for any other value must be the
    strictest, a named value may only ask for less, and it must not precede a case that asks for more regardless of the value.
    """
    asks_for_less = False
    for case in cases:
        if case.equals and not is_as_strict(roles, case.roles):
            strictest = dict.fromkeys((*roles, *(role for each in cases for role in each.roles)))
            wanted = ", ".join(f'"{role}"' for role in strictest if _STRONGER.get(role) not in strictest)
            return (
                f"a case asks for more than `roles` where `{case.argument}` has one exact value, and a server may know other spellings of "
                f"it; write the strictest as `roles = [{wanted}]`, and cases for the values that need less"
            )
        if not case.equals and asks_for_less:
            return (
                f"a case that asks for less comes before the one for any `{case.argument}`; "
                f"write the case without `equals` first, because the first that holds counts"
            )
        asks_for_less |= not is_as_strict(case.roles, roles)
    return ""


class ToolSpec(Frozen):
    """One entry of the catalogue."""

    server: str
    name: str
    description: str
    schema_: Mapping[str, JsonValue]
    effect: ToolEffect
    meanings: tuple[Meaning, ...] = ()
    for_house: bool = False
    """Only the house itself makes this call; agents do not see the tool."""

    @property
    def full_name(self) -> str:
        """Return the full name, `server.tool`."""
        return f"{self.server}.{self.name}"


@record
class Prepared:
    """A subject with its unmasked canonical arguments, which never reach the log."""

    subject: Subject
    arguments: Mapping[str, JsonValue]
    along: "MessagePeer | None" = None
    """An event to write together with the permit; the runner finds it here only if it was written."""
    on_view: bool = False
    """Its paths were resolved in the session's view of the project, so it may only run there."""


class ToolResult(Frozen):
    """The result of a tool, masked."""

    ok: bool
    value: JsonValue
    is_logged: bool = False
    """The outcome is already in the log, exactly as here: it was written together with the event that the tool waited for."""
