"""The `git` tools: one call, confined where it is local, and through a clean repository where it is not."""
