"""A session runtime for untrusted AI agents: one log, one gate, and a human wherever that human is."""

__version__ = "0.1.0"
