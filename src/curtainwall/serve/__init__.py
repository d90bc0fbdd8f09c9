"""The long-running service: what it runs, and what keeps that running."""
