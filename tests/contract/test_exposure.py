"""The prompts of every study type contain the texts of its design. Deviations are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import folkmoot
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Transcript
from folkmoot.engine.study.study import find_study, registered_studies
from folkmoot.kit.exposure import FOREIGN_WORDS, describe_deviations
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.cross_pollination import voting
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import Participant
from folkmoot.studies.focus_group import participants as focus_group
from tests.contract.small import EXAMPLES, people_of, small_study
from tests.sweeps import sample_daily

# Study → the kinds that its decisions are checked for.
KINDS = {
    "cross_pollination": {"summaries", "interview", "dialogue"},
    "focus_group": {"material", "others' statements", "own words"},
    "negotiation": {"preferences", "strategy", "own words"},
    "town_hall": {"life story", "others' statements", "own words", "proposals"},
    "workbook": {"treatment", "others' words"},
}
# A prompt of one's own that leaves something out, and what is then said.
OMITTED_TEXTS = {
    "cross_pollination": (
        *("final_vote_after_summary", "{{ cross_pollination_content }}"),
        "clarified_passive, final vote: summaries: required by the design, missing from 6 of 6",
    ),
    "focus_group": (
        *("purchase_intent", "{{ stimulus }}"),
        "intent before: material: required by the design, missing from",
    ),
    "negotiation": (
        *("ballot", "{{ preference }}"),
        "C4, ballot: own words: required by the design, missing from",
    ),
    "town_hall": (
        *("shared_vote", "{{ s.text }}"),
        "1, vote: others' statements: required by the design, missing from",
    ),
    "workbook": (
        *("system", "{{ treatment }}"),
        "treatment: required by the design, missing from",
    ),
}


def test_every_study_type_says_what_its_decisions_see() -> None:
    assert set(KINDS) == set(OMITTED_TEXTS) == set(registered_studies())
    assert all("exposure" in {row.table for row in find_study(name).tables} for name in KINDS)


# How models write: markdown, lists, quotes, entities, odd breaks and spaces, other languages.
WRITING_STYLES = (
    "**{0}**\n\n- first, I'd say: “{0}”\n- second… well\n\n1. *No!* 2. Yes.",
    "```\n{0}\n```\u2028And {{{{ x }}}} & <b>{0}</b>\r\n\there\u00a0now; “what?” – she asked me.",
    "Ich meine: {0} Das wäre schön! 我觉得很好。我们应该这样做。 Ça va?",
    '{0} (it is 3.5 % of $1,000… e.g. this) Mr. O\'Brien said "{0}" to me.',
)


def write_like_a_model(study: str) -> ScriptedProvider:
    """Return a model with the embedded respondent's replies in the writing styles of models."""

    def formed(said: object, key: str = "") -> object:
        if isinstance(said, dict):
            return {k: formed(v, k) for k, v in said.items()}
        if isinstance(said, list):
            return [formed(v, key) for v in said]
        if not isinstance(said, str) or len(said.split()) < 7 or key in ("option", "quote"):
            return said
        return WRITING_STYLES[len(said) % len(WRITING_STYLES)].format(said)

    def reply(request: ModelRequest, address: str) -> Completion:
        reply = people_of(study).reply(request, address)
        if request.schema and reply.text.startswith("{"):
            return reply._replace(text=json.dumps(formed(json.loads(reply.text))))
        asked_for_words = request.hints.kind not in ("choice", "number")
        return reply._replace(text=str(formed(reply.text))) if asked_for_words else reply

    return ScriptedProvider(reply)


# Daily one type. `test_cross_pollination_sources` plays a second type with the same model daily.
# Tests of sources (`test_…_sources`) ask the same of a plain run of each type.
@pytest.mark.parametrize("study", sample_daily(KINDS, daily=("focus_group",), part="alarms"))
def test_prompts_contain_the_texts_of_the_design(study: str, tmp_path: Path) -> None:
    """Each prompt contains the texts of the design in full, in every writing style of models."""
    done = folkmoot.run(
        small_study(study, tmp_path), provider=write_like_a_model(study), out=tmp_path / "run"
    )
    assert describe_deviations(done.folder) == []
    table = done.table("exposure")
    stood = table.filter(table["expected"] & (table["texts"] > 0))
    assert set(stood["kind"]) >= KINDS[study]
    assert FOREIGN_WORDS not in set(table["kind"])
    (finding,) = (f for f in done.findings if f.key == "exposure")
    assert not finding.alarms and not finding.headline


@pytest.mark.nightly(part="scale")
@pytest.mark.parametrize(
    "example", [*(f"{name}.yaml" for name in KINDS if name != "workbook"), "public_goods.xlsx"]
)
def test_prompts_of_full_size_examples_contain_the_texts_of_the_design(
    example: str, tmp_path: Path
) -> None:
    done = folkmoot.run(EXAMPLES / example, model="synthetic", out=tmp_path / "run")
    assert describe_deviations(done.folder) == []
    assert FOREIGN_WORDS not in set(done.table("exposure")["kind"])


@pytest.mark.parametrize(
    "study", sample_daily(OMITTED_TEXTS, daily=("town_hall", "workbook"), part="alarms")
)
def test_a_prompt_that_leaves_something_out_is_caught(study: str, tmp_path: Path) -> None:
    name, variable, told = OMITTED_TEXTS[study]
    shipped = find_study(study).prompts
    assert shipped is not None
    words = (shipped / f"{name}.md").read_text("utf-8")
    own = tmp_path / "own"
    own.mkdir()
    (own / f"{name}.md").write_text(words.replace(variable, "…"), "utf-8")
    done = folkmoot.run(
        small_study(study, tmp_path / "study"),
        model="synthetic",
        out=tmp_path / "run",
        overrides=(f"prompts={own}",),
    )
    (finding,) = (f for f in done.findings if f.key == "exposure")
    assert any(told in alarm for alarm in finding.alarms)
    assert finding.headline


# Possible mistakes in the code, and the message that reports each.
def show_previous_interview(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each participant votes with the interview of the previous participant."""
    right, seen = voting._interview_shown_in_final_vote, [EMPTY_TRANSCRIPT]

    def show_previous(config: CrossPollinationConfig, participant: Participant) -> Transcript:
        seen.append(right(config, participant))
        return seen[-2]

    monkeypatch.setattr(voting, "_interview_shown_in_final_vote", show_previous)


def show_last_utterances(monkeypatch: pytest.MonkeyPatch) -> None:
    """A participant is shown only the last four utterances of a discussion."""
    right = focus_group.recent_transcript
    monkeypatch.setattr(
        focus_group, "recent_transcript", lambda said, last: right(said, min(last, 4))
    )


MISWIRED = {
    "cross_pollination": (show_previous_interview, "words from elsewhere: excluded by the design"),
    "focus_group": (show_last_utterances, "others' statements: required by the design in full"),
}


@pytest.mark.parametrize("study", MISWIRED)
def test_code_that_shows_other_texts_than_the_design_is_caught(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    miswire, told = MISWIRED[study]
    miswire(monkeypatch)
    done = folkmoot.run(small_study(study, tmp_path), model="synthetic", out=tmp_path / "run")
    assert any(told in alarm for alarm in describe_deviations(done.folder))
