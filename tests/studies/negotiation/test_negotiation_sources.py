"""Every text in the prompts of a negotiation has a source, and is what that source recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot.kit.exposure import FOREIGN_WORDS, describe_deviations
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.models.request import Completion, ModelRequest, ProviderSettings, StudyPart
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import concatenate_texts, quote_value
from folkmoot.respondent import Respondent
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation import STUDY
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import Negotiation
from folkmoot.studies.negotiation.quotes import list_preferences
from folkmoot.studies.negotiation.respondent import PART
from folkmoot.studies.negotiation.rules.strategies import TYPE_IDS
from tests.conftest import SharedFolder
from tests.helpers_provenance import assert_every_text_has_its_source, write_prompts_in_capitals
from tests.studies.negotiation.conftest import GROUPS
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

MEDIATION = import_module("folkmoot.studies.negotiation.mediation")
BALLOTS = import_module("folkmoot.studies.negotiation.ballots")
PROMPTS = Path(str(STUDY.prompts))
SMALL: Mapping[str, Any] = {
    "groups_per_type": 1,
    "group_types": ["family"],
    "sizes": {"family": {"parent": 1, "child": 2}},
    "random_seed": 2,
}
CONDITIONS = ("C1", "C2", "C3", "C4", "C5")
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    **{f"{condition} alone": {"conditions": [condition]} for condition in CONDITIONS},
    # C5 continues from C4, so that it needs all prompts of C4.
    "scores, reasons first": {
        "ballots": "scores",
        "field_order": "reason_first",
        "conditions": ["C3", "C5"],
    },
    "one day, one round": {"days": 1, "max_feedback_rounds": 1, "confirm": False},
    "feedback off, no coding": {"enable_feedback": False, "coding": "off"},
    "own groups": {
        "groups": GROUPS[:1],
        "group_types": None,
        "groups_per_type": None,
        "sizes": None,
    },
    "own sizes, weights and trip": {
        "sizes": {"family": {"parent": 1, "child": 5}},
        "weights": {"family": {"parent": 2}},
        "trip": {"org": "Bonn", "dest": "Rome", "budget": 900},
    },
    "own options": {
        "options": {"cuisine": ["Tapas bar", "Ramen/Udon", "Bistro"]},
        "conditions": ["C2", "C3", "C5"],
    },
}


DAILY = ("scores, reasons first", "own groups", "own options", "C2 alone")


def run_study(folder: Path, settings: Mapping[str, Any], **more: Any) -> RunFolder:
    raw = {key: value for key, value in {**SMALL, **settings}.items() if value is not None}
    return folkmoot.run(STUDY, raw, out=folder / "run", **(more or {"model": "synthetic"})).folder


@pytest.fixture(scope="session")
def all_types(shared_folder: SharedFolder) -> RunFolder:
    """One group of each type under all conditions, with codes."""

    def make(folder: Path) -> None:
        run_study(folder, {"group_types": TYPE_IDS})

    return folkmoot.load(shared_folder("negotiation/all_types", make) / "run").folder


def assert_sources(run: RunFolder) -> None:
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    assert run.read_table("provenance")["kind"].n_unique() >= 4


@pytest.mark.nightly(part="sweeps")
def test_every_text_has_its_source_in_groups_of_all_types(all_types: RunFolder) -> None:
    assert_sources(all_types)


@pytest.mark.parametrize("name", sample_daily(VARIANTS, DAILY, part="mutations"))
def test_every_text_in_a_prompt_is_what_its_source_recorded(name: str, tmp_path: Path) -> None:
    assert_sources(run_study(tmp_path, VARIANTS[name]))


def test_texts_that_custom_prompts_change_keep_their_source(tmp_path: Path) -> None:
    """Texts in capitals, in tables and in another order keep their sources."""
    names = {"member.text", "line.text", "option", "outcome", "share.who", "persona"}
    prompts = write_prompts_in_capitals(tmp_path / "own", STUDY, names)
    run = run_study(tmp_path, {"prompts": prompts, "conditions": ["C2", "C3", "C5"]})
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    altered = run.read_table("provenance").filter("altered")
    assert {"utterance", "option", "persona", "value"} <= set(altered["kind"])


# --- invalid replies ------------------------------------------------------------------------------


def spoil_replies(
    spoil: Callable[[ModelRequest, str, str], str | None], **settings: Any
) -> dict[str, Any]:
    """Return options of a run in which `spoil` replaces replies of the embedded respondent."""
    config = NegotiationConfig.model_validate({**SMALL, **settings})
    inner = Respondent(ProviderSettings(seed=2, study=StudyPart(PART, config)))

    def answer(request: ModelRequest, address: str) -> Completion:
        reply = inner.reply(request, address)
        text = spoil(request, address, reply.text)
        return reply if text is None else reply._replace(text=text)

    return {"provider": ScriptedProvider(answer), "model": "scripted/test"}


def with_fields(text: str, **fields: Any) -> str:
    return json.dumps({**json.loads(text), **fields})


def schema_title(request: ModelRequest) -> str:
    return str((request.schema or {}).get("title", ""))


def test_every_text_has_its_source_after_reasks_and_new_options(tmp_path: Path) -> None:
    """A re-ask quotes the problem, and members score options that come up late."""
    castle = {"option": "none_of_these", "new_option": "castle tour", "members": ["everyone"]}

    def spoil(request: ModelRequest, address: str, text: str) -> str | None:
        first = len(request.messages) < 4
        match schema_title(request):
            case "PlainSynthesis" if first:
                return with_fields(
                    text, conflict_description="The majority rule decides, or a veto."
                )
            case "PlainSynthesis" if "/attraction/" in address:
                return with_fields(text, decision=[castle])
            case "GuidedSynthesis" if first:
                return with_fields(
                    text, decision=[{"option": "a unicorn", "members": ["Nobody 9"]}]
                )
            case "BallotForm" if "traveler_1" in address:
                return with_fields(
                    text, top_choice="none_of_these", new_option="picnic", hard_no=[]
                )
            case "BallotForm" if first:
                return with_fields(text, acceptable=["a unicorn"])
            case "OwnScores" if first and "/event/" in address:
                return with_fields(text, scores=[])
            case "FeedbackReply" if first:
                return with_fields(text, hard_no=["a unicorn"], resolved=False)
        return None

    run = run_study(tmp_path, {"conditions": ["C2", "C3", "C4", "C5"]}, **spoil_replies(spoil))
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    assert {"theory", "unmatched"} <= set(run.read_table("decisions")["asked_again"].drop_nulls())
    late = run.read_table("options").filter(condition="all", usual=False)["option"].to_list()
    named = run.read_table("options")["option"].to_list()
    assert "castle tour" in named and "castle tour" not in late
    again = run.read_table("provenance").filter(kind="reply")
    assert again.height and set(again["speaker"]) >= {"system", "traveler_2"}


def test_every_text_has_its_source_after_declined_and_unreadable_replies(
    tmp_path: Path,
) -> None:
    def spoil(request: ModelRequest, address: str, text: str) -> str | None:
        if address.startswith("preferences/") and "traveler_1/cuisine" in address:
            return ""
        if "Synthesis" in schema_title(request) and "/event/" in address:
            return "No idea."
        if "Synthesis" in schema_title(request) and "/house_rule/" in address:
            return '{"declined": true}'
        return "{" if schema_title(request) == "BallotForm" and "traveler_2" in address else None

    run = run_study(tmp_path, {"conditions": ["C2", "C3", "C5"]}, **spoil_replies(spoil))
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    assert run.read_table("decisions")["parse_error"].any()
    assert run.read_table("preferences")["missing"].drop_nulls().len() == 1


def test_a_line_of_c3_with_a_word_of_theory_is_shown_in_our_words(tmp_path: Path) -> None:
    def spoil(request: ModelRequest, address: str, text: str) -> str | None:
        if schema_title(request) != "PlainSynthesis":
            return None
        dialogue = [{"speaker": "System", "text": "By majority rule it is so."}]
        return with_fields(text, dialogue=[*dialogue, *json.loads(text)["dialogue"][1:]])

    run = run_study(tmp_path, {"conditions": ["C3"]}, **spoil_replies(spoil))
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    spans = run.read_table("provenance")
    shown = spans.filter(spans["address"].str.contains("/confirm/"))
    assert shown["source_id"].str.starts_with("decisions.resolution_text/").any()


# --- what is said is recorded ---------------------------------------------------------------------


def test_every_utterance_is_recorded_once_with_its_reply(tmp_path: Path) -> None:
    run = run_study(tmp_path, {})
    said, answers = run.read_table("utterances"), run.read_table("answers")
    assert said["utterance_id"].is_unique().all()
    assert set(said.filter(said["address"] != "")["address"]) <= set(answers["address"])
    stated = said.filter(phase="preference")
    assert stated.height == run.read_table("preferences").height
    assert set(stated["condition"]) == {"all"} and (stated["author"] == stated["speaker_id"]).all()
    # The mediator writes the responses of members. Texts rendered from data have no author.
    responses = said.filter(said["intent"].str.starts_with("user_respond"))
    assert set(responses["author"]) == {"system"} and "system" not in set(responses["speaker_id"])
    asked = dict(answers.select("address", "speaker_id").iter_rows())
    assert {asked[address] for address in responses["address"]} == {"system"}
    votes = said.filter(said["intent"].str.starts_with("user_vote"))
    assert [asked[address] for address in votes["address"]] == votes["speaker_id"].to_list()


# --- planted mistakes -----------------------------------------------------------------------------


def test_a_leak_through_plain_text_is_counted_and_no_source_is_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: a private answer of a member reaches the mediator in a plain string."""
    leak = "Asked alone, Parent 1 gave the museums a 4."

    def leaking(case: Negotiation, topic: Any) -> list[dict[str, str]]:
        first, *others = list_preferences(case, topic)
        return [{**first, "text": concatenate_texts((first["text"], f" {leak}"))}, *others]

    monkeypatch.setattr(MEDIATION, "list_preferences", leaking)
    run = run_study(tmp_path, {"conditions": ["C3", "C4"]})
    counted = count_unattributed_characters(run)
    synthesis = run.read_table("answers").filter(role="moderator")
    assert set(counted) == set(synthesis["address"])
    assert all(characters == len(leak) + 1 for characters in counted.values())
    assert find_wrong_sources(run, STUDY.tables) == []


