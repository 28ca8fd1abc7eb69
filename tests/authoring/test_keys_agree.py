"""Texts about keys are generated from the fields of configuration classes: descriptions, tables
in `docs/`, hints on unknown keys, and the files of `folkmoot new`."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from typer.testing import CliRunner

import folkmoot
from folkmoot.authoring.keys import Key, keys_of, walk_keys
from folkmoot.authoring.schema import study_file_schema
from folkmoot.authoring.template import WIDTH, new_files, study_file_template
from folkmoot.cli.app import app
from folkmoot.engine.settings.config import Field, StudyConfig
from folkmoot.engine.settings.config_problems import allowed_keys
from folkmoot.engine.study.study import Study, find_study
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.field_notes import field_notes
from folkmoot.kit.coding.post_hoc import PostHocCodingConfig
from tests.authoring.all_keys import set_all_keys
from tests.sweeps import sample_daily
from tools.key_tables import DOCS, TABLE, key_table, updated

ROOT = Path(__file__).parents[2]
STUDY_TYPES = ("cross_pollination", "focus_group", "negotiation", "town_hall", "workbook")
YAML_TYPES = STUDY_TYPES[:-1]  # a workbook is written as a spreadsheet
UNITS = ("_seconds", "_usd", "_mb", "_minutes", "max_tokens", "_words_per_response")


def find_config(name: str) -> type[StudyConfig]:
    config: type[StudyConfig] = find_study(name).config
    return config


def list_undescribed_keys(config: type[BaseModel]) -> list[str]:
    return [path for path, key in walk_keys(keys_of(config)) if not key.description.strip()]


@pytest.mark.parametrize("name", STUDY_TYPES)
def test_every_key_has_a_description(name: str) -> None:
    assert list_undescribed_keys(find_config(name)) == []


@pytest.mark.parametrize("name", ["delphi", "deliberation_survey"])
def test_every_key_of_the_examples_has_a_description(name: str) -> None:
    study = find_study(str(ROOT / "examples" / f"{name}.py"))
    assert list_undescribed_keys(study.config) == [] == list_undescribed_keys(PostHocCodingConfig)


def test_keys_without_a_description_are_found_at_any_depth() -> None:
    class Inner(BaseModel):
        told: int = Field(1, description="told")
        untold: int = 1

    class Outer(StudyConfig):
        group: Inner = Field(Inner(), description="a group")
        entries: list[Inner] = Field([], description="a list")
        named: dict[str, Inner] = Field({}, description="groups by name")
        bare: int = 0

    assert list_undescribed_keys(Outer) == [
        "group.untold",
        "entries[].untold",
        "named.*.untold",
        "bare",
    ]


@pytest.mark.parametrize("name", STUDY_TYPES)
def test_keys_with_a_unit_in_their_name_have_it_in_the_description(name: str) -> None:
    for path, key in walk_keys(keys_of(find_config(name))):
        if key.name.endswith(UNITS) and "_mb" not in path:
            assert re.search(r"\((seconds|US dollars|minutes|tokens|words)\)", key.description), (
                path
            )


def test_keys_have_units_defaults_bounds_and_examples_of_their_fields() -> None:
    class Config(BaseModel):
        wait: float = Field(
            2.5, gt=0, le=9, description="how long", json_schema_extra=field_notes(unit="seconds")
        )
        people: int = Field(ge=2, description="how many", examples=[4])
        shown: bool = Field(
            True, description="whether", json_schema_extra=field_notes(essential=True)
        )

    wait, people, shown = keys_of(Config)
    assert (wait.default, wait.values) == (2.5, "number above 0 and at most 9")
    assert wait.description == "how long (seconds)"
    assert people.required and people.example == 4 and people.values == "whole number of at least 2"
    assert shown.essential and shown.values == "`true`, `false`"
    assert key_table(Config, ["shown"]).splitlines()[2:] == [
        "| `wait` | `2.5` | number above 0 and at most 9 | how long (seconds) |",
        "| `people` | **required** | whole number of at least 2 | how many |",
    ]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_tables_of_keys_on_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text("utf-8")
    assert updated(text) == text, "run python -m tools.key_tables"


@pytest.mark.parametrize("name", STUDY_TYPES)
def test_every_study_type_and_the_shared_keys_have_a_table(name: str) -> None:
    config = find_config(name)
    tables = {match["name"] for match in TABLE.finditer((DOCS / f"{name}.md").read_text("utf-8"))}
    assert config.__name__ in tables or (name == "workbook" and {"Settings", "Task"} <= tables)
    shared = TABLE.search((DOCS / "study_files.md").read_text("utf-8"))
    assert shared is not None and shared["name"] == "StudyConfig"


def test_an_outdated_table_is_updated() -> None:
    page = (DOCS / "people.md").read_text("utf-8")
    outdated = page.replace("number of seats, drawn by the seed", "some seats")
    assert outdated != page and updated(outdated) == page


@pytest.mark.parametrize("name", STUDY_TYPES)
def test_hints_on_unknown_keys_use_the_same_keys(name: str) -> None:
    config = find_config(name)

    def compare_keys(keys: tuple[Key, ...], path: tuple[str | int, ...]) -> None:
        names = allowed_keys(config, path)
        if names:  # settings of the respondent, servers and groups have other checks and hints
            assert sorted(names) == sorted(key.name for key in keys), path
        for key in keys:
            steps: dict[str, tuple[str | int, ...]] = {"group": (), "list": (0,), "names": ("x",)}
            compare_keys(key.inner, (*path, key.name, *steps[key.nesting]))

    compare_keys(keys_of(config), ())
    assert allowed_keys(config, ())


def list_missing_keys(keys: tuple[Key, ...], data: object, prefix: str = "") -> list[str]:
    """List the keys that a study file lacks. Of repeated groups only the first is checked."""
    if not isinstance(data, dict):
        return []
    missing = [f"{prefix}{key.name}" for key in keys if key.name not in data]
    for key in keys:
        nested_data = data.get(key.name)
        if key.nesting == "list":
            nested_data = nested_data[0] if isinstance(nested_data, list) and nested_data else None
        if key.nesting == "names":
            nested_data = (
                next(iter(nested_data.values()), None) if isinstance(nested_data, dict) else None
            )
        missing += list_missing_keys(key.inner, nested_data, f"{prefix}{key.name}.")
    return missing


def write_new_study(folder: Path, name: str, text: str = "") -> Path:
    """Write the files of a new study. `text` replaces the content of the study file."""
    for file, content in new_files(find_study(name)).items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        (folder / file).write_bytes(data)
    path = folder / f"{name}.yaml"
    if text:
        path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("name", YAML_TYPES)
def test_a_new_study_file_has_all_keys_and_is_short(name: str) -> None:
    text = study_file_template(find_study(name))
    keys = keys_of(find_config(name))
    data = yaml.safe_load(set_all_keys(text))
    assert list_missing_keys(keys, data) == []
    assert set(data) == {key.name for key in keys}
    active = yaml.safe_load(text)
    assert set(active) >= {key.name for key in keys if key.required or key.essential}
    assert len(active) < 15 and len(text.splitlines()) < 200
    assert max(map(len, text.splitlines())) <= WIDTH
    first_line, *_ = text.splitlines()
    assert first_line == f"# yaml-language-server: $schema={name}.schema.json"


@pytest.mark.parametrize("name", YAML_TYPES)
def test_a_new_study_file_loads_unchanged_and_with_all_keys_set(name: str, tmp_path: Path) -> None:
    text = study_file_template(find_study(name))
    config = load_study_file(write_new_study(tmp_path, name), models=True).config
    full_config = load_study_file(
        write_new_study(tmp_path, name, set_all_keys(text)), models=True
    ).config
    assert config.model_fields_set < full_config.model_fields_set
    assert full_config.model_fields_set == set(type(full_config).model_fields)


@pytest.mark.parametrize("name", YAML_TYPES)
def test_unset_keys_show_their_defaults(name: str) -> None:
    text = study_file_template(find_study(name))
    data, active = yaml.safe_load(set_all_keys(text)), yaml.safe_load(text)
    for key in keys_of(find_config(name)):
        if key.name in active or key.inner or key.name in find_config(name).TEMPLATE_VALUES:
            continue
        template_value, default = data[key.name], key.default
        assert template_value == default or (not default and template_value == key.example), (
            key.name
        )


@pytest.mark.parametrize("name", sample_daily(YAML_TYPES, daily=2, part="sweeps"))
def test_a_new_study_runs_unchanged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["new", name, "."])
    assert result.exit_code == 0, result.output
    overrides = ("rounds=1",) if name == "town_hall" else ()
    run = folkmoot.run(
        tmp_path / f"{name}.yaml", out=tmp_path / "run", limit=1, overrides=overrides
    )
    assert not run.partial and len(run.tables)


def test_a_custom_study_type_gets_a_study_file(tmp_path: Path) -> None:
    code = ROOT / "examples" / "delphi.py"
    result = CliRunner().invoke(app, ["new", str(code), str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "delphi.yaml").read_text("utf-8")
    assert "# what the experts estimate\nquestion:\n" in text or "question:  " in text
    filled = text.replace("question: ", "question: How many? ").replace("low: ", "low: 0 ")
    (tmp_path / "delphi.yaml").write_text(filled.replace("high: ", "high: 9 "), "utf-8")
    assert load_study_file(tmp_path / "delphi.yaml").config.low == 0  # type: ignore[attr-defined]


def test_template_files_of_a_study_type_replace_the_generated_one() -> None:
    async def protocol(_session: object) -> None: ...

    template_files = {"own.yaml": "study: ./own.py\n"}
    study = Study("own", "Own", StudyConfig, protocol, template_files=lambda: dict(template_files))
    assert new_files(study) == template_files


def test_the_schema_accepts_the_switch_words_of_the_loader(tmp_path: Path) -> None:
    study = find_study("cross_pollination")
    schema = Draft202012Validator(study_file_schema(study)["properties"]["ranking"])
    path = tmp_path / "study.yaml"
    template = study_file_template(study)
    words = ("yes", "no", "on", "off", "true", "false")
    spellings = ((word, word.title(), word.upper(), word[0] + word[1:].upper()) for word in words)
    for word in chain.from_iterable(spellings):
        path.write_text(template + f"ranking: {word}\n")
        config = load_study_file(path).config
        expected = word.lower() in ("yes", "on", "true")
        assert config.ranking is expected  # type: ignore[attr-defined]
        assert schema.is_valid(word) and schema.is_valid(expected)
    for word in ("y", "yes ", "onn", "1", "enabled"):
        path.write_text(template + f"ranking: '{word}'\n")
        with pytest.raises(InputError, match="ranking"):
            load_study_file(path)
        assert not schema.is_valid(word)
