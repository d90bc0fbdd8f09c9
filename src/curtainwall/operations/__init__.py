"""What anyone can do with sessions, whichever channel they use: open, send, fork, view, explain, remove."""
