"""Text for people: what is safe to show, how events read, and a conversation on any text channel."""
