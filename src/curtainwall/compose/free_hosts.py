"""What an agent is told of the network before it asks: which hosts it may fetch from freely, and what becomes of all others."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from curtainwall.compose.gate import GatedSessions
from curtainwall.model import BadCall, Effect, HostFacts, Place, Scope, SessionId, ToolHost
from curtainwall.policy import Policy, judge
from curtainwall.session import Rules, SessionState, standing_answer

_TOOL: Final = "fetch.get"
_MOST_NAMED: Final = 20
_MOST_LETTERS: Final = 600
_MOST_TRIED: Final = 60
# What no list and no rule names, in the place of everything that none does.
_STRANGER: Final = "a-host-that-nobody-named"
_ELSEWHERE: Final = f"{_STRANGER}.com"

_READING: Final = "That is for reading; a request with a body is judged on its own. What a call answers is what holds."


@dataclass(frozen=True, slots=True)
class FreeHosts:
    """What lists and rules say to one session right now."""

    others: Effect
    """What becomes of a public host that nobody named."""
    named: tuple[str, ...] = ()
    """Public hosts that are free; `*.` stands for every subdomain."""
    is_more: bool = False
    """Others may be free that are not named: there are too many, or they are of a private network."""
    is_asked: bool = False
    """Some that are named in lists or rules are asked about."""

    def text(self) -> str:
        """Return it in words for an agent."""
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


@dataclass(frozen=True, slots=True)
class _FetchJudge:
    """The gate's own judgement on calls that nobody makes. Nothing is logged, looked up or connected to."""

    tools: ToolHost
    rules: Rules
    state: SessionState

    def effect(self, host: str) -> tuple[Effect, bool]:
        """Return what becomes of fetching from a host, and whether it is a public one; raise `BadCall`."""
        facts = self.state.facts
        place = Place(session=SessionId(facts.session), workspace=facts.workspace, mode=facts.mode)
        subject = self.tools.prepare(_TOOL, {"url": f"https://{host}/"}, place).subject
        is_public = all(it.facts.scope is Scope.PUBLIC for it in subject.resources if isinstance(it.facts, HostFacts))
        verdict = judge(self.rules.policy, subject, facts)
        is_answered = verdict.effect is Effect.ASK and standing_answer(self.state, subject, verdict, self.rules) is not None
        return Effect.ALLOW if is_answered else verdict.effect, is_public


def free_hosts(tools: ToolHost, rules: Rules, state: SessionState) -> FreeHosts | None:
    """Return what a session may fetch from, or None where it has nothing to fetch with.

    INVARIANT: only what this session would be allowed now is named. What is asked about or refused is not, and nor is anything of a
    private network: an agent, and its model's provider, learn no more of that than the user tells them.
    """
    asking, named, letters, tried = _FetchJudge(tools, rules, state), list[str](), 0, 0
    try:
        others, _ = asking.effect(_ELSEWHERE)
    except BadCall:
        return None
    is_more = is_asked = False
    if others is Effect.ALLOW:
        return FreeHosts(others)
    for name in _candidates(rules.policy):
        tried += 1
        if tried > _MOST_TRIED or len(named) == _MOST_NAMED or letters > _MOST_LETTERS:
            is_more = True
            break
        try:
            effect, is_public = asking.effect(_example_host(name))
        except BadCall:
            continue
        is_asked = is_asked or effect is Effect.ASK
        if effect is Effect.ALLOW and is_public:
            named.append(name)
            letters += len(name)
        is_more = is_more or (effect is Effect.ALLOW and not is_public)
    return FreeHosts(others, tuple(named), is_more, is_asked)


def describe_hosts(wired: GatedSessions, session: SessionId) -> str:
    """Return what a session's agent is told of the network; nothing where it has nothing to fetch with."""
    # Only looked at: a process that is got ready for a session may stand beside the one that decides for it.
    state = wired.house.peek(session) or wired.sessions.state(session)
    found = free_hosts(wired.tools, wired.in_force.terms().rules.of_session(state.opened), state)
    return "" if found is None else found.text()


def _candidates(policy: Policy) -> Iterator[str]:
    """Yield what lists and rules name, as it is told, once each."""
    yield from dict.fromkeys((*policy.lists.hosts, *(name for host in policy.permitted_hosts for name in (host, f"*.{host}"))))


def _example_host(name: str) -> str:
    """Return a host for a URL: for a wildcard, one that only the wildcard covers."""
    bare = f"{_STRANGER}{name[1:]}" if name.startswith("*.") else name
    return f"[{bare}]" if bare.count(":") > 1 and not bare.startswith("[") else bare
