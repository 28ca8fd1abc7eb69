"""What is written about keys comes from the fields of configuration classes: descriptions, tables
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
TYPES = ("cross_pollination", "focus_group", "negotiation", "town_hall", "workbook")
WRITTEN = TYPES[:-1]  # a workbook is written as a spreadsheet
UNITS = ("_seconds", "_usd", "_mb", "_minutes", "max_tokens", "_words_per_response")


def config_of(name: str) -> type[StudyConfig]:
    config: type[StudyConfig] = find_study(name).config
    return config


def undescribed(config: type[BaseModel]) -> list[str]:
    return [path for path, key in walk_keys(keys_of(config)) if not key.description.strip()]


@pytest.mark.parametrize("name", TYPES)
def test_every_key_has_a_description(name: str) -> None:
    assert undescribed(config_of(name)) == []


@pytest.mark.parametrize("name", ["delphi", "deliberation_survey"])
def test_every_key_of_the_examples_has_a_description(name: str) -> None:
    study = find_study(str(ROOT / "examples" / f"{name}.py"))
    assert undescribed(study.config) == [] == undescribed(PostHocCodingConfig)


def test_a_key_without_a_description_is_found_at_any_depth() -> None:
    class Inner(BaseModel):
        told: int = Field(1, description="told")
        untold: int = 1

    class Outer(StudyConfig):
        group: Inner = Field(Inner(), description="a group")
        entries: list[Inner] = Field([], description="a list")
        named: dict[str, Inner] = Field({}, description="groups by name")
        bare: int = 0

    assert undescribed(Outer) == ["group.untold", "entries[].untold", "named.*.untold", "bare"]


@pytest.mark.parametrize("name", TYPES)
def test_keys_with_a_unit_in_their_name_say_it(name: str) -> None:
    for path, key in walk_keys(keys_of(config_of(name))):
        if key.name.endswith(UNITS) and "_mb" not in path:
            assert re.search(r"\((seconds|US dollars|minutes|tokens|words)\)", key.description), (
                path
            )


def test_units_defaults_bounds_and_examples_are_those_of_the_field() -> None:
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


@pytest.mark.parametrize("name", TYPES)
def test_every_study_type_and_what_types_share_has_a_table(name: str) -> None:
    config = config_of(name)
    tables = {m["name"] for m in TABLE.finditer((DOCS / f"{name}.md").read_text("utf-8"))}
    assert config.__name__ in tables or (name == "workbook" and {"Settings", "Task"} <= tables)
    shared = TABLE.search((DOCS / "study_files.md").read_text("utf-8"))
    assert shared is not None and shared["name"] == "StudyConfig"


def test_a_table_that_is_stale_is_noticed() -> None:
    page = (DOCS / "people.md").read_text("utf-8")
    stale = page.replace("number of seats, drawn by the seed", "some seats")
    assert stale != page and updated(stale) == page


@pytest.mark.parametrize("name", TYPES)
def test_hints_on_unknown_keys_know_the_same_keys(name: str) -> None:
    config = config_of(name)

    def compare(keys: tuple[Key, ...], path: tuple[str | int, ...]) -> None:
        known = allowed_keys(config, path)
        if known:  # settings of the respondent, servers and groups have checks and hints of theirs
            assert sorted(known) == sorted(key.name for key in keys), path
        for key in keys:
            steps: dict[str, tuple[str | int, ...]] = {"group": (), "list": (0,), "names": ("x",)}
            compare(key.inner, (*path, key.name, *steps[key.nesting]))

    compare(keys_of(config), ())
    assert allowed_keys(config, ())


def missing_keys(keys: tuple[Key, ...], data: object, above: str = "") -> list[str]:
    """Keys that a study file does not hold; of groups that may repeat the first is looked at."""
    if not isinstance(data, dict):
        return []
    absent = [f"{above}{key.name}" for key in keys if key.name not in data]
    for key in keys:
        below = data.get(key.name)
        if key.nesting == "list":
            below = below[0] if isinstance(below, list) and below else None
        if key.nesting == "names":
            below = next(iter(below.values()), None) if isinstance(below, dict) else None
        absent += missing_keys(key.inner, below, f"{above}{key.name}.")
    return absent


def write(folder: Path, name: str, text: str = "") -> Path:
    """The files of a new study; `text` in place of the study file's own."""
    for file, content in new_files(find_study(name)).items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        (folder / file).write_bytes(data)
    path = folder / f"{name}.yaml"
    if text:
        path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_a_new_study_file_has_every_key_and_is_short_enough_to_read(name: str) -> None:
    text = study_file_template(find_study(name))
    keys = keys_of(config_of(name))
    data = yaml.safe_load(set_all_keys(text))
    assert missing_keys(keys, data) == []
    assert set(data) == {key.name for key in keys}
    active = yaml.safe_load(text)
    assert set(active) >= {key.name for key in keys if key.required or key.essential}
    assert len(active) < 15 and len(text.splitlines()) < 200
    assert max(map(len, text.splitlines())) <= WIDTH
    first, *_ = text.splitlines()
    assert first == f"# yaml-language-server: $schema={name}.schema.json"


