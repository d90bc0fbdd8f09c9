"""A reply of each provider as it streams it, and what it says that it used."""

import json
from typing import Any

from curtainwall.egress import CountedUsage, Dialect
from tests.support.egress import event, message


def data(told: Any, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(told, separators=(',', ':'))}{end}".encode()


def chat(**delta: Any) -> bytes:
    return data({"model": "gpt-x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None})


STREAMS: dict[str, tuple[Dialect, list[bytes], CountedUsage]] = {
    "anthropic": (
        Dialect.ANTHROPIC,
        message("Hello ", 'she said "hi" \\ ', "x" * 400, read=1000, written=321, cached=800),
        CountedUsage(1000, 321, 800, measured=True, model="claude-x", stop_reason="end_turn"),
    ),
    "openai responses": (
        Dialect.RESPONSES,
        [
            event("response.created", response={"model": "gpt-x", "usage": None, "status": "in_progress"}),
            event("response.output_text.delta", delta="some text"),
            event("response.output_text.done", text="some text"),
            event(
                "response.completed",
                response={
                    "model": "gpt-x",
                    "status": "completed",
                    "usage": {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 7},
                },
            ),
        ],
        CountedUsage(50, 7, 20, measured=True, model="gpt-x", stop_reason="completed"),
    ),
    "openai chat": (
        Dialect.CHAT,
        [
            chat(role="assistant", content=""),
            chat(content="some text"),
            data({"model": "gpt-x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}),
            data(
                {
                    "model": "gpt-x",
                    "choices": [],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}},
                }
            ),
            b"data: [DONE]\n\n",
        ],
        CountedUsage(9, 5, 4, measured=True, model="gpt-x", stop_reason="stop"),
    ),
    "gemini": (
        Dialect.GEMINI,
        [
            data(
                {
                    "candidates": [{"content": {"parts": [{"text": "some"}]}}],
                    "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 1},
                    "modelVersion": "gemini-x",
                },
                "\r\n\r\n",
            ),
            data(
                {
                    "candidates": [{"content": {"parts": [{"text": " text"}]}, "finishReason": "STOP"}],
                    "usageMetadata": {
                        "promptTokenCount": 12,
                        "candidatesTokenCount": 3,
                        "thoughtsTokenCount": 4,
                        "cachedContentTokenCount": 2,
                    },
                    "modelVersion": "gemini-x",
                },
                "\r\n\r\n",
            ),
        ],
        CountedUsage(12, 7, 2, measured=True, model="gemini-x", stop_reason="STOP"),
    ),
}
