"""Study files: read, checked whole, with every mistake named by file, line and key.

The runner and the command line load through `load_study_file`. A study type may read file types
of its own (a workbook); everything else is YAML. A file that names no study type is taken for the
one whose keys it has.
"""

from __future__ import annotations

import codecs
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.settings.config_problems import (
    hidden_characters,
    in_order,
    located_problem,
    problems_of,
    standing_at,
)
from folkmoot.engine.settings.hypotheses import mistakes
from folkmoot.engine.settings.yaml_tree import (
    Path_,
    Place,
    Tree,
    apply_overrides,
    existing,
    find_path,
    fitting,
    get_at,
    put_at,
    read_tree,
)
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import (
    Study,
    find_study,
    installed_studies,
    registered,
    seats_of,
)
from folkmoot.errors import InputError, Problem
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import nearest
from folkmoot.models.catalog import resolve
from folkmoot.respondent.mind.knobs import Knobs
from folkmoot.storage.rows import declared

NOBODY = Consent()
MOST_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study file that holds no mistake. `raw`: its keys with overrides, without defaults.

    `override`: the model that takes every seat on a resume, as the sealed plan has it.
    `models_note`: what the user should read about the choice of models (`model_choice`).
    """

    path: Path
    study: Study
    config: StudyConfig
    raw: Mapping[str, object]
    override: str | None = None
    models_note: str = ""

    @property
    def folder(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.path.parent

    @property
    def run_id(self) -> str:
        """The name of the run's folder: the study's own, else the file's name."""
        return self.study.run_id(self.config) or self.path.stem

    def prompts(self) -> PromptLibrary:
        """The study's prompts, with the user's own over them."""
        return prompts_of(self.study, self.config, self.folder)


def prompts_of(study: Study, config: StudyConfig, folder: Path) -> PromptLibrary:
    """The prompts of a study type under a config whose paths are relative to `folder`."""
    own = (folder / Path(config.prompts).expanduser()) if config.prompts else None
    return PromptLibrary(study.prompts, own)


def load_study_file(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    models: bool = False,
    consent: Consent = NOBODY,
) -> StudyFile:
    """Load a study file, with `key=value` overrides (dotted keys, YAML values).

    `models`: look the models that it names up as well; they don't matter where another model takes
    every seat. Raises InputError with every mistake that can be found at once.
    """
    path = Path(path)
    _must_be_file(path)
    reader = _own_reader(path)
    if reader is not None:
        return _load_own(path, reader, overrides)
    tree = read_tree(_text(path), str(path))
    if tree.value is None:
        raise InputError(Problem("the file is empty", str(path), hint="`folkmoot new` writes one"))
    if not isinstance(tree.value, dict):
        raise InputError(Problem("a study file is a group of `key: value` lines", str(path), "1"))
    apply_overrides(tree, overrides)
    if models:
        tree.problems += _unknown_models(tree)
    try:
        study, sure = study_of(tree, path, consent)
    except InputError as error:
        raise InputError(in_order([*tree.problems, *error.problems])) from error
    found = _checked(path, study, tree)
    if not sure:
        raise InputError(type_missing(path, study.name))
    return found


def validate(study: Study, data: Mapping[str, object], folder: Path | None = None) -> StudyConfig:
    """A config from plain data (a dictionary from Python). Raises InputError with all mistakes.

    With `folder`, which its paths are relative to, the study's own deeper checks are made too.
    """
    tree = Tree(copy.deepcopy(dict(data)), {(): Place("", 0)})
    config, problems = _config(study, tree, folder)
    if config is not None and folder is not None:
        problems += _further(problems, _deeper(study, config, folder / study.name, tree))
    if config is None or problems:
        raise InputError(in_order(problems))
    return config


