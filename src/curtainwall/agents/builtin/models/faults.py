"""Turns upstream errors into messages for the user: whether it is temporary, which key is wrong, what is too long."""

import ipaddress
import re
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import urlsplit

import httpx2
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from curtainwall.agents.builtin.language_model import ModelFault

_LONGEST: Final = 400
_TOO_LONG = re.compile(
    r"prompt is too long|context_length_exceeded|maximum context length|context (?:window|length|size)|too many (?:input )?tokens|"
    r"reduce the length of the messages|input is too long",
    re.IGNORECASE,
)
_PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})

UPSTREAM = (AgentRunError, UserError, httpx2.HTTPError, httpx2.StreamError)
"""Every error that a request to a provider may raise."""


class ProviderFaults:
    """Describes the faults of one provider. `hide` removes secrets from a provider's text."""

    def __init__(self, name: str, url: str, key_hint: str, hide: Callable[[str], str], silence_seconds: float) -> None:
        self._name = name
        self._url = url
        self._key_hint = key_hint
        self._hide = hide
        self._silence = silence_seconds

    def fault(self, error: Exception) -> ModelFault:
        """Return the fault for an error of the library."""
        match error:
            case ModelTimeoutError() if error.phase in {"connect", "pool"}:
                return ModelFault("unreachable", f"`{self._name}` cannot be reached: connecting took too long")
            case ModelTimeoutError() | httpx2.ReadTimeout():
                return self.silent()
            case ModelConnectionError() | httpx2.HTTPError() if _is_refused(error):
                where = f"nothing listens at `{self._hide(self._url)}`"
                return ModelFault("unreachable", f"`{self._name}` cannot be reached: {where}", is_absent=_is_here(self._url))
            case ModelConnectionError() | httpx2.HTTPError() | httpx2.StreamError():
                return ModelFault("unreachable", f"`{self._name}` cannot be reached, or broke off: {self._words(error)}")
            case ModelAPIError():
                return self._of_api(error)
            case UnexpectedModelBehavior():
                return ModelFault("unreachable", f"`{self._name}` sent what cannot be read: {self._words(error)}")
            case _:
                return ModelFault("rejected", f"`{self._name}` cannot be asked this: {self._words(error)}")

    def silent(self) -> ModelFault:
        """Return the fault for a provider that stopped sending."""
        return ModelFault("silent", f"`{self._name}` was silent for {self._silence:g} seconds")

    def cut(self) -> ModelFault:
        """Return the fault for a response that ended early."""
        return ModelFault("unreachable", f"the answer of `{self._name}` ended before it was whole")

    def endless(self, excess: str) -> ModelFault:
        """Return the fault for a response that was cut off because it was too long."""
        return ModelFault("rejected", f"`{self._name}` does not come to an end: it sent {excess}")

    def _of_api(self, error: ModelAPIError) -> ModelFault:
        words = self._words(error)
        status = error.status_code if isinstance(error, ModelHTTPError) else 0
        match error:
            case ModelAuthenticationError():
                return ModelFault("key", f"`{self._name}` does not accept the key; {self._key_hint}")
            case ModelQuotaExceededError():
                return ModelFault("rejected", f"the quota or credit at `{self._name}` is used up: {words}")
            case ModelRateLimitError() | ModelUnavailableError() | ModelServerError():
                return self._busy(error, status, words)
            case ModelContextWindowExceededError():
                return self._overflow(words)
            case ModelNotFoundError():
                return ModelFault("rejected", f"`{self._name}` does not know this model, or its URL is wrong: {words}")
            case ModelRequestRejectedError() if _TOO_LONG.search(words):
                return self._overflow(words)
            case _ if status in _PASSING:
                return self._busy(error, status, words)
            case _ if status == 413:
                return self._overflow(words)
            case _:
                return ModelFault("rejected", f"`{self._name}` refused the request{f' ({status})' if status else ''}: {words}")

    def _busy(self, error: ModelAPIError, status: int, words: str) -> ModelFault:
        return ModelFault("busy", f"`{self._name}` is busy{f' ({status})' if status else ''}: {words}", retry_after=error.retry_after)

    def _overflow(self, words: str) -> ModelFault:
        return ModelFault(
            "overflow", f"the conversation is too long for `{self._name}`: {words}; use `/compact` to shorten it, or start a new session"
        )

    def _words(self, error: Exception) -> str:
        """Return an error's message on one line, short and without secrets."""
        body = getattr(error, "body", None)
        message = _message_in(body) or (error.message if isinstance(error, AgentRunError) else str(error)) or type(error).__name__
        line = " ".join(self._hide(message).split())
        return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _is_refused(error: BaseException | None) -> bool:
    """Tell whether a refused connection caused an error, however deeply it is wrapped."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_refused(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return error is not None and (isinstance(error, ConnectionRefusedError) or _is_refused(error.__cause__ or error.__context__))


def _is_here(url: str) -> bool:
    """Tell whether an address belongs to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _message_in(body: object) -> str:
    """Return the message of an error as providers nest it."""
    for _ in range(3):
        if not isinstance(body, dict):
            break
        fields = cast("dict[str, object]", body)
        if isinstance(message := fields.get("message"), str):
            return message
        body = fields.get("error")
    return body if isinstance(body, str) else ""
