"""Public names of a package, each loaded when it is first used, so that a command imports no more than it needs."""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

_EXPORT = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a package; it loads the names that the package exports below `if TYPE_CHECKING`."""

    def load(name: str) -> object:
        module = exports_of(package).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module), name)
        vars(sys.modules[package])[name] = value
        return value

    return load


@cache
def exports_of(package: str) -> Mapping[str, str]:
    """Return the names that a package exports below `if TYPE_CHECKING`, by lines `from module import name as name`, with their modules."""
    spec = sys.modules[package].__spec__
    get_source = getattr(spec.loader, "get_source", None) if spec else None
    source: str = get_source(package) if get_source else ""
    return {name: module for module, name in _EXPORT.findall(source) if module.startswith(f"{package}.")}
