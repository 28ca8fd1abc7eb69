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
    find_hidden_characters,
    located_problem,
    problems_from_validation,
    sort_problems,
    with_location,
)
from folkmoot.engine.settings.hypotheses import check_hypotheses
from folkmoot.engine.settings.yaml_tree import (
    Path_,
    SourceLocation,
    YamlTree,
    apply_overrides,
    coerce_scalar,
    existing_path,
    get_value,
    parse_yaml,
    resolve_path,
    set_value,
)
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import (
    Study,
    find_study,
    load_installed_studies,
    registered_studies,
    select_study_seats,
)
from folkmoot.errors import InputError, Problem
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import closest_name
from folkmoot.models.catalog import resolve_model
from folkmoot.respondent.mind.knobs import RespondentSettings
from folkmoot.storage.rows import columns_of_class

NO_CONSENT = Consent()
MAX_FILE_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study file that holds no mistake. `raw_settings`: its keys with overrides, without
    defaults.

    `override`: the model that takes every seat on a resume, as the sealed plan has it.
    `models_note`: what the user should read about the choice of models (`model_choice`).
    """

    path: Path
    study: Study
    config: StudyConfig
    raw_settings: Mapping[str, object]
    override: str | None = None
    models_note: str = ""

    @property
    def study_folder(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.path.parent

    @property
    def run_id(self) -> str:
        """The name of the run's folder: the study's own, else the file's name."""
        return self.study.run_id(self.config) or self.path.stem

    def prompt_library(self) -> PromptLibrary:
        """The study's prompts, with the user's own over them."""
        return build_prompt_library(self.study, self.config, self.study_folder)


def build_prompt_library(study: Study, config: StudyConfig, folder: Path) -> PromptLibrary:
    """The prompts of a study type under a config whose paths are relative to `folder`."""
    own = (folder / Path(config.prompts).expanduser()) if config.prompts else None
    return PromptLibrary(study.prompts, own)


def load_study_file(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    models: bool = False,
    consent: Consent = NO_CONSENT,
) -> StudyFile:
    """Load a study file, with `key=value` overrides (dotted keys, YAML values).

    `models`: look the models that it names up as well; they don't matter where another model takes
    every seat. Raises InputError with every mistake that can be found at once.
    """
    path = Path(path)
    _require_file(path)
    reader = _find_file_loader(path)
    if reader is not None:
        return _load_with_study_loader(path, reader, overrides)
    tree = parse_yaml(_read_text(path), str(path))
    if tree.value is None:
        raise InputError(Problem("the file is empty", str(path), hint="`folkmoot new` writes one"))
    if not isinstance(tree.value, dict):
        raise InputError(Problem("a study file is a group of `key: value` lines", str(path), "1"))
    apply_overrides(tree, overrides)
    if models:
        tree.problems += _unknown_model_problems(tree)
    try:
        study, sure = resolve_study_type(tree, path, consent)
    except InputError as error:
        raise InputError(sort_problems([*tree.problems, *error.problems])) from error
    found = _validate_tree(path, study, tree)
    if not sure:
        raise InputError(missing_type_message(path, study.name))
    return found


def validate_settings(
    study: Study, data: Mapping[str, object], folder: Path | None = None
) -> StudyConfig:
    """A config from plain data (a dictionary from Python). Raises InputError with all mistakes.

    With `folder`, which its paths are relative to, the study's own deeper checks are made too.
    """
    tree = YamlTree(copy.deepcopy(dict(data)), {(): SourceLocation("", 0)})
    config, problems = _validate_config(study, tree, folder)
    if config is not None and folder is not None:
        problems += _independent_problems(
            problems, _study_problems(study, config, folder / study.name, tree)
        )
    if config is None or problems:
        raise InputError(sort_problems(problems))
    return config


def _require_file(path: Path) -> None:
    if path.is_dir():
        hint = "name the study file inside it"
        if (path / "plan.json").exists():
            hint = "this is a run folder: name its study file and give --resume"
        raise InputError(Problem("this is a folder, not a study file", str(path), hint=hint))
    if path.exists():
        return
    near = [path.name for path in path.parent.glob("*")] if path.parent.is_dir() else []
    guess = closest_name(path.name, near)
    hint = f"did you mean {path.with_name(guess)}?" if guess else ""
    raise InputError(Problem("no such file", str(path), hint=hint))


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            Problem(f"cannot be read: {error.strerror or error}", str(path))
        ) from error
    if len(data) > MAX_FILE_BYTES:
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


