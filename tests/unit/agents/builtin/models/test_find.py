"""A name leads to a model or to a message that says which there are; what a provider needs is loaded for a provider alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from curtainwall.agents.builtin.models import ModelEndpoint, ModelSettings, default_model, find_model, keys_in
from curtainwall.agents.builtin.models.settings import context_size_of
from curtainwall.model import NotFound
from tests.support.covers import covers

KEY = "sk-ant-secret-0123456789"
LOCAL = {"local": ModelEndpoint("http://127.0.0.1:11434/v1", "llama3"), "bare": ModelEndpoint("http://127.0.0.1:8000/v1")}


@covers("models.default-by-key")
def test_the_first_key_found_decides_the_default() -> None:
    both = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
    assert default_model(ModelSettings(keys=keys_in(both))).startswith("anthropic:")
    assert default_model(ModelSettings(keys=keys_in({"OPENAI_API_KEY": KEY}))).startswith("openai:")
    assert default_model(ModelSettings(keys=keys_in({"OPENAI_API_KEY": " "}))) == "demo"
    assert find_model("auto", ModelSettings()).name == "demo"


def test_every_kind_of_name_leads_to_its_model(tmp_path: Path) -> None:
    file = tmp_path / "play.jsonl"
    file.write_text('{"text": "x"}')
    settings = ModelSettings(keys=keys_in({"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}), endpoints=LOCAL)
    names = ["demo", f"script:{file}", "anthropic:claude-opus-5", "openai:gpt-6-sol", "local:qwen3:8b"]
    assert [find_model(name, settings).name for name in names] == names
    assert find_model("local", settings).name == "local:llama3"
    assert find_model("anthropic", settings).name.startswith("anthropic:claude-")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt-4", "`script:FILE`, `anthropic:MODEL`, `openai:MODEL`, `bare:MODEL`, `local:MODEL`"),
        ("antropic:claude", "did you mean `anthropic`?"),
        ("script:", "script:FILE"),
        ("bare", "`bare:MODEL`"),
        ("openai:gpt-5", "set OPENAI_API_KEY"),
    ],
)
@covers("models.unknown-names-are-explained")
def test_a_name_that_leads_nowhere_is_answered_with_what_there_is(name: str, said: str) -> None:
    with pytest.raises(NotFound) as refused:
        find_model(name, ModelSettings(endpoints=LOCAL))
    assert said in str(refused.value)


def test_a_name_that_is_like_none_is_not_guessed_at() -> None:
    with pytest.raises(NotFound) as refused:
        find_model("nope", ModelSettings())
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("claude-sonnet-4-5", 200_000),
        ("claude-sonnet-5-5", 1_000_000),
        ("gpt-4", 8_192),
        ("gpt-4o-mini", 128_000),
        ("gpt-5.4-mini", 400_000),
        ("openai/gpt-5.5", 1_000_000),
        ("unheard-of", 128_000),
    ],
)
def test_a_context_size_goes_by_the_longest_known_beginning(model: str, size: int) -> None:
    assert context_size_of(model) == size


def test_a_context_size_can_be_set_and_an_unknown_local_model_has_a_small_one() -> None:
    assert find_model("local", ModelSettings(endpoints=LOCAL)).context_size == 32_000
    assert find_model("local", ModelSettings(endpoints=LOCAL, context_size=99_000)).context_size == 99_000


def test_the_configured_context_size_holds_for_the_stand_in_and_for_scripts(tmp_path: Path) -> None:
    file = tmp_path / "play.jsonl"
    file.write_text('{"text": "x"}')
    for name in ("demo", f"script:{file}"):
        assert find_model(name, ModelSettings()).context_size >= 200_000
        assert find_model(name, ModelSettings(context_size=20_000)).context_size == 20_000


def test_no_key_shows_in_a_model_or_its_settings() -> None:
    settings = ModelSettings(keys=keys_in({"ANTHROPIC_API_KEY": KEY}))
    assert KEY not in repr(settings)
    assert KEY not in repr(find_model("anthropic:claude-opus-5", settings))


@covers("models.provider-libraries-load-late")
def test_demo_and_scripts_load_no_provider_library() -> None:
    code = (
        "import sys\n"
        "from curtainwall.agents.builtin.models import ModelSettings, find_model\n"
        "find_model('demo', ModelSettings())\n"
        "print([name for name in ('pydantic_ai', 'anthropic', 'openai', 'httpx2', 'genai_prices') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
