"""Load study files, and report all problems in them with file, line and key."""

# A study type may read its own file types, such as workbooks. All other study files are YAML. If a
# file names no study type, the type is inferred from the keys.

from __future__ import annotations

import codecs
import copy
import json
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.settings.author_errors import locate_function
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.settings.config_problems import (
    find_hidden_characters,
    located_problem,
    problems_from_validation,
    sort_problems,
    with_location,
)
from folkmoot.engine.settings.hypotheses import check_claims, check_hypotheses
from folkmoot.engine.settings.yaml_tree import (
    KeyPath,
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
from folkmoot.hints import closest_name, did_you_mean, join_words
from folkmoot.measures.inference.claims import Claim
from folkmoot.models.catalog import resolve_model
from folkmoot.respondent.mind.knobs import RespondentSettings
from folkmoot.storage.rows import columns_of_class

NO_CONSENT = Consent()
# 20 MB, far above any study file. A data file given by mistake is rejected before it is parsed.
MAX_FILE_BYTES = 20_000_000
# A message shows the beginning of a name that cannot be read.
SHOWN_NAME_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A loaded and valid study file, with the study type and the configuration."""

    path: Path
    study: Study
    config: StudyConfig
    # The keys of the file with overrides, without defaults.
    raw_settings: Mapping[str, object]
    # The model of all roles, if a resumed run has one in its sealed plan. Else None.
    override: str | None = None
    # A message for the researcher on the choice of models (`model_choice`).
    models_note: str = ""

    @property
    def study_folder(self) -> Path:
        """The folder of the study file."""
        # Paths in the file are relative to it.
        return self.path.parent

    @property
    def run_id(self) -> str:
        """The name of the run folder."""
        # The study type may set it. The default is the file's name.
        return self.study.run_id(self.config) or self.path.stem

    def list_notes(self) -> tuple[str, ...]:
        """Return the advisories of the study type on these settings."""
        return tuple(self.study.notes(self.config, self.study_folder))

    def prompt_library(self) -> PromptLibrary:
        """Return the prompts of the study."""
        # Prompts of the researcher replace shipped prompts.
        return build_prompt_library(self.study, self.config, self.study_folder)


def build_prompt_library(study: Study, config: StudyConfig, folder: Path) -> PromptLibrary:
    """Return the prompts of a study type."""
    # Paths in the configuration are relative to `folder`.
    override_folder = (folder / Path(config.prompts).expanduser()) if config.prompts else None
    return PromptLibrary(study.prompts, override_folder)


def load_study_file(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    models: bool = False,
    consent: Consent = NO_CONSENT,
) -> StudyFile:
    """Load a study file and apply `overrides` such as `random_seed=7`.

    `models`: whether to check the models, too. Raises InputError with all problems of the file.
    """
    # Overrides have dotted keys and YAML values. The models need no check if another model answers
    # for every role.
    path = Path(path)
    _require_file(path)
    reader = _find_file_loader(path)
    if reader is not None:
        return _load_with_study_loader(path, reader, overrides)
    tree = parse_yaml(read_study_text(path), str(path))
    if tree.value is None:
        raise InputError(Problem("the file is empty", str(path), hint="`folkmoot new` writes one"))
    if not isinstance(tree.value, dict):
        raise InputError(Problem("a study file is a group of `key: value` lines", str(path), "1"))
    apply_overrides(tree, overrides)
    if models:
        tree.problems += _unknown_model_problems(tree)
    try:
        study, is_certain = resolve_study_type(tree, path, consent)
    except InputError as error:
        raise InputError(sort_problems([*tree.problems, *error.problems])) from error
    # A guessed study type is used for the checks, so that its problems are reported. If there are
    # none, the missing key `study` is reported.
    study_file = _validate_tree(path, study, tree)
    if not is_certain:
        raise InputError(missing_type_message(path, study.name))
    return study_file


def validate_settings(
    study: Study,
    data: Mapping[str, object],
    folder: Path | None = None,
    overrides: Sequence[str] = (),
) -> StudyConfig:
    """Return the configuration for settings that are given as a dictionary.

    `overrides`: texts like `random_seed=7`, which change the settings before they are checked.

    Raises InputError, which lists all problems.
    """
    # If `folder` is given, paths are relative to it, and the checks of the study type are made as
    # well.

    # A deep copy, because repairs during the checks change the data.
    tree = YamlTree(copy.deepcopy(dict(data)), {(): SourceLocation("", 0)})
    apply_overrides(tree, overrides)
    if folder is None:
        config, problems = _validate_config(study, tree, None).result
    else:
        config, problems = _find_problems(study, tree, folder / study.name)
    if config is None or problems:
        raise InputError(sort_problems(problems))
    return config


def _require_file(path: Path) -> None:
    if path.is_dir():
        hint = "name the study file inside it"
        if (path / "plan.json").exists():
            hint = "this is a run folder: name its study file and add --resume"
        raise InputError(Problem("this is a folder, not a study file", str(path), hint=hint))
    if path.exists():
        return
    # A misspelled name is the most frequent reason, so suggest a file of the same folder.
    neighbours = [path.name for path in path.parent.glob("*")] if path.parent.is_dir() else []
    guess = closest_name(path.name, neighbours)
    hint = f"did you mean {path.with_name(guess)}?" if guess else ""
    raise InputError(Problem("no such file", str(path), hint=hint))


def read_study_text(path: Path) -> str:
    """Return the text of a study file in UTF-8 or UTF-16.

    Raises InputError if the file cannot be read as text.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            Problem(f"cannot be read: {error.strerror or error}", str(path))
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError(Problem("is larger than any study file (20 MB)", str(path)))
    # The first bytes of a ZIP archive, which a workbook is.
    if data[:4] == b"PK\x03\x04":
        raise InputError(
            Problem("is a workbook or archive, not YAML", str(path), hint="name it .xlsx")
        )
    # Some Windows editors save text as UTF-16, or as UTF-8 with a byte order mark.
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            Problem("is not UTF-8", str(path), str(line), hint="save it as UTF-8")
        ) from error


