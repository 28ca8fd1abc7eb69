"""Choose the models of a run by one rule for all study types."""

# The first of these sources that names a model decides: the command line, `plan.json` (on a
# resume), the study file, `DEFAULT_MODEL` in the environment or `.env`. If no source names a model,
# the embedded respondent answers. So no vendor bills a run for which no model was chosen.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.hints import command_line
from folkmoot.models.api_keys import load_environment
from folkmoot.models.catalog import SYNTHETIC_MODEL, resolve_model
from folkmoot.storage.run_folder import RunFolder

# The environment variable, with the name that the source projects of the shipped studies use.
DEFAULT_MODEL = "DEFAULT_MODEL"
# The model in the hint for a study type that has no source project.
EXAMPLE_MODEL = "openai/gpt-4o"


def choose_models(study_file: StudyFile, options: RunOptions, folder: Path) -> StudyFile:
    """Return a copy of the study file that names the models of the run.

    - `folder`: the run folder. On a resume, the models are read from `plan.json` in this folder.

    If no model is named, built-in rules answer in place of a model, and `models_note` of the result
    says so. Raises InputError for an unknown model, and for a `--key` without a model.
    """
    if options.model is not None or options.custom_provider is not None:
        return study_file
    if options.resume and not options.accept_changes and not _sets_models(options.overrides):
        sealed = _sealed_design(folder)
        if "model" in sealed:
            return _with_sealed_models(study_file, sealed, folder)
    if study_file.config.model is not None:
        return study_file
    if default_model := load_environment().get(DEFAULT_MODEL, "").strip():
        return _with_default_model(study_file, default_model)
    if options.key:
        raise InputError(
            Problem(
                "a key was given, but no named model uses it",
                key="--key",
                hint=_named_model_hint(study_file),
            )
        )
    return replace(study_file, models_note=_embedded_respondent_note(study_file))


def _sets_models(overrides: Sequence[str]) -> bool:
    keys = (text.partition("=")[0].strip().split(".")[0] for text in overrides)
    return any(key in ("model", "models") for key in keys)


def _with_default_model(study_file: StudyFile, default_model: str) -> StudyFile:
    try:
        resolve_model(default_model, study_file.config.endpoints)
    except InputError as error:
        where = f"{DEFAULT_MODEL} in the environment or .env: "
        problems = [replace(problem, message=where + problem.message) for problem in error.problems]
        raise InputError(problems) from error
    config = study_file.config.model_copy(update={"model": default_model})
    note = f"{DEFAULT_MODEL} sets the model: {default_model}"
    return replace(study_file, config=config, models_note=note)


def _sealed_design(folder: Path) -> Mapping[str, object]:
    try:
        sealed = RunFolder(folder).plan["sealed"]["design"]["data"]
    # The resume itself reads the plan again and reports a missing or damaged one.
    except (StorageError, KeyError, TypeError):
        return {}
    return sealed if isinstance(sealed, Mapping) else {}


def _with_sealed_models(
    study_file: StudyFile, sealed: Mapping[str, object], folder: Path
) -> StudyFile:
    config, study = study_file.config, study_file.study
    model, roles = str(sealed["model"]), sealed.get("models")
    roles = dict(roles) if isinstance(roles, Mapping) else {}
    seat_models = sealed.get("seat_models")
    # Plans of earlier versions have no `seat_models`. Their manifest says whether `--model` was
    # given, which overrides the models of all roles.
    if seat_models is None:
        seat_models = [] if _has_model_override(folder) else study.extra_models(config)
    current_models = (
        config.model or SYNTHETIC_MODEL,
        dict(config.models),
        study.extra_models(config),
    )
    if current_models == (model, roles, seat_models):
        return study_file
    note = ""
    if config.model not in (None, model):
        note = (
            f"The run continues with the model of its sealed plan, {model}, although the study "
            f"file now names {config.model}"
        )
    # One model for all roles and seats: set it as an override, as `--model` does. The run may have
    # been started with `--model`, and the plan does not distinguish the two cases.
    if not roles and not seat_models:
        return replace(study_file, override=model, models_note=note)
    config = config.model_copy(update={"model": model, "models": roles})
    return replace(study_file, config=config, models_note=note)


def _has_model_override(folder: Path) -> bool:
    try:
        return bool(RunFolder(folder).manifest.get("override"))
    except StorageError:
        return False


def _embedded_respondent_note(study_file: StudyFile) -> str:
    if study_file.config.models or study_file.study.extra_models(study_file.config):
        explanation = (
            "No model is named for the other roles, so the embedded respondent answers them"
        )
    else:
        explanation = "No model is named, so the embedded respondent answers"
    return f"{explanation} (SYNTHETIC, no cost). {_named_model_hint(study_file)}"


def _named_model_hint(study_file: StudyFile) -> str:
    default = study_file.study.source_model
    if not default:
        return f"To ask a model: {_model_command(study_file, EXAMPLE_MODEL)}"
    config_with_default = study_file.config.model_copy(update={"model": default})
    if seat_models := [
        name for name in study_file.study.extra_models(config_with_default) if name != default
    ]:
        return (
            f"The source's default is {default}, with {', '.join(seat_models)} for the "
            "participants that the source assigns to them: "
            f"{_model_command(study_file, default, by_seat=True)} (--model {default} sets the "
            "model of all participants)"
        )
    return f"The source's default is {default}: {_model_command(study_file, default)}"


def _model_command(study_file: StudyFile, model: str, *, by_seat: bool = False) -> str:
    # `by_seat`: roles for which the study names a model keep that model.
    # Without a file, the settings were given in Python.
    if not study_file.path.is_file():
        return f'settings={{"model": "{model}"}}' if by_seat else f'model="{model}"'
    option = ["--set", f"model={model}"] if by_seat else ["--model", model]
    return command_line("run", study_file.path, *option)
