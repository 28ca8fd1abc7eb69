"""The embedded respondent at the table: varied, readable, contrary where the persona is, and its
pathologies are caught.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance, build_messages
from folkmoot.models.request import ModelRequest, ProviderSettings, RespondentHints, StudyPart
from folkmoot.provenance import concatenate_texts
from folkmoot.respondent import Respondent
from folkmoot.respondent.mind.reading import read_prompt
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY, sycophancy
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.files import TranscriptFormatter
from folkmoot.studies.focus_group.respondent import PART
from folkmoot.studies.focus_group.tables import read_talk
from folkmoot.studies.focus_group.talk.views import (
    FIRST_PERSON,
    load_wordings,
    sentence_views,
    split_sentences,
    views_of_others,
)
from folkmoot.studies.focus_group.texts import DiscussionTexts
from tests.conftest import SharedFolder

EXAMPLE = Path(__file__).parents[3] / "examples" / "focus_group.yaml"


def run_example(out: Path, *overrides: str, **options: Any) -> RunFolder:
    return folkmoot.run(EXAMPLE, out=out, model="synthetic", overrides=overrides, **options).folder


@pytest.fixture(scope="session")
def groups(shared_folder: SharedFolder) -> RunFolder:
    made = shared_folder("focus_group/eight", lambda at: run_example(at / "run", "replications=8"))
    return RunFolder(made / "run")


@pytest.mark.nightly(part="truths")
def test_length_phases_and_voices_of_every_group(groups: RunFolder) -> None:
    for _, talk in read_talk(groups).group_by("group"):
        assert 40 <= talk.height <= 65
        assert talk["phase"].n_unique() == 5
        said = talk.filter(pl.col("speaker_role") == "participant")
        assert said["speaker_id"].n_unique() == 8
        turns = talk.sort("turn")["speaker_role"].to_list()
        assert turns[0] == "moderator"
        longest = max(len(run) for run in re.findall("p+", "".join(r[0] for r in turns)))
        assert longest <= 5


@pytest.mark.nightly(part="truths")
def test_length_and_voices_of_200_groups(tmp_path: Path) -> None:
    run = run_example(tmp_path / "run", "replications=200")
    for _, talk in read_talk(run).group_by("group"):
        assert 40 <= talk.height <= 65
        assert talk["phase"].n_unique() == 5
        assert talk.filter(pl.col("speaker_role") == "participant")["speaker_id"].n_unique() == 8


def test_no_answer_needs_a_second_asking(groups: RunFolder) -> None:
    answers = groups.read_table("answers")
    assert answers["reasks"].sum() == 0
    assert answers["missing"].null_count() == answers.height


def test_words_are_varied_and_clean(groups: RunFolder) -> None:
    said = read_talk(groups)
    for _, talk in said.group_by("group"):
        texts = talk.filter(pl.col("speaker_role") == "participant")["text"].to_list()
        assert max(Counter(texts).values()) <= 2
        assert len(set(texts)) >= 0.93 * len(texts)
    for text in said["text"]:
        assert not re.search(
            r"[{}]|None|\bnan\b|  |\.\.|,,| ,|\ba [aeio]\w+ (?:\w+ )?like that", text
        ), text
        assert text.lstrip("“")[0].isupper() and text[-1] in ".?!", text


def test_the_moderator_neither_numbers_nor_announces(groups: RunFolder) -> None:
    asked = read_talk(groups).filter(pl.col("speaker_role") == "moderator")
    for text in asked["text"]:
        assert not re.match(r"\s*(?:\d|question|phase)", text, re.IGNORECASE)
    first = asked.filter(pl.col("turn") == 1)["text"].to_list()
    assert all(re.search(r"welcome|thank you for coming", t, re.IGNORECASE) for t in first)
    names = groups.read_table("personas")["name"].str.split(" ").list.first().to_list()
    drawn = asked.filter(pl.col("question") > 2)["text"].to_list()
    assert sum(any(n in t for n in names) for t in drawn) > 0.7 * len(drawn)


def test_intent_and_words_follow_the_position(groups: RunFolder) -> None:
    stated = groups.read_table("statements").filter(pl.col("when") == "after")
    intents = groups.read_table("intents").filter(pl.col("when") == "after")
    both = intents.join(stated, on=["group", "persona_id"])
    assert both.select(pl.corr("score", "position")).item() > 0.8
    # What is said after the material was shown is for it or against it as the speaker is.
    said = read_talk(groups).filter(
        (pl.col("speaker_role") == "participant") & (pl.col("phase") == "synthesis")
    )
    spoken = said.with_columns(
        pl.col("text")
        .map_elements(
            lambda text: sum(v.side for s in split_sentences(text) for v in sentence_views(s)),
            return_dtype=pl.Int64,
        )
        .alias("net")
    ).join(stated, left_on=["group", "speaker_id"], right_on=["group", "persona_id"])
    clear = spoken.filter((pl.col("position").abs() > 0.5) & (pl.col("net") != 0))
    agrees = ((clear["net"] > 0) == (clear["position"] > 0)).mean()
    # Some have moved again between their last words and the private question.
    assert clear.height > 20 and float(agrees or 0) > 0.85  # type: ignore[arg-type]


def column_share(table: pl.DataFrame, column: str) -> float:
    return float(table[column].sum()) / table.height


def test_the_disagreeable_disagree_more(groups: RunFolder) -> None:
    said = read_talk(groups).filter(pl.col("speaker_role") == "participant")
    who = groups.read_table("personas").select("group", "persona_id", "agreeableness")
    both = said.join(who, left_on=["group", "speaker_id"], right_on=["group", "persona_id"])
    both = both.with_columns(
        (pl.col("stance") == "disagree").fill_null(False).alias("no"),
        (pl.col("stance") == "agree").fill_null(False).alias("yes"),
    )
    low = both.filter(pl.col("agreeableness") < 40)
    high = both.filter(pl.col("agreeableness") >= 60)
    assert column_share(low, "no") > 1.5 * column_share(high, "no")
    assert column_share(high, "yes") > 1.3 * column_share(low, "yes")


def test_the_extraverted_say_more(groups: RunFolder) -> None:
    said = read_talk(groups).group_by(["group", "speaker_id"]).agg(pl.col("words").sum())
    who = groups.read_table("personas").select("group", "persona_id", "extraversion")
    both = said.join(who, left_on=["group", "speaker_id"], right_on=["group", "persona_id"])
    assert both.select(pl.corr("words", "extraversion")).item() > 0.6


def test_same_seed_same_words_another_seed_others(tmp_path: Path) -> None:
    short = "phases=[exploration, reaction]"
    first = run_example(tmp_path / "a", short, seed=3).text("transcript.md")
    assert first == run_example(tmp_path / "b", short, seed=3).text("transcript.md")
    assert first != run_example(tmp_path / "c", short, seed=4).text("transcript.md")


def measure_movement(run: RunFolder) -> float:
    """Return the mean absolute change of position."""
    stated = run.read_table("statements").pivot(
        "when", index=["group", "persona_id"], values="position"
    )
    return float((stated["after"] - stated["before"]).abs().mean() or 0)  # type: ignore[arg-type]


@pytest.mark.nightly(part="truths")
def test_a_short_history_reduces_the_change_of_positions(tmp_path: Path) -> None:
    """The respondent knows the others by their words alone: with one message in mind it hears
    less, and moves less."""
    full = measure_movement(run_example(tmp_path / "full", "replications=3", "coding=off"))
    deaf = measure_movement(
        run_example(tmp_path / "deaf", "replications=3", "coding=off", "context_messages=1")
    )
    assert deaf < 0.6 * full


@pytest.mark.nightly(part="alarms")
def test_the_check_catches_a_group_that_pleases(tmp_path: Path, groups: RunFolder) -> None:
    pleasing = run_example(
        tmp_path / "run", "replications=8", "coding=off", "respondent={sycophancy: 0.9}"
    )
    honest, pleased = (
        sycophancy.check_transcripts(
            [
                TranscriptFormatter.from_json(run.text(f"groups/group_{i:03d}/transcript.json"))
                for i in range(1, 9)
            ]
        )
        for run in (groups, pleasing)
    )
    assert pleased.disagree < 0.5 * honest.disagree
    assert honest.towards.value > 0
    assert pleased.converge_p < 0.01 and pleased.spread_after < 0.7 * honest.spread_after
    (found,) = (f for f in STUDY.findings(pleasing) if f.key == "sycophancy")
    assert "of the answers after the first one to each question disagree openly" in found.says
    assert any("p < .001" in note or "p = .00" in note for note in found.notes)
    # All follow the public statements, beyond the private positions of the others.
    assert pleased.towards.value < 0 and "closer to the others' first positions by −" in found.says


def test_references_concern_earlier_utterances_and_counts_are_right(groups: RunFolder) -> None:
    """References concern an earlier utterance, and "three of you" means three participants."""
    concerns = load_wordings()["concerns"]
    checked = 0
    for _, talk in read_talk(groups).group_by("group", maintain_order=True):
        rows = talk.to_dicts()
        for i, row in enumerate(rows):
            if row["stance"] and row["replied_to"] != "moderator":
                theirs = [r["text"] for r in rows[:i] if r["speaker_id"] == row["replied_to"]]
                about = {
                    v.concern for t in theirs for s in split_sentences(t) for v in sentence_views(s)
                }
                first = split_sentences(row["text"])[0]
                assert any(concerns[c]["matter"] in first for c in about), (first, theirs)
                checked += 1
            counted = re.search(
                r"(Three|Four|Five) of you have just spoken of ([\w ]+)\.", row["text"]
            )
            if counted:
                last = max(
                    j
                    for j in range(i)
                    if rows[j]["speaker_role"] == "moderator" and not rows[j]["probe"]
                )
                (concern,) = (c for c, of in concerns.items() if of["matter"] == counted[2])
                spoke = {
                    r["speaker_id"]
                    for r in rows[last:i]
                    if r["speaker_role"] == "participant"
                    and any(
                        v.concern == concern
                        for s in split_sentences(r["text"])
                        for v in sentence_views(s)
                    )
                }
                assert len(spoke) == {"Three": 3, "Four": 4, "Five": 5}[counted[1]], row["text"]
                checked += 1
    assert checked > 50


@pytest.mark.parametrize("side", ["pro", "con"])
def test_a_quoted_claim_is_not_the_view_of_the_speaker(side: str) -> None:
    for frame in load_wordings()["claims"][side]:
        for claim in ("No settings, no guessing", "It breaks and it is expensive"):
            found = {v.side for v in sentence_views(frame.format(claim=claim))}
            assert found == {1 if side == "pro" else -1}, frame


@pytest.mark.parametrize("kind", ["reasons", "privately"])
def test_every_reason_is_a_view_on_its_concern_and_side(kind: str) -> None:
    for concern, of in load_wordings()[kind].items():
        for side, frames in of.items():
            for frame in frames:
                said = frame.format(thing="the thing", price="20 dollars")
                assert FIRST_PERSON.search(said), said
                found = {(v.concern, v.side) for v in sentence_views(said)}
                assert found == {(concern, 1 if side == "pro" else -1)}, said


def test_the_conversation_is_about_the_users_own_product(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        "study: focus_group\nproduct_concept: A bus card for children\ncategory: public transport\n"
        "stimulus_material: 'Children ride free. No paper tickets. 20 euros a year.'\ncoding: off\n"
    )
    run = folkmoot.run(path, out=tmp_path / "run", model="synthetic").folder
    said = read_talk(run)
    text = " ".join(said["text"])
    assert "the card" in text and "public transport" in text and "20 euros" in text
    assert "“Children ride free”" in text
    assert not re.search(r"\boven|gadget|battery|warranty|apartment|redevelop", text, re.IGNORECASE)


def test_few_groups_are_an_illustration_and_never_told_from_chance(
    tmp_path: Path, groups: RunFolder
) -> None:
    ladder = ("price=300 dollars", "prices=[200 dollars]")
    small = ("replications=2", "coding=off", "num_personas=5", "phases=[reaction, synthesis]")
    few = run_example(tmp_path / "run", *small, "control=alone", *ladder)
    found = {f.key: f for f in STUDY.findings(few)}
    over = {"purchase_intent", "demand", "positions", "talk_time", "sycophancy"}
    assert {key for key, f in found.items() if f.unit == "group"} == over
    for key in over:
        finding = found[key]
        assert finding.says.startswith("An illustration, not evidence: 2 groups."), key
        assert "significant" not in finding.says and "gave in" not in finding.says
        assert re.search(r"\d %? ?\([−+\d.]+ to ", finding.says) is None, finding.says
        bounds = [i for i, c in enumerate(finding.grid.columns) if c in BOUND_COLUMNS]
        assert all(row[i] is None for row in finding.grid.rows for i in bounds)
    assert "not known to be inside the margin" in found["sycophancy"].says
    assert "Fewer than 5 groups are an illustration, not evidence." in few.text("topline.md")
    many = {f.key: f for f in STUDY.findings(groups)}
    assert {f.units for f in many.values() if f.unit} == {8}
    assert not [f for f in many.values() if "illustration" in f.says]
    assert " to " in many["purchase_intent"].says and " to " in many["talk_time"].says
    assert "illustration" not in groups.text("topline.md")


BOUND_COLUMNS = {"low", "high", "low_share", "high_share", "p", "holm_p", "adjusted_p"}


def test_only_what_participants_say_is_a_view() -> None:
    """Texts of the moderator and of the material are no views of a participant."""
    config = DiscussionConfig.model_validate(
        {"category": "chairs", "product_concept": "I find this chair comfortable and reliable"}
    )
    chair = DiscussionTexts(config, "g", "chair").concept
    said = [
        Utterance("p_1", "I like it, it is reliable.", "Ann", id="discussion/g/chair/warmup/q01"),
        Utterance(
            "moderator", "I should like to know more: is it good?", "Moderator",
            role="moderator", id="discussion/g/chair/warmup/q02",
        ),
        Utterance("p_2", "I doubt it.", "Bob", id="discussion/g/chair/warmup/q03"),
    ]  # fmt: skip
    bob = Speaker("p_2", "Bob")
    prompt = concatenate_texts(("I wonder how good you find this: ", chair), plain=None)
    messages, _, spans = build_messages(bob, Transcript(tuple(said)), prompt)
    hints = RespondentHints("participant", speaker="p_2", names=(("p_1", "Ann"), ("p_2", "Bob")))
    request = ModelRequest("synthetic", messages, hints=hints, spans=spans)
    model = Respondent(ProviderSettings(seed=1, study=StudyPart(PART, config)))
    heard = views_of_others(model.build_mind(read_prompt(request), "x"))
    assert [(h.name, h.sentence) for h in heard] == [("Ann", said[0].text)]
