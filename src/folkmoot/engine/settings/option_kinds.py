"""Check the kinds of the options that a caller in Python gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from typing import NamedTuple

from folkmoot.errors import InputError, Problem


class _Kind(NamedTuple):
    classes: tuple[type, ...]
    # The kind in words.
    name: str
    # The option is a list, and the classes are those of its members.
    is_list: bool = False

    def fits(self, value: object) -> bool:
        if self.is_list:
            return isinstance(value, (list, tuple)) and all(map(self._has_class, value))
        return self._has_class(value)

    def _has_class(self, value: object) -> bool:
        # In Python, True is a whole number too.
        if isinstance(value, bool):
            return bool in self.classes
        return isinstance(value, self.classes)


_PATH = (str, os.PathLike)
_KINDS = {
    "accept_changes": _Kind((bool,), "True or False"),
    "batch": _Kind((bool,), "True or False"),
    "budget": _Kind((Real,), "a number of USD"),
    "key": _Kind((str,), "a text"),
    "limit": _Kind((Integral,), "a whole number"),
    "model": _Kind((str,), 'the name of a model, such as "synthetic"'),
    "out": _Kind(_PATH, "the path of a folder"),
    "overrides": _Kind((str,), 'a list of texts, such as ["random_seed=7"]', is_list=True),
    "say": _Kind((str,), "the text of the new reply"),
    "seats": _Kind((str,), "a list of ids of participants", is_list=True),
    "settings": _Kind((Mapping,), "a dictionary"),
    "trust": _Kind((bool,), "True or False"),
}


def check_option_kinds(options: Mapping[str, object]) -> None:
    """Raise InputError with all options of a wrong kind.

    - `options`: name → value. None is an option that is not given.
    """
    problems = [
        # The value is not shown: it may be an API key.
        Problem(f"is of type {type(options[name]).__name__}; pass {kind.name}", key=f"{name}=")
        for name, kind in _KINDS.items()
        if options.get(name) is not None and not kind.fits(options[name])
    ]
    if problems:
        raise InputError(problems)
