"""Changes of values in the text of a study file keep the comments."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from folkmoot.authoring.template import study_file_template
from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.engine.study.study import find_study, registered_studies
from folkmoot.errors import Problem
from folkmoot.studio.fields import (
    CONTAINERS,
    StudyField,
    change_rows,
    make_form,
    place_problems,
    read_form,
    walk_fields,
)
from folkmoot.studio.study_text import change_values
from tests.sweeps import sample_daily

STUDY_TEXT = """\
# what we ask
study: cross_pollination
topic:                              # the heart of it
  description: One purpose.         # said to all
  options:
    - Park                          # the first
    - Jobs
models: {judge: openai/gpt-4o}      # others
#revote: false                      # decide again
text: |
  two
  lines
# the end
"""


def parse_values(text: str) -> Any:
    return parse_yaml(text, "").value


def changed_lines(before: str, after: str) -> list[str]:
    diff_lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in diff_lines if line[0] in "+-"]


@pytest.mark.parametrize(
    ("path", "value", "lines"),
    [
        (("topic", "description"), "Another: one", ["  description: 'Another: one'"]),
        (("topic", "options", 0), "no", ["    - 'no'                          # the first"]),
        (("revote",), True, ["revote: true                # decide again"]),
        (("text",), "three\nnew\nlines\n", ["three", "new"]),
        (("text",), "short", ["text: short"]),
        (("models", "judge"), "local", ["models: {judge: local}      # others"]),
        (("topic", "matters"), ["a", "b"], ["  matters:", "- a", "- b"]),
        (("added",), {"a": [{"b": 1}]}, ["added:", "  a:", "    - b: 1"]),
    ],
)
def test_a_change_affects_only_its_own_lines(
    path: tuple[Any, ...], value: Any, lines: list[str]
) -> None:
    new_values = parse_values(STUDY_TEXT)
    parent = new_values
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    changed_text = change_values(STUDY_TEXT, new_values)
    assert parse_values(changed_text) == new_values
    added_lines = [
        line[2:] for line in changed_lines(STUDY_TEXT, changed_text) if line.startswith("+")
    ]
    assert all(any(line.strip() in added_line for added_line in added_lines) for line in lines), (
        added_lines
    )
    assert len(changed_lines(STUDY_TEXT, changed_text)) <= 6
    assert (
        "# what we ask" in changed_text
        and "# the end" in changed_text
        and "# the heart of it" in changed_text
    )


def test_a_list_grows_and_shrinks() -> None:
    new_values = parse_values(STUDY_TEXT)
    new_values["topic"]["options"] = ["Park", "Jobs", "Safer streets"]
    longer_text = change_values(STUDY_TEXT, new_values)
    assert parse_values(longer_text) == new_values
    new_values["topic"]["options"] = ["Jobs"]
    assert parse_values(change_values(longer_text, new_values)) == new_values
    assert "# said to all" in longer_text


def test_a_removed_key_can_be_set_again_in_its_place() -> None:
    new_values = parse_values(STUDY_TEXT)
    del new_values["topic"]["description"]
    text_without_description = change_values(STUDY_TEXT, new_values)
    assert "#  description: One purpose." in text_without_description
    assert parse_values(text_without_description) == new_values
    new_values = parse_values(STUDY_TEXT)
    del new_values["models"]
    text_without_models = change_values(STUDY_TEXT, new_values)
    assert "#models: {judge" in text_without_models
    text_with_models = change_values(
        text_without_models, {**new_values, "models": {"coder": "local"}}
    )
    assert any(
        "models: {coder: local}" in line and "# others" in line
        for line in text_with_models.split("\n")
    )


@pytest.mark.parametrize("text", ["", "a: {b: 1}", "- 1\n", "a: 1", "a: &x 1\nb: *x\n"])
def test_unusual_files_get_the_new_values(text: str) -> None:
    new_values = {"a": "new\ntext\n", "b": ["x"], "c": {"d": {"e": None}}}
    assert parse_values(change_values(text, new_values)) == new_values


ANCHORED_TEXT = """\
# head
members:
  - name: Ada                # first
    preferences: &calm       # quiet
      pace: 2                # slow
      budget: 3
  - name: Bo
    preferences: *calm       # the same
  - name: Cy
    preferences: *calm
plan: {style: &style "a, b", # short
       other: *style}
