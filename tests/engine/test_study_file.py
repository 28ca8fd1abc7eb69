"""Study files: every mistake at once with its place and a suggestion, and safe handling of YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.engine.study.study_file import load_study_file, validate_settings
from folkmoot.errors import InputError

STUDY = """
from __future__ import annotations
from typing import Literal
from pydantic import BaseModel, ConfigDict, Field, model_validator
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import Problem

class Topic(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    description: str = Field(min_length=1)
    options: tuple[str, ...] = Field(min_length=2)

class Config(StudyConfig):
    pilot_id: str
    topic: Topic
    threshold: float = Field(0.9, gt=0, le=1)
    method: Literal["embedding", "llm_judge", "predefined"] = "embedding"
    people: int = Field(300, ge=1)
    storage: bool = True
    mapping: dict[str, str] = {}
    folds: int = 1
    seated: bool = False

    @model_validator(mode="after")
    def _mapped(self):
        if self.mapping and set(self.mapping) != set(self.topic.options):
            raise ValueError("mapping: misses an option")
        if self.method == "embedding" and self.folds > self.people:
            raise ValueError(f"folds: {self.folds} are too many for {self.people} people")
        return self

async def protocol(session):
    pass

def check(config, folder):
    found = ["topic.options[3]"] if len(config.topic.options) > 2 else []
    found += ["seats"] if config.seated and config.people > 299 else []
    return [Problem("too many", key=key) for key in found]

STUDY = Study("mine", "Mine", Config, protocol, check_config=check)
"""

VALID_FILE = """study: ./my_study.py
pilot_id: one
topic:
  description: What now?
  options: [Parks, Jobs]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_study.py").write_text(STUDY)
    return tmp_path


def load_text(folder: Path, text: str | bytes, *overrides: str):
    path = folder / "study.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_study_file(path, overrides)


def list_mistakes(folder: Path, text: str | bytes, *overrides: str) -> list[str]:
    """Return the problems of a file as text, without the folder."""
    with pytest.raises(InputError) as caught:
        load_text(folder, text, *overrides)
    return [str(p).replace(f"{folder}/", "") for p in caught.value.problems]


def test_valid_file_gives_config_and_names(folder: Path) -> None:
    study_file = load_text(folder, VALID_FILE)
    assert study_file.study.name == "mine"
    assert study_file.config.topic.options == ("Parks", "Jobs")
    assert study_file.run_id == "study"
    assert study_file.study_folder == folder


def test_every_mistake_is_listed_in_the_order_of_the_file(folder: Path) -> None:
    text = """study: ./my_study.py
pilot_id: one
pilot_id: two
topik:
  description: What now?
  options: [Parks, Jobs]
treshold: 0.5
threshold: 1.5
method: embeding
people: -3
temperature: hot
random_seed: 1.5
"""
    assert list_mistakes(folder, text) == [
        "study.yaml:3: pilot_id: is a duplicate key (first in line 2, again here)",
        "study.yaml:4: topik: unknown key (did you mean topic?)",
        "study.yaml:7: treshold: unknown key (did you mean threshold?)",
        "study.yaml:8: threshold: must be at most 1, is 1.5",
        'study.yaml:9: method: must be one of embedding, llm_judge, predefined, is "embeding" '
        "(did you mean embedding?)",
        "study.yaml:10: people: must be at least 1, is -3",
        'study.yaml:11: temperature: must be a number, is "hot"',
        "study.yaml:12: random_seed: must be a whole number, is 1.5",
    ]


def test_checks_of_several_keys_are_reported_beside_single_mistakes(folder: Path) -> None:
    text = VALID_FILE + "treshold: 0.5\npeople: 0\nmapping: {Parks: Jobs}\n"
    assert list_mistakes(folder, text) == [
        "study.yaml:6: treshold: unknown key (did you mean threshold?)",
        "study.yaml:7: people: must be at least 1, is 0",
        "study.yaml:8: mapping: misses an option",
    ]


@pytest.mark.parametrize(
    ("invalid", "other"),
    [
        ("people: 0", "folds: 400"),
        ("people: many", "seated: true"),
        ("method: embeding", "folds: 400"),
    ],
)
def test_no_check_uses_the_default_of_an_invalid_key(
    folder: Path, invalid: str, other: str
) -> None:
    assert len(list_mistakes(folder, f"{VALID_FILE}{other}\n")) == 1
    (problem,) = list_mistakes(folder, f"{VALID_FILE}{invalid}\n{other}\n")
    assert problem.startswith(f"study.yaml:6: {invalid.partition(':')[0]}: must be")


def test_checks_independent_of_an_invalid_key_are_reported(folder: Path) -> None:
    text = VALID_FILE.replace("Jobs]", "Jobs, Roads]") + "people: 0\nseated: true\n"
    assert list_mistakes(folder, text) == [
        "study.yaml:5: topic.options[3]: too many",
        "study.yaml:6: people: must be at least 1, is 0",
    ]


def test_later_checks_report_file_and_line(folder: Path) -> None:
    text = VALID_FILE.replace("[Parks, Jobs]", "\n    - Parks\n    - Jobs\n    - Roads")
    assert list_mistakes(folder, text) == ["study.yaml:8: topic.options[3]: too many"]


def test_nested_mistakes_name_the_dotted_key(folder: Path) -> None:
    text = VALID_FILE.replace("description: What now?", "descripton: What now?")
    assert list_mistakes(folder, text) == [
        "study.yaml:4: topic.descripton: unknown key (did you mean description?)"
    ]
    text = VALID_FILE.replace("[Parks, Jobs]", "[Parks]")
    assert list_mistakes(folder, text) == ["study.yaml:5: topic.options: needs at least 2 entries"]
    text = VALID_FILE.replace("[Parks, Jobs]", "[Parks, [Jobs]]")
    assert list_mistakes(folder, text) == [
        "study.yaml:5: topic.options[2]: must be text, is a list"
    ]


def test_api_key_in_the_file_is_refused_with_advice(folder: Path) -> None:
    (mistake,) = list_mistakes(folder, VALID_FILE + "api_key: sk-secret\n")
    assert "environment" in mistake
    assert "sk-secret" not in mistake


@pytest.mark.parametrize(
    "word", ["no", "yes", "on", "Off", "12:30", "2024-01-01", "010", "1e3", "2030", "0x1F", "true"]
)
def test_yaml_words_stay_text_in_text_settings(folder: Path, word: str) -> None:
    study_file = load_text(folder, VALID_FILE.replace("Parks", word))
    assert study_file.config.topic.options == (word, "Jobs")


@pytest.mark.parametrize(("word", "value"), [("no", False), ("yes", True), ("true", True)])
def test_words_of_older_yaml_are_booleans_in_boolean_settings(
    folder: Path, word: str, value: bool
) -> None:
    assert load_text(folder, VALID_FILE + f"storage: {word}\n").config.storage is value


def test_numbers_have_their_written_value(folder: Path) -> None:
    assert load_text(folder, VALID_FILE + "people: 1e3\n").config.people == 1000
    assert load_text(folder, VALID_FILE + "api_sleep_seconds: 3\n").config.api_sleep_seconds == 3.0
    assert list_mistakes(folder, VALID_FILE + "people: 010\n") == [
        'study.yaml:6: people: must be a whole number, is "010" (write 10)'
    ]
    assert list_mistakes(folder, VALID_FILE + "people: true\n") == [
        "study.yaml:6: people: must be a whole number, is true"
    ]
    assert list_mistakes(folder, VALID_FILE + 'people: "12"\n') == [
        'study.yaml:6: people: must be a whole number, is "12" (write 12)'
    ]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("1,50", " (write 1.50)"),
        ("0,5", " (write 0.5)"),
        ("1,000", " (write 1000)"),
        ("12,345,678", " (write 12345678)"),
        ("1,2,3", ""),
        ("1,5000", " (write 1.5000)"),
    ],
)
def test_comma_in_a_number_is_refused_with_a_hint(folder: Path, value: str, hint: str) -> None:
    (mistake,) = list_mistakes(folder, VALID_FILE + f'budget_usd: "{value}"\n')
    assert mistake.endswith(f'is "{value}"{hint}')


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        (b"", "the file is empty"),
        (b"# only a comment\n", "the file is empty"),
        (b"- a\n- b\n", "a study file is a group"),
        (b"a:\n\tb: 1\n", ":2: there is a tab here"),
        (b"a: 'x\nb: 2\n", "a quote is not closed"),
        (b"a: b: c\n", ":1: there is a colon in the wrong place"),
        (b"a: 1\nb: \xe9\n", ":2: is not UTF-8"),
        (b"a: &x [*x]\n", "aliases"),
        (b"a: 1\n---\nb: 2\n", ":2: a second document"),
        (b"a: \x07\n", ":1: there is a control character"),
        (b"a: !!python/object:os.system x\n", "!!python/object:os.system is not supported"),
        (b"? [a]\n: b\n", "a key must be a single word"),
        (b"PK\x03\x04rest", "is a workbook"),
        (b"a:\n  b: 1\n c: 2\n", ":3: the indentation"),
        (b"study: cross_polination\n", "did you mean cross_pollination?"),
        (b"study: ./none.py\n", "there is no file"),
        (b"study: [a]\n", "must be the name"),
        (b"colour: blue\n", "name the study type"),
    ],
)
def test_invalid_study_file_gives_a_clear_error(
    folder: Path, content: bytes, expected_text: str
) -> None:
    assert expected_text in "\n".join(list_mistakes(folder, content))


