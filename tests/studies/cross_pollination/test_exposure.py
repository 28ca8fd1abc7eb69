"""The texts that each condition is shown before the final vote, read from the sent requests."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from folkmoot.conversation.transcript import Transcript
from folkmoot.engine.session.session import Scope
from folkmoot.kit.exposure import MISATTRIBUTED_WORDS, describe_deviations
from folkmoot.models.request import ModelRequest
from folkmoot.studies.cross_pollination import voting
from tests.shown import render_run_text
from tests.studies.cross_pollination.test_protocol import (
    Cast,
    join_messages,
    number,
    read_participants,
    run_scripted,
)

SWITCHES = ("summaries", "interview", "dialogue")
COMBINATIONS = {
    "with_" + ("_".join(s for s, on in zip(SWITCHES, given, strict=True) if on) or "nothing"): dict(
        zip(SWITCHES, given, strict=True)
    )
    for given in product((False, True), repeat=3)
}
SOURCE_CONDITIONS = {
    "simple_voting": (),
    "simple_passive": ("summaries",),
    "clarified_passive": ("summaries", "interview"),
    "acp": SWITCHES,
}
OWN_CONDITIONS = {"exposure": COMBINATIONS, "revote": True, "participants_per_condition": 2}


class Talkers(Cast):
    """A model that gives each utterance a unique text, so that tests find it in prompts."""

    def usual(self, request: ModelRequest, address: str) -> str:
        said = super().usual(request, address)
        if said in ("SATISFIED",) or "ONLY the exact" in request.messages[-1].content:
            return said
        place = address.replace("/", " ").replace("%20", " ").lower()
        return f"These are the very words that were given at {place}. There was no more to say."


def list_shown_kinds(done: Any, decision: str = "final vote") -> dict[str, set[str]]:
    """Return the kinds in the prompts of each condition: each in all prompts or in none."""
    table = done.table("exposure").filter(decision=decision)
    found: dict[str, set[str]] = {c: set() for c in table["condition"]}
    for (condition, kind), rows in table.group_by("condition", "kind"):
        assert len(set(rows["texts"])) == 1
        if rows["texts"][0]:
            found[str(condition)].add(str(kind))
    return found


def test_every_combination_of_switches_is_in_the_prompts_as_it_is_named(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Talkers(), **OWN_CONDITIONS)
    own = {name: {s for s, on in shown.items() if on} for name, shown in COMBINATIONS.items()}
    assert list_shown_kinds(done) == {
        **{c: set(kinds) for c, kinds in SOURCE_CONDITIONS.items()},
        **own,
    }
    assert list_shown_kinds(done, "first vote") == {c: set() for c in (*SOURCE_CONDITIONS, *own)}
    assert describe_deviations(done.folder) == []


def test_each_named_condition_sees_one_thing_more_than_the_one_before(tmp_path: Path) -> None:
    cast = Talkers()
    done = run_scripted(tmp_path, cast, revote=True)
    last = {
        a.split("/")[1]: r
        for a, r in cast.requests.items()
        if "ONLY the exact" in r.messages[-1].content
    }
    for condition, kinds in SOURCE_CONDITIONS.items():
        for p in read_participants(done, condition):
            prompt = join_messages(last[p["participant_id"]])
            page = read_participants(done, "acp")[0]["cross_pollination_content"]
            assert (page in prompt) is ("summaries" in kinds)
            for key, kind in (
                ("clarification_transcript", "interview"),
                ("adversarial_transcript", "dialogue"),
            ):
                said = [t["content"] for t in p[key] or ()]
                assert all(words in prompt for words in said)
                assert bool(said) is (kind in kinds)


def test_two_swapped_speakers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(said: Transcript) -> Transcript:
        other = {"moderator": "participant", "participant": "moderator"}
        ids = {u.role: u.speaker_id for u in said}
        who = ((u, other[u.role]) for u in said)
        return Transcript(tuple(u._replace(role=r, speaker_id=ids[r]) for u, r in who))

    interview, prompt = voting._interview_shown_in_final_vote, Scope.prompt
    monkeypatch.setattr(
        voting, "_interview_shown_in_final_vote", lambda *of: turned(interview(*of))
    )

    def swapped(self: Scope, name: str, **given: Any) -> str:
        if name == "final_vote_after_dialogue":
            given["dialogue"] = turned(given["dialogue"])
        return prompt(self, name, **given)

    monkeypatch.setattr(Scope, "prompt", swapped)
    done = run_scripted(tmp_path, Talkers())
    wrong = done.table("exposure").filter(pl.col("texts") > 0, kind=MISATTRIBUTED_WORDS)
    assert wrong["condition"].unique(maintain_order=True).to_list() == ["clarified_passive", "acp"]
    assert any(
        "acp, final vote: " + MISATTRIBUTED_WORDS in d for d in describe_deviations(done.folder)
    )


def test_the_sources_prompts_hold_the_summaries_or_the_dialogue_alone(tmp_path: Path) -> None:
    cast = Talkers()
    done = run_scripted(tmp_path, cast, exposure="source")
    assert list_shown_kinds(done) == {
        "simple_passive": {"summaries"},
        "clarified_passive": {"summaries"},
        "acp": {"dialogue"},
    }
    assert describe_deviations(done.folder) == []
    # The moderator of the dialogue knows what was shown, as in the source.
    acp = read_participants(done, "acp")[0]
    opening = cast.requests[f"adversarial_dialogue/{acp['participant_id']}/ask0"]
    assert acp["cross_pollination_content"] in join_messages(opening)
    # Two conditions under two names: but for who they are, their prompts are the same.
    readers = {c: read_participants(done, c)[0] for c in ("simple_passive", "clarified_passive")}
    prompts = {
        join_messages(cast.requests[f"cross_pollination/{p['participant_id']}/ask0"])
        .replace(p["enriched_persona"], "")
        .replace(f'"{p["initial_choice"]}"', "")
        for p in readers.values()
    }
    assert len(prompts) == 1


def test_without_an_interview_the_opposing_view_is_the_most_voted_other(tmp_path: Path) -> None:
    def split(_request: ModelRequest, address: str) -> str:
        from_three = ("Park improvements", "Job training", "Street safety")
        return from_three[(0, 0, 0, 1, 1, 2)[number(address) % 6]]

    arms = {"exposure": {"argued": {"dialogue": True}}, "conditions": ["argued", "acp"]}
    mapping = {"Park improvements": "Street safety", "Job training": "Street safety"}
    done = run_scripted(
        tmp_path,
        Talkers(initial_vote=split),
        opposition_method="predefined",
        opposition_mapping={**mapping, "Street safety": "Job training"},
        **arms,
    )
    for p in read_participants(done, "argued"):
        parks = p["initial_choice"] == "Park improvements"
        assert p["opposition_view"] == ("Job training" if parks else "Park improvements")
        assert p["final_choice"] is not None
    for p in read_participants(done, "acp"):
        assert (
            p["opposition_view"]
            == {**mapping, "Street safety": "Job training"}[p["initial_choice"]]
        )


def test_a_moderator_whose_participant_has_read_nothing_claims_nothing(tmp_path: Path) -> None:
    cast = Talkers()
    done = run_scripted(
        tmp_path, cast, exposure={"argued": {"dialogue": True}}, conditions=["acp", "argued"]
    )
    opening = {
        c: join_messages(
            cast.requests[
                f"adversarial_dialogue/{read_participants(done, c)[0]['participant_id']}/ask0"
            ]
        )
        for c in ("acp", "argued")
    }
    assert "was shown" in opening["acp"] and "##" in opening["acp"]
    assert "was shown" not in opening["argued"] and "##" not in opening["argued"]
    assert "other perspectives above" not in opening["argued"]


def test_a_run_without_interviews_or_readers_is_of_use(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Talkers(), conditions=["simple_voting"], revote=True)
    assert not done.unusable
    assert {f.key for f in done.findings} >= {"position_change", "exposure"}
    argued = run_scripted(
        tmp_path / "argued", Talkers(), exposure={"a": {"dialogue": True}}, conditions=["a"]
    )
    assert not argued.unusable and list_shown_kinds(argued) == {"a": {"dialogue"}}


def test_show_tells_the_kinds_of_text_in_the_prompt_of_the_final_vote(tmp_path: Path) -> None:
    own = run_scripted(tmp_path / "own", Talkers())
    source = run_scripted(tmp_path / "source", Talkers(), exposure="source")
    for done, kinds in ((own, ("interview", "summaries", "dialogue")), (source, ("dialogue",))):
        p = read_participants(done, "acp")[0]
        final = render_run_text(done.folder, p["participant_id"]).split("final vote: ")[1]
        held = final.split("in the prompt: ")[1].splitlines()[0]
        assert all(kind in held for kind in kinds)
        assert ("summaries" in held) is ("summaries" in kinds)
        simple = read_participants(done, "simple_voting")[0]["participant_id"]
        assert "in the prompt: none of the texts" in render_run_text(done.folder, simple)
    (own.path / "tables" / "exposure.parquet").unlink()  # a run of an earlier version
    assert "in the prompt" not in render_run_text(
        own.folder, read_participants(own, "acp")[0]["participant_id"]
    )
