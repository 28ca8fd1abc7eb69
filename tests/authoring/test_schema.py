"""The JSON Schema of study files: a public validator takes what the loader takes, and refuses what
the loader refuses for reasons of shape."""

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
TYPES = ("cross_pollination", "focus_group", "negotiation", "town_hall", "workbook")
EXAMPLES = {
    "config/pilot.yaml": "cross_pollination",
    "examples/cross_pollination.yaml": "cross_pollination",
    "examples/focus_group.yaml": "focus_group",
    "examples/negotiation.yaml": "negotiation",
    "examples/town_hall.yaml": "town_hall",
}
OWN = ("examples/delphi.yaml", "examples/deliberation_survey.yaml")
SCHEMAS = {name: study_file_schema(find_study(name)) for name in TYPES}
KeyPath = tuple[str | int, ...]


def mistakes(schema: dict[str, Any], data: object) -> list[str]:
    found = Draft202012Validator(schema).iter_errors(data)
    return [f"{error.json_path}: {error.message}" for error in found]


@pytest.mark.parametrize("name", TYPES)
def test_it_is_a_json_schema_without_our_notes(name: str) -> None:
    schema = SCHEMAS[name]
    assert schema["$schema"] == DIALECT == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)
    assert not any(note in node for node in nodes_in(schema) for note in (ESSENTIAL, UNIT))
    assert schema["properties"]["max_tokens"]["description"] == "longest reply (tokens)"


def test_the_example_of_each_type_is_tested() -> None:
    found = {str(p.relative_to(ROOT)) for p in (ROOT / "examples").glob("*.yaml")}
    found.discard("examples/negotiation_groups.yaml")
    assert found | {"config/pilot.yaml"} == {*EXAMPLES, *OWN}


