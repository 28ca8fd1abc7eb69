"""Check what the functions of a study type return."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.settings.author_errors import check_members, wrong_return_value
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.engine.study.preview import Preview
from folkmoot.errors import Problem
from folkmoot.measures.inference.power import DesignSize
from folkmoot.measures.position import Shown
from folkmoot.measures.retest import Repeat
from folkmoot.storage.rows import Row


class _Returned(NamedTuple):
    # The class or classes of the value, or of each of its members.
    kind: Any
    # What to write instead of a wrong value.
    remedy: str


_CONFIG = _Returned(StudyConfig, "return a configuration, such as config.model_copy(update={…})")
_ONE_VALUE = {
    "conditions": _Returned(Mapping, "return a dict: column → condition → name"),
    "descriptions": _Returned(Mapping, "return a dict: key of a text → text"),
    "dry_run_config": _CONFIG,
    "load_config": _CONFIG,
    "named_answers": _Returned(Mapping, "return a dict: address → name → answer"),
    "number_ranges": _Returned(Mapping, "return a dict: name of an answer → range"),
    "reply_unit": _Returned(Hashable, "return the id of the unit, such as a text"),
    "run_id": _Returned(str, "return a text, empty for the name of the study file"),
    "size": _Returned((DesignSize, type(None)), "return DesignSize(…) or None"),
    "stopping_rule": _Returned(str, "return a sentence, or an empty text"),
    "template_files": _Returned(Mapping, "return a dict: file name → content"),
    "unusable_reason": _Returned(str, "return a text, empty if the run is usable"),
    "with_limit": _CONFIG,
}
_LISTS = {
    "check_config": _Returned(Problem, "return a list of folkmoot.errors.Problem"),
    "choices": _Returned(Shown, "return a list of Shown(…)"),
    "expected_rows": _Returned(ExpectedRows, "return a list of ExpectedRows(…)"),
    "extra_models": _Returned(str, "return a list of names of models"),
    "image_locations": _Returned(str, "return a list of texts"),
    "notes": _Returned(str, "return a list of texts"),
    "preview": _Returned(Preview, "return a list of Preview(…)"),
    "render_run": _Returned(str, "return a list of texts"),
    "repeats": _Returned(Repeat, "return a list of Repeat(…)"),
    "seats": _Returned(Seat, "return a list of Seat(…)"),
}
# Their members are made one after the other, because there may be very many.
_STREAMS = {
    "derived": _Returned(tuple, 'yield "counts.json", counts'),
    "derived_tables": _Returned(Row, "yield Row(…)"),
}


def functions_with_checks(study: Any) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the functions of a study type by field, changed to check what they return.

    - `study`: a dataclass. Its defaults are not changed.

    The changed functions raise ProtocolError with the place of the function.
    """
    for field in fields(study):
        function = getattr(study, field.name)
        if callable(function) and function not in (field.default, field.default_factory):
            for returned_by_name, add_check in (
                (_ONE_VALUE, _check_one_value),
                (_LISTS, _check_list),
                (_STREAMS, _check_stream),
            ):
                if field.name in returned_by_name:
                    yield field.name, add_check(field.name, function, returned_by_name[field.name])


def _check_one_value(
    name: str, function: Callable[..., object], wanted: _Returned
) -> Callable[..., object]:
    @functools.wraps(function)
    def with_check(*args: object) -> object:
        returned = function(*args)
        if not isinstance(returned, wanted.kind):
            raise wrong_return_value(name, returned, wanted.remedy, function)
        return returned

    return with_check


def _check_stream(
    name: str, function: Callable[..., object], wanted: _Returned
) -> Callable[..., Iterator[object]]:
    @functools.wraps(function)
    def with_check(*args: object) -> Iterator[object]:
        return check_members(function(*args), wanted.kind, name, function, wanted.remedy)

    return with_check


def _check_list(
    name: str, function: Callable[..., object], wanted: _Returned
) -> Callable[..., list[object]]:
    in_order = _check_stream(name, function, wanted)

    @functools.wraps(function)
    def with_check(*args: object) -> list[object]:
        return [*in_order(*args)]

    return with_check
