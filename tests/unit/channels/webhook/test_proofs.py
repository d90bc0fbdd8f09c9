"""Who may deliver, and what makes a delivery the same one again."""

import hashlib
import hmac

import pytest

from curtainwall.channels.webhook import DeliveryRefused, Proof
from tests.support.covers import covers

SECRET = "correct horse battery staple"
NOW = 1_700_000_000_000
BODY = b'{"a": 1}'
SIGNED = Proof("hmac", SECRET, "X-Hub-Signature-256", "sha256=")
TIMED = Proof("hmac", SECRET, "X-Signature", "", "X-Time")
TOKEN = Proof("token", SECRET, "Authorization", "Bearer ", key_header="Idempotency-Key")


def sign(content: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def timed(at: int = NOW // 1000, body: bytes = BODY) -> dict[str, str]:
    return {"x-time": str(at), "x-signature": sign(f"{at}.".encode() + body)}


@covers("webhook.only-whoever-knows-the-secret-delivers")
def test_a_signature_of_the_body_is_a_proof() -> None:
    assert SIGNED.checked({"x-hub-signature-256": f"sha256={sign(BODY)}"}, BODY, NOW) == hashlib.sha256(BODY).hexdigest()


@covers("webhook.only-whoever-knows-the-secret-delivers")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-hub-signature-256": ""},
        {"x-hub-signature-256": sign(BODY)},
        {"x-hub-signature-256": f"sha256={sign(BODY, 'another secret')}"},
        {"x-hub-signature-256": f"sha256={sign(BODY)[:-1]}"},
        {"x-hub-signature-256": f"sha256={sign(BODY).upper()}"},
        {"x-hub-signature-256": f"sha1={sign(BODY)}"},
        {"x-hub-signature-256": "sha256=\udcff"},
        {"authorization": f"Bearer {SECRET}"},
    ],
)
def test_anything_else_is_none(headers: dict[str, str]) -> None:
    with pytest.raises(DeliveryRefused) as refusal:
        SIGNED.checked(headers, BODY, NOW)
    assert refusal.value.status == 401


@covers("webhook.only-whoever-knows-the-secret-delivers")
def test_a_changed_body_has_another_signature() -> None:
    with pytest.raises(DeliveryRefused):
        SIGNED.checked({"x-hub-signature-256": f"sha256={sign(BODY)}"}, BODY + b" ", NOW)


@covers("webhook.replays-are-refused")
def test_a_signed_time_must_be_near() -> None:
    assert TIMED.checked(timed(), BODY, NOW) == TIMED.checked(timed(), BODY, NOW)
    for late in (301, -301):
        with pytest.raises(DeliveryRefused, match="older or newer"):
            TIMED.checked(timed(), BODY, NOW + late * 1000)


@covers("webhook.replays-are-refused")
@pytest.mark.parametrize("told", ["", "soon", "-5", "1e9", "٣", "9" * 13])
def test_a_time_that_is_none_is_refused(told: str) -> None:
    with pytest.raises(DeliveryRefused) as refusal:
        TIMED.checked({**timed(), "x-time": told}, BODY, NOW)
    assert refusal.value.status == 401


@covers("webhook.replays-are-refused")
def test_a_time_that_was_not_signed_is_no_proof() -> None:
    with pytest.raises(DeliveryRefused, match="signature"):
        TIMED.checked({**timed(), "x-time": str(NOW // 1000 + 1)}, BODY, NOW)


@covers("webhook.a-delivery-is-one-session")
def test_what_is_signed_makes_a_delivery_the_same_whatever_else_its_sender_calls_it() -> None:
    headers = {"x-hub-signature-256": f"sha256={sign(BODY)}"}
    assert SIGNED.checked({**headers, "x-github-delivery": "1"}, BODY, NOW) == SIGNED.checked(
        {**headers, "x-github-delivery": "2"}, BODY, NOW
    )


@covers("webhook.a-delivery-is-one-session")
def test_with_a_token_the_sender_names_its_deliveries_or_the_body_does() -> None:
    right = {"authorization": f"Bearer {SECRET}"}
    assert TOKEN.checked(right, BODY, NOW) == hashlib.sha256(BODY).hexdigest()
    first = TOKEN.checked({**right, "idempotency-key": "1"}, BODY, NOW)
    assert first == TOKEN.checked({**right, "idempotency-key": "1"}, b"other", NOW)
    assert first != TOKEN.checked({**right, "idempotency-key": "2"}, BODY, NOW)
    # A name that looks like a digest is not taken for one.
    assert TOKEN.checked({**right, "idempotency-key": hashlib.sha256(BODY).hexdigest()}, b"", NOW) != hashlib.sha256(BODY).hexdigest()
    with pytest.raises(DeliveryRefused) as refusal:
        TOKEN.checked({**right, "idempotency-key": "k" * 201}, BODY, NOW)
    assert refusal.value.status == 400
    with pytest.raises(DeliveryRefused):
        TOKEN.checked({"authorization": SECRET}, BODY, NOW)