@pytest.mark.parametrize("file", EXAMPLES)
def test_examples_validate(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    for data in (parse_yaml(text, file).value, yaml.safe_load(text)):
        assert mistakes(SCHEMAS[EXAMPLES[file]], data) == []


@pytest.mark.parametrize("file", OWN)
def test_examples_of_types_of_ones_own_validate(file: str) -> None:
    study = find_study(str((ROOT / file).with_suffix(".py")))
    data = parse_yaml((ROOT / file).read_text("utf-8"), file).value
    assert mistakes(study_file_schema(study), data) == []


@pytest.mark.parametrize("name", TYPES[:-1])
def test_new_study_files_validate_as_they_are_and_with_every_key_set(name: str) -> None:
    text = study_file_template(find_study(name))
    for study_file in (text, set_all_keys(text)):
        assert mistakes(SCHEMAS[name], parse_yaml(study_file, name).value) == []


def test_the_study_file_that_a_run_of_a_workbook_leaves_validates(tmp_path: Path) -> None:
    write_settings(tmp_path, load_study_file(ROOT / "examples" / "public_goods.xlsx").config)
    text = (tmp_path / "study.yaml").read_text("utf-8")
    assert mistakes(SCHEMAS["workbook"], parse_yaml(text, "study.yaml").value) == []


def test_groups_that_a_study_file_holds_itself_are_checked_too() -> None:
    groups = parse_yaml(
        (ROOT / "examples" / "negotiation_groups.yaml").read_text("utf-8"), ""
    ).value
    assert mistakes(SCHEMAS["negotiation"], groups) == []
    for wrong in ({"no_such_key": 1}, {"weight": 0}, {"preferences": {"wine": "red"}}):
        changed = copy.deepcopy(groups)
        changed["groups"][0]["members"][0] |= wrong
        assert mistakes(SCHEMAS["negotiation"], changed), wrong
        with pytest.raises(InputError):
            groups_of(validate_settings(find_study("negotiation"), changed), ROOT)


def blocks_of_docs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Page, type and data of what pages show of study files."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in find_blocks(page.read_text("utf-8"), "yaml"):
            data = yaml.safe_load(block) if "…" not in block else None
            name = page.stem if page.stem in TYPES else "cross_pollination"
            if isinstance(data, dict) and data.keys() & SCHEMAS[name]["properties"].keys():
                yield page.stem, data.get("study", name), data


def test_study_files_on_pages_validate() -> None:
    seen = set()
    for page, name, data in blocks_of_docs():
        if name not in SCHEMAS:
            continue  # a type of the reader's own
        partial = {k: v for k, v in SCHEMAS[name].items() if k != "required"}
        assert mistakes(partial, data) == [], (page, data)
        seen.add(page)
    assert {"study_files", "cross_pollination", "town_hall", "people", "coding"} <= seen


def leaves(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of a study file with its path, groups and lists included; of lists the first."""
    if path:
        yield path, data
    below = dict(enumerate(data[:1])) if isinstance(data, list) else data
    for key, value in below.items() if isinstance(below, dict) else ():
        yield from leaves(value, (*path, key))


def put(data: Any, path: KeyPath, value: object) -> Any:
    changed = copy.deepcopy(data)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


WRONG: tuple[object, ...] = (None, -7, 1.5, 10**9, "nonsense", True, [], ["x"], {"no": 1})


def whole(name: str) -> dict[str, Any]:
    """A study file with every key set, as plain data."""
    if name == "workbook":
        config = load_study_file(ROOT / "examples" / "public_goods.xlsx").config
        data: dict[str, Any] = config.model_dump(mode="json", exclude_none=True)
        return data
    text = set_all_keys(study_file_template(find_study(name)))
    value: dict[str, Any] = parse_yaml(text, name).value
    return value


def refusals(name: str, data: dict[str, Any]) -> tuple[list[str], bool]:
    """The shapes that the loader refuses, and whether it refuses the data for any reason."""
    models: list[tuple[type[BaseModel], object]] = [(find_study(name).config, data)]
    if isinstance(data.get("respondent"), dict):
        models.append((RespondentSettings, data["respondent"]))
    found = [e for model, value in models for e in errors_of(model, value)]
    shapes = [f"{e['loc']}: {e['msg']}" for e in found if "value_error" not in e["type"]]
    return shapes, bool(found)


def errors_of(model: type[BaseModel], data: object) -> list[ErrorDetails]:
    """What is wrong, where a number without quotes is taken as its text, as the loader does."""
    for _ in range(8):
        try:
            model.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False)
            texts = [e for e in found if e["type"] == "string_type" and is_number(e["input"])]
            if not texts:
                return found
            for detail in texts:
                if path := existing_path(data, detail["loc"]):
                    data = put(data, path, str(detail["input"]))
        else:
            return []
    return []


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@pytest.mark.parametrize(
    "name", sample_daily(TYPES, daily=("cross_pollination", "negotiation"), part="mutations")
)
def test_the_schema_refuses_the_shapes_that_the_loader_refuses(name: str) -> None:
    data, schema = whole(name), Draft202012Validator(SCHEMAS[name])
    assert schema.is_valid(data) and refusals(name, data) == ([], False)
    refused, taken, too_strict = 0, [], []
    for path, value in leaves(data):
        changes = [put(data, path, wrong) for wrong in WRONG]
        if isinstance(value, dict):
            changes.append(put(data, path, {**value, "no_such_key": 1}))
        for changed in changes:
            shapes, any_reason = refusals(name, changed)
            refused += bool(shapes)
            valid = schema.is_valid(changed)
            if shapes and valid:
                taken.append(shapes[0])
            if not valid and not any_reason and path != ("study",):  # its value is looked up before
                too_strict.append(mistakes(SCHEMAS[name], changed)[0])
    assert (taken, too_strict) == ([], [])
    assert refused > 100


@pytest.mark.parametrize("name", TYPES)
def test_an_unknown_key_and_a_missing_one_are_refused(name: str) -> None:
    data, schema = whole(name), SCHEMAS[name]
    assert mistakes(schema, {**data, "no_such_key": 1})
    for key in schema.get("required", ()):
        assert mistakes(schema, {k: v for k, v in data.items() if k != key}), key


def test_the_command_writes_the_schema_of_one_type_or_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = CliRunner()
    for _ in range(2):  # an older schema is replaced
        assert runner.invoke(app, ["schema", "town_hall", str(tmp_path / "one")]).exit_code == 0
    (one,) = (tmp_path / "one").iterdir()
    assert json.loads(one.read_text("utf-8")) == SCHEMAS["town_hall"]
    (tmp_path / "all").mkdir()
    monkeypatch.chdir(tmp_path / "all")
    assert runner.invoke(app, ["schema"]).exit_code == 0
    written = {p.name: json.loads(p.read_text("utf-8")) for p in Path().iterdir()}
    assert written == {f"{name}.schema.json": schema for name, schema in SCHEMAS.items()}
    assert runner.invoke(app, ["new", "town_hall", "new"]).exit_code == 0
    assert json.loads(Path("new/town_hall.schema.json").read_text()) == SCHEMAS["town_hall"]
