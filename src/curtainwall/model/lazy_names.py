"""Public names of a package, each loaded when it is first used, so that a command imports no more than it needs."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package; `homes` are its modules, each with the public names that it holds."""
    module_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{module_of[name]}"), name)
        vars(sys.modules[package])[name] = value
        return value

    return load