def test_a_wrong_source_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the label of a topic is quoted as the question to members."""
    right = BALLOTS.quote_topic

    def wrong(topic: Any, column: str) -> str:
        text: str = right(topic, column)
        return quote_value(str(text), "material", f"topics.question/{topic.id}")

    monkeypatch.setattr(BALLOTS, "quote_topic", wrong)
    run = run_study(tmp_path, {"conditions": ["C2"]})
    found = find_wrong_sources(run, STUDY.tables)
    assert {w.source_id.partition("/")[0] for w in found} == {"topics.question"}
    labels = set(run.read_table("topics")["label"])
    assert {w.text for w in found} == labels and {w.recorded for w in found} == {
        (question,) for question in run.read_table("topics")["question"]
    }


def test_a_short_line_of_another_decision_that_leaks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: the mediator sees a member's "No." on another decision."""
    short = {"cuisine": "No."}
    pair = {"id": "pair", "type": "spouses"}
    members = [{**m, "preferences": {**m["preferences"], **short}} for m in GROUPS[3]["members"]]
    settings = {
        "groups": [{**pair, "members": members}],
        "conditions": ["C3", "C4"],
        **dict.fromkeys(("group_types", "groups_per_type", "sizes")),
    }
    assert describe_deviations(run_study(tmp_path / "right", settings)) == []

    def leaking(case: Negotiation, topic: Any) -> list[dict[str, str]]:
        rows = list_preferences(case, topic)
        line = case.stated["cuisine"]["traveler_1"]
        return [*rows, {**rows[0], "text": line.quoted_text}] if topic.id == "attraction" else rows

    monkeypatch.setattr(MEDIATION, "list_preferences", leaking)
    run = run_study(tmp_path / "wrong", settings)
    found = run.read_table("exposure").filter(kind=FOREIGN_WORDS)
    said = dict(run.read_table("utterances").select("utterance_id", "text").iter_rows())
    assert {said[id] for ids in found["text_ids"] for id in json.loads(ids)} == {"No."}
    shown = found.select("condition", "decision").unique().sort("condition").rows()
    assert shown == [("C3", "proposal"), ("C4", "proposal")]
    assert all("/attraction/" in address for address in found["address"])
    assert any(FOREIGN_WORDS in line for line in describe_deviations(run))
