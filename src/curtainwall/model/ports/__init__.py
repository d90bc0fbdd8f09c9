"""The protocols between the runtime and everything else, at most five methods each, grouped by who is on the other side."""
