"""Problems in the study file of a pilot are reported with their place before the run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot.errors import InputError

HEAD = "pilot_id: trial\ntopic:\n  description: Where to?\n"
REST = "participants_per_condition: 6\n"
OPTIONS = "  options: [Parks, Jobs, Streets]\n"
PREDEFINED = HEAD + OPTIONS + REST + "opposition_method: predefined\n"


def find_problems(folder: Path, text: str) -> list[str]:
    path = folder / "pilot.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        folkmoot.run(path, model="synthetic", out=folder / "run")
    assert [p.name for p in folder.iterdir()] == ["pilot.yaml"]
    return [str(p).replace(f"{folder}/", "") for p in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD + "  options: [Parks]\n" + REST, "pilot.yaml:4: topic.options: needs at least 2"),
        (
            PREDEFINED + "opposition_mapping: {Parks: Jobs, Jobs: Parks}\n",
            "pilot.yaml:7: opposition_mapping: no opposing view for 'Streets'",
        ),
        (
            PREDEFINED + "opposition_mapping: {Parks: Jobs, Jobs: Parks, Streets: Streets}\n",
            "pilot.yaml:7: opposition_mapping: 'Streets' is mapped to itself",
        ),
        (
            PREDEFINED + "opposition_mapping: {Parks: Jobs, Jobs: Parks, Streets: Roads}\n",
            "pilot.yaml:7: opposition_mapping: 'Roads' is not an option",
        ),
        (
            HEAD + OPTIONS + REST + "personas:\n  source: table\n",
            "pilot.yaml:6: personas: the source `table` needs a `file` of profiles",
        ),
        (PREDEFINED, "pilot.yaml: opposition_mapping: no opposing view for 'Parks'"),
        (
            HEAD
            + OPTIONS
            + "participants_per_condition: 5001\nclustering_algorithm: agglomerative\n",
            "pilot.yaml:6: clustering_algorithm: agglomerative clustering compares all pairs, and "
            "10,002 members are more than 10,000",
        ),
    ],
)
def test_one_mistake_is_the_only_one_told(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = find_problems(tmp_path, text)
    assert told in problem


def test_options_that_cannot_be_told_apart_are_told_with_both_lines(tmp_path: Path) -> None:
    listed = "".join(f"    - {o}\n" for o in ("Parks", '""', "Jobs", "(2) ｐarks.", '" "', ""))
    text = HEAD + f"  options:\n{listed}" + REST
    alike = "'Parks' and '(2) ｐarks.' cannot be distinguished"
    found = [m.split(": case")[0] for m in find_problems(tmp_path, text)]
    assert found == [
        f"pilot.yaml:5: topic.options[1]: {alike}",
        "pilot.yaml:6: topic.options[2]: must not be empty",
        f"pilot.yaml:8: topic.options[4]: {alike}",
        "pilot.yaml:9: topic.options[5]: is blank",
        "pilot.yaml:10: topic.options[6]: must be text, is empty",
    ]


def test_many_mistakes_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = (
        HEAD
        + OPTIONS
        + "participants_per_condition: -3\n"
        + "disagreement_threshold: 1.4\n"
        + "min_responses_for_threshold: many\n"
        + "opposition_method: embeding\n"
        + "clustering_algoritm: kmeans\n"
        + "pilot_id: again\n"
    )
    assert [m.split(" (first")[0] for m in find_problems(tmp_path, text)] == [
        "pilot.yaml:5: participants_per_condition: must be at least 1, is -3",
        "pilot.yaml:6: disagreement_threshold: must be at most 1, is 1.4",
        'pilot.yaml:7: min_responses_for_threshold: must be a whole number, is "many"',
        "pilot.yaml:8: opposition_method: must be one of cluster_embedding, embedding, llm_judge, "
        'predefined, highest_voted, is "embeding" (did you mean embedding?)',
        "pilot.yaml:9: clustering_algoritm: unknown key (did you mean clustering_algorithm?)",
        "pilot.yaml:10: pilot_id: is a duplicate key",
    ]


def test_a_missing_file_of_personas_is_named_beside_every_other_mistake(tmp_path: Path) -> None:
    found = find_problems(
        tmp_path,
        "study: cross_pollination\npilot_id: a pilot\ntopic: {description: x}\n"
        "participants_per_condition: many\npersonas: {source: table, file: nobody.csv}\n",
    )
    assert any("pilot.yaml:5" in p and "there is no file nobody.csv" in p for p in found), found
    assert len(found) == 4


PILOT = HEAD + OPTIONS + REST


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("exposure: sauce", 'exposure: must be one of source, is "sauce" (did you mean source?)'),
        (
            "exposure:\n  mine: {dialog: true}",
            "pilot.yaml:7: exposure.mine.dialog: unknown key (did you mean dialogue?)",
        ),
        (
            "exposure: {mine: {summaries: 2}}",
            "exposure.mine.summaries: must be true or false, is 2",
        ),
        ("exposure: {acp: {dialogue: true}}", "exposure: acp is a condition of the source study"),
        ("exposure: {names_only: {}}", "exposure: 'names_only' cannot be the name of a condition"),
        ("conditions: [simple_voting, acpp]", "no condition 'acpp'; did you mean acp?"),
        (
            "conditions: [simple_voting, simple_passive]",
            "pilot.yaml:6: conditions: simple_passive would read summaries, but no condition has "
            "the interviews",
        ),
        (
            "exposure: {mine: {summaries: true, dialogue: true}}\nconditions: [mine]",
            "pilot.yaml:7: conditions: mine would read summaries",
        ),
    ],
)
def test_conditions_that_cannot_be_run_are_refused(tmp_path: Path, given: str, told: str) -> None:
    (problem,) = find_problems(tmp_path, f"{PILOT}{given}\n")
    assert told in problem
