"""What one write changes in the lists, and what it need not."""

from curtainwall.model import AnyEvent, StreamId
from curtainwall.store.projection import ApprovalListed, CallForgotten, CallNamed, Change, changes, net
from tests.support.stores import asked, denied, finished, permitted, requested


def made(*events: AnyEvent) -> list[Change]:
    return [change for event in events for change in changes(StreamId("session:a"), event)]


def kinds(told: list[Change]) -> list[type[Change]]:
    return [type(change) for change in told]


def test_a_call_that_is_permitted_at_once_is_never_named_in_the_lists() -> None:
    assert kinds(made(requested("c1"), permitted("c1"))) == [CallNamed, CallForgotten]
    assert net(made(requested("c1"), permitted("c1"))) == []
    assert made(finished("c1")) == []


def test_a_call_that_someone_is_asked_about_keeps_its_name() -> None:
    for told in (made(requested("c1")), made(requested("c1"), asked("ap1", "c1")), made(requested("c1"), asked("ap1", "c1"), denied("c1"))):
        assert net(told) == told
    assert ApprovalListed in kinds(made(asked("ap1", "c1")))


def test_only_what_is_forgotten_later_loses_its_name() -> None:
    told = made(denied("c1"), requested("c1"), requested("c2"), permitted("c2"))
    assert net(told) == told[:2]
