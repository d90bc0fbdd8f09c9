"""The real provider libraries against a server on the wire: streaming, programs, interruption, faults, silence, raw answers, cost, keys."""

import asyncio
import json
import traceback
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import pytest

from curtainwall.agents.builtin.language_model import (
    AgentMessage,
    ConversationItem,
    Delta,
    LanguageModel,
    ModelFault,
    ModelReply,
    ProgramOutcome,
    Prompt,
    UserMessage,
)
from curtainwall.agents.builtin.models import ModelEndpoint, ModelSettings, Price, RetryingModel, find_model
from curtainwall.agents.builtin.models.provider import ProviderModel
from curtainwall.host import FromEnvironment
from curtainwall.model import Basis
from tests.support.covers import covers
from tests.support.stand_in import whole
from tests.support.upstream import KEY, Fails, Hangs, Says, Upstream, upstream

NAMES = ["anthropic:claude-sonnet-5", "openai:gpt-5.5", "local:llama3"]
SYSTEM = "be useful"
PRICE = Price(input=3.0, output=15.0, cached=0.3)

each_provider = pytest.mark.parametrize("name", NAMES)


def settings(site: Upstream, *, key: str = KEY, silence: float = 20.0, price: Price | None = None) -> ModelSettings:
    source = FromEnvironment("KEY", {"KEY": key})
    return ModelSettings(
        keys={"anthropic": source, "openai": source},
        urls={"anthropic": site.url, "openai": f"{site.url}/v1"},
        endpoints={"local": ModelEndpoint(f"{site.url}/v1", "llama3", source)},
        silence_seconds=silence,
        price=price,
    )


@asynccontextmanager
async def provider(name: str, **options: Any) -> AsyncGenerator[tuple[Upstream, ProviderModel]]:
    async with upstream() as site:
        model = cast("ProviderModel", find_model(name, settings(site, **options)))
        try:
            yield site, model
        finally:
            await model.aclose()


def prompt(*items: ConversationItem, may_run: bool = True) -> Prompt:
    return Prompt(SYSTEM, items or (UserMessage(text="hello"),), 0, may_run)


def fault_of(name: str, turn: Fails | Says | Hangs, **options: Any) -> ModelFault:
    async def ask() -> ModelFault:
        async with provider(name, **options) as (site, model):
            site.will(turn)
            with pytest.raises(ModelFault) as raised:
                await whole(model, prompt())
            return raised.value

    return asyncio.run(ask())


def replied(name: str, turn: Says, asked: Prompt | None = None, **options: Any) -> tuple[ModelReply, Upstream]:
    async def ask() -> tuple[ModelReply, Upstream]:
        async with provider(name, **options) as (site, model):
            site.will(turn)
            return await whole(model, asked or prompt()), site

    return asyncio.run(ask())


@each_provider
@covers("models.text-streams")
def test_text_comes_as_it_is_sent(name: str) -> None:
    async def listen() -> None:
        async with provider(name) as (site, model):
            site.will(Says(("Hel", "lo"), quiet=True))
            async with aclosing(model.reply(prompt())) as reply:
                # The server says no more, so these two came while the answer was still open.
                assert [await anext(reply), await anext(reply)] == [Delta("Hel"), Delta("lo")]

    asyncio.run(listen())


@each_provider
@covers("models.programs-come-as-calls")
def test_programs_come_with_their_text_and_go_back_with_their_results(name: str) -> None:
    async def converse() -> None:
        async with provider(name) as (site, model):
            site.will(Says(("Let me ", "see."), programs=("print(1)", "2 + 2")), Says(("Four.",)))
            first = (await whole(model, prompt())).message
            assert first.text == "Let me see."
            assert [program.code for program in first.programs] == ["print(1)", "2 + 2"]
            results = [ProgramOutcome(id=program.id, text=f"result of {program.id}") for program in first.programs]
            assert (await whole(model, prompt(UserMessage(text="hello"), first, *results))).message.text == "Four."
            sent = json.dumps(site.asked[1].body)
            assert all(f"result of {program.id}" in sent for program in first.programs)
            assert "2 + 2" in sent
            assert SYSTEM in sent
            tools = cast("list[dict[str, Any]]", site.asked[1].body["tools"])
            assert [tool.get("name") or tool["function"]["name"] for tool in tools] == ["execute_code"], "no tool of the provider's own"

    asyncio.run(converse())


