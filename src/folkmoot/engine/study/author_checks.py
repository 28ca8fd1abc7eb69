"""Check the functions and the annotations of fields that a study author wrote."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin


def kinds_of_annotation(annotation: object) -> set[object]:
    """Return the types that an annotation allows: those of a union or `Literal`, or itself."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kinds_of_annotation(arguments[0])
    if origin is Literal:
        return {type(value) for value in arguments}
    if origin in (Union, UnionType):
        return set().union(*map(kinds_of_annotation, arguments))
    return {annotation}


def is_kind_allowed(kind: object, allowed: set[object]) -> bool:
    """Return whether one of the allowed types includes the type `kind`."""
    classes = tuple(member for member in allowed if isinstance(member, type))
    is_subclass = isinstance(kind, type) and issubclass(kind, classes)
    # Every whole number is a valid float.
    return kind in allowed or is_subclass or (kind is int and float in allowed)


def accepts_arguments(function: Callable[..., object], count: int) -> bool:
    """Return whether a function can be called with this number of positional arguments."""
    # Parameters with defaults are allowed, so the number of parameters does not decide.
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    return True