def _find_file_loader(path: Path) -> Study | None:
    if path.suffix.lower() in (".yaml", ".yml", ".json", ""):
        return None
    studies, broken = load_installed_studies()
    reader = next(
        (
            study
            for study in studies
            if path.suffix.lower() in study.file_suffixes and study.load_config
        ),
        None,
    )
    if reader is None and path.suffix.lower() in (".xlsx", ".xlsm", ".ods"):
        hint = "; ".join(str(problem) for problem in broken)
        raise InputError(Problem("no study type reads files of this kind", str(path), hint=hint))
    return reader


def _load_with_study_loader(path: Path, study: Study, overrides: Sequence[str]) -> StudyFile:
    assert study.load_config is not None
    config = study.load_config(path)
    raw = config.model_dump(mode="json", exclude_unset=True)
    if overrides:
        tree = YamlTree(config.model_dump(mode="json"))
        tree.locations[()] = SourceLocation(str(path), 0)
        apply_overrides(tree, overrides)
        return _validate_tree(path, study, tree)
    problems = _study_problems(
        study, config, path, YamlTree(raw, {(): SourceLocation(str(path), 0)})
    )
    if problems:
        raise InputError(problems)
    return StudyFile(path, study, config, raw)


def _validate_tree(path: Path, study: Study, tree: YamlTree) -> StudyFile:
    tree.value.setdefault("study", study.name)
    config, problems = _validate_config(study, tree, path.parent)
    if config is not None:
        problems += _independent_problems(problems, _study_problems(study, config, path, tree))
    if config is None or problems or tree.problems:
        raise InputError(sort_problems([*tree.problems, *problems]))
    return StudyFile(path, study, config, tree.value)


def _validate_config(
    study: Study, tree: YamlTree, folder: Path | None
) -> tuple[StudyConfig | None, list[Problem]]:
    """The config, and every mistake.

    After a first failure, keys that are unknown and single values that have a default are left
    out and the rest is validated again, because checks that span several keys (a mapping that
    misses an option) only run when each key by itself is right.
    """
    problems: list[Problem] = find_hidden_characters(tree)
    pruned = _strip_hidden_characters(tree.value) if problems else copy.deepcopy(tree.value)
    for _ in range(8):
        try:
            config = study.config.model_validate_json(
                json.dumps(pruned), strict=True, context={"folder": folder}
            )
        except ValidationError as error:
            if _coerce_scalars(error, tree, pruned):
                continue
            problems.extend(
                problems_from_validation(error, YamlTree(pruned, tree.locations), study.config)
            )
            if not _remove_invalid(error, study.config, pruned):
                return None, problems
        else:
            return config, problems
    return None, problems


def _strip_hidden_characters(value: Any) -> Any:
    """The values without hidden characters, at which the validation itself would stop."""
    if isinstance(value, dict):
        return {
            _strip_hidden_characters(key): _strip_hidden_characters(below)
            for key, below in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_strip_hidden_characters(below) for below in value]
    return without_hidden(value) if isinstance(value, str) else value


def _coerce_scalars(error: ValidationError, tree: YamlTree, data: object) -> bool:
    """Re-read plain values as the type that was wanted; whether any was."""
    changed = False
    for detail in error.errors(include_url=False, include_context=False):
        path = existing_path(data, detail["loc"])
        if path is None or path not in tree.locations:
            continue
        value = coerce_scalar(detail["type"], tree.locations[path], get_value(data, path))
        if value is not ...:
            set_value(data, path, value)
            set_value(tree.value, path, value)
            changed = True
    return changed


def _remove_invalid(
    error: ValidationError, model: type[StudyConfig], data: dict[str, object]
) -> bool:
    """Leave out what is wrong by itself; False when something wrong must stay."""
    removable: list[Path_] = []
    for detail in error.errors(include_url=False, include_context=False):
        path = existing_path(data, detail["loc"])
        if not path or detail["type"] == "missing":
            return False
        field = model.model_fields.get(str(path[0]))
        scalar = not isinstance(get_value(data, path), (dict, list))
        optional = len(path) == 1 and field is not None and not field.is_required() and scalar
        if detail["type"] != "extra_forbidden" and not optional:
            return False
        removable.append(path)
    for path in sorted(set(removable), key=lambda p: [str(x) for x in p], reverse=True):
        parent = get_value(data, path[:-1])
        parent.pop(path[-1], None)
    return bool(removable)


