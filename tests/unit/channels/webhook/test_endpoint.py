"""How often deliveries are taken, and how often refusals are reported, whoever sets the clock meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine

import httpx2
import pytest

from curtainwall.channels.webhook.endpoint import Delivery, DeliveryStatus, Webhook, WebhookEndpoint
from curtainwall.channels.webhook.proofs import Proof
from curtainwall.model import SessionId
from tests.support.covers import covers
from tests.support.houses import FakeClock

DAY, MINUTE = 86_400_000, 60_000
SECRET = "a secret of more than sixteen letters"

Story = Callable[[httpx2.AsyncClient, FakeClock, list[str]], Coroutine[None, None, None]]


class Taken:
    """Takes every delivery as a session of its own."""

    async def take(self, delivery: Delivery) -> SessionId:
        return SessionId(delivery.key)

    def outcome(self, hook: str, session: SessionId) -> DeliveryStatus:
        raise NotImplementedError

    def ticket(self, hook: str, session: SessionId) -> str:
        return f"{hook}{session}"


def tell(story: Story) -> None:
    async def run() -> None:
        clock, reports = FakeClock(), list[str]()
        hook = Webhook("ci", Proof("token", SECRET, "authorization"), "go", per_minute=2)
        app = WebhookEndpoint({"ci": hook}, Taken(), clock, reports.append).app()
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://hooks") as client:
            await story(client, clock, reports)

    asyncio.run(run())


async def deliver(client: httpx2.AsyncClient, times: int, secret: str = SECRET) -> list[int]:
    posts = [await client.post("/hooks/ci", headers={"authorization": secret}, json={"n": n}) for n in range(times)]
    return [post.status_code for post in posts]


@covers("webhook.rates-are-measured")
@pytest.mark.parametrize("jump", [-DAY, DAY, 0])
def test_deliveries_are_counted_by_the_time_that_passes_and_not_by_the_time_of_day(jump: int) -> None:
    async def story(client: httpx2.AsyncClient, clock: FakeClock, reports: list[str]) -> None:
        assert await deliver(client, 3) == [202, 202, 429]
        clock.jump(jump)
        assert await deliver(client, 1) == [429], "setting the clock makes no room"
        clock.advance(MINUTE)
        assert await deliver(client, 3) == [202, 202, 429]

    tell(story)


@covers("webhook.rates-are-measured")
@pytest.mark.parametrize("jump", [-DAY, DAY, 0])
def test_a_kind_of_refusal_is_reported_once_a_minute_wherever_the_clock_is_set(jump: int) -> None:
    async def story(client: httpx2.AsyncClient, clock: FakeClock, reports: list[str]) -> None:
        assert await deliver(client, 2, "a guess that is wrong") == [401, 401]
        clock.jump(jump)
        assert await deliver(client, 1, "a guess that is wrong") == [401]
        assert len(reports) == 1
        clock.advance(MINUTE)
        assert await deliver(client, 2, "a guess that is wrong") == [401, 401]
        assert len(reports) == 2

    tell(story)
