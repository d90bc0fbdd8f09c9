"""Deliveries from other systems: signed, limited in size and rate, each taken once, and only ever data to an agent."""

from curtainwall.channels.webhook.endpoint import CHANNEL, Deliveries, Delivery, DeliveryStatus, Webhook, WebhookEndpoint
from curtainwall.channels.webhook.proofs import DeliveryRefused, Proof
from curtainwall.facts.deliveries import MissingField, data_of, is_template, prompt_of, read_payload

__all__ = [
    "CHANNEL",
    "Deliveries",
    "Delivery",
    "DeliveryRefused",
    "DeliveryStatus",
    "MissingField",
    "Proof",
    "Webhook",
    "WebhookEndpoint",
    "data_of",
    "is_template",
    "prompt_of",
    "read_payload",
]