@covers("models.replies-are-sent-back-exactly")
def test_signed_thoughts_go_back_as_they_came_also_after_a_restart() -> None:
    async def converse() -> None:
        async with provider(NAMES[0]) as (site, model):
            site.will(Says(("Done.",), programs=("1",), thinking="hm, let me think"), Says(("Yes.",)))
            said = (await whole(model, prompt())).message
            stored = AgentMessage.model_validate_json(said.model_dump_json())
            again = find_model(NAMES[0], settings(site))
            await whole(again, prompt(UserMessage(text="hello"), stored, ProgramOutcome(id=stored.programs[0].id, text="1")))
            await cast("ProviderModel", again).aclose()
            [thought, *_] = site.asked[1].body["messages"][1]["content"]
            assert thought == {"type": "thinking", "thinking": "hm, let me think", "signature": "signed-by-upstream"}

    asyncio.run(converse())


def test_the_prompt_is_marked_for_the_cache_and_nothing_is_stored_upstream() -> None:
    _, claude = replied(NAMES[0], Says(("x",)))
    assert "cache_control" in json.dumps(claude.asked[0].body)
    _, gpt = replied(NAMES[1], Says(("x",)))
    assert gpt.asked[0].body["store"] is False


@each_provider
@covers("models.interruption-closes-upstream")
def test_leaving_in_the_middle_closes_the_connection_upstream(name: str) -> None:
    async def leave() -> None:
        async with provider(name) as (site, model):
            site.will(Says(("Once upon ", "a time"), quiet=True))
            reply = model.reply(prompt())
            assert await anext(reply) == Delta("Once upon ")
            await reply.aclose()
            await site.until_left()

    asyncio.run(leave())


@each_provider
@covers("models.interruption-closes-upstream")
def test_cancelling_the_task_closes_the_connection_upstream(name: str) -> None:
    async def cancel() -> None:
        async with provider(name) as (site, model):
            site.will(Says(("Once",), quiet=True))
            seen = asyncio.Event()

            async def listen() -> None:
                async with aclosing(model.reply(prompt())) as reply:
                    async for _ in reply:
                        seen.set()

            task = asyncio.create_task(listen())
            async with asyncio.timeout(60):
                await seen.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await site.until_left()

    asyncio.run(cancel())


@each_provider
@covers("models.faults-are-explained")
def test_a_busy_provider_says_when_to_come_back_and_is_asked_only_once(name: str) -> None:
    async def ask() -> None:
        async with provider(name) as (site, model):
            site.will(Fails(429, "slow down", "rate_limit_error", retry_after="7"), Says(("never asked",)))
            with pytest.raises(ModelFault, match="slow down") as raised:
                await whole(model, prompt())
            assert (raised.value.kind, raised.value.retry_after, raised.value.passes) == ("busy", 7.0, True)
            assert len(site.asked) == 1, "the library does not retry by itself"

    asyncio.run(ask())


@each_provider
@pytest.mark.parametrize("status", [429, 500, 503, 529])
@covers("models.passing-faults-are-retried")
def test_what_passes_is_retried_until_it_has_passed(name: str, status: int) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def ask() -> None:
        async with provider(name) as (site, model):
            site.will(Fails(status, retry_after="3"), Fails(status), Says(("At last.",)))
            reply = await whole(RetryingModel(model, sleep), prompt())
            assert reply.message.text == "At last."
            assert len(site.asked) == 3

    asyncio.run(ask())
    assert waited[0] >= 3


@each_provider
@covers("models.silence-is-cut")
def test_silence_is_cut_and_closes_the_connection(name: str) -> None:
    async def ask(*turns: Says | Hangs) -> ModelFault:
        async with provider(name, silence=0.2) as (site, model):
            site.will(*turns)
            with pytest.raises(ModelFault) as raised:
                async for _ in model.reply(prompt()):
                    pass
            await site.until_left()
            return raised.value

    for turn in (Hangs(), Says(("begun",), quiet=True)):
        fault = asyncio.run(ask(turn))
        assert (fault.kind, str(fault)) == ("silent", f"`{name}` was silent for 0.2 seconds")


@each_provider
@covers("models.silence-is-cut")
def test_silence_is_retried_where_nothing_was_shown_and_raised_where_something_was(name: str) -> None:
    async def sleep(_seconds: float) -> None:
        pass

    async def ask() -> None:
        async with provider(name, silence=1.0) as (site, model):
            site.will(Hangs(), Says(("Here.",)))
            assert (await whole(RetryingModel(model, sleep), prompt())).message.text == "Here."
            site.will(Says(("Half a ",), quiet=True), Says(("never asked",)))
            with pytest.raises(ModelFault, match="silent"):
                await whole(RetryingModel(model, sleep), prompt())
            assert len(site.asked) == 3

    asyncio.run(ask())