@pytest.mark.parametrize("name", WRITTEN)
def test_a_new_study_file_loads_as_it_is_and_with_every_key_set(name: str, tmp_path: Path) -> None:
    text = study_file_template(find_study(name))
    config = load_study_file(write(tmp_path, name), models=True).config
    whole = load_study_file(write(tmp_path, name, set_all_keys(text)), models=True).config
    assert config.model_fields_set < whole.model_fields_set
    assert whole.model_fields_set == set(type(whole).model_fields)


@pytest.mark.parametrize("name", WRITTEN)
def test_unset_keys_show_their_defaults(name: str) -> None:
    text = study_file_template(find_study(name))
    data, active = yaml.safe_load(set_all_keys(text)), yaml.safe_load(text)
    for key in keys_of(config_of(name)):
        if key.name in active or key.inner or key.name in config_of(name).TEMPLATE_VALUES:
            continue
        shown, default = data[key.name], key.default
        assert shown == default or (not default and shown == key.example), key.name


@pytest.mark.parametrize("name", sample_daily(WRITTEN, daily=2, part="sweeps"))
def test_a_new_study_runs_as_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(app, ["new", name, "."])
    assert made.exit_code == 0, made.output
    quick = ("rounds=1",) if name == "town_hall" else ()
    run = folkmoot.run(tmp_path / f"{name}.yaml", out=tmp_path / "run", limit=1, overrides=quick)
    assert not run.partial and len(run.tables)


def test_a_type_of_ones_own_gets_a_study_file_too(tmp_path: Path) -> None:
    code = ROOT / "examples" / "delphi.py"
    made = CliRunner().invoke(app, ["new", str(code), str(tmp_path)])
    assert made.exit_code == 0, made.output
    text = (tmp_path / "delphi.yaml").read_text("utf-8")
    assert "# what the experts estimate\nquestion:\n" in text or "question:  " in text
    filled = text.replace("question: ", "question: How many? ").replace("low: ", "low: 0 ")
    (tmp_path / "delphi.yaml").write_text(filled.replace("high: ", "high: 9 "), "utf-8")
    assert load_study_file(tmp_path / "delphi.yaml").config.low == 0  # type: ignore[attr-defined]


def test_a_study_file_that_a_type_brings_takes_the_place_of_the_made_one() -> None:
    async def protocol(_session: object) -> None: ...

    brought = {"own.yaml": "study: ./own.py\n"}
    study = Study("own", "Own", StudyConfig, protocol, template_files=lambda: dict(brought))
    assert new_files(study) == brought


def test_switch_words_are_those_of_the_loader(tmp_path: Path) -> None:
    study = find_study("cross_pollination")
    schema = Draft202012Validator(study_file_schema(study)["properties"]["ranking"])
    path = tmp_path / "study.yaml"
    template = study_file_template(study)
    words = ("yes", "no", "on", "off", "true", "false")
    spellings = ((word, word.title(), word.upper(), word[0] + word[1:].upper()) for word in words)
    for word in chain.from_iterable(spellings):
        path.write_text(template + f"ranking: {word}\n")
        config = load_study_file(path).config
        meant = word.lower() in ("yes", "on", "true")
        assert config.ranking is meant  # type: ignore[attr-defined]
        assert schema.is_valid(word) and schema.is_valid(meant)
    for word in ("y", "yes ", "onn", "1", "enabled"):
        path.write_text(template + f"ranking: '{word}'\n")
        with pytest.raises(InputError, match="ranking"):
            load_study_file(path)
        assert not schema.is_valid(word)
