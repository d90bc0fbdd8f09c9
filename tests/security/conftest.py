"""The program in this process, with a home of one test; and a small machine for the native tools."""

from tests.support.in_process import places, run
from tests.support.talking import home
from tests.unit.tools.conftest import stage

__all__ = ["home", "places", "run", "stage"]
