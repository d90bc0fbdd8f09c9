"""The program in this process, with a home of one test, for every unit test that wants it."""

from tests.support.in_process import places, run

__all__ = ["places", "run"]