def test_multiplying_aliases_are_refused(folder: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "expand without end" in list_mistakes(folder, "\n".join(lines))[0]


def test_encodings_with_a_byte_order_mark_are_read(folder: Path) -> None:
    for encoding in ("utf-8-sig", "utf-16"):
        study_file = load_text(folder, VALID_FILE.replace("Parks", "Bänke").encode(encoding))
        assert study_file.config.topic.options[0] == "Bänke"


def test_missing_file_suggests_a_name_and_a_folder_is_named(folder: Path) -> None:
    load_text(folder, VALID_FILE)
    with pytest.raises(InputError, match=r"did you mean .*study\.yaml"):
        load_study_file(folder / "studdy.yaml")
    with pytest.raises(InputError, match="this is a folder"):
        load_study_file(folder)


def test_overrides_reach_nested_keys_and_are_checked(folder: Path) -> None:
    study_file = load_text(
        folder, VALID_FILE, "people=7", "topic.options=[A, B]", "respondent.noise=0.2"
    )
    assert study_file.config.people == 7
    assert study_file.config.topic.options == ("A", "B")
    assert study_file.config.respondent == {"noise": 0.2}
    (mistake,) = list_mistakes(folder, VALID_FILE, "respondent.nois=0.2")
    assert mistake.startswith("--set: respondent.nois: the embedded respondent has no such setting")
    assert load_text(folder, VALID_FILE, "topic.options[2]=no").config.topic.options == (
        "Parks",
        "no",
    )
    assert list_mistakes(folder, VALID_FILE, "peopel=7") == [
        "--set: peopel: unknown key (did you mean people?)"
    ]
    assert list_mistakes(folder, VALID_FILE, "people=-1") == [
        "--set: people: must be at least 1, is -1"
    ]
    assert list_mistakes(folder, VALID_FILE, "people")[0].startswith(
        "--set: 'people' is not key=value"
    )
    assert "no group of keys" in list_mistakes(folder, VALID_FILE, "pilot_id.x=1")[0]


@pytest.mark.parametrize("rest", ["[0]", "[3]", "[3].name", "name"])
def test_an_override_of_a_missing_entry_says_how_to_set_the_list(folder: Path, rest: str) -> None:
    key = f"topic.options{'.' * rest.isalpha()}{rest}"
    (mistake,) = list_mistakes(folder, VALID_FILE, f"{key}=Buses")
    assert mistake == (
        f"--set: topic.options is a list of length 2, counted from 1, and has no {rest} (to add "
        'or remove entries, set the whole list: --set "topic.options=[first, second]")'
    )


def test_merge_keys_are_supported(folder: Path) -> None:
    text = "study: ./my_study.py\npilot_id: one\ntopic:\n  <<: {description: d, options: [A, B]}\n"
    text += "  description: mine\n"
    study_file = load_text(folder, text)
    assert (study_file.config.topic.description, study_file.config.topic.options) == (
        "mine",
        ("A", "B"),
    )


def test_broken_custom_study_type_is_named(folder: Path) -> None:
    (folder / "broken.py").write_text("raise RuntimeError('oh')\n")
    (folder / "nothing.py").write_text("x = 1\n")
    assert "cannot be run: RuntimeError('oh')" in list_mistakes(folder, "study: ./broken.py\n")[0]
    assert "defines no STUDY" in list_mistakes(folder, "study: ./nothing.py\n")[0]


def test_custom_prompts_are_checked_with_the_file(folder: Path) -> None:
    (mistake,) = list_mistakes(folder, VALID_FILE + "prompts: my_prompts\n")
    assert "no such folder" in mistake


def test_settings_from_python_get_the_same_checks(folder: Path) -> None:
    study = load_text(folder, VALID_FILE).study
    data = {"pilot_id": "one", "topic": {"description": "d", "options": ["A", "B"]}}
    assert validate_settings(study, data).topic.options == ("A", "B")
    with pytest.raises(InputError, match=r"peopel: unknown key \(did you mean people\?\)"):
        validate_settings(study, {**data, "peopel": 3})
    assert "peopel" not in data
    many = {**data, "topic": {"description": "d", "options": ["A", "B", "C"]}}
    assert validate_settings(study, many).topic.options == ("A", "B", "C")
    with pytest.raises(InputError, match=r"^topic\.options\[3\]: too many$"):
        validate_settings(study, many, folder)
    with pytest.raises(InputError, match="no such folder"):
        validate_settings(study, {**data, "prompts": "none"}, folder)


@given(
    st.recursive(
        st.text(
            st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cs", "Cc"]),
            max_size=20,
        ),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.text(st.characters(categories=["L"]), min_size=1), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_text_written_as_yaml_is_read_back_unchanged(value: object) -> None:
    import yaml

    # Quoted like text that must not be read as a number, because a plain 1e3 is a number here.
    dumped = yaml.safe_dump(value, allow_unicode=True, default_style='"')
    assert parse_yaml(dumped, "x").value == value