def _study_problems(study: Study, config: StudyConfig, path: Path, tree: YamlTree) -> list[Problem]:
    problems = []
    found = [*study.check_config(config, path.parent), *_respondent_problems(config)]
    found = found or _seat_problems(study, config, path.parent)
    for problem in [*found, *check_hypotheses(config.hypotheses, columns_of_class(study.tables))]:
        if not problem.file:
            where = resolve_path(tree.value, problem.key)
            place = tree.nearest_location(where)
            problem = with_location(problem, place.file, place.line if where else 0)  # noqa: PLW2901
        problems.append(problem)
    return problems + build_prompt_library(study, config, path.parent).find_problems()


def _seat_problems(study: Study, config: StudyConfig, folder: Path) -> list[Problem]:
    try:
        select_study_seats(study, config, folder)
    except InputError as error:
        return error.problems
    return []


def _independent_problems(known: Sequence[Problem], deeper: Sequence[Problem]) -> list[Problem]:
    """The deeper mistakes without those of a key that is wrong by itself: it was left out, so
    what a deeper check says of it is said of the default.
    """
    keys = {problem.key for problem in known if problem.key}
    return [problem for problem in deeper if problem.key not in keys]


def _unknown_model_problems(tree: YamlTree) -> list[Problem]:
    """Names of models that nobody knows, where they stand."""
    raw = tree.value
    seats = raw.get("models") if isinstance(raw.get("models"), dict) else {}
    named: dict[tuple[str, ...], object] = {
        ("model",): raw.get("model"),
        ("embedding_model",): raw.get("embedding_model"),
    }
    named |= {("models", role): name for role, name in seats.items()}
    given = raw.get("endpoints") if isinstance(raw.get("endpoints"), dict) else {}
    endpoints = {str(key): "http://where" for key in given}  # what is moved has a name in any case
    problems = []
    for where, name in named.items():
        if isinstance(name, str):
            try:
                resolve_model(name, endpoints)
            except InputError as error:
                for problem in error.problems:
                    problems.append(located_problem(problem.message, where, tree, problem.hint))
    return problems


def _respondent_problems(config: StudyConfig) -> list[Problem]:
    """Settings that the embedded respondent does not have, whether or not it will answer."""
    if not config.respondent:
        return []
    try:
        RespondentSettings.from_mapping(config.respondent)
    except InputError as error:
        return error.problems
    return []


def resolve_study_type(tree: YamlTree, path: Path, consent: Consent) -> tuple[Study, bool]:
    """The study type, and whether the file says so; if not, the type that its keys are like."""
    name = tree.value.get("study")
    if name is not None:
        return _load_named_study(name, tree, path, consent), True
    broken: list[Problem] = []
    studies: list[Study] = []
    for known in registered_studies():
        # The first that knows its own ends the search: importing all types takes a while.
        try:
            studies.append(find_study(known))
        except InputError as error:
            broken.extend(error.problems)
            continue
        if _match_study_type(studies[-1], tree.value):
            return studies[-1], True
    likeness = sorted(
        ((_matching_key_count(study, tree.value), study.name, study) for study in studies),
        reverse=True,
    )
    if likeness and likeness[0][0] >= 2 and [n for n, _, _ in likeness].count(likeness[0][0]) == 1:
        return likeness[0][2], False
    raise InputError([missing_type_message(path, ", ".join(registered_studies())), *broken])


def _match_study_type(study: Study, raw: Mapping[str, object]) -> bool:
    try:
        return study.matches(raw)
    except (TypeError, ValueError, LookupError, AttributeError):
        return False  # values of kinds that the type did not reckon with: not one of its files


def _load_named_study(name: object, tree: YamlTree, path: Path, consent: Consent) -> Study:
    if not isinstance(name, str):
        raise InputError(located_problem("must be the name of a study type", ("study",), tree))
    place = tree.nearest_location(("study",))
    try:
        return find_study(name, path.parent, consent)
    except InputError as error:
        raise InputError(
            [
                problem if problem.file else with_location(problem, place.file, place.line)
                for problem in error.problems
            ]
        ) from error


def _matching_key_count(study: Study, raw: Mapping[str, object]) -> int:
    """How many keys of a file are this type's own."""
    return len((set(study.config.model_fields) - set(StudyConfig.model_fields)) & set(raw))


def missing_type_message(path: Path, names: str) -> Problem:
    """What to say of a file that names no study type; `names` are those it could be."""
    return Problem("is missing: say which study type", str(path), key="study", hint=names)
