"""Deliveries from other systems: signed, bounded, once each, and never more than data to an agent."""

from curtainwall.channels.webhook.endpoint import CHANNEL, Deliveries, Delivery, Endpoint, Hook, Outcome
from curtainwall.channels.webhook.proofs import Proof, Refused
from curtainwall.facts.deliveries import Missing, data_of, is_template, prompt_of, read_payload

__all__ = [
    "CHANNEL",
    "Deliveries",
    "Delivery",
    "Endpoint",
    "Hook",
    "Missing",
    "Outcome",
    "Proof",
    "Refused",
    "data_of",
    "is_template",
    "prompt_of",
    "read_payload",
]
