"""What every process of ours does first: done in the one that forks, it costs its children nothing."""

import pydantic_monty

import curtainwall.library.session
from curtainwall.policy import Lists, Protection, load, shipped
from curtainwall.tools import NATIVE_TOOLS, Catalogue

__all__ = ["curtainwall", "pydantic_monty"]

Catalogue(NATIVE_TOOLS)
load(shipped(), lists=Lists(), protection=Protection(never=()))
