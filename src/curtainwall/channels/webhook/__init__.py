"""Deliveries from other systems: signed, bounded, once each, and never more than data to an agent."""

from curtainwall.channels.webhook.endpoint import CHANNEL, Deliveries, Delivery, Endpoint, Hook, Outcome
from curtainwall.channels.webhook.prompts import data_of, fields_in, prompt_of, read_payload
from curtainwall.channels.webhook.proofs import Proof, Refused

__all__ = [
    "CHANNEL",
    "Deliveries",
    "Delivery",
    "Endpoint",
    "Hook",
    "Outcome",
    "Proof",
    "Refused",
    "data_of",
    "fields_in",
    "prompt_of",
    "read_payload",
]
