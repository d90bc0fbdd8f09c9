"""What every channel can do with sessions: open, send, fork, view, explain, remove."""
