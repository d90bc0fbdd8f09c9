"""Webhooks as a service: deliveries become sessions, and outcomes are sent back."""