def _must_be_file(path: Path) -> None:
    if path.is_dir():
        hint = "name the study file inside it"
        if (path / "plan.json").exists():
            hint = "this is a run folder: name its study file and give --resume"
        raise InputError(Problem("this is a folder, not a study file", str(path), hint=hint))
    if path.exists():
        return
    near = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
    guess = nearest(path.name, near)
    hint = f"did you mean {path.with_name(guess)}?" if guess else ""
    raise InputError(Problem("no such file", str(path), hint=hint))


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            Problem(f"cannot be read: {error.strerror or error}", str(path))
        ) from error
    if len(data) > MOST_BYTES:
        raise InputError(Problem("is larger than any study file (20 MB)", str(path)))
    if data[:4] == b"PK\x03\x04":
        raise InputError(
            Problem("is a workbook or archive, not YAML", str(path), hint="name it .xlsx")
        )
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            Problem("is not UTF-8", str(path), str(line), hint="save it as UTF-8")
        ) from error


def _own_reader(path: Path) -> Study | None:
    if path.suffix.lower() in (".yaml", ".yml", ".json", ""):
        return None
    studies, broken = installed_studies()
    reader = next((s for s in studies if path.suffix.lower() in s.suffixes and s.load), None)
    if reader is None and path.suffix.lower() in (".xlsx", ".xlsm", ".ods"):
        hint = "; ".join(str(p) for p in broken)
        raise InputError(Problem("no study type reads files of this kind", str(path), hint=hint))
    return reader


def _load_own(path: Path, study: Study, overrides: Sequence[str]) -> StudyFile:
    assert study.load is not None
    config = study.load(path)
    raw = config.model_dump(mode="json", exclude_unset=True)
    if overrides:
        tree = Tree(config.model_dump(mode="json"))
        tree.places[()] = Place(str(path), 0)
        apply_overrides(tree, overrides)
        return _checked(path, study, tree)
    problems = _deeper(study, config, path, Tree(raw, {(): Place(str(path), 0)}))
    if problems:
        raise InputError(problems)
    return StudyFile(path, study, config, raw)


def _checked(path: Path, study: Study, tree: Tree) -> StudyFile:
    tree.value.setdefault("study", study.name)
    config, problems = _config(study, tree, path.parent)
    if config is not None:
        problems += _further(problems, _deeper(study, config, path, tree))
    if config is None or problems or tree.problems:
        raise InputError(in_order([*tree.problems, *problems]))
    return StudyFile(path, study, config, tree.value)


def _config(
    study: Study, tree: Tree, folder: Path | None
) -> tuple[StudyConfig | None, list[Problem]]:
    """The config, and every mistake.

    After a first failure, keys that are unknown and single values that have a default are left
    out and the rest is validated again, because checks that span several keys (a mapping that
    misses an option) only run when each key by itself is right.
    """
    problems: list[Problem] = hidden_characters(tree)
    pruned = _seen(tree.value) if problems else copy.deepcopy(tree.value)
    for _ in range(8):
        try:
            config = study.config.model_validate_json(
                json.dumps(pruned), strict=True, context={"folder": folder}
            )
        except ValidationError as error:
            if _refit(error, tree, pruned):
                continue
            problems.extend(problems_of(error, Tree(pruned, tree.places), study.config))
            if not _prune(error, study.config, pruned):
                return None, problems
        else:
            return config, problems
    return None, problems


