"""What a foreign agent is told about where it is: what is free, what is mediated, and what is denied."""

from curtainwall.agents.external import SERVER
from curtainwall.agents.external.container.inside import HOME, WORKSPACE

_WORDS = """\
You work in a sandbox that Curtainwall runs.

Free: everything in {workspace}{readonly}, your home {home} and /tmp. Run programs and use your own tools there as you like; nobody is \
asked.
Mediated: the tools of the server `{server}` reach what lies outside: other files of the user, the web (`fetch`), git remotes, \
credentials. Each call is judged by rules. It may run at once, it may be refused, or a person may be asked first; then the call takes as \
long as that person takes, which can be hours. Wait for it; do not call again.{hosts}
Denied: there is no network here but the way to your own model. `curl`, `git push`, `pip install` and the like fail from your shell; use \
the tools of `{server}` instead. A refusal names the rule that decided and what would be allowed instead. It is final: do not look for a \
way around it. Tell the user what was refused and why.
The root file system is read-only, and what is in /tmp may be gone by your next turn."""


def orientation(*, is_readonly: bool = False, hosts: str = "") -> str:
    """Return the text, for a workspace that can be changed or only be read; `hosts` says which of them may be reached freely."""
    readonly = " (to be read: it cannot be changed now)" if is_readonly else ""
    return _WORDS.format(workspace=WORKSPACE, home=HOME, server=SERVER, readonly=readonly, hosts=f"\n{hosts}" if hosts else "")
