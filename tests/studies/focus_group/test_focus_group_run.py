"""Whole runs through the engine: files, tables, findings, several groups and concepts, mistakes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import folkmoot
from folkmoot.errors import InputError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.people.sources.grounded import Profile
from folkmoot.randomness import uniform_values
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.files import TranscriptFormatter
from folkmoot.studies.focus_group.tables import read_talk
from tests.shown import render_run_text
from tests.studies.focus_group.at_hand import ANSWER_TEXTS, write_question

STUDY_FILE = """
study: focus_group
product_concept: An oven that scans ready meals and cooks them by itself
category: kitchen appliances
stimulus_material: Meet the oven that reads. 299 dollars.
"""


def reply_plainly(request: ModelRequest, address: str) -> str:
    """Return a reply of a fast model for whole runs."""
    draw = uniform_values(3, address)
    if request.schema is not None:
        if request.schema["title"] == "PhaseGuide":
            return '{"questions": ["What do you make of it?", "And what would you change?"]}'
        if request.schema["title"] == "Codes":
            return '{"codes": []}'
        if request.schema["title"] == "NextQuestion":
            return write_question("So, what do you all make of that?")
        if request.schema["title"] == "PrivateOpinion":
            return json.dumps({"opinion": "It has its points.", "position": round(draw - 0.5, 2)})
        return json.dumps({"changed": draw < 0.1, "valence": round(draw - 0.5, 2)})
    if "/intent/" in address:
        return "Probably would buy" if draw < 0.5 else "Probably would not buy"
    return ANSWER_TEXTS[int(draw * len(ANSWER_TEXTS))]


def run_focus_group(folder: Path, text: str = "", **options: Any) -> RunFolder:
    path = folder / "study.yaml"
    path.write_text(STUDY_FILE + text, "utf-8")
    options.setdefault("provider", ScriptedProvider(reply_plainly))
    return folkmoot.run(path, out=folder / "run", **options).folder


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of the study file without further settings. Tests only read it."""
    return run_focus_group(tmp_path_factory.mktemp("plain"))


def test_one_group_leaves_its_files_in_the_run_folder(plain_run: RunFolder) -> None:
    run = plain_run
    for name in (
        "transcript.md",
        "transcript.html",
        "statistics.json",
        "topline.md",
        "topline.json",
    ):
        assert run.has_file(name), name
    t = TranscriptFormatter.from_json(run.text("transcript.json"))
    said = read_talk(run)
    assert said["text"].to_list() == [m.content for m in t.messages]
    assert said["turn"].to_list() == list(range(1, len(t.messages) + 1))
    people = run.read_table("personas")
    assert people["name"].to_list() == [p.name for p in t.personas]
    assert people["openness"].to_list() == [p.traits.openness for p in t.personas]
    sealed = run.plan["sealed"]["recruits"]["data"]
    recruits = [Profile.model_validate(p) for p in sealed["group_001"]]
    assert recruits == [p.model_copy(update={"opinion": None}) for p in t.personas]


def test_positions_form_a_trajectory_from_the_private_opinion_on(plain_run: RunFolder) -> None:
    run = plain_run
    t = TranscriptFormatter.from_json(run.text("transcript.json"))
    opinions = run.read_table("opinions")
    for p in t.personas:
        assert p.opinion is not None
        own = opinions.filter(pl.col("persona_id") == p.id)
        assert own["turn"][0] == 0
        assert own["valence"][0] == p.opinion.valence
        assert own["turn"].is_sorted()
        steps = own["valence"].to_list()
        moved = [a != b for a, b in pairwise(steps)]
        assert moved == own["changed"].to_list()[1:]


