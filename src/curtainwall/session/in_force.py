"""The rules that are in force in a session right now and why, for people."""

from collections import Counter
from collections.abc import Iterable

from curtainwall.model import AnyEvent, ApprovalAsked, RuleDisabled, RuleEnabled, RuleId, RuleStatus, Who
from curtainwall.policy import Policy, RuleCard
from curtainwall.session.card import label_words
from curtainwall.session.state import SessionState


def rules_in_force(state: SessionState, policy: Policy, events: Iterable[AnyEvent] = ()) -> tuple[RuleStatus, ...]:
    """Return every rule with its state in this session; the events show how often each asked, and who switched one off."""
    asked: Counter[RuleId] = Counter()
    disabled: dict[RuleId, Who] = {}
    for event in events:
        match event:
            case ApprovalAsked():
                asked.update({rule for cover in event.covers for rule in cover.rules})
            case RuleDisabled():
                disabled[event.rule] = event.by
            case RuleEnabled():
                disabled.pop(event.rule, None)
            case _:
                pass
    return tuple(_status(card, state, asked[card.id], disabled.get(card.id)) for card in policy.rules)


def _status(card: RuleCard, state: SessionState, asked: int, by: Who | None) -> RuleStatus:
    sources = tuple(source for label, source in state.labels.items() if label in card.labels)
    missing = [label for label in card.labels if label not in state.labels]
    status, why = "active", ""
    if card.id in state.disabled:
        status, why = "disabled", f"its asks count as answered{f', by {by}' if by else ''}"
    elif missing:
        status, why = "inactive", f"the session does not count as {' and '.join(missing)}"
    elif card.modes and state.mode.value not in card.modes:
        status, why = "inactive", f"the mode is {state.mode.value}, not {' or '.join(card.modes)}"
    elif sources:
        why = "; ".join(label_words(source) for source in sources)
    return RuleStatus(
        rule=card.id,
        title=card.title,
        reason=card.reason,
        kind=card.kind,
        source=card.source,
        text=card.text,
        status=status,
        why=why,
        asked=asked,
        labels=sources,
    )