def _seen(value: Any) -> Any:
    """The values without hidden characters, at which the validation itself would stop."""
    if isinstance(value, dict):
        return {_seen(key): _seen(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [_seen(below) for below in value]
    return without_hidden(value) if isinstance(value, str) else value


def _refit(error: ValidationError, tree: Tree, data: object) -> bool:
    """Re-read plain values as the type that was wanted; whether any was."""
    changed = False
    for detail in error.errors(include_url=False, include_context=False):
        path = existing(data, detail["loc"])
        if path is None or path not in tree.places:
            continue
        value = fitting(detail["type"], tree.places[path], get_at(data, path))
        if value is not ...:
            put_at(data, path, value)
            put_at(tree.value, path, value)
            changed = True
    return changed


def _prune(error: ValidationError, model: type[StudyConfig], data: dict[str, object]) -> bool:
    """Leave out what is wrong by itself; False when something wrong must stay."""
    removable: list[Path_] = []
    for detail in error.errors(include_url=False, include_context=False):
        path = existing(data, detail["loc"])
        if not path or detail["type"] == "missing":
            return False
        field = model.model_fields.get(str(path[0]))
        scalar = not isinstance(get_at(data, path), (dict, list))
        optional = len(path) == 1 and field is not None and not field.is_required() and scalar
        if detail["type"] != "extra_forbidden" and not optional:
            return False
        removable.append(path)
    for path in sorted(set(removable), key=lambda p: [str(x) for x in p], reverse=True):
        parent = get_at(data, path[:-1])
        parent.pop(path[-1], None)
    return bool(removable)


def _deeper(study: Study, config: StudyConfig, path: Path, tree: Tree) -> list[Problem]:
    problems = []
    found = [*study.check(config, path.parent), *_respondent_problems(config)]
    found = found or _seat_problems(study, config, path.parent)
    for problem in [*found, *mistakes(config.hypotheses, declared(study.tables))]:
        if not problem.file:
            where = find_path(tree.value, problem.key)
            place = tree.nearest(where)
            problem = standing_at(problem, place.file, place.line if where else 0)  # noqa: PLW2901
        problems.append(problem)
    return problems + prompts_of(study, config, path.parent).check()


def _seat_problems(study: Study, config: StudyConfig, folder: Path) -> list[Problem]:
    try:
        seats_of(study, config, folder)
    except InputError as error:
        return error.problems
    return []


def _further(known: Sequence[Problem], deeper: Sequence[Problem]) -> list[Problem]:
    """The deeper mistakes without those of a key that is wrong by itself: it was left out, so
    what a deeper check says of it is said of the default.
    """
    keys = {p.key for p in known if p.key}
    return [p for p in deeper if p.key not in keys]


def _unknown_models(tree: Tree) -> list[Problem]:
    """Names of models that nobody knows, where they stand."""
    raw = tree.value
    seats = raw.get("models") if isinstance(raw.get("models"), dict) else {}
    named: dict[tuple[str, ...], object] = {
        ("model",): raw.get("model"),
        ("embedding_model",): raw.get("embedding_model"),
    }
    named |= {("models", role): name for role, name in seats.items()}
    given = raw.get("endpoints") if isinstance(raw.get("endpoints"), dict) else {}
    endpoints = {str(k): "http://where" for k in given}  # what is moved has a name in any case
    problems = []
    for where, name in named.items():
        if isinstance(name, str):
            try:
                resolve(name, endpoints)
            except InputError as error:
                for p in error.problems:
                    problems.append(located_problem(p.message, where, tree, p.hint))
    return problems


def _respondent_problems(config: StudyConfig) -> list[Problem]:
    """Settings that the embedded respondent does not have, whether or not it will answer."""
    if not config.respondent:
        return []
    try:
        Knobs.of(config.respondent)
    except InputError as error:
        return error.problems
    return []


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


def _recognised(study: Study, raw: Mapping[str, object]) -> bool:
    try:
        return study.recognises(raw)
    except (TypeError, ValueError, LookupError, AttributeError):
        return False  # values of kinds that the type did not reckon with: not one of its files


def _named_study(name: object, tree: Tree, path: Path, consent: Consent) -> Study:
    if not isinstance(name, str):
        raise InputError(located_problem("must be the name of a study type", ("study",), tree))
    place = tree.nearest(("study",))
    try:
        return find_study(name, path.parent, consent)
    except InputError as error:
        raise InputError(
            [p if p.file else standing_at(p, place.file, place.line) for p in error.problems]
        ) from error


def _likeness(study: Study, raw: Mapping[str, object]) -> int:
    """How many keys of a file are this type's own."""
    return len((set(study.config.model_fields) - set(StudyConfig.model_fields)) & set(raw))


def type_missing(path: Path, names: str) -> Problem:
    """What to say of a file that names no study type; `names` are those it could be."""
    return Problem("is missing: say which study type", str(path), key="study", hint=names)
