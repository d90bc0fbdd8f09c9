"""What every process of ours does first: done in the one that forks, it costs its children nothing."""

from collections.abc import Iterator

import opentelemetry.context
import pydantic_monty
from pydantic import BaseModel

import curtainwall.library.session
import curtainwall.session.fold_version
import curtainwall.store.disk.writer
import curtainwall.tools.files.tool
import curtainwall.tools.sandbox
from curtainwall.policy import Lists, Protection, load, shipped
from curtainwall.tools import NATIVE_TOOLS, Catalogue

__all__ = ["curtainwall", "opentelemetry", "pydantic_monty"]


def _classes(above: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in above.__subclasses__():
        yield each
        yield from _classes(each)


Catalogue(NATIVE_TOOLS)
load(shipped(), lists=Lists(), protection=Protection(never=()))
# Our classes are built when they are first used, which would be in each child anew.
for built in set(_classes(BaseModel)):
    if built.__module__.startswith("curtainwall."):
        built.model_rebuild(raise_errors=False)
