"""The `fetch` tool: one exchange for each permit, redirects, and pages as text."""
