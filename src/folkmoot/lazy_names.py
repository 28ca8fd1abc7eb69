"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib

# See `folkmoot/__init__.py`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazy_names(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a function that imports a name of a package, for use as its `__getattr__`.

    `names`: a map from module, relative to the package, to the names that the module defines.
    """
    module_of = {name: f"{package}.{module}" for module, group in names.items() for name in group}

    def get_attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    return get_attribute
