"""The models of the built-in agent, by name: providers, any server that speaks Chat Completions, and two that need no network.

A provider's library is loaded on first use, so that `demo` and scripts start at once.
"""

from curtainwall.agents.builtin.models.registry import AUTO as AUTO
from curtainwall.agents.builtin.models.registry import default_model as default_model
from curtainwall.agents.builtin.models.registry import fault_in_name as fault_in_name
from curtainwall.agents.builtin.models.registry import find_model as find_model
from curtainwall.agents.builtin.models.retry import ModelRetryPolicy as ModelRetryPolicy
from curtainwall.agents.builtin.models.retry import RetryingModel as RetryingModel
from curtainwall.agents.builtin.models.settings import ModelEndpoint as ModelEndpoint
from curtainwall.agents.builtin.models.settings import ModelSettings as ModelSettings
from curtainwall.agents.builtin.models.settings import Price as Price
from curtainwall.agents.builtin.models.settings import keys_in as keys_in
from curtainwall.agents.builtin.models.usage import Tokens as Tokens
from curtainwall.agents.builtin.models.usage import dollars_of as dollars_of
