"""The models of the built-in agent, by name: providers, any server that speaks Chat Completions, and two that need no network.

A provider's library is loaded on first use, so that `demo` and scripts start at once.
"""

from curtainwall.agents.builtin.models.registry import AUTO, default_model, fault_in_name, find_model
from curtainwall.agents.builtin.models.retry import ModelRetryPolicy, RetryingModel
from curtainwall.agents.builtin.models.settings import ModelEndpoint, ModelSettings, Price, keys_in
from curtainwall.agents.builtin.models.usage import Tokens, dollars_of

__all__ = [
    "AUTO",
    "ModelEndpoint",
    "ModelRetryPolicy",
    "ModelSettings",
    "Price",
    "RetryingModel",
    "Tokens",
    "default_model",
    "dollars_of",
    "fault_in_name",
    "find_model",
    "keys_in",
]