_SAVE_AS_XLSX = "open it in a spreadsheet program and save it as .xlsx"
# Files of other programs that a researcher may take for a study file, with the remedy.
_OTHER_FILES = {
    ".xlsx": "",
    ".qsf": "folkmoot new workbook --from FILE makes a study of a Qualtrics survey",
    **dict.fromkeys((".xlsm", ".xlsb", ".xls", ".ods", ".csv", ".numbers"), _SAVE_AS_XLSX),
}


def _find_file_loader(path: Path) -> Study | None:
    if path.suffix.lower() in (".yaml", ".yml", ".json", ""):
        return None
    studies, load_problems = load_installed_studies()
    study_type = next(
        (
            study
            for study in studies
            if path.suffix.lower() in study.file_suffixes and study.load_config
        ),
        None,
    )
    if study_type is None and path.suffix.lower() in _OTHER_FILES:
        hint = "; ".join(str(problem) for problem in load_problems)
        hint = hint or _OTHER_FILES[path.suffix.lower()]
        raise InputError(Problem("no study type reads files of this kind", str(path), hint=hint))
    return study_type


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
    # A run folder keeps these settings, and `folkmoot report` finds the study type by this key.
    tree.value.setdefault("study", study.name)
    try:
        config, problems = _find_problems(study, tree, path)
    except OSError as error:
        raise InputError(
            sort_problems([*tree.problems, _unreadable_file_problem(error, tree)])
        ) from error
    if config is None or problems or tree.problems:
        raise InputError(sort_problems([*tree.problems, *problems]))
    return StudyFile(path, study, config, tree.value)


def _unreadable_file_problem(error: OSError, tree: YamlTree) -> Problem:
    # For example a name that is too long for the file system.
    path = Path(str(error.filename))
    values = {key: get_value(tree.value, key) for key in tree.locations}
    names = {key: Path(value).parts for key, value in values.items() if isinstance(value, str)}
    keys = [key for key, parts in names.items() if parts and path.parts[-len(parts) :] == parts]
    message = f"a file that the study names cannot be read ({error.strerror})"
    return located_problem(
        f"{message}: {path.name[:SHOWN_NAME_CHARACTERS]}", keys[0] if keys else (), tree
    )


