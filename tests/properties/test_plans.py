"""Any plan, and any calls after it: a plan never answers anything outside its list, nor anything in it more often than it is listed."""

from collections import Counter, defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from curtainwall.model import (
    SYSTEM,
    AddLabels,
    CallPermitted,
    ChangeMode,
    Cover,
    Digest,
    Effect,
    GrantUsed,
    Mode,
    RevokeGrant,
    Subject,
)
from curtainwall.policy import judge
from curtainwall.session import covers_of, decide
from tests.support.covers import covers
from tests.support.given import (  # fmt: skip
    ANN,
    PROJECT,
    answer,
    asked,
    changed,
    delete,
    fetch,
    finished,
    given,
    moment,
    plan,
    proceed,
    push,
    read,
    ready,
    requested,
    source,
    wish,
    write,
)

PLACES = ("/srv/project/a", "/srv/project/b", "/etc/c")
CALLS: list[Subject] = [
    *(write(place) for place in PLACES),
    *(write(place, "other") for place in PLACES),
    *(delete(place) for place in PLACES),
    *(read(place) for place in PLACES),
    read(*PLACES),
    fetch("example.com"),
    fetch("example.com", "/other"),
    fetch("docs.python.org"),
    push("github.com/a/b"),
    changed(write(PLACES[0])),
]
STEPS = st.sampled_from(CALLS)
MEANWHILE = st.sampled_from(["nothing", "sensitive", "untrusted-content", "revoke", "plan mode"])


@covers("session.a-plan-answers-nothing-outside-its-list")
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@for_all(steps=st.lists(STEPS, min_size=1, max_size=5), calls=st.lists(st.tuples(STEPS, MEANWHILE), max_size=12))
def test_a_plan_never_answers_anything_outside_its_list(steps: list[Subject], calls: list[tuple[Subject, str]]) -> None:
    what = wish("plan", plan(*steps))
    here = given(ready(PROJECT))
    # A step is shown with what it asks behind those before it, and the same one may stand at two places.
    verdict = judge(here.rules.policy, what.subject, here.state.facts)
    shown: defaultdict[Digest, list[tuple[Cover, ...]]] = defaultdict(list)
    for place, step in enumerate(steps):
        found = tuple(finding for finding in verdict.findings if finding.step == place)
        if covers_here := covers_of(verdict.model_copy(update={"findings": found}), what.subject):
            shown[step.digest].append(covers_here)
    here = here.happened(asked(what))
    if here.state.approvals:
        here = here.happened(answer(what), proceed(what))
    here = here.happened(finished(what))
    left = Counter({digest: len(found) for digest, found in shown.items()})
    for number, (call, meanwhile) in enumerate(calls):
        if meanwhile == "plan mode":
            here = here.happened(ChangeMode(by=ANN, mode=Mode.PLAN))
        elif meanwhile == "revoke" and here.state.grants:
            here = here.happened(RevokeGrant(by=ANN, grant=next(iter(here.state.grants))))
        elif meanwhile not in ("nothing", "revoke"):
            here = here.happened(AddLabels(by=SYSTEM, labels=(source(meanwhile),)))
        events = decide(here.state, requested(wish(f"c{number}", call)), here.rules, moment())
        here = here.after(events)
        for permit in (event for event in events if isinstance(event, CallPermitted) and event.verdict.effect is Effect.ASK):
            assert left[call.digest] > 0, "it was not in the list, or was used up"
            left[call.digest] -= 1
            assert any(isinstance(event, GrantUsed) for event in events)
            assert any(_are_among(covers_of(permit.verdict, call), found) for found in shown[call.digest]), "a rule nobody was shown asks"


def _are_among(asked: tuple[Cover, ...], shown: tuple[Cover, ...]) -> bool:
    rules = {(cover.role, cover.value): set(cover.rules) for cover in shown}
    return all(set(cover.rules) <= rules.get((cover.role, cover.value), set()) for cover in asked)