def test_replications_are_independent_groups_and_the_topline_tells_what_holds(
    tmp_path: Path,
) -> None:
    run = run_focus_group(
        tmp_path, "replications: 4\nnum_personas: 5\nmax_responses_per_question: 3\n"
    )
    groups = [f"group_{i:03d}" for i in range(1, 5)]
    assert [p.name for p in sorted((run.path / "groups").iterdir())] == groups
    people = run.read_table("personas")
    assert people.height == 20
    assert people["name"].n_unique() > 15
    for _, table in people.group_by("group"):
        firsts = [n.split(" ")[0] for n in table["name"]]
        assert len(set(firsts)) == 5
    (concept,) = run.read_json("topline.json")["concepts"]
    across = concept["across_groups"]
    assert across["groups"] == 4
    stated = run.read_table("statements")
    warmed = 0.0
    for _, table in stated.group_by("group"):
        mean = {
            w: float(np.mean(part["position"].to_list())) for (w,), part in table.group_by("when")
        }
        warmed += mean["after"] - mean["before"] > 0.02
    assert across["groups_that_warmed"] == warmed
    assert not run.has_file("transcript.md")


def test_a_concept_test_puts_the_same_people_before_each_concept(tmp_path: Path) -> None:
    stimuli = (
        "replications: 2\nnum_personas: 4\nmax_responses_per_question: 3\nstimuli:\n"
        "  - {name: oven, product_concept: An oven that reads}\n"
        "  - {name: box, product_concept: A box that cooks, category: cooking}\n"
    )
    run = run_focus_group(tmp_path, stimuli)
    assert run.read_table("personas").height == 8
    opinions = run.read_table("opinions").filter(pl.col("turn") == 0)
    oven, box = (opinions.filter(pl.col("stimulus") == s) for s in ("oven", "box"))
    assert oven["persona_id"].to_list() == box["persona_id"].to_list()
    assert oven["name"].to_list() == box["name"].to_list()
    assert oven["valence"].to_list() != box["valence"].to_list()
    text = run.text("groups/group_002/box/transcript.md")
    assert "A box that cooks" in text and "An oven that reads" not in text
    keys = {f.key for f in STUDY.findings(run)}
    assert {"concepts", "purchase_intent_oven", "purchase_intent_box"} <= keys


def test_findings_say_what_the_tables_hold(plain_run: RunFolder) -> None:
    run = plain_run
    found = {f.key: f for f in STUDY.findings(run)}
    assert set(found) == {
        "purchase_intent", "positions", "replies", "talk_time", "sycophancy", "exposure", "respondent_checks",  # noqa: E501
    }  # fmt: skip
    intents = run.read_table("intents")
    after = intents.filter(pl.col("when") == "after")
    likely = (after["score"] >= 4).sum() / after.height
    says = found["purchase_intent"].says
    assert (
        says.startswith("An illustration, not evidence: 1 group.")
        and f" {100 * likely:.0f} % (no interval) " in says
        and "would definitely or probably" in says
    )
    said = read_talk(run)
    words = {r[0]: r[1] for r in found["talk_time"].grid.rows}
    for name, count in words.items():
        assert said.filter(pl.col("speaker_name") == name)["words"].sum() == count
    replies = said.filter(
        (pl.col("speaker_role") == "participant") & pl.col("replied_to").is_not_null()
    )
    assert sum(int(str(r[2])) for r in found["replies"].grid.rows) == replies.height
    for finding in found.values():
        assert finding.says.endswith(".")
        assert finding.grid.rows
        # The checks of the model are verdicts with figures of several units.
        assert finding.chart is not None or finding.key == "respondent_checks"


def test_real_profiles_sit_at_the_table_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text(
        "name,age,sex,occupation,openness,background\n"
        "Ann Lee,41,F,beekeeper,90,Sells honey at the market.\n"
        "Bo Ray,29,M,diver,10,\nCy Dunn,66,M,judge,50,\n"
    )
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    run = run_focus_group(
        tmp_path,
        "personas: real.csv\nnum_personas: 3\nmax_responses_per_question: 3\n",
        provider=scripted,
    )
    people = {r["name"]: r for r in run.read_table("personas").iter_rows(named=True)}
    assert (people["Ann Lee"]["occupation"], people["Ann Lee"]["openness"]) == ("beekeeper", 90)
    systems = {r.messages[0].content for _, r in scripted.seen}
    assert any("Sells honey at the market." in s for s in systems)


