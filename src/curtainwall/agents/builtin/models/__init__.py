"""The models that our own agent can talk to, by name: providers, any server that speaks Chat Completions, and two without network.

What a provider needs is loaded when one is asked for, so that `demo` and scripts start at once.
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
