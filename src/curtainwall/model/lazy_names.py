"""Public names of a package, each loaded when it is first used, so that a command imports no more than it needs."""

import re
import sys
from collections.abc import Callable
from importlib import import_module

_IMPORT = re.compile(r"^    from ([\w.]+) import (\([^)]*\)|.+)$", re.MULTILINE)
_NAME = re.compile(r"\w+")


def lazy_names(package: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a package; it loads the names that the package imports below `if TYPE_CHECKING`."""
    module_of: dict[str, str] = {}

    def load(name: str) -> object:
        if not module_of:
            module_of.update(_imports(package))
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module_of[name]), name)
        vars(sys.modules[package])[name] = value
        return value

    return load


def _imports(package: str) -> dict[str, str]:
    """Return the names that a package imports from its own modules, and from which."""
    spec = sys.modules[package].__spec__
    get_source = getattr(spec.loader, "get_source", None) if spec else None
    source: str = get_source(package) if get_source else ""
    found = [(module, names) for module, names in _IMPORT.findall(source) if module.startswith(f"{package}.")]
    return {name: module for module, names in found for name in _NAME.findall(names)}