prices: [1]  # euros
# the end
...
"""


@pytest.mark.parametrize(
    ("path", "value", "lines"),
    [
        # The aliases keep the old value of an anchor, and an anchor the value of a changed alias.
        (
            ("members", 0, "preferences", "pace"),
            9,
            ["preferences: # quiet", "pace: 9", "preferences: &calm {pace: 2, budget: 3}"],
        ),
        (("members", 0, "preferences", "new"), 1, ["new: 1"]),
        (("members", 0, "preferences"), None, ["#    preferences: &calm", "{pace: 2, budget: 3}"]),
        (("members", 1, "preferences", "pace"), 9, ["preferences: {pace: 9, budget: 3}"]),
        (("members", 0, "name"), None, ["- #name: Ada                # first"]),
        (("plan", "style"), "c, d", ["{style: 'c, d', # short", "other: 'a, b'}"]),
        (("plan", "other"), "c, d", ["other: 'c, d'}"]),
        (("prices", 0), "2, 3", ["prices: ['2, 3']  # euros"]),
        (("added",), 1, ["added: 1"]),
    ],
)
def test_comments_and_anchors_stay_around_a_change(
    path: tuple[Any, ...], value: Any, lines: list[str]
) -> None:
    new_values = parse_values(ANCHORED_TEXT)
    parent = new_values
    for key in path[:-1]:
        parent = parent[key]
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    changed_text = change_values(ANCHORED_TEXT, new_values)
    assert parse_values(changed_text) == new_values
    assert all(line in changed_text for line in lines), changed_text
    comments = ["head", "first", "quiet", "slow", "the same", "short", "the end"]
    assert all(f"# {comment}\n" in changed_text for comment in comments), changed_text
    assert changed_text.endswith("...\n") and "*calm" in changed_text


@pytest.mark.parametrize(
    "text",
    [
        "# head\nmembers: &all {pace: 1}\nmore: {<<: *all, name: Ada} # x\n",
        "# head\nmembers: &all\n  pace: 1 # x\nmore:\n  <<: *all\n  name: Ada\n",
    ],
)
def test_a_merged_key_can_be_changed(text: str) -> None:
    for path in (("members", "pace"), ("more", "pace"), ("more", "name")):
        new_values = parse_values(text)
        new_values[path[0]][path[1]] = "new"
        changed_text = change_values(text, new_values)
        assert parse_values(changed_text) == new_values
        assert "# head" in changed_text and "# x" in changed_text, changed_text


def test_comments_around_a_file_in_braces_stay() -> None:
    changed_text = change_values("# head\n{a: 1, b: 2}\n# end\n", {"a": 1, "c": 3})
    assert parse_values(changed_text) == {"a": 1, "c": 3}
    assert "# head" in changed_text and "# end" in changed_text


@pytest.mark.parametrize(
    "kind",
    sample_daily(
        sorted(set(registered_studies()) - {"workbook"}),
        daily=("cross_pollination", "town_hall"),
        part="sweeps",
    ),
)
def test_fields_of_a_form_can_be_set_and_reset(kind: str) -> None:
    study = find_study(kind)
    template = study_file_template(study)
    values = parse_values(template)
    form = make_form(study, values)
    fields = [
        field
        for section in form
        for field in walk_fields(section.fields)
        if field.kind not in CONTAINERS
    ]
    unchanged, _ = read_form(form, values, {field.name: field.value for field in fields})
    assert unchanged == values and change_values(template, unchanged) == template
    assert len(fields) > 50
    # An unset entry of a mapping is written together with its neighbours (tested below).
    mapping_entry_paths = {
        entry.path
        for section in form
        for field in walk_fields(section.fields)
        for entry in field.inner
        if field.kind == "mapping"
    }
    for field in [field for field in fields if field.path not in mapping_entry_paths][::6]:
        values_by_kind = {
            "number": "7",
            "yaml": "7",
            "switch": "true",
            "choice": field.choices[-1:],
        }
        new_value = values_by_kind.get(field.kind, "words")
        new_values, problems = read_form(
            form, values, {field.name: new_value[0] if field.choices else new_value}
        )
        changed_text = change_values(template, new_values)
        assert parse_values(changed_text) == new_values and not problems
        assert len(changed_lines(template, changed_text)) <= 4, field.path
        assert parse_values(change_values(changed_text, values)) == values


def test_rows_are_added_moved_and_removed() -> None:
    study = find_study("cross_pollination")
    values = {"topic": {"description": "One", "options": ["a", "b"]}}
    form = make_form(study, values)
    longer_values = change_rows(form, values, 'add ["topic", "options"]')
    assert longer_values["topic"]["options"] == ["a", "b", ""]
    assert change_rows(form, values, 'up ["topic", "options", 1]')["topic"]["options"] == ["b", "a"]
    assert change_rows(form, values, 'remove ["topic", "options", 0]')["topic"]["options"] == ["b"]
    assert change_rows(form, values, 'remove ["no", "such"]') == values


def test_a_problem_is_placed_at_the_nearest_field() -> None:
    study = find_study("cross_pollination")
    form = make_form(study, {"topic": {"description": "One", "options": ["a", "b"]}})
    problems = [
        Problem("is empty", key="topic.options[2]"),
        Problem("is missing", key="topic.description"),
        Problem("is unknown", key="colour"),
    ]
    placed_problems, other_problems = place_problems(form, problems)
    assert set(placed_problems) == {"f-topic-options-1", "f-topic-description"}
    assert [problem.key for problem in other_problems] == ["colour"]


def find_field(kind: str, values: dict[str, Any], *path: str | int) -> StudyField:
    form = make_form(find_study(kind), values)
    return next(
        field for section in form for field in walk_fields(section.fields) if field.path == path
    )


def test_a_mapping_has_a_row_for_each_entry() -> None:
    study = find_study("town_hall")
    values = {"topic": {"title": "A", "background": "B"}}
    gender = find_field("town_hall", values, "residents", "ratios", "gender")
    assert [(row.path[-1], row.value) for row in gender.inner] == [
        ("male", "0.48"),
        ("female", "0.52"),
    ]
    form = make_form(study, values)
    form_values = {gender.inner[0].name: "0.5", gender.inner[1].key_name: "other"}
    changed_values, problems = read_form(form, values, form_values)
    assert changed_values["residents"] == {"ratios": {"gender": {"male": 0.5, "other": 0.52}}}
    assert problems == []
    longer_values = change_rows(
        make_form(study, changed_values), changed_values, f"add {gender.name}"
    )
    assert longer_values["residents"]["ratios"]["gender"] == {"male": 0.5, "other": 0.52, "": ""}
    text = "topic:\n  title: A\n  background: B\n"
    assert parse_values(change_values(text, longer_values)) == longer_values


def test_two_rows_with_one_name_are_a_problem_and_keep_all_values() -> None:
    values = {"models": {"moderator": "gpt-4o", "coder": "local"}}
    models = find_field("focus_group", values, "models")
    form = make_form(find_study("focus_group"), values)
    changed_values, problems = read_form(form, values, {models.inner[1].key_name: "moderator"})
    assert changed_values == values
    placed_problems, _ = place_problems(form, problems)
    assert list(placed_problems) == ["f-models-1"]


def test_removing_the_last_row_resets_the_key_to_its_default() -> None:
    study = find_study("focus_group")
    values: dict[str, Any] = {"quotas": {"sex": {"F": 1}}, "prices": ["9 dollars"]}
    for name in ('["quotas", 0]', '["prices", 0]'):
        values = change_rows(make_form(study, values), values, f"remove {name}")
    assert values == {}


def test_predefined_keys_of_a_mapping_are_offered() -> None:
    study, values = find_study("town_hall"), {}
    levels = find_field("town_hall", {}, "reaction_levels")
    assert levels.key_choices[:2] == ("agree", "disagree")
    for _ in range(2):
        values = change_rows(make_form(study, values), values, 'add ["reaction_levels"]')
    assert list(values["reaction_levels"]) == ["agree", "disagree"]


def test_a_single_value_can_become_rows_if_the_key_accepts_both() -> None:
    study = find_study("negotiation")
    form = make_form(study, {"groups": "negotiation_groups.yaml"})
    groups = find_field("negotiation", {"groups": "negotiation_groups.yaml"}, "groups")
    assert groups.kind == "text" and groups.can_become_rows
    values = change_rows(form, {"groups": "negotiation_groups.yaml"}, f"rows {groups.name}")
    values = change_rows(make_form(study, values), values, 'add ["groups", 0, "members"]')
    assert values == {"groups": [{"members": [{}]}]}
    role = find_field("negotiation", values, "groups", 0, "members", 0, "role")
    changed_values, _ = read_form(make_form(study, values), values, {role.name: "parent"})
    assert changed_values == {"groups": [{"members": [{"role": "parent"}]}]}
