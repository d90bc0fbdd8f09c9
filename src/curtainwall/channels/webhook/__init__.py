"""Deliveries from other systems: signed, limited in size and rate, each taken once, and only ever data to an agent."""

from curtainwall.channels.webhook.endpoint import CHANNEL as CHANNEL
from curtainwall.channels.webhook.endpoint import Deliveries as Deliveries
from curtainwall.channels.webhook.endpoint import Delivery as Delivery
from curtainwall.channels.webhook.endpoint import DeliveryStatus as DeliveryStatus
from curtainwall.channels.webhook.endpoint import Webhook as Webhook
from curtainwall.channels.webhook.endpoint import WebhookEndpoint as WebhookEndpoint
from curtainwall.channels.webhook.proofs import DeliveryRefused as DeliveryRefused
from curtainwall.channels.webhook.proofs import Proof as Proof
from curtainwall.facts.deliveries import MissingField as MissingField
from curtainwall.facts.deliveries import data_of as data_of
from curtainwall.facts.deliveries import is_template as is_template
from curtainwall.facts.deliveries import prompt_of as prompt_of
from curtainwall.facts.deliveries import read_payload as read_payload
