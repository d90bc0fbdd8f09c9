"""The real program in processes of its own, for every integration test that wants it."""

from tests.support.program import program, provider, tmux

__all__ = ["program", "provider", "tmux"]
