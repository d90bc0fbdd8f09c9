"""The operations on sessions that every channel offers: open, send, fork, view, explain, remove."""
