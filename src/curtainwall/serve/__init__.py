"""The long-running service: what it runs, and the supervisor that keeps it running."""
