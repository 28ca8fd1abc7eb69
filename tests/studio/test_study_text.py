"""Values changed in the text of a study file: comments stay, and the values are those wanted."""

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

FILE = """\
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


def values_of(text: str) -> Any:
    return parse_yaml(text, "").value


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


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
def test_a_change_touches_its_own_lines(
    path: tuple[Any, ...], value: Any, lines: list[str]
) -> None:
    wanted = values_of(FILE)
    at = wanted
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    after = change_values(FILE, wanted)
    assert values_of(after) == wanted
    added = [line[2:] for line in changed_lines(FILE, after) if line.startswith("+")]
    assert all(any(line.strip() in new for new in added) for line in lines), added
    assert len(changed_lines(FILE, after)) <= 6
    assert "# what we ask" in after and "# the end" in after and "# the heart of it" in after


def test_a_list_grows_and_shrinks() -> None:
    wanted = values_of(FILE)
    wanted["topic"]["options"] = ["Park", "Jobs", "Safer streets"]
    longer = change_values(FILE, wanted)
    assert values_of(longer) == wanted
    wanted["topic"]["options"] = ["Jobs"]
    assert values_of(change_values(longer, wanted)) == wanted
    assert "# said to all" in longer


def test_a_key_that_is_removed_can_be_set_again_in_its_place() -> None:
    wanted = values_of(FILE)
    del wanted["topic"]["description"]
    without = change_values(FILE, wanted)
    assert "#  description: One purpose." in without
    assert values_of(without) == wanted
    wanted = values_of(FILE)
    del wanted["models"]
    gone = change_values(FILE, wanted)
    assert "#models: {judge" in gone
    again = change_values(gone, {**wanted, "models": {"coder": "local"}})
    assert any(
        "models: {coder: local}" in line and "# others" in line for line in again.split("\n")
    )


@pytest.mark.parametrize("text", ["", "a: {b: 1}", "- 1\n", "a: 1", "a: &x 1\nb: *x\n"])
def test_unusual_files_hold_what_was_wanted(text: str) -> None:
    wanted = {"a": "new\ntext\n", "b": ["x"], "c": {"d": {"e": None}}}
    assert values_of(change_values(text, wanted)) == wanted


@pytest.mark.parametrize(
    "kind",
    sample_daily(
        sorted(set(registered_studies()) - {"workbook"}),
        daily=("cross_pollination", "town_hall"),
        part="sweeps",
    ),
)
def test_fields_of_a_form_can_be_set_and_taken_back(kind: str) -> None:
    study = find_study(kind)
    template = study_file_template(study)
    values = values_of(template)
    form = make_form(study, values)
    fields = [f for s in form for f in walk_fields(s.fields) if f.kind not in CONTAINERS]
    unchanged, _ = read_form(form, values, {f.name: f.value for f in fields})
    assert unchanged == values and change_values(template, unchanged) == template
    assert len(fields) > 50
    # An entry of a mapping that is not set is written with its neighbours (tested below).
    entries = {below.path for s in form for f in walk_fields(s.fields) for below in f.inner
               if f.kind == "mapping"}  # fmt: skip
    for field in [each for each in fields if each.path not in entries][::6]:
        entered = {"number": "7", "yaml": "7", "switch": "true", "choice": field.choices[-1:]}
        new = entered.get(field.kind, "words")
        wanted, problems = read_form(form, values, {field.name: new[0] if field.choices else new})
        after = change_values(template, wanted)
        assert values_of(after) == wanted and not problems
        assert len(changed_lines(template, after)) <= 4, field.path
        assert values_of(change_values(after, values)) == values


def test_rows_are_added_moved_and_removed() -> None:
    study = find_study("cross_pollination")
    values = {"topic": {"description": "One", "options": ["a", "b"]}}
    form = make_form(study, values)
    longer = change_rows(form, values, 'add ["topic", "options"]')
    assert longer["topic"]["options"] == ["a", "b", ""]
    assert change_rows(form, values, 'up ["topic", "options", 1]')["topic"]["options"] == ["b", "a"]
    assert change_rows(form, values, 'remove ["topic", "options", 0]')["topic"]["options"] == ["b"]
    assert change_rows(form, values, 'remove ["no", "such"]') == values


def test_a_mistake_belongs_to_the_field_that_is_nearest() -> None:
    study = find_study("cross_pollination")
    form = make_form(study, {"topic": {"description": "One", "options": ["a", "b"]}})
    problems = [
        Problem("is empty", key="topic.options[2]"),
        Problem("is missing", key="topic.description"),
        Problem("is unknown", key="colour"),
    ]
    placed, rest = place_problems(form, problems)
    assert set(placed) == {"f-topic-options-1", "f-topic-description"}
    assert [p.key for p in rest] == ["colour"]


def field_of(kind: str, values: dict[str, Any], *path: str | int) -> StudyField:
    form = make_form(find_study(kind), values)
    return next(f for s in form for f in walk_fields(s.fields) if f.path == path)


def test_a_mapping_has_a_row_for_each_entry() -> None:
    study = find_study("town_hall")
    values = {"topic": {"title": "A", "background": "B"}}
    gender = field_of("town_hall", values, "residents", "ratios", "gender")
    assert [(row.path[-1], row.value) for row in gender.inner] == [
        ("male", "0.48"),
        ("female", "0.52"),
    ]
    form = make_form(study, values)
    sent = {gender.inner[0].name: "0.5", gender.inner[1].key_name: "other"}
    changed, problems = read_form(form, values, sent)
    assert changed["residents"] == {"ratios": {"gender": {"male": 0.5, "other": 0.52}}}
    assert problems == []
    longer = change_rows(make_form(study, changed), changed, f"add {gender.name}")
    assert longer["residents"]["ratios"]["gender"] == {"male": 0.5, "other": 0.52, "": ""}
    text = "topic:\n  title: A\n  background: B\n"
    assert values_of(change_values(text, longer)) == longer


def test_two_rows_with_one_name_are_a_mistake_and_lose_nothing() -> None:
    values = {"models": {"moderator": "gpt-4o", "coder": "local"}}
    models = field_of("focus_group", values, "models")
    form = make_form(find_study("focus_group"), values)
    changed, problems = read_form(form, values, {models.inner[1].key_name: "moderator"})
    assert changed == values
    placed, _ = place_problems(form, problems)
    assert list(placed) == ["f-models-1"]


def test_the_last_row_that_is_removed_sets_the_key_back_to_its_default() -> None:
    study = find_study("focus_group")
    values: dict[str, Any] = {"quotas": {"sex": {"F": 1}}, "prices": ["9 dollars"]}
    for name in ('["quotas", 0]', '["prices", 0]'):
        values = change_rows(make_form(study, values), values, f"remove {name}")
    assert values == {}


def test_keys_of_a_mapping_that_are_given_are_offered() -> None:
    study, values = find_study("town_hall"), {}
    levels = field_of("town_hall", {}, "reaction_levels")
    assert levels.key_choices[:2] == ("agree", "disagree")
    for _ in range(2):
        values = change_rows(make_form(study, values), values, 'add ["reaction_levels"]')
    assert list(values["reaction_levels"]) == ["agree", "disagree"]


def test_a_single_value_becomes_rows_where_the_key_accepts_both() -> None:
    study = find_study("negotiation")
    form = make_form(study, {"groups": "negotiation_groups.yaml"})
    groups = field_of("negotiation", {"groups": "negotiation_groups.yaml"}, "groups")
    assert groups.kind == "text" and groups.can_become_rows
    values = change_rows(form, {"groups": "negotiation_groups.yaml"}, f"rows {groups.name}")
    values = change_rows(make_form(study, values), values, 'add ["groups", 0, "members"]')
    assert values == {"groups": [{"members": [{}]}]}
    role = field_of("negotiation", values, "groups", 0, "members", 0, "role")
    changed, _ = read_form(make_form(study, values), values, {role.name: "parent"})
    assert changed == {"groups": [{"members": [{"role": "parent"}]}]}
