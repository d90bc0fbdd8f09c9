"""Scheduled jobs as a service."""