class _Validated(NamedTuple):
    # `problems` are certain. `further` ones were found after defaults had replaced the invalid
    # values of the keys in `replaced`. The configuration is None if there is none.
    config: StudyConfig | None
    problems: list[Problem]
    further: list[Problem]
    replaced: set[str]

    @property
    def result(self) -> tuple[StudyConfig | None, list[Problem]]:
        return self.config, [*self.problems, *self.further]


def _find_problems(
    study: Study, tree: YamlTree, path: Path
) -> tuple[StudyConfig | None, list[Problem]]:
    # Returns the configuration with all problems of the settings and of the study type.
    found = _validate_all(study, tree, path)
    further = found.further
    for key in found.replaced if further else ():
        # A problem that depends on the default in place of an invalid value would be a false one.
        # It is not found with each value that the key accepts.
        for value in _accepted_values(study.config.model_fields[key]):
            other_tree = YamlTree({**copy.deepcopy(tree.value), key: value}, tree.locations)
            _, other_problems = _validate_all(study, other_tree, path).result
            further = [problem for problem in further if problem in other_problems]
    return found._replace(further=further).result


def _validate_all(study: Study, tree: YamlTree, path: Path) -> _Validated:
    found = _validate_config(study, tree, path.parent)
    if found.config is None:
        return found
    keys = {problem.key for problem in found.problems if problem.key}
    further = _study_problems(study, found.config, path, tree)
    return found._replace(further=[problem for problem in further if problem.key not in keys])


def _accepted_values(field: FieldInfo) -> list[object]:
    # Some values that a key with few values or with a lower bound accepts. Large ones could make
    # the checks slow.
    values: list[object] = []
    for kind in (field.annotation, *typing.get_args(field.annotation)):
        if kind is bool:
            values += [True, False]
        elif typing.get_origin(kind) is Literal:
            values += typing.get_args(kind)
    for bound in field.metadata:
        if hasattr(bound, "ge"):
            values += [bound.ge, bound.ge + 1]
        elif hasattr(bound, "gt"):
            values.append(bound.gt + 1)
    return values


def _validate_config(study: Study, tree: YamlTree, folder: Path | None) -> _Validated:
    # Checks of several keys run only when each key is valid. So invalid optional values are removed
    # after a failure, and the rest is validated again.
    problems: list[Problem] = find_hidden_characters(tree)
    pruned = _strip_hidden_characters(tree.value) if problems else copy.deepcopy(tree.value)
    replaced: set[str] = set()
    # Each pass converts values, removes keys or ends the loop. Removed keys can reveal new errors,
    # so there may be several passes. Their number is bounded in any case.
    for _ in range(8):
        try:
            # As JSON, because strict validation of Python data would reject lists for tuples.
            config = study.config.model_validate_json(
                json.dumps(pruned), strict=True, context={"folder": folder}
            )
        except ValidationError as error:
            if _coerce_scalars(error, tree, pruned):
                continue
            found = problems_from_validation(error, YamlTree(pruned, tree.locations), study.config)
            removed = _remove_invalid(error, study.config, pruned)
            if not removed:
                return _Validated(None, problems, found, replaced)
            problems += found
            replaced |= {str(path[0]) for path in removed} & {*study.config.model_fields}
        else:
            return _Validated(config, problems, [], replaced)
    return _Validated(None, problems, [], replaced)