@each_provider
@pytest.mark.parametrize("turn", [Says(("half",), cut=True), Says(("half",), ends=False)], ids=["cut", "ended early"])
@covers("models.faults-are-explained")
def test_an_answer_that_ends_in_the_middle_is_no_reply(name: str, turn: Says) -> None:
    assert fault_of(name, turn).kind == "unreachable"


@covers("models.faults-are-explained")
def test_a_server_that_is_not_there_is_unreachable() -> None:
    async def ask() -> ModelFault:
        async with upstream() as site:
            model = find_model("local", settings(site))
        with pytest.raises(ModelFault) as raised:
            await whole(model, prompt())
        await cast("ProviderModel", model).aclose()
        return raised.value

    assert asyncio.run(ask()).kind == "unreachable"


TOO_LONG = {
    "anthropic:claude-sonnet-5": Fails(400, "prompt is too long: 1200000 tokens > 1000000 maximum", "invalid_request_error"),
    "openai:gpt-5.5": Fails(400, "Your input exceeds the context window", "invalid_request_error", "context_length_exceeded"),
    "local:llama3": Fails(400, "This model's maximum context length is 8192 tokens", "invalid_request_error"),
}


@each_provider
@covers("models.overflow-says-what-to-do")
def test_a_conversation_that_is_too_long_is_explained(name: str) -> None:
    fault = fault_of(name, TOO_LONG[name])
    assert (fault.kind, fault.passes) == ("overflow", False)
    assert "/compact" in str(fault)
    assert "new session" in str(fault)


@each_provider
@pytest.mark.parametrize(
    ("turn", "kind", "said"),
    [
        (Fails(400, "temperature must be small " * 100, "invalid_request_error"), "rejected", "temperature must be small"),
        (Fails(404, "no such model", "not_found_error"), "rejected", "does not know this model"),
        (Fails(400, f"the header x-api-key {KEY} is odd", "invalid_request_error"), "rejected", "[masked:"),
    ],
    ids=["bad request", "no such model", "echoes the key"],
)
@covers("models.faults-are-explained")
def test_a_refused_request_is_told_in_the_providers_words_short_and_without_secrets(name: str, turn: Fails, kind: str, said: str) -> None:
    fault = fault_of(name, turn)
    assert fault.kind == kind
    assert said in str(fault)
    assert len(str(fault)) < 600
    assert KEY not in str(fault)


@each_provider
@covers("models.keys-are-never-shown")
def test_a_wrong_key_says_where_to_set_it_and_is_shown_nowhere(name: str) -> None:
    wrong = "sk-wrong-000000000000000000"

    async def ask() -> str:
        async with provider(name, key=wrong) as (_, model):
            with pytest.raises(ModelFault) as raised:
                await whole(model, prompt())
            assert raised.value.kind == "key"
            assert "configuration" in str(raised.value)
            return repr(model) + repr(raised.value) + "".join(traceback.format_exception(raised.value))

    assert wrong not in asyncio.run(ask())


@covers("models.keys-are-never-shown")
def test_a_key_that_cannot_be_read_is_a_fault_of_the_key() -> None:
    async def ask() -> ModelFault:
        model = find_model("anthropic:claude-sonnet-5", ModelSettings(keys={"anthropic": FromEnvironment("GONE", {})}))
        with pytest.raises(ModelFault) as raised:
            await whole(model, prompt())
        return raised.value

    fault = asyncio.run(ask())
    assert fault.kind == "key"
    assert "`GONE` is not set" in str(fault)


@each_provider
@covers("models.keys-are-never-shown")
def test_the_key_is_learned_before_it_is_used_and_is_in_no_part_of_a_reply(name: str) -> None:
    learned: list[tuple[str, str]] = []

    async def ask() -> ModelReply:
        async with upstream() as site:
            plain = settings(site)
            careful = ModelSettings(
                keys=plain.keys, urls=plain.urls, endpoints=plain.endpoints, learn=lambda owner, value: learned.append((owner, value))
            )
            model = find_model(name, careful)
            site.will(Says(("Your key is ", KEY)))
            async with aclosing(model.reply(prompt())) as reply:
                pieces = [piece async for piece in reply]
            await cast("ProviderModel", model).aclose()
            return cast("ModelReply", pieces[-1])

    reply = asyncio.run(ask())
    assert learned == [(name.partition(":")[0], KEY)]
    assert KEY not in json.dumps(reply.raw), "a server that echoes the key does not get it into the log"


