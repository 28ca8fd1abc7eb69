"""Every text in the prompts of a focus group has a source and equals the recorded text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.conversation.transcript import Transcript
from folkmoot.kit.exposure import FOREIGN_WORDS, MISATTRIBUTED_WORDS, describe_deviations
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.models.request import Completion, ModelRequest, ProviderSettings, StudyPart
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import quote_value
from folkmoot.respondent import Respondent
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY, participants
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import DiscussionMessage
from folkmoot.studies.focus_group.protocol import run_protocol
from folkmoot.studies.focus_group.respondent import PART
from folkmoot.studies.focus_group.texts import DiscussionTexts
from tests.helpers_provenance import assert_every_text_has_its_source, write_prompts_in_capitals
from tests.studies.focus_group.at_hand import draw_profiles
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

PROFILES = Path(__file__).parents[3] / "examples" / "focus_group_profiles.csv"
SMALL_SETTINGS: Mapping[str, Any] = {
    "product_concept": "An oven that scans ready meals and cooks them by itself",
    "category": "kitchen appliances",
    "stimulus_material": "Meet the oven that reads. It is simple and quick. 299 dollars.",
    "num_personas": 3,
    "phases": ["exploration", "reaction", "synthesis"],
    "random_seed": 2,
}
TWO_CONCEPTS = {
    "product_concept": None,
    "stimuli": [
        {"name": "oven", "product_concept": "An oven that reads", "price": "299 dollars"},
        {
            "name": "box",
            "product_concept": "A box that cooks",
            "category": "lunch boxes",
            "stimulus_material": "The box is light and easy to clean.",
        },
    ],
    "price": "150 dollars",
    "replications": 2,
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"phases": ["warmup", "exploration", "deep_dive", "reaction", "synthesis"]},
    "no material, two people": {"stimulus_material": None, "num_personas": 2},
    "two concepts in two groups": TWO_CONCEPTS,
    "a price ladder": {"price": "299 dollars", "prices": ["199 dollars", 249]},
    "interviews alone": {"control": "alone", "prices": ["99 dollars", "399 dollars"]},
    "random order, little heard": {"control": "order", "context_messages": 2},
    "seeded opinions": {"first_opinion": "seeded", "appeal": 0.3},
    "a guide of the researcher's": {
        "guide": {
            "exploration": {"questions": ["What is it for?", "Who needs it?"], "probes": ["Why?"]},
            "synthesis": ["Would you buy it?"],
        },
        "num_personas": 6,
    },
    "tone by the model": {"sentiment": "model", "questions_per_phase": 4, "num_personas": 8},
    "profiles": {"personas": str(PROFILES)},
}


DAILY = (
    *("plain", "two concepts in two groups", "interviews alone", "seeded opinions"),
    *("a guide of the researcher's", "tone by the model"),
)


def run_small_study(folder: Path, settings: Mapping[str, Any], **more: Any) -> RunFolder:
    raw = {key: value for key, value in {**SMALL_SETTINGS, **settings}.items() if value is not None}
    return folkmoot.run(STUDY, raw, out=folder / "run", **(more or {"model": "synthetic"})).folder


@pytest.mark.parametrize("name", sample_daily(VARIANTS, DAILY, part="mutations"))
def test_every_text_in_a_prompt_is_what_its_source_recorded(name: str, tmp_path: Path) -> None:
    run = run_small_study(tmp_path, VARIANTS[name])
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    assert run.read_table("provenance")["kind"].n_unique() >= 5


def test_so_it_is_with_prompts_of_ones_own_that_change_texts(tmp_path: Path) -> None:
    """Texts that a template changes to capitals or puts into a table keep their source."""
    own = write_prompts_in_capitals(tmp_path / "own", STUDY)
    run = run_small_study(tmp_path, {**TWO_CONCEPTS, "control": "alone", "prompts": own})
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    altered = set(run.read_table("provenance").filter("altered")["kind"])
    assert {"utterance", "persona", "material"} <= altered


def test_sources_are_right_without_a_usable_plan_question_or_opinion(tmp_path: Path) -> None:
    settings = {"num_personas": 4, "questions_per_phase": 3, "control": "alone"}
    config = DiscussionConfig.model_validate({**SMALL_SETTINGS, **settings})
    inner = Respondent(ProviderSettings(seed=2, study=StudyPart(PART, config)))

    def spoil(request: ModelRequest, address: str) -> Completion:
        reply = inner.reply(request, address)
        if "guide/exploration/ask0" in address or "q02/moderator/ask0" in address:
            return reply._replace(text='{"declined": true}')
        if "guide/synthesis/ask0" in address:
            return reply._replace(text='{"questions": ["1. Well?", "1. Well?"]}')
        if "/p_0001/opinion/ask0" in address:
            return reply._replace(text='{"opinion": "Who knows?", "position": null}')
        return reply

    run = run_small_study(tmp_path, settings, provider=ScriptedProvider(spoil))
    assert_every_text_has_its_source(run, STUDY)
    said = run.read_table("utterances")
    guide = said.filter(pl.col("turn").is_null() & pl.col("persona_id").is_null())
    assert guide.filter(pl.col("address") == "")["text"].len() == 3 + 2  # packaged questions
    assert "Well?" in guide.filter(phase="synthesis")["text"].to_list()


def test_what_is_said_is_recorded_with_the_reply_that_it_comes_from(tmp_path: Path) -> None:
    run = run_small_study(tmp_path, {"control": "alone"})
    said, answers = run.read_table("utterances"), set(run.read_table("answers")["address"])
    assert said["utterance_id"].is_unique().all()
    assert set(said.filter(pl.col("address") != "")["address"]) <= answers
    talk, interviews = (
        said.filter("public"),
        said.filter(~pl.col("public") & ~pl.col("turn").is_null()),
    )
    assert talk["turn"].to_list() == [*range(1, talk.height + 1)]
    assert talk["persona_id"].is_null().all() and interviews["persona_id"].is_not_null().all()
    # The interviewer asks in the guide's own words, which come from no reply.
    assert set(interviews.filter(speaker_role="moderator")["address"]) == {""}
    stated = run.read_table("statements").join(said, on="utterance_id")
    assert stated.height == run.read_table("statements").height
    assert (stated["words"] == stated["text"]).all() and not stated["public"].any()


def test_sources_are_right_in_a_discussion_run_from_python(tmp_path: Path) -> None:
    """A simulator invites its own people and holds the study's protocol."""
    invited = replace(STUDY, protocol=partial(run_protocol, invited=draw_profiles(2, 3)))
    run = folkmoot.run(
        invited, dict(SMALL_SETTINGS), out=tmp_path / "run", model="synthetic"
    ).folder
    assert_every_text_has_its_source(run, STUDY)


