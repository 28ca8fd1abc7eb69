"""One scripted discussion. The comments compute its measures by hand.

Five residents: A01, A02, A03 general, A04, A05 vulnerable; three rounds; separate sessions. Public
references (speaker → target: type), with levels disagree 1, question 2, cite 3, agree 4,
partial_agree 4:

    round 2   A01 → A04 agree (4)              A02 → A04 disagree (1)      A03 → A05 cite (3)
              A04 → A01 partial_agree (4)      A05 → A01 question (2), then agree (4): highest, 4
    round 3   A01 → A05 question (2)           A02 → A01 disagree (1)      A03 → A04 agree (4)
              A04 → A05 agree (4)              A05 → no one
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from folkmoot import Run
from folkmoot.models.request import ModelRequest

from .hall_script import CallKey, answer_plainly, make_model, make_reflection, run_hall, small_hall

REFERENCES = {
    (2, "A01"): [("A04", "agree")],
    (2, "A02"): [("A04", "disagree")],
    (2, "A03"): [("A05", "cite")],
    (2, "A04"): [("A01", "partial_agree")],
    (2, "A05"): [("A01", "question"), ("A01", "agree")],
    (3, "A01"): [("A05", "question")],
    (3, "A02"): [("A01", "disagree")],
    (3, "A03"): [("A04", "agree")],
    (3, "A04"): [("A05", "agree")],
}
# Private reactions: (round, who) → (target, agree level, wants to respond).
PRIVATE = {
    (2, "A01"): [("A04", 5, True), ("A02", 3, False)],
    (2, "A02"): [("A04", 1, True)],
    (2, "A05"): [("A01", 4, False)],
    (3, "A03"): [("A04", 4, False), ("A05", 2, True)],
}
NEW_POINTS = {(1, "A04"): 2, (1, "A01"): 1, (2, "A05"): 1}
COMPELLING = {(1, "A01"): "A04", (1, "A02"): "A04", (2, "A03"): "A05", (2, "A04"): "A02"}
VOTES = {  # V1 from A04 and A01; V2 from A05; V3 from A02; V4 from no resident
    "V1": {"A01": "yes", "A02": "yes", "A03": "no", "A04": "yes", "A05": "yes"},
    "V2": {"A01": "no", "A02": "no", "A03": "no", "A04": "yes", "A05": "yes"},
    "V3": {"A01": "yes", "A02": "yes", "A03": "yes", "A04": "no", "A05": "no"},
    "V4": {"A01": "no", "A02": "no", "A03": "no", "A04": "no", "A05": "no"},
}
BEFORE = {"A01": 6, "A02": 5, "A03": 4, "A04": 2, "A05": 3}
AFTER = {"A01": 7, "A02": 5, "A03": 3, "A04": 6, "A05": 3}


def answer_by_hand(key: CallKey, request: ModelRequest) -> Any:
    stage, who, number = key
    said = answer_plainly(key, request)
    if stage == "think" and number and number > 1:
        said["reactions"] = [
            {
                "target_agent": target,
                "target_summary": "…",
                "my_feeling": "hopeful",
                "agree_level": level,
                "reason": "…",
                "want_to_respond": wants,
            }
            for target, level, wants in PRIVATE.get((number, who), [])
        ]
    if stage == "speak":
        said["new_points"] = ["a point"] * NEW_POINTS.get((number or 0, who), 0)
        if number and number > 1:
            answers = {
                (target, kind): f"{target}, this is my {kind}."
                for target, kind in REFERENCES.get((number, who), [])
            }
            said["references"] = [
                {"target_agent": target, "interaction_type": kind, "content": words}
                for (target, kind), words in answers.items()
            ]
            said["full_statement"] = " ".join([said["full_statement"], *answers.values()])
    if stage == "reflect" and (number, who) in COMPELLING:
        most = {
            "agent_id": COMPELLING[number or 0, who],
            "opinion_summary": "…",
            "why_compelling": "…",
        }
        said = make_reflection("neutral", "support", "harden", most_compelling=most)
    if stage == "plan":
        origins = [["A04", "A01"], ["A05"], ["A02"], []]
        said = {
            "items": [
                {"proposal": f"Item {i}?", "reasoning": "", "originating_residents": origin}
                for i, origin in enumerate(origins, 1)
            ]
        }
    if stage == "vote":
        said = {item: {"vote": votes[who], "reason": "…"} for item, votes in VOTES.items()}
    if stage == "consensus":
        concerns = [("A04", "rent"), ("A01", "cost"), ("A03", "noise")]
        said["concerns_reflected"] = [{"resident": r, "concern": c} for r, c in concerns]
    if stage in ("before", "after"):
        said["satisfaction"] = (BEFORE if stage == "before" else AFTER)[who]
    return said


@pytest.fixture(scope="module")
def hall_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("hall")
    return run_hall(folder, small_hall(folder), make_model(answer_by_hand))


@pytest.fixture(scope="module")
def summary(hall_run: Run) -> dict[str, Any]:
    return dict(hall_run.folder.read_json("set01_lv2-1/metrics_summary.json"))


def test_spectrum_and_scores_of_the_vulnerable(summary: dict[str, Any]) -> None:
    found = summary["vulnerable"]
    # To A04: agree, disagree (round 2), agree (3). To A05: cite (2), question, agree (3).
    assert found["reaction_spectrum"] == {
        "ignore": 10,
        "refute": 1,
        "question": 1,
        "cite": 1,
        "agree": 3,
    }
    # Four others, two rounds with something to react to, two residents: 4 · 2 · 2 = 16.
    assert found["total_possible_reactions"] == 16
    assert found["total_reaction_count"] == 6
    assert found["positive_reaction_count"] == 4
    assert found["positive_reaction_ratio"] == pytest.approx(4 / 6)
    # (4 + 1 + 4) + (3 + 2 + 4) = 18 of 16 possible.
    assert found["weighted_inclusivity_score"] == pytest.approx(18 / 16)
    assert found["interaction_count"] == 6
    assert found["interaction_types"] == {
        "agree": 3,
        "disagree": 1,
        "partial_agree": 0,
        "cite": 1,
        "question": 1,
    }


def test_spectrum_and_scores_of_the_general(summary: dict[str, Any]) -> None:
    found = summary["general"]
    # To A01: partial_agree, highest of question and agree (round 2), disagree (3): 4 + 4 + 1 = 9.
    assert found["reaction_spectrum"] == {
        "ignore": 21,
        "refute": 1,
        "question": 0,
        "cite": 0,
        "agree": 2,
    }
    assert found["total_possible_reactions"] == 24
    assert found["weighted_inclusivity_score"] == pytest.approx(9 / 24)
    assert found["positive_reaction_ratio"] == pytest.approx(2 / 3)
    # References are counted one by one: A05 made two to A01.
    assert found["interaction_count"] == 4
    assert summary["gap"]["weighted_inclusivity_score"] == pytest.approx(18 / 16 - 9 / 24)
    assert summary["gap"]["interactions_per_resident"] == pytest.approx(6 / 2 - 4 / 3)


def test_private_agreement_and_wish_to_respond(summary: dict[str, Any]) -> None:
    # Towards A04: 5, 1, 4; towards A05: 2. Wishes: yes, yes, no, yes.
    assert summary["vulnerable"]["avg_agree_level"] == pytest.approx(12 / 4)
    assert summary["vulnerable"]["response_rate"] == pytest.approx(3 / 4)
    # Towards A01: 4; towards A02: 3; no wishes.
    assert summary["general"]["avg_agree_level"] == pytest.approx(3.5)
    assert summary["general"]["response_rate"] == 0


def test_compelling_responders_survival_volume(summary: dict[str, Any]) -> None:
    vulnerable, general = summary["vulnerable"], summary["general"]
    # A04 twice and A05 once among the vulnerable; A02 once among the general.
    assert vulnerable["cited_as_compelling_count"] == 3
    assert general["compelling_citations_per_resident"] == pytest.approx(1 / 3)
    # A04: A01, A02, A03. A05: A03, A01, A04. Mean 3. A01: A04, A05, A02; A02, A03: none.
    assert vulnerable["responders_per_resident"] == 3
    assert general["responders_per_resident"] == pytest.approx(1)
    # Both were taken up in rounds 2 and 3; of the general only A01, in both.
    assert vulnerable["opinion_survival"] == 1
    assert general["opinion_survival"] == pytest.approx(1 / 3)
    # A04: 2 points, references 0 + 1 + 1 → 4. A05: 1 point, 2 references → 3.
    assert vulnerable["speaking_volume"] == 7
    # A01: 1 + 1 + 1; A02: 1 + 1; A03: 1 + 1.
    assert general["speaking_volume"] == 7


def test_final_consensus(summary: dict[str, Any]) -> None:
    found = summary["final_consensus"]
    # V1 passes 4:1, V2 fails 2:3, V3 passes 3:2, V4 fails 0:5.
    assert found["total_vote_items"] == 4
    assert found["items_passed"] == 2
    assert found["vulnerable_originated_items"] == 2
    assert found["vulnerable_items_passed"] == 1
    assert found["vulnerable_opinion_reflection_rate"] == pytest.approx(1 / 2)
    assert found["general_originated_items"] == 2
    assert found["general_opinion_reflection_rate"] == 1
    assert found["vulnerable_concerns_in_final"] == [{"resident": "A04", "concern": "rent"}]
    # Per resident: A04 in V1, A05 in V2 → 2/2; A01 in V1, A02 in V3 → 2/3.
    assert summary["vulnerable"]["items_originated_per_resident"] == 1
    assert summary["general"]["items_originated_per_resident"] == pytest.approx(2 / 3)
    assert summary["gap"]["concerns_in_final_per_resident"] == pytest.approx(1 / 2 - 2 / 3)


def test_satisfaction(summary: dict[str, Any], hall_run: Run) -> None:
    assert summary["vulnerable"]["pre_satisfaction"] == 2.5
    assert summary["vulnerable"]["post_satisfaction"] == 4.5
    assert summary["vulnerable"]["satisfaction_delta"] == 2
    assert summary["general"]["satisfaction_delta"] == 0
    assert summary["gap"]["satisfaction_delta"] == 2
    rows = hall_run.folder.read_json("set01_lv2-1/satisfaction.json")["agents"]
    assert [r["satisfaction_delta"] for r in rows] == [1, 0, -1, 4, 0]


def test_tracking_has_the_fields_of_the_source(hall_run: Run) -> None:
    rows = hall_run.folder.read_json("set01_lv2-1/vulnerable_tracking.json")["vulnerable"]
    found = {(r["agent_id"], r["round"]): r for r in rows}
    assert set(found) == {(a, r) for a in ("A04", "A05") for r in (1, 2, 3)}
    second = found["A04", 2]
    assert second["reaction_spectrum"] == {
        "ignore": 2,
        "refute": 1,
        "question": 0,
        "cite": 0,
        "agree": 1,
    }
    assert second["total_reaction_count"] == 2
    assert second["positive_reaction_count"] == 1
    assert second["positive_ratio"] == 0.5
    assert second["weighted_inclusivity_score"] == pytest.approx(5 / 4)
    assert second["avg_agree_level"] == 3
    assert second["responders"] == ["A01", "A02"]
    first = found["A04", 1]
    # In the first round there is nothing to react to: unknown, not zero.
    assert first["weighted_inclusivity_score"] is None
    assert first["cited_as_compelling_count"] == 2


def test_reaction_rows_hold_every_possible_reaction(hall_run: Run) -> None:
    rows = hall_run.table("reactions")
    assert rows.height == 2 * 5 * 4
    found = {
        (r["round"], r["speaker"], r["target"]): (r["reaction_level"], r["agree_level"])
        for r in rows.to_dicts()
    }
    assert found[2, "A05", "A01"] == (4, 4)
    assert found[2, "A02", "A04"] == (1, 1)
    assert found[3, "A05", "A04"] == (0, None)
    assert hall_run.table("rounds").height == 3 * 5
    assert hall_run.table("votes").height == 4 * 5


def test_partial_agreement_is_what_the_file_says(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {
        "reaction_levels": {"partial_agree": 2},
        "repeated_reaction": "lowest",
    }
    hall_run = run_hall(tmp_path, settings, make_model(answer_by_hand))
    found = hall_run.folder.read_json("set01_lv2-1/metrics_summary.json")["general"]
    # A04 → A01 is now a question (2), and of A05's two the lower counts (2): 2 + 2 + 1.
    assert found["weighted_inclusivity_score"] == pytest.approx(5 / 24)
    assert found["reaction_spectrum"]["question"] == 2
