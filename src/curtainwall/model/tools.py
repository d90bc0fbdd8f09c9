"""What a tool is, before anyone runs it: name, schema, effect, and what its arguments mean."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from curtainwall.model.events.life import Workspace
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import SessionId
from curtainwall.model.subjects import Role, Subject, ToolEffect
from curtainwall.model.verdicts import Mode

if TYPE_CHECKING:
    # Start-up time: whoever needs a tool's name needs no commands.
    from curtainwall.model.commands import MessagePeer

FOLLOW_INSTRUCTIONS: Final = "session.follow_instructions"
"""What the house asks for before an instruction file counts that is new or has changed."""

PROPOSE_PLAN: Final = "session.propose_plan"
SET_WORKING_DIR: Final = "git.set_working_dir"
"""A list of calls to be answered as one."""

SHELL_RUN: Final = "shell.run"
"""A command in a shell, which sees a project read-only until its edits are granted as a whole."""

MOVE_FILE: Final = "filesystem.move_file"
"""A file or directory on its way to another path, of which a human is shown what it is."""

GIT_CLONE: Final = "git.clone"
"""A copy of a repository."""

HERE: Final = "."
"""The workspace itself, as an argument of a call."""

GIT_PUSH: Final = "git.push"
"""A branch on its way to a remote, of which a human is shown the commit."""

PUSH_SECRETS: Final = "git.push_secrets"
"""What a push also is whose commits bring files that are named like secrets, or cannot be looked through for them."""

LOAD_SKILL: Final = "session.load_skill"
REMEMBER: Final = "session.remember"

TRUST_SKILL: Final = "session.trust_skill"
"""What loading a skill of the workspace also is, until a human has seen exactly this one."""

REMEMBER_FOR_ALL: Final = "session.remember_for_all"
"""What a note also is that every later session can read, not only those of one project."""

EGRESS_SERVER: Final = "egress"
"""Under this name stand the ways to the network that foreign agents take past tools; the house asks for them in the agent's place."""

CONNECT_SERVER: Final = f"{EGRESS_SERVER}.connect_server"
"""What a sandboxed tool server wants when it opens a connection to a host that its user named."""


def may_change_files(workspace: Workspace, mode: Mode) -> bool:
    """Tell whether commands may change a workspace: in a project they could do it unseen, so its edits must be granted as a whole."""
    return workspace.own or mode in {Mode.ACCEPT_EDITS, Mode.BYPASS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The session that a call belongs to, as far as meaning depends on it."""

    session: SessionId
    workspace: Workspace
    mode: Mode = Mode.DEFAULT
    git_directory: str = ""
    """Where git works when a call names no path; empty for the workspace."""
    agent: str = ""
    """Who works in the session."""
    team: str = ""
    """The team that the session speaks for, if any."""


class Case(Frozen):
    """Other roles for an argument: those that it plays where a second argument is exactly one of these values (`true` is not 1).

    With no value named it is enough that the second argument is given. The catalogue sees to it that then nothing gets looser.
    """

    argument: str
    equals: tuple[JsonValue, ...] = ()
    roles: tuple[Role, ...]


class Meaning(Frozen):
    """The roles that an argument plays: those of the first case that holds, otherwise `roles`.

    `default` is what stands there when the argument is left out. A relative value starts from the argument named in `within`, or from the
    session's working directory where `tracked`, otherwise from the workspace. With `follows` off the argument means the link itself.
    A `revision` is git's word for a commit or object, and its roles are those of the paths behind a colon in it. With `whole` the
    tool works on everything beneath the path, and a yes to the directory alone is none to that.
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
    """Tell whether some roles ask for everything that others ask for; the stronger role may be in place of the weaker."""
    given = frozenset(roles)
    return all(role in given or _STRONGER.get(role) in given for role in others)


def fault_of_cases(roles: Sequence[Role], cases: Sequence[Case]) -> str:
    """Return what depends on the spelling of a value in cases about a tool that is not ours, with what to write instead, or nothing.

    A server may take `"RM"`, `" rm"` or nothing at all for `"rm"`, and nobody here knows. So what holds where no value fits must be the
    strictest, a value may only ask for less, and it must not come before a case that asks for more whatever the value is.
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
    """Only the house itself asks for this; to agents there is no such tool."""

    @property
    def full_name(self) -> str:
        """Return `server.tool`, the name that everyone uses."""
        return f"{self.server}.{self.name}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A subject and the unmasked canonical arguments it would run with; the latter never reach the log."""

    subject: Subject
    arguments: Mapping[str, JsonValue]
    along: "MessagePeer | None" = None
    """What can be written together with the permit; whoever runs the call finds it here only where it was."""


class ToolResult(Frozen):
    """What a tool gave back, masked."""

    ok: bool
    value: JsonValue
    is_logged: bool = False
    """The outcome is in the log already, as it stands here: it was written together with what the tool waited for."""
