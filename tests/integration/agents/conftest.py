"""A home of one test for every test of the agent."""

from tests.support.talking import home

__all__ = ["home"]
