"""Which study type a study file means: the one it names, or whose keys it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine.config import StudyConfig
from folkmoot.engine.consent import Consent
from folkmoot.engine.mistakes import located_problem, standing_at
from folkmoot.engine.study import Study, code_of, find_study, registered
from folkmoot.engine.yaml_tree import Tree
from folkmoot.errors import InputError, Problem


def study_of(tree: Tree, path: Path, consent: Consent) -> tuple[Study, bool]:
    """The study type, and whether the file says so; if not, the type that its keys are like."""
    name = tree.value.get("study")
    if name is not None:
        return _named_study(name, tree, path, consent), True
    broken: list[Problem] = []
    studies: list[Study] = []
    for known in registered():
        # The first that knows its own ends the search: importing all types takes a while.
        try:
            studies.append(find_study(known))
        except InputError as error:
            broken.extend(error.problems)
            continue
        if _recognised(studies[-1], tree.value):
            return studies[-1], True
    likeness = sorted(((_likeness(s, tree.value), s.name, s) for s in studies), reverse=True)
    if likeness and likeness[0][0] >= 2 and [n for n, _, _ in likeness].count(likeness[0][0]) == 1:
        return likeness[0][2], False
    raise InputError([type_missing(path, ", ".join(registered())), *broken])


def _recognised(study: Study, raw: Mapping[str, Any]) -> bool:
    try:
        return study.recognises(raw)
    except (TypeError, ValueError, LookupError, AttributeError):
        return False  # values of kinds that the type did not reckon with: not one of its files


def _named_study(name: Any, tree: Tree, path: Path, consent: Consent) -> Study:
    if not isinstance(name, str):
        raise InputError(located_problem("must be the name of a study type", ("study",), tree))
    place = tree.nearest(("study",))
    code = code_of(name, path.parent)
    if code is not None:
        consent.require_code(code)
    try:
        return find_study(name, path.parent)
    except InputError as error:
        raise InputError(
            [p if p.file else standing_at(p, place.file, place.line) for p in error.problems]
        ) from error


def _likeness(study: Study, raw: Mapping[str, Any]) -> int:
    """How many keys of a file are this type's own."""
    return len((set(study.config.model_fields) - set(StudyConfig.model_fields)) & set(raw))


def type_missing(path: Path, names: str) -> Problem:
    """What to say of a file that names no study type; `names` are those it could be."""
    return Problem("is missing: say which study type", str(path), key="study", mend=names)