def _strip_hidden_characters(value: Any) -> Any:
    # Hidden characters are reported already. Without them, validation can find other problems.
    if isinstance(value, dict):
        return {
            _strip_hidden_characters(key): _strip_hidden_characters(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_strip_hidden_characters(item) for item in value]
    return without_hidden(value) if isinstance(value, str) else value


def _coerce_scalars(error: ValidationError, tree: YamlTree, data: object) -> bool:
    # Returns whether any unquoted value was converted to the type that its key expects.
    changed = False
    for detail in error.errors(include_url=False, include_context=False):
        path = existing_path(data, detail["loc"])
        if path is None or path not in tree.locations:
            continue
        value = coerce_scalar(detail["type"], tree.locations[path], get_value(data, path))
        # The tree is changed as well, because the run folder keeps its values.
        if value is not ...:
            set_value(data, path, value)
            set_value(tree.value, path, value)
            changed = True
    return changed


def _remove_invalid(
    error: ValidationError, model: type[StudyConfig], data: dict[str, object]
) -> list[KeyPath]:
    # Removes unknown keys and invalid optional values, and returns their paths. If another problem
    # would remain, nothing is removed.
    removable: list[KeyPath] = []
    for detail in error.errors(include_url=False, include_context=False):
        path = existing_path(data, detail["loc"])
        if not path or detail["type"] == "missing":
            return []
        field = model.model_fields.get(str(path[0]))
        is_scalar = not isinstance(get_value(data, path), (dict, list))
        is_optional = len(path) == 1 and field is not None and not field.is_required() and is_scalar
        # Removing a part of a list or a group would change the meaning of the rest.
        if detail["type"] != "extra_forbidden" and not is_optional:
            return []
        removable.append(path)
    # In reverse order, so that a removal does not move later paths.
    for path in sorted(
        set(removable), key=lambda invalid_path: [str(part) for part in invalid_path], reverse=True
    ):
        parent = get_value(data, path[:-1])
        parent.pop(path[-1], None)
    return removable


def locate_problem(study_file: StudyFile, problem: Problem) -> Problem:
    """Add the file and the line to a problem that was found after loading the file."""
    path = study_file.path
    if not path.is_file() or _find_file_loader(path) is not None:
        return replace(problem, file=str(path))
    tree = parse_yaml(read_study_text(path), str(path))
    path_in_file = resolve_path(tree.value, problem.key)
    location = tree.nearest_location(path_in_file)
    return with_location(problem, str(path), location.line if path_in_file else 0)


def _study_problems(study: Study, config: StudyConfig, path: Path, tree: YamlTree) -> list[Problem]:
    problems = []
    config_problems = [
        *_role_problems(study, config),
        *study.check_config(config, path.parent),
        *_respondent_problems(config),
    ]
    # Seats are listed from the settings, so wrong settings would only cause further problems.
    config_problems = config_problems or _seat_problems(study, config, path.parent)
    # Conditions follow from the settings, so wrong settings would only cause further problems.
    conditions = study.conditions(config) if not config_problems else {}
    declared_claims: object = study.claims(config) if not config_problems else ()
    # The claims are read twice, and a study author may return a generator.
    if isinstance(declared_claims, Iterator):
        declared_claims = [*declared_claims]
    tables = columns_of_class(study.tables)
    claims_file, claims_line = locate_function(study.claims) or ("", "")
    for problem in [
        *config_problems,
        *check_hypotheses(config.hypotheses, tables, conditions, _only_claims(declared_claims)),
        *(
            replace(problem, file=claims_file, where=str(claims_line))
            for problem in check_claims(declared_claims, tables, conditions)
        ),
    ]:
        # A study type names the key only. A problem in another file has its location already.
        if not problem.file:
            path_in_file = resolve_path(tree.value, problem.key)
            location = tree.nearest_location(path_in_file)
            problem = with_location(problem, location.file, location.line if path_in_file else 0)  # noqa: PLW2901
        problems.append(problem)
    return problems + build_prompt_library(study, config, path.parent).find_problems()


def _only_claims(returned: object) -> list[Claim]:
    claims = returned if isinstance(returned, Iterable) else ()
    return [claim for claim in claims if isinstance(claim, Claim)]


def _seat_problems(study: Study, config: StudyConfig, folder: Path) -> list[Problem]:
    try:
        select_study_seats(study, config, folder)
    except InputError as error:
        return error.problems
    return []


def _unknown_model_problems(tree: YamlTree) -> list[Problem]:
    raw = tree.value
    role_models = raw.get("models") if isinstance(raw.get("models"), dict) else {}
    models_by_path: dict[tuple[str, ...], object] = {
        ("model",): raw.get("model"),
        ("embedding_model",): raw.get("embedding_model"),
    }
    models_by_path |= {("models", role): name for role, name in role_models.items()}
    endpoint_settings = raw.get("endpoints") if isinstance(raw.get("endpoints"), dict) else {}
    # A model with an endpoint may have any name. The addresses themselves are checked elsewhere.
    endpoints = {str(key): "http://where" for key in endpoint_settings}
    problems = []
    for path, name in models_by_path.items():
        if isinstance(name, str):
            try:
                resolve_model(name, endpoints)
            except InputError as error:
                for problem in error.problems:
                    problems.append(located_problem(problem.message, path, tree, problem.hint))
    return problems


def _role_problems(study: Study, config: StudyConfig) -> list[Problem]:
    # The model of a misspelled role would never be asked, and another one would answer.
    if not study.roles:
        return []
    known = f"the roles are {join_words(study.roles)}"
    return [
        Problem("unknown role", key=f"models.{role}", hint=did_you_mean(role, study.roles, known))
        for role in config.models
        if role not in study.roles
    ]


def _respondent_problems(config: StudyConfig) -> list[Problem]:
    if not config.respondent:
        return []
    try:
        RespondentSettings.from_mapping(config.respondent)
    except InputError as error:
        return error.problems
    return []


def resolve_study_type(tree: YamlTree, path: Path, consent: Consent) -> tuple[Study, bool]:
    """Return the study type of a file, and whether the type is certain.

    Raises InputError if no type fits the file, or if several types fit equally well.
    """
    # The type is certain if the file names it or if the type claims the file (`Study.matches`).
    # Otherwise the type with the most keys in common is returned, if no other type has as many and
    # if there are at least two.
    name = tree.value.get("study")
    if name is not None:
        return _load_named_study(name, tree, path, consent), True
    load_problems: list[Problem] = []
    studies: list[Study] = []
    for study_name in registered_studies():
        # The first type that claims the file ends the search: importing all types takes a while.
        try:
            studies.append(find_study(study_name))
        except InputError as error:
            load_problems.extend(error.problems)
            continue
        if _match_study_type(studies[-1], tree.value):
            return studies[-1], True
    ranked_studies = sorted(
        ((_matching_key_count(study, tree.value), study.name, study) for study in studies),
        reverse=True,
    )
    if (
        ranked_studies
        and ranked_studies[0][0] >= 2
        and [key_count for key_count, _, _ in ranked_studies].count(ranked_studies[0][0]) == 1
    ):
        return ranked_studies[0][2], False
    raise InputError([missing_type_message(path, ", ".join(registered_studies())), *load_problems])


def _match_study_type(study: Study, raw: Mapping[str, object]) -> bool:
    # `matches` receives unchecked data. If it fails on values of unexpected types, the file is not
    # one of this study type.
    try:
        return study.matches(raw)
    except (TypeError, ValueError, LookupError, AttributeError):
        return False


def _load_named_study(name: object, tree: YamlTree, path: Path, consent: Consent) -> Study:
    if not isinstance(name, str):
        raise InputError(located_problem("must be the name of a study type", ("study",), tree))
    # An error in the study's code has its own file. Any other error is one of the key `study`.
    location = tree.nearest_location(("study",))
    try:
        return find_study(name, path.parent, consent)
    except InputError as error:
        raise InputError(
            [
                problem if problem.file else with_location(problem, location.file, location.line)
                for problem in error.problems
            ]
        ) from error


def _matching_key_count(study: Study, raw: Mapping[str, object]) -> int:
    # Keys that all study types have do not count.
    return len((set(study.config.model_fields) - set(StudyConfig.model_fields)) & set(raw))


def missing_type_message(path: Path, names: str) -> Problem:
    """Return the problem of a file that names no study type.

    `names`: the study types, as a text.
    """
    return Problem("is missing: name the study type", str(path), key="study", hint=names)
