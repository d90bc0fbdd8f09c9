"""The description of the network for agents: which hosts they may fetch from without asking, and what happens with others."""

from collections.abc import Iterator
from typing import Final, assert_never

from curtainwall.compose.gate import GatedSessions
from curtainwall.model import BadCall, Effect, HostFacts, Place, Scope, SessionId, ToolHost, record
from curtainwall.policy import Policy, judge
from curtainwall.session import Rules, SessionState, covers_of, standing_answer

_TOOL: Final = "fetch.get"
_MOST_NAMED: Final = 20
_MOST_LETTERS: Final = 600
_MOST_TRIED: Final = 60
# A host that no list or rule names, to represent all such hosts.
_STRANGER: Final = "a-host-that-nobody-named"
_ELSEWHERE: Final = f"{_STRANGER}.com"

_READING: Final = "That is for reading; a request with a body is judged on its own. What a call answers is what holds."


@record
class FreeHosts:
    """What lists and rules currently allow one session to fetch from."""

    others: Effect
    """The effect for a public host that no list or rule names."""
    named: tuple[str, ...] = ()
    """Public hosts that are allowed without asking; `*.` means every subdomain."""
    is_more: bool = False
    """Whether more hosts may be allowed: there are too many to name, or they are on a private network."""
    is_asked: bool = False
    """Whether some hosts in lists or rules need approval."""

    def text(self) -> str:
        """Return the description for an agent."""
        if self.others is Effect.ALLOW:
            return f"Hosts: `fetch` reads from any public host without anybody being asked, unless a rule says otherwise. {_READING}"
        rest = self._rest()
        if not self.named and not self.is_more:
            return f"Hosts: none may be fetched from freely; each {rest}."
        more = (
            ("others that are not named here" if self.named else "some of the user's own network, not named here",) if self.is_more else ()
        )
        return (
            f"Hosts: `fetch` reads from these without anybody being asked: {', '.join((*self.named, *more))}. Any other {rest}. {_READING}"
        )

    def _rest(self) -> str:
        match self.others:
            case Effect.ASK:
                return "is asked of a person first, unless a rule refuses it outright"
            case Effect.DENY:
                return "is refused, or asked of a person first" if self.is_asked else "is refused"
            case Effect.ALLOW:
                return "is free"
            case _:
                assert_never(self.others)


@record
class _FetchJudge:
    """Judges hypothetical calls as the gate would. Nothing is logged, resolved or connected to."""

    tools: ToolHost
    rules: Rules
    state: SessionState

    def effect(self, host: str) -> tuple[Effect, bool]:
        """Return the effect of fetching from a host, and whether the host is public; raise `BadCall`."""
        facts = self.state.facts
        place = Place(session=SessionId(facts.session), workspace=facts.workspace, mode=facts.mode)
        subject = self.tools.prepare(_TOOL, {"url": f"https://{host}/"}, place).subject
        is_public = all(it.facts.scope is Scope.PUBLIC for it in subject.resources if isinstance(it.facts, HostFacts))
        verdict = judge(self.rules.policy, subject, facts)
        if verdict.effect is Effect.ASK and standing_answer(self.state, subject, covers_of(verdict, subject), self.rules) is not None:
            return Effect.ALLOW, is_public
        return verdict.effect, is_public


def free_hosts(tools: ToolHost, rules: Rules, state: SessionState) -> FreeHosts | None:
    """Return what a session may fetch from, or None if it has no tool to fetch with.

    INVARIANT: this names only hosts that the session may fetch from now. It names no hosts that need approval or are refused, and none
    on a private network: an agent, and its model's provider, learn no more about those than the user tells them.
    """
    fetch_judge, hosts, letters, tried = _FetchJudge(tools, rules, state), list[str](), 0, 0
    try:
        others, _ = fetch_judge.effect(_ELSEWHERE)
    except BadCall:
        return None
    is_more = is_asked = False
    if others is Effect.ALLOW:
        return FreeHosts(others)
    for name in _candidates(rules.policy):
        tried += 1
        if tried > _MOST_TRIED or len(hosts) == _MOST_NAMED or letters > _MOST_LETTERS:
            is_more = True
            break
        try:
            effect, is_public = fetch_judge.effect(_example_host(name))
        except BadCall:
            continue
        is_asked = is_asked or effect is Effect.ASK
        if effect is Effect.ALLOW and is_public:
            hosts.append(name)
            letters += len(name)
        is_more = is_more or (effect is Effect.ALLOW and not is_public)
    return FreeHosts(others, tuple(hosts), is_more, is_asked)


def describe_hosts(wired: GatedSessions, session: SessionId) -> str:
    """Return the description of the network for a session's agent; empty if it has no tool to fetch with."""
    # Read only: this may be a warm process, while another process decides for the session.
    state = wired.registry.peek(session) or wired.sessions.state(session)
    hosts = free_hosts(wired.tools, wired.active.terms().rules.of_session(state.opened), state)
    return "" if hosts is None else hosts.text()


def _candidates(policy: Policy) -> Iterator[str]:
    """Yield the hosts in lists and rules, once each."""
    yield from dict.fromkeys((*policy.lists.hosts, *(name for host in policy.permitted_hosts for name in (host, f"*.{host}"))))


def _example_host(name: str) -> str:
    """Return a host for a URL: for a wildcard, one that only the wildcard covers."""
    bare = f"{_STRANGER}{name[1:]}" if name.startswith("*.") else name
    return f"[{bare}]" if bare.count(":") > 1 and not bare.startswith("[") else bare
