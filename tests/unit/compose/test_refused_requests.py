"""Refused requests in the log: masked, cut, in their turn, and also those of the end."""

from pathlib import Path

from curtainwall.compose.network import RefusedRequests
from curtainwall.egress import Refusal
from curtainwall.facts import Masker
from curtainwall.model import CloseSession, RefusedRequest, RequestsRefused, TurnId
from curtainwall.runtime import SessionJournal, SystemClock
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, events, house, open_session, run
from tests.support.talking import of

KEY = "sk-ant-api03-" + "stolen0123456789" * 5
PLAIN = "a-key-of-no-known-shape"


@covers("brokered.refusals-recorded")
def test_neither_keys_nor_secrets_in_a_path_are_written_down_and_the_same_key_has_the_same_mask(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, tmp_path)
            masker = Masker(b"k" * 32)
            log = RefusedRequests(session, SessionJournal(opened), opened.clock, masker, lambda: TurnId("t"))
            path = f"/v1/{KEY}/{'x' * 5_000}"
            await log.report([(Refusal("key", "api.example", "POST", path, "no", key), 3) for key in (KEY, PLAIN)], 7)
            (event,) = of(RequestsRefused, events(opened, session))
            assert (event.turn, event.more, [request.count for request in event.requests]) == ("t", 7, [3, 3])
            text = event.model_dump_json()
            assert not [secret for secret in (KEY, PLAIN, KEY[:40]) if secret in text]
            shaped, plain = event.requests
            assert shaped.key == masker.mask_text(KEY), "as it stands wherever else it was seen"
            assert plain.key.startswith("[masked:")
            assert len(shaped.path) == 200
            assert shaped.path.endswith("…")
            await opened.send(session, CloseSession(by=ANN, reason="enough"))
            await log.report([(Refusal("host", "x", "CONNECT", "", "no"), 1)], 0)
            late = of(RequestsRefused, events(opened, session))[-1]
            assert [request.host for request in late.requests] == ["x"], "the last ones are reported when the session may have ended"

    run(story())


def test_a_request_without_a_key_has_none_in_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            session = await open_session(opened, tmp_path)
            log = RefusedRequests(session, SessionJournal(opened), opened.clock, Masker(b"k" * 32))
            await log.report([(Refusal("host", "x.example:443", "CONNECT", "", "no"), 1)], 0)
            (event,) = of(RequestsRefused, events(opened, session))
            assert (event.turn, event.requests) == (
                None,
                (RefusedRequest(kind="host", host="x.example:443", method="CONNECT", reason="no"),),
            )

    run(story())