# --- planted mistakes -----------------------------------------------------------------------------


def test_a_leak_through_plain_text_is_counted_and_no_source_is_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: a string without a source shows a private opinion to all participants."""
    leak = "In private Ann said that it is a gimmick."
    right = DiscussionTexts.concept.fget
    assert right is not None
    monkeypatch.setattr(DiscussionTexts, "concept", property(lambda self: f"{right(self)}. {leak}"))
    run = run_small_study(tmp_path, {})
    counted = count_unattributed_characters(run)
    shown = run.read_table("answers").filter(role="participant")["address"]
    assert set(shown) <= set(counted)
    assert all(counted[address] >= len(leak) for address in shown)


def test_a_wrong_source_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Miswired: the material is quoted as the text of the price."""
    monkeypatch.setattr(
        DiscussionTexts,
        "material",
        property(
            lambda texts: quote_value(
                texts.config.stimulus_material, "material", f"concepts.price/{texts.stimulus}"
            )
        ),
    )
    run = run_small_study(tmp_path, {"price": "299 dollars"})
    (wrong,) = find_wrong_sources(run, STUDY.tables)
    assert wrong.source_id == "concepts.price/concept"
    assert wrong.text == SMALL_SETTINGS["stimulus_material"] and wrong.recorded == ("299 dollars",)
    assert any("material: required by the design" in said for said in describe_deviations(run))


def test_the_words_of_another_group_and_of_another_concept_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: participants also read utterances of the previous conversation."""
    right, before = participants.recent_transcript, list[DiscussionMessage]()

    def wrong(context: Sequence[DiscussionMessage], last: int) -> Transcript:
        heard = right([*before[-1:], *context], last + 1)
        before.extend(m for m in context if m.by_participant and m not in before)
        return heard

    monkeypatch.setattr(participants, "recent_transcript", wrong)
    run = run_small_study(tmp_path, TWO_CONCEPTS)
    found = run.read_table("exposure").filter(kind=FOREIGN_WORDS)
    ids = {id for ids in found["text_ids"] for id in ids.strip("[]").replace('"', "").split(", ")}
    assert ids <= set(run.read_table("utterances")["utterance_id"]) and ids
    assert any(FOREIGN_WORDS in said for said in describe_deviations(run))


def test_words_under_another_name_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: an utterance is attributed to another participant after it was recorded."""
    utterance = DiscussionMessage.as_utterance.fget
    assert utterance is not None

    def wrong(message: DiscussionMessage) -> Any:
        said = utterance(message)
        return said._replace(speaker_id="p_0002") if said.speaker_id == "p_0001" else said

    monkeypatch.setattr(DiscussionMessage, "as_utterance", property(wrong))
    run = run_small_study(tmp_path, {})
    assert any(MISATTRIBUTED_WORDS in said for said in describe_deviations(run))
