"""The JSON Schema of study files: a public validator accepts what the loader accepts, and refuses
what the loader refuses because of its shape."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from typer.testing import CliRunner

from folkmoot.authoring.schema import DIALECT, nodes_in, study_file_schema
from folkmoot.authoring.template import study_file_template
from folkmoot.cli.app import app
from folkmoot.engine.session.folder_access import write_settings
from folkmoot.engine.settings.yaml_tree import existing_path, parse_yaml
from folkmoot.engine.study.study import find_study
from folkmoot.engine.study.study_file import load_study_file, validate_settings
from folkmoot.errors import InputError
from folkmoot.field_notes import ESSENTIAL, UNIT
from folkmoot.respondent.mind.knobs import RespondentSettings
from folkmoot.studies.negotiation.participants import groups_of
from tests.authoring.all_keys import set_all_keys
from tests.fenced import find_blocks
from tests.sweeps import sample_daily

ROOT = Path(__file__).parents[2]
STUDY_TYPES = ("cross_pollination", "focus_group", "negotiation", "town_hall", "workbook")
EXAMPLES = {
    "config/pilot.yaml": "cross_pollination",
    "examples/cross_pollination.yaml": "cross_pollination",
    "examples/focus_group.yaml": "focus_group",
    "examples/negotiation.yaml": "negotiation",
    "examples/town_hall.yaml": "town_hall",
}
CUSTOM_EXAMPLES = ("examples/delphi.yaml", "examples/deliberation_survey.yaml")
SCHEMAS = {name: study_file_schema(find_study(name)) for name in STUDY_TYPES}
KeyPath = tuple[str | int, ...]


def list_mistakes(schema: dict[str, Any], data: object) -> list[str]:
    errors = Draft202012Validator(schema).iter_errors(data)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("name", STUDY_TYPES)
def test_the_schema_is_valid_and_without_internal_notes(name: str) -> None:
    schema = SCHEMAS[name]
    assert schema["$schema"] == DIALECT == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)
    assert not any(note in node for node in nodes_in(schema) for note in (ESSENTIAL, UNIT))
    assert schema["properties"]["max_tokens"]["description"] == "longest reply (tokens)"


def test_all_examples_are_validated() -> None:
    paths = {str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*.yaml")}
    paths.discard("examples/negotiation_groups.yaml")
    assert paths | {"config/pilot.yaml"} == {*EXAMPLES, *CUSTOM_EXAMPLES}


@pytest.mark.parametrize("file", EXAMPLES)
def test_examples_validate(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    for data in (parse_yaml(text, file).value, yaml.safe_load(text)):
        assert list_mistakes(SCHEMAS[EXAMPLES[file]], data) == []


@pytest.mark.parametrize("file", CUSTOM_EXAMPLES)
def test_examples_of_custom_study_types_validate(file: str) -> None:
    study = find_study(str((ROOT / file).with_suffix(".py")))
    data = parse_yaml((ROOT / file).read_text("utf-8"), file).value
    assert list_mistakes(study_file_schema(study), data) == []


@pytest.mark.parametrize("name", STUDY_TYPES[:-1])
def test_new_study_files_validate_unchanged_and_with_all_keys_set(name: str) -> None:
    text = study_file_template(find_study(name))
    for study_file in (text, set_all_keys(text)):
        assert list_mistakes(SCHEMAS[name], parse_yaml(study_file, name).value) == []


def test_the_study_file_of_a_workbook_run_validates(tmp_path: Path) -> None:
    write_settings(tmp_path, load_study_file(ROOT / "examples" / "public_goods.xlsx").config)
    text = (tmp_path / "study.yaml").read_text("utf-8")
    assert list_mistakes(SCHEMAS["workbook"], parse_yaml(text, "study.yaml").value) == []


def test_groups_in_a_study_file_are_validated() -> None:
    groups = parse_yaml(
        (ROOT / "examples" / "negotiation_groups.yaml").read_text("utf-8"), ""
    ).value
    assert list_mistakes(SCHEMAS["negotiation"], groups) == []
    for wrong_value in ({"no_such_key": 1}, {"weight": 0}, {"preferences": {"wine": "red"}}):
        changed = copy.deepcopy(groups)
        changed["groups"][0]["members"][0] |= wrong_value
        assert list_mistakes(SCHEMAS["negotiation"], changed), wrong_value
        with pytest.raises(InputError):
            groups_of(validate_settings(find_study("negotiation"), changed), ROOT)


def iterate_study_blocks() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield page, study type and data of study files on the pages."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in find_blocks(page.read_text("utf-8"), "yaml"):
            data = yaml.safe_load(block) if "…" not in block else None
            name = page.stem if page.stem in STUDY_TYPES else "cross_pollination"
            if isinstance(data, dict) and data.keys() & SCHEMAS[name]["properties"].keys():
                yield page.stem, data.get("study", name), data


def test_study_files_on_pages_validate() -> None:
    checked_pages = set()
    for page, name, data in iterate_study_blocks():
        if name not in SCHEMAS:
            continue  # a custom study type
        partial = {key: value for key, value in SCHEMAS[name].items() if key != "required"}
        assert list_mistakes(partial, data) == [], (page, data)
        checked_pages.add(page)
    assert {"study_files", "cross_pollination", "town_hall", "people", "coding"} <= checked_pages


def iterate_values(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield each value of a study file with its path, including groups and first list items."""
    if path:
        yield path, data
    children = dict(enumerate(data[:1])) if isinstance(data, list) else data
    for key, value in children.items() if isinstance(children, dict) else ():
        yield from iterate_values(value, (*path, key))


