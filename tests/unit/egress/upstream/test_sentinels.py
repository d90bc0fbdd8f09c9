"""Stand-ins for keys: their shape, what is taken for one, and that the real key shows itself nowhere else."""

import asyncio

import pytest

from curtainwall.egress import ANTHROPIC, BEARER, GEMINI, OPENAI, Access, mint
from curtainwall.egress.refusals import Refused
from curtainwall.egress.upstream.sentinels import Keyring
from curtainwall.host import Unavailable
from tests.support.covers import covers
from tests.support.egress import REAL, Fixed, Tokens

X_API_KEY = ANTHROPIC.keys[0]


@pytest.mark.parametrize(("provider", "shape"), [(ANTHROPIC, "sk-ant-"), (OPENAI, "sk-"), (GEMINI, "AIza")])
@covers("egress.sentinel-shape")
def test_a_stand_in_looks_like_the_providers_keys_and_has_192_bits(provider, shape: str) -> None:
    made = {mint(provider) for _ in range(100)}
    assert len(made) == 100
    assert all(each.startswith(shape) and len(each) == len(provider.shape) + 32 for each in made)


def test_a_stand_in_that_is_still_in_use_can_be_taken_over() -> None:
    assert Keyring(Access(ANTHROPIC, Fixed(), sentinel="sk-ant-older")).sentinel == "sk-ant-older"


def test_nothing_that_can_be_printed_shows_a_key() -> None:
    async def story() -> None:
        access = Access(ANTHROPIC, Fixed())
        keyring = Keyring(access)
        await keyring.header(X_API_KEY)
        assert REAL not in repr(access) + repr(keyring) + str(keyring)
        assert keyring.sentinel not in repr(access) + repr(keyring)

    asyncio.run(story())


def test_other_headers_stay_and_a_key_for_repeating_is_no_key() -> None:
    keyring = Keyring(Access(ANTHROPIC, Fixed()))
    others = [(b"anthropic-beta", b"x"), (b"idempotency-key", b"1"), (b"x-stainless-lang", b"js"), (b"x-goog-api-client", b"y")]
    assert keyring.stripped([*others, (b"x-api-key", keyring.sentinel.encode())]) == (others, X_API_KEY)


def test_a_key_may_stand_where_the_providers_libraries_put_it_and_stays_there() -> None:
    async def story() -> None:
        keyring = Keyring(Access(ANTHROPIC, Fixed()))
        bearer = (b"authorization", f"Bearer {keyring.sentinel}".encode())
        assert keyring.stripped([bearer]) == ([], BEARER)
        assert await keyring.header(BEARER) == (b"authorization", f"Bearer {REAL}".encode())
        token = Keyring(Access(ANTHROPIC, Fixed(), oauth=True))
        with pytest.raises(Refused, match="not this session's key"):
            token.stripped([(b"x-api-key", token.sentinel.encode())])

    asyncio.run(story())


@pytest.mark.parametrize(
    "name", ["authorization", "x-api-key", "api-key", "x-goog-api-key", "x-auth-token", "proxy-authorization", "x-amz-security-token"]
)
def test_a_second_key_under_any_name_is_refused(name: str) -> None:
    keyring = Keyring(Access(ANTHROPIC, Fixed()))
    with pytest.raises(Refused, match="more than one key"):
        keyring.stripped([(b"x-api-key", keyring.sentinel.encode()), (name.encode(), b"sk-ant-mine")])


def test_a_key_is_read_when_it_is_needed_and_kept_for_a_moment() -> None:
    class Counting:
        is_at_hand = True
        times = 0

        async def read(self) -> str:
            self.times += 1
            return REAL

    async def story() -> None:
        source = Counting()
        keyring = Keyring(Access(ANTHROPIC, source))
        assert source.times == 0
        for _ in range(3):
            assert await keyring.header(X_API_KEY) == (b"x-api-key", REAL.encode())
        assert source.times == 1
        assert await keyring.renew((b"x-api-key", REAL.encode()), X_API_KEY) is None
        await keyring.header(X_API_KEY)
        assert source.times == 2, "a key that was refused is read anew, in case the user has changed it"

    asyncio.run(story())


@pytest.mark.parametrize("value", ["", "short", "two words of text", "line\nline-line", "schlüssel-schlüssel"])
def test_what_is_no_key_is_not_sent(value: str) -> None:
    with pytest.raises(Refused, match="is no key"):
        asyncio.run(Keyring(Access(ANTHROPIC, Fixed(value))).header(X_API_KEY))


def test_a_key_that_is_not_to_be_had_is_said_without_its_place() -> None:
    class Missing:
        is_at_hand = True

        async def read(self) -> str:
            raise Unavailable("the environment variable `SECRET_PLACE` is not set")

    with pytest.raises(Refused) as refusal:
        asyncio.run(Keyring(Access(ANTHROPIC, Missing())).header(X_API_KEY))
    assert "SECRET_PLACE" not in refusal.value.reason


def test_many_refusals_of_one_token_refresh_it_once() -> None:
    async def story() -> None:
        source = Tokens("token-number-one", ["token-number-two"])
        keyring = Keyring(Access(ANTHROPIC, source, oauth=True))
        stale = await keyring.header(BEARER)
        renewed = await asyncio.gather(*(keyring.renew(stale, BEARER) for _ in range(10)))
        assert set(renewed) == {(b"authorization", b"Bearer token-number-two")}
        assert source.asked == ["token-number-one"]
        assert keyring.secrets == (b"token-number-one", b"token-number-two")

    asyncio.run(story())
