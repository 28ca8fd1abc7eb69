"""Broken JSON in a run: parse steps, two re-asks that quote the error, minimal structure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from folkmoot.models.request import Request
from folkmoot.studies.town_hall import STUDY

from .hall_script import Key, hold, plain, scripted, small_hall


def spoilt(stage: str, who: str, spoil: Any) -> Any:
    """The plain hall, with one answer spoilt; `spoil` gets the answer and which try it is."""
    tries: dict[Key, int] = {}

    def answer(key: Key, request: Request) -> Any:
        said = plain(key, request)
        if key[:2] != (stage, who):
            return said
        tries[key] = tries.get(key, 0) + 1
        return spoil(said, tries[key])

    return answer


def quality_of(folder: Path, answer: Any) -> tuple[Any, Any]:
    held = hold(folder, small_hall(folder), scripted(answer, keep=True))
    return held, held.folder.json("set01_lv2-1/metrics_summary.json")["quality"]


@pytest.mark.parametrize(
    ("write", "parse_step"),
    [
        (json.dumps, "exact"),
        (lambda said: f"Here you are:\n```json\n{json.dumps(said)}\n```\nDone.", "fenced"),
        (lambda said: json.dumps(said).replace('"', "'")[:-1] + ",}", "repaired"),
    ],
)
def test_each_parse_step_is_counted(tmp_path: Path, write: Any, parse_step: str) -> None:
    _, quality = quality_of(tmp_path, spoilt("speak", "A02", lambda said, _: write(said)))
    total = 3 * 5 * 2 + 2 * 5 + 3 * 5 + 2
    exact = total if parse_step == "exact" else total - 3
    assert quality["answers"] == total
    assert quality["parse_steps"]["exact"] == exact
    assert quality["parse_steps_by_stage"]["speak"][parse_step] == (
        15 if parse_step == "exact" else 3
    )
    assert quality["reasks"] == 0 and quality["minimal_structures"] == 0


def test_a_reask_quotes_the_error_and_mends(tmp_path: Path) -> None:
    def first_only(said: Any, at: int) -> Any:
        if at == 1:
            del said["full_statement"]
        return said

    model = scripted(spoilt("speak", "A02", first_only), keep=True)
    held = hold(tmp_path, small_hall(tmp_path), model)
    quality = held.folder.json("set01_lv2-1/metrics_summary.json")["quality"]
    assert quality["reasks"] == 3 and quality["parse_steps"]["minimal"] == 0
    again = [r.messages[-1].content for a, r in model.seen if a.endswith(".r1")]
    assert len(again) == 3 and all("full_statement: Field required" in text for text in again)


def test_after_two_reasks_the_minimal_structure_stands(tmp_path: Path) -> None:
    held, quality = quality_of(tmp_path, spoilt("speak", "A02", lambda *_: "I'd rather not."))
    assert quality["reasks"] == 2 * 3
    assert quality["parse_steps"]["minimal"] == 3 and quality["minimal_structures"] == 3
    assert quality["statements_unread"] == 3 and quality["silent_turns"] == 0
    turns = held.folder.json("set01_lv2-1/discussion_log.json")["rounds"][0]["turns"]
    said = next(t["speaking"] for t in turns if t["agent_id"] == "A02")
    assert said == {
        "references": [],
        "new_points": [],
        "questions": [],
        "full_statement": "",
        "_parse_error": True,
    }
    # A02 neither reacts nor can be reacted to: 4 · 3 pairs in each of two rounds.
    assert held.table("reactions").height == 2 * 4 * 3
    errors = next((held.path / "logs").glob("*_errors.log")).read_text("utf-8")
    assert errors.count("unreadable_answer") == 3 and "A02" in errors


def test_an_unread_thought_still_speaks_and_has_no_stance(tmp_path: Path) -> None:
    held, quality = quality_of(tmp_path, spoilt("think", "A02", lambda *_: "{"))
    assert quality["thoughts_unread"] == 3 and quality["statements_unread"] == 0
    rows = held.table("rounds").filter(agent_id="A02")
    assert rows["overall_stance"].to_list() == [None] * 3
    assert rows["thinking_parse_error"].all()


def test_bad_references_are_dropped_and_counted(tmp_path: Path) -> None:
    def wild(said: Any, _: int) -> Any:
        if "references" in said:
            said["full_statement"] = "Quite so."
            said["references"] = [
                {"target_agent": t, "interaction_type": k, "content": "Quite so."}
                for t, k in [
                    ("a1", "Agree"),  # both repaired
                    ("A99", "agree"),  # nobody
                    ("A02", "agree"),  # oneself
                    ("A03", "applaud"),  # no such type
                ]
            ]
        return said

    held, quality = quality_of(tmp_path, spoilt("speak", "A02", wild))
    assert quality["dropped"] == {"self_reference": 2, "unknown_id": 2, "unknown_value": 2}
    assert quality["repaired"] == {"spelling": 4}
    counted = held.folder.json("set01_lv2-1/metrics_summary.json")
    assert counted["general"]["interaction_count"] == 2
    assert counted["vulnerable"]["interaction_count"] == 0
    assert held.table("repairs").height == 10


def test_a_round_without_anything_said_before_has_no_references(tmp_path: Path) -> None:
    def eager(said: Any, _: int) -> Any:
        entry = {"target_agent": "A01", "interaction_type": "agree", "content": "Quite so."}
        said |= {"full_statement": "Quite so.", "references": [entry]}
        return said

    held, quality = quality_of(tmp_path, spoilt("speak", "A02", eager))
    assert quality["dropped"] == {"nothing_said_yet": 1}
    found = held.folder.json("set01_lv2-1/metrics_summary.json")
    assert found["general"]["interaction_count"] == 2


def test_a_planner_that_cannot_be_read_leaves_the_measures_unknown(tmp_path: Path) -> None:
    _, quality = quality_of(tmp_path, spoilt("plan", "plan", lambda *_: "no"))
    held = hold(
        tmp_path / "b", small_hall(tmp_path), scripted(spoilt("plan", "plan", lambda *_: ""))
    )
    found = held.folder.json("set01_lv2-1/metrics_summary.json")
    assert quality["ballot_empty"] is True
    assert found["vulnerable"]["items_originated_per_resident"] is None
    assert found["final_consensus"]["vulnerable_opinion_reflection_rate"] is None


def test_unread_ballots_and_scores_are_missing_and_not_guessed(tmp_path: Path) -> None:
    def answer(key: Key, request: Request) -> Any:
        if key[1] == "A05" and key[0] in ("vote", "after"):
            return '{"satisfaction": 11, "V1": {"vote": "perhaps"}}'
        return plain(key, request)

    held, quality = quality_of(tmp_path, answer)
    assert quality["votes_uncast"] == 1 and quality["satisfaction_unread"] == 1
    outcome = held.folder.json("set01_lv2-1/voting_results.json")["items"][0]
    assert (outcome["yes"], outcome["no"], outcome["uncast"]) == (4, 0, 1)
    row = held.folder.json("set01_lv2-1/satisfaction.json")["agents"][-1]
    assert row["post_satisfaction"] is None and row["satisfaction_delta"] is None


def test_a_refusal_is_an_outcome(tmp_path: Path) -> None:
    from folkmoot.errors import RefusedError

    def answer(key: Key, request: Request) -> Any:
        if key == ("speak", "A03", 2):
            raise RefusedError("blocked", reason="filtered")
        return plain(key, request)

    _, quality = quality_of(tmp_path, answer)
    assert quality["missing_reasons"] == {"filtered": 1}
    assert quality["statements_unread"] == 1


SAID = re.compile(r"^\s*- (\w+): (.+)$", re.MULTILINE)


def test_no_form_holds_words_that_could_be_given_back() -> None:
    """What is asked for is said beside the key, never where the answer goes."""
    assert STUDY.prompts is not None
    forms = {
        file.stem: file.read_text("utf-8").partition("Reply with only a JSON object")[2]
        for file in STUDY.prompts.glob("*.md")
    }
    asking = {name for name, form in forms.items() if form}
    systems = {"persona", "portrait", "shared_session", "planner_system", "moderator_system"}
    assert asking == forms.keys() - systems
    assert not {name for name in asking if '"' in re.sub(r"{[{%].*?[%}]}", "", forms[name])}


def test_the_wording_of_a_question_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    """A small model that fills the form with what stands beside the keys is asked again."""

    def echo(key: Key, request: Request) -> Any:
        said = plain(key, request)
        if key[1] != "A02" or len(request.messages) > 3:
            return said
        meant = dict(SAID.findall(request.messages[-1].content))
        return {k: meant[k] if isinstance(v, str) and k in meant else v for k, v in said.items()}

    model = scripted(echo, keep=True)
    held = hold(tmp_path, small_hall(tmp_path), model)
    again = {a for a, _ in model.seen if a.endswith(".r1")}
    assert any("/speak" in a or "/turns/A02" in a for a in again)
    said = held.folder.table("utterances").filter(speaker_id="A02")["text"].to_list()
    assert said == [f"A02 speaks in round {n}." for n in (1, 2, 3)]
    assert "your own voice" not in held.folder.text("set01_lv2-1/discussion_log.json")