@each_provider
@covers("models.raw-answers-are-kept")
def test_what_came_on_the_wire_is_kept(name: str) -> None:
    reply, _ = replied(name, Says(("Grüße ", "😀"), programs=("1",)))
    raw = cast("dict[str, Any]", reply.raw)
    assert raw["status"] == 200
    lines = [line.removeprefix("data: ") for line in raw["body"].splitlines() if line.startswith("data: {")]
    assert "Grüße 😀" in "".join(text for line in lines for text in _texts(json.loads(line)))
    assert reply.message.text == "Grüße 😀"


def _texts(event: dict[str, Any]) -> list[str]:
    delta = event.get("delta")
    if isinstance(delta, str):
        return [delta]
    if isinstance(delta, dict):
        return [delta.get("text", "")]
    return [choice["delta"].get("content") or "" for choice in event.get("choices", [])]


@each_provider
@covers("models.usage-and-cost")
def test_usage_and_cost_are_the_providers_counts_at_its_prices(name: str) -> None:
    cached = 0 if name.startswith("local") else 400
    usage = replied(name, Says(("x",), read=1000, written=50, cached=cached), price=PRICE)[0].usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (1000, 50, cached)
    assert usage.dollars == pytest.approx(((1000 - cached) * 3 + cached * 0.3 + 50 * 15) / 1e6)
    assert (usage.tokens_basis, usage.dollars_basis) == (Basis.MEASURED, Basis.MEASURED)


@covers("models.usage-and-cost")
def test_list_prices_are_used_where_none_is_set_and_unknown_is_said() -> None:
    assert replied(NAMES[0], Says(("x",)))[0].usage.dollars > 0
    local = replied(NAMES[2], Says(("x",)))[0].usage
    assert (local.dollars, local.dollars_basis) == (0.0, Basis.UNKNOWN)


@each_provider
@pytest.mark.parametrize("absurd", [-5, float("nan"), 10**12, None, "many", 0])
@covers("models.absurd-counts-are-not-believed")
def test_an_absurd_count_costs_neither_the_reply_nor_the_budget(name: str, absurd: object) -> None:
    usage = replied(name, Says(("x" * 40,), read=absurd))[0].usage
    assert usage.tokens_basis is Basis.ESTIMATED
    assert (usage.input_tokens, usage.output_tokens) == (4, 10)


@each_provider
@covers("models.unreadable-calls-become-programs-that-say-so")
def test_calls_that_cannot_be_read_do_not_end_the_conversation(name: str) -> None:
    async def converse() -> None:
        async with provider(name) as (site, model):
            site.will(Says(arguments=('{"code": 3}', "{torn")), Says(("I see.",)))
            said = (await whole(model, prompt())).message
            assert all("could not be read" in program.code for program in said.programs)
            results = [ProgramOutcome(id=program.id, text="ValueError") for program in said.programs]
            assert (await whole(model, prompt(UserMessage(text="hello"), said, *results))).message.text == "I see."

    asyncio.run(converse())


@each_provider
@covers("models.no-program-where-none-is-wanted")
def test_where_no_program_is_wanted_none_comes_back(name: str) -> None:
    reply, site = replied(name, Says(("A summary.",), programs=("1",)), prompt(may_run=False))
    assert (reply.message.text, reply.message.programs) == ("A summary.", ())
    assert "none" in json.dumps(site.asked[0].body.get("tool_choice", "none"))


def test_one_model_serves_several_conversations_at_once() -> None:
    async def converse() -> None:
        async with provider(NAMES[0]) as (site, model):
            site.will(*(Says((f"answer {number}",)) for number in range(8)))
            replies = await asyncio.gather(*(whole(model, prompt(UserMessage(text=f"q{number}"))) for number in range(8)))
            for reply in replies:
                assert json.dumps(reply.message.text)[1:-1] in json.dumps(reply.raw), "each reply has its own raw answer"

    asyncio.run(converse())


def test_a_model_can_be_used_in_one_event_loop_after_another() -> None:
    async def ask(port: int, model: LanguageModel | None) -> tuple[int, LanguageModel]:
        async with upstream(port) as site:
            site.will(Says(("x",)))
            model = model or find_model("local", settings(site))
            assert (await whole(model, prompt())).message.text == "x"
            await cast("ProviderModel", model).aclose()
            return site.port, model

    port, model = asyncio.run(ask(0, None))
    asyncio.run(ask(port, model))