def replace_value(data: Any, path: KeyPath, value: object) -> Any:
    changed = copy.deepcopy(data)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    return changed


WRONG_VALUES: tuple[object, ...] = (None, -7, 1.5, 10**9, "nonsense", True, [], ["x"], {"no": 1})


def make_full_study(name: str) -> dict[str, Any]:
    """Make a study file with all keys set, as plain data."""
    if name == "workbook":
        config = load_study_file(ROOT / "examples" / "public_goods.xlsx").config
        data: dict[str, Any] = config.model_dump(mode="json", exclude_none=True)
        return data
    text = set_all_keys(study_file_template(find_study(name)))
    value: dict[str, Any] = parse_yaml(text, name).value
    return value


def list_refusals(name: str, data: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the shape errors of the loader, and whether it refuses the data for any reason."""
    models: list[tuple[type[BaseModel], object]] = [(find_study(name).config, data)]
    if isinstance(data.get("respondent"), dict):
        models.append((RespondentSettings, data["respondent"]))
    errors = [error for model, value in models for error in list_errors(model, value)]
    shapes = [
        f"{error['loc']}: {error['msg']}" for error in errors if "value_error" not in error["type"]
    ]
    return shapes, bool(errors)


def list_errors(model: type[BaseModel], data: object) -> list[ErrorDetails]:
    """Return the errors of the loader, which reads numbers without quotes as text where needed."""
    for _ in range(8):
        try:
            model.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            texts = [
                item
                for item in errors
                if item["type"] == "string_type" and is_number(item["input"])
            ]
            if not texts:
                return errors
            for detail in texts:
                if path := existing_path(data, detail["loc"]):
                    data = replace_value(data, path, str(detail["input"]))
        else:
            return []
    return []


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@pytest.mark.parametrize(
    "name", sample_daily(STUDY_TYPES, daily=("negotiation",), part="mutations")
)
def test_the_schema_refuses_the_same_shapes_as_the_loader(name: str) -> None:
    data, schema = make_full_study(name), Draft202012Validator(SCHEMAS[name])
    assert schema.is_valid(data) and list_refusals(name, data) == ([], False)
    refused_count, too_lenient, too_strict = 0, [], []
    for path, value in iterate_values(data):
        changes = [replace_value(data, path, wrong_value) for wrong_value in WRONG_VALUES]
        if isinstance(value, dict):
            changes.append(replace_value(data, path, {**value, "no_such_key": 1}))
        for changed in changes:
            shapes, any_reason = list_refusals(name, changed)
            refused_count += bool(shapes)
            valid = schema.is_valid(changed)
            if shapes and valid:
                too_lenient.append(shapes[0])
            if (
                not valid and not any_reason and path != ("study",)
            ):  # the loader looks up its value first
                too_strict.append(list_mistakes(SCHEMAS[name], changed)[0])
    assert (too_lenient, too_strict) == ([], [])
    assert refused_count > 100


@pytest.mark.parametrize("name", STUDY_TYPES)
def test_unknown_and_missing_keys_are_refused(name: str) -> None:
    data, schema = make_full_study(name), SCHEMAS[name]
    assert list_mistakes(schema, {**data, "no_such_key": 1})
    for key in schema.get("required", ()):
        assert list_mistakes(
            schema, {other: value for other, value in data.items() if other != key}
        ), key


def test_the_command_writes_the_schema_of_one_type_or_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = CliRunner()
    for _ in range(2):  # an older schema is replaced
        assert runner.invoke(app, ["schema", "town_hall", str(tmp_path / "one")]).exit_code == 0
    (schema_path,) = (tmp_path / "one").iterdir()
    assert json.loads(schema_path.read_text("utf-8")) == SCHEMAS["town_hall"]
    (tmp_path / "all").mkdir()
    monkeypatch.chdir(tmp_path / "all")
    assert runner.invoke(app, ["schema"]).exit_code == 0
    written = {path.name: json.loads(path.read_text("utf-8")) for path in Path().iterdir()}
    assert written == {f"{name}.schema.json": schema for name, schema in SCHEMAS.items()}
    assert runner.invoke(app, ["new", "town_hall", "new"]).exit_code == 0
    assert json.loads(Path("new/town_hall.schema.json").read_text()) == SCHEMAS["town_hall"]
