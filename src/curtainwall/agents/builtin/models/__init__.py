"""The models that our own agent can talk to, by name: providers, any server that speaks Chat Completions, and two without network.

What a provider needs is loaded when one is asked for, so that `demo` and scripts start at once.
"""

from curtainwall.agents.builtin.models.cost import Tokens, dollars_of
from curtainwall.agents.builtin.models.find import AUTO, default_model, fault_in_name, find_model
from curtainwall.agents.builtin.models.patient import Patience, Patient
from curtainwall.agents.builtin.models.settings import Endpoint, ModelSettings, Price, keys_in

__all__ = [
    "AUTO",
    "Endpoint",
    "ModelSettings",
    "Patience",
    "Patient",
    "Price",
    "Tokens",
    "default_model",
    "dollars_of",
    "fault_in_name",
    "find_model",
    "keys_in",
]
