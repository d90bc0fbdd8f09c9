"""`curtainwall start` with the models of providers, against a server that speaks their wire formats: what a user sees, and what is kept."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program, providers_at
from tests.support.upstream import KEY, PAUSE, Fails, Hangs, Says, Upstream
from tests.support.waiting import until

ANTHROPIC, OPENAI = "anthropic:claude-sonnet-5", "openai:gpt-5.5"
KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
TOO_LONG = {
    ANTHROPIC: Fails(400, "prompt is too long: 1200000 tokens > 1000000 maximum", "invalid_request_error"),
    OPENAI: Fails(400, "Your input exceeds the context window", "invalid_request_error", "context_length_exceeded"),
}
BUSY = {
    ANTHROPIC: (Fails(529, "overloaded", "overloaded_error"), Fails(429, "slow down", "rate_limit_error", retry_after="0")),
    OPENAI: (Fails(429, "slow down", "rate_limit_exceeded", retry_after="0"),),
}
each_provider = pytest.mark.parametrize("model", [ANTHROPIC, OPENAI])


def payload(program: Program, event: dict[str, Any]) -> str:
    """Return a payload as text, wherever it is kept."""
    if "inline" in event:
        return json.dumps(event["inline"], ensure_ascii=False)
    (blob,) = program.home.glob(f"blobs/**/{event['blob']}*")
    return blob.read_text()


def sent(site: Upstream, number: int = -1) -> str:
    """Return a request as the server received it."""
    return json.dumps(site.asked[number].body, ensure_ascii=False)


def files_with(place: Path, words: str) -> list[str]:
    """Return every file below a place that has these words in it."""
    return [str(path) for path in place.rglob("*") if path.is_file() and words.encode() in path.read_bytes()]


@each_provider
@covers("start.providers", "agents.told-free-hosts")
def test_a_reply_and_its_programs_go_back_and_forth_and_everything_is_kept(program: Program, provider: Upstream, model: str) -> None:
    (program.workspace / "sums.txt").write_text("17 and 25\n")
    code = "text = await filesystem.read_file(path='sums.txt')\nprint(text.split()[0])"
    provider.will(
        Says(("Let me ", "look."), programs=(code,), read=1000, written=100),
        Says(("The first is ", "**17**."), read=1200, written=50, cached=1000),
    )
    task = ("--workspace", program.workspace, "--output", "json", "what is the first number?")
    done = program.from_nothing("start", "--model", model, *task, **KEYS)
    document = json.loads(done.stdout)
    assert (document["status"], document["text"]) == ("done", "Let me look.\n\nThe first is **17**.")
    first, second = provider.asked
    assert "what is the first number?" in sent(provider, 0)
    assert "def read_file" in sent(provider, 0), "the tools stand in the prompt as stubs"
    assert "Hosts: none may be fetched from freely" in sent(provider, 0), "and what may be reached"
    results = json.dumps(second.body.get("messages") or second.body["input"])
    assert '"17' in results, "the program's result went back"
    assert first.body["model"] == model.partition(":")[2]
    usage = document["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["cached_tokens"]) == (2200, 150, 1000)
    assert (usage["tokens_basis"], usage["dollars_basis"]) == ("measured", "measured")
    raw = [payload(program, event["raw"]) for event in program.events(document["session"], "ModelResponded")]
    marks = ("content_block_delta", "message_stop") if model == ANTHROPIC else ("response.output_text.delta", "response.completed")
    assert all(mark in told for told in raw for mark in marks), "what was really sent is kept"
    assert "no broken promises" in program("sessions", "replay", document["session"]).stdout
    assert files_with(program.scratch, KEY) == []
    assert KEY not in done.stdout + done.stderr


@covers("start.cost")
def test_the_cost_follows_from_the_providers_count_and_the_prices(program: Program, provider: Upstream) -> None:
    program.configure(providers_at(provider).replace("[model]\n", "[model]\ninput-price = 4.0\noutput-price = 20.0\n"))
    provider.will(Says(("Yes.",), read=10_000, written=1_000))
    told = program.json("start", "--model", "local:llama3", "hello", **KEYS)
    assert told["usage"]["dollars"] == pytest.approx(0.04 + 0.02)
    assert "dollars    $0.06 of $5.00 (measured)" in program("sessions", "show", told["session"]).stdout


@each_provider
@covers("start.providers-interrupted")
def test_interrupted_in_the_middle_of_a_reply_the_text_so_far_is_kept_and_goes_back(
    program: Program, provider: Upstream, model: str
) -> None:
    provider.will(Says(("Once upon a time ", *("there was ", PAUSE) * 5_000)))
    running = program.begin("start", "--model", model, "--output", "stream-json", "tell me a story", **KEYS)
    until(lambda: provider.go_on() or running.out.count("there was") > 1)
    running.interrupt()
    assert running.code() == 130
    result = json.loads(running.out.splitlines()[-1])
    assert result["status"] == "interrupted"
    assert result["text"].startswith("Once upon a time there was there was")
    until(lambda: provider.left == 1)
    provider.will(Says(("A wolf.",)))
    assert program("start", "--resume", result["session"], "go on", **KEYS).stdout == "A wolf.\n"
    assert result["text"] in sent(provider), "the model sees what it had said, to the last word that was shown"
    assert "no broken promises" in program("sessions", "replay", result["session"]).stdout


@each_provider
@covers("start.providers-retried")
def test_a_provider_that_is_busy_or_overloaded_is_asked_again(program: Program, provider: Upstream, model: str) -> None:
    provider.will(*BUSY[model], Says(("Here.",)))
    assert program("start", "--model", model, "hello", **KEYS).stdout == "Here.\n"
    assert len(provider.asked) == len(BUSY[model]) + 1
    assert sent(provider, 0) == sent(provider)


@covers("start.providers-silent")
def test_a_silent_provider_is_cut_and_asked_again_unless_something_was_shown(program: Program, provider: Upstream) -> None:
    program.configure(providers_at(provider, silence="2s"))
    provider.will(Hangs(), Says(("Half a ", "sentence"), quiet=True))
    told = program("start", "--model", ANTHROPIC, "hello", fails=True, **KEYS)
    assert (told.returncode, told.stdout) == (1, "Half a sentence\n")
    assert f"`{ANTHROPIC}` was silent for 2 seconds" in told.stderr
    assert len(provider.asked) == 2
    until(lambda: provider.left == 2)


@each_provider
@covers("start.providers-overlong")
def test_a_conversation_that_is_too_long_is_explained_where_nothing_can_be_left_out(
    program: Program, provider: Upstream, model: str
) -> None:
    provider.will(TOO_LONG[model])
    told = program("start", "--model", model, "a very long question", fails=True, **KEYS)
    assert told.returncode == 1
    assert "/compact" in told.stderr
    assert "new session" in told.stderr


@covers("start.providers-overlong")
def test_a_conversation_that_is_too_long_is_compacted_where_something_can_be_left_out(program: Program, provider: Upstream) -> None:
    session = program.json("start", "the first question")["session"]
    provider.will(TOO_LONG[ANTHROPIC], Says(("They asked one thing.",)), Says(("Shorter now.",)))
    again = program("start", "--resume", session, "--model", ANTHROPIC, "the second question", **KEYS)
    assert again.stdout == "Shorter now.\n"
    assert "older messages were summarised" in again.stderr
    assert "They asked one thing." in sent(provider)
    assert "the first question" not in sent(provider)
    assert "the second question" in sent(provider)
    assert "the first question" in program("sessions", "export", session).stdout, "the log keeps everything"


@covers("start.keys-stay-secret")
def test_a_key_that_is_refused_or_echoed_is_shown_nowhere(program: Program, provider: Upstream) -> None:
    wrong = "sk-ant-wrong-0123456789abcdefghijklmnop"
    refused = program("start", "--model", ANTHROPIC, "--output", "json", "hello", fails=True, ANTHROPIC_API_KEY=wrong)
    assert refused.returncode == 1
    assert "ANTHROPIC_API_KEY" in refused.stderr
    session = json.loads(refused.stdout)["session"]
    (program.workspace / "leak.txt").write_text(f"the key is {KEY}\n")
    provider.will(
        Says((f"Your key is {KEY[:20]}", f"{KEY[20:]}, I believe."), programs=("await filesystem.read_file(path='leak.txt')",)),
        Says(("Done.",)),
    )
    told = program("start", "--model", ANTHROPIC, "--workspace", program.workspace, f"look, {KEY} is mine", **KEYS)
    assert "Your key is [masked:" in told.stdout
    for secret in (wrong, KEY):
        assert secret not in refused.stdout + refused.stderr + told.stdout + told.stderr
        assert all(secret not in sent(provider, number) for number in range(len(provider.asked)))
        assert files_with(program.home, secret) == []
    assert KEY not in program("sessions", "export", session).stdout


def test_a_server_of_ones_own_speaks_chat_completions(program: Program, provider: Upstream) -> None:
    provider.will(Says(programs=("6 * 7",)), Says(("It is 42.",)))
    done = program("start", "--model", "local:llama3", "what is six times seven?", **KEYS)
    assert done.stdout == "It is 42.\n"
    assert provider.asked[0].path == "/v1/chat/completions"


def test_the_first_provider_with_a_key_is_the_default(program: Program, provider: Upstream) -> None:
    provider.will(Says(("From Claude.",)))
    assert program("start", "hello", **KEYS).stdout == "From Claude.\n"
    assert provider.asked[0].path.partition("?")[0] == "/v1/messages"


@covers("models.retries-are-told")
def test_a_local_server_that_is_not_there_is_told_at_once_and_given_up_soon(program: Program) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    program.configure(f'[models.ollama]\nurl = "{url}"\nmodel = "x"\n')
    done = program("start", "--model", "ollama", "hi", fails=True)
    assert done.returncode == 1
    why = f"`ollama:x` cannot be reached: nothing listens at `{url}`"
    told = done.stderr.splitlines()
    assert [line for line in told if why in line] == told[-4:-1]
    assert re.fullmatch(rf"trying again in \d s \(2 of 3\): {re.escape(why)}", told[-4])
    assert re.fullmatch(rf"trying again in \d s \(3 of 3\): {re.escape(why)}", told[-3])
    assert told[-2] == f"the turn failed: {why}"
    [session] = program.sessions()
    assert told[-1] == f"`curtainwall start --resume {session['id']} TASK` goes on with this session"