def test_show_gives_the_talk_a_group_and_a_person(plain_run: RunFolder) -> None:
    run = plain_run
    said, people = read_talk(run), run.read_table("personas")
    whole = render_run_text(run, said["group"][0])
    assert all(text in whole for text in said["text"].to_list())
    person = people.row(2, named=True)
    own = render_run_text(run, f"{person['group']}/{person['persona_id']}")
    assert "a coder's reading of the answers" in " ".join(own.split())
    assert person["name"] in own
    lines = said.filter(pl.col("speaker_id") == person["persona_id"])["text"].to_list()
    assert all(text in own for text in lines)
    with pytest.raises(InputError, match="p_9999"):
        render_run_text(run, "p_9999")


def test_a_run_cut_off_goes_on_to_the_same_transcript(plain_run: RunFolder, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    calls = 0

    def dying(request: ModelRequest, address: str) -> str:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise Stop
        return reply_plainly(request, address)

    with pytest.raises(Stop):
        run_focus_group(tmp_path, provider=ScriptedProvider(dying))
    counted = ScriptedProvider(reply_plainly)
    again = run_focus_group(tmp_path, provider=counted)
    assert again.text("transcript.md") == plain_run.text("transcript.md")
    assert counted.calls == plain_run.manifest["calls"] - 60


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("num_personas: 1\n", "num_personas", "at least 2"),
        (
            "num_personas: 4\nmax_responses_per_question: 6\n",
            "max_responses_per_question",
            "6 answers",
        ),
        ("phases: [warmup, brainstorm]\n", "phases", "brainstorm"),
        ("phases: []\n", "phases", ""),
        ("phases: [warmup, warmup]\n", "phases", "once"),
        ("num_personas: 40\nquestions_per_phase: 1\n", "num_personas", "40 people"),
        ("quotas: {sex: {X: 1}}\n", "quotas.sex", "X"),
        ("quotas: {shoe: {a: 1}}\n", "quotas.shoe", "no quota"),
        ("personas: nobody.csv\n", "personas", "no such file"),
        (
            "stimuli: [{name: a, product_concept: x}, {name: a, product_concept: y}]\n",
            "stimuli",
            "same name",
        ),
        ("sentiment: feelings\n", "sentiment", ""),
        ("product_concpt: x\n", "product_concpt", "product_concept"),
    ],
)
def test_a_mistake_is_one_clear_line_and_nothing_is_written(
    tmp_path: Path, text: str, key: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        run_focus_group(tmp_path, text)
    (problem,) = caught.value.problems
    assert problem.key.startswith(key)
    assert words in str(problem)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_no_concept_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("study: focus_group\ncategory: snacks\n")
    with pytest.raises(InputError, match="no concept is given"):
        folkmoot.run(path, out=tmp_path / "run", provider=ScriptedProvider(reply_plainly))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("concept", ["''", '"  "'])
def test_an_empty_concept_is_one_mistake(tmp_path: Path, concept: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"study: focus_group\ncategory: snacks\nproduct_concept: {concept}\n")
    with pytest.raises(InputError) as caught:
        folkmoot.run(path, out=tmp_path / "run", provider=ScriptedProvider(reply_plainly))
    (problem,) = caught.value.problems
    assert (problem.key, problem.where) == ("product_concept", "3")


def test_people_of_one_name_are_noticed_before_a_run(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("name,age\nAnn Lee,41\nBo Ray,30\nAnn Fox,22\n")
    with pytest.raises(InputError) as caught:
        run_focus_group(
            tmp_path, "personas: real.csv\nnum_personas: 3\nmax_responses_per_question: 2\n"
        )
    (problem,) = caught.value.problems
    assert (problem.key, problem.hint) == (
        "personas",
        "give them different names, or set num_personas: 2",
    )
    assert problem.where


def test_titles_are_no_first_names(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("name,age\nDr. Ann Lee,41\nDr. Bob Ray,30\nMs Cy Fox,22\n")
    run = run_focus_group(
        tmp_path, "personas: real.csv\nnum_personas: 3\nmax_responses_per_question: 3\n"
    )
    speakers = read_talk(run)["speaker_name"].unique().to_list()
    assert sorted(speakers) == ["Ann", "Bob", "Cy", "Moderator"]


def test_a_person_cannot_have_the_moderators_id(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("id,name,age\nmoderator,Ann,41\nb,Bo,30\n")
    with pytest.raises(InputError, match="no profile can have the id 'moderator'"):
        run_focus_group(
            tmp_path, "personas: real.csv\nnum_personas: 2\nmax_responses_per_question: 2\n"
        )


def test_a_participant_cannot_have_the_name_of_the_moderator(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("name,age\nDr. MODERATOR Lee,41\nBo,30\n")
    with pytest.raises(InputError, match="no profile can have the first name 'Moderator'"):
        run_focus_group(
            tmp_path, "personas: real.csv\nnum_personas: 2\nmax_responses_per_question: 2\n"
        )


def test_profiles_that_make_no_sense_are_named(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("name,age,openness\nAnn,41,900\nBo,x,5\n")
    with pytest.raises(InputError) as caught:
        run_focus_group(
            tmp_path, "personas: real.csv\nnum_personas: 3\nmax_responses_per_question: 2\n"
        )
    said = "\n".join(str(p) for p in caught.value.problems)
    assert "openness" in said and "age" in said and "the file has 2" in said


def test_the_sources_own_settings_are_taken_as_written(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        "product_concept: A bar\ncategory: snacks\nstimulus_material: null\nnum_personas: 8\n"
        "phases: [warmup, exploration, deep_dive, reaction, synthesis]\nquestions_per_phase: 2\n"
        "max_responses_per_question: 5\ntemperature: 0.9\n"
        "model: anthropic/claude-sonnet-4-20250514\n"
    )
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    run = folkmoot.run(path, out=tmp_path / "run", provider=scripted).folder
    assert run.study == "focus_group"
    assert {r.model for _, r in scripted.seen} == {"anthropic/claude-sonnet-4-20250514"}
    answers = [r for a, r in scripted.seen if a.endswith("/says/ask0")]
    assert {r.temperature for r in answers} == {0.9}
    assert {r.max_tokens for r in answers} == {300}


def test_a_discussion_in_another_script_has_word_counts_and_no_tone(tmp_path: Path) -> None:
    """Without spaces each answer was one word, and the English lexicon gave it the tone 0."""

    def reply(request: ModelRequest, address: str) -> str:
        is_answer = request.schema is None and address.endswith("says/ask0")
        return "我觉得太贵了，但是很方便。" if is_answer else reply_plainly(request, address)

    run = run_focus_group(tmp_path, "num_personas: 3\n", provider=ScriptedProvider(reply))
    said = read_talk(run)
    answers, questions = (
        said.filter((pl.col("speaker_role") == "participant") == is_answer)
        for is_answer in (True, False)
    )
    assert set(answers["words"]) == {11}
    assert answers["sentiment"].null_count() == answers.height
    assert answers["sentiment_source"].null_count() == answers.height
    assert questions["sentiment"].null_count() == 0
    statistics = run.read_json("statistics.json")
    assert set(statistics["average_sentiment_by_phase"].values()) == {None}
    assert statistics["sentiment_source"] is None
    words_of_moderator = questions["words"].sum()
    share = words_of_moderator / (words_of_moderator + 11 * answers.height)
    assert statistics["moderator_share_of_words"] == pytest.approx(share, abs=1e-4)
    finding = {finding.key: finding for finding in STUDY.findings(run)}["talk_time"]
    assert any("each letter counts as a word" in note for note in finding.notes)


def test_english_talk_needs_no_note_on_scripts(plain_run: RunFolder) -> None:
    finding = {finding.key: finding for finding in STUDY.findings(plain_run)}["talk_time"]
    assert not finding.notes
