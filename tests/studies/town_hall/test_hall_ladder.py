"""Broken JSON in a run: parse steps, two re-asks that quote the error, and minimal structures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from folkmoot import Run
from folkmoot.conversation.answer_types import ParsedAnswer, ParseFailure
from folkmoot.kit.exposure import describe_deviations
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.town_hall import STUDY
from folkmoot.studies.town_hall.answers.options import STANCES
from folkmoot.studies.town_hall.answers.outcome import ballot_type
from folkmoot.studies.town_hall.answers.repairs import AskContext
from folkmoot.studies.town_hall.answers.turns import (
    Reflection,
    Speaking,
    turn_answer_type,
)
from tests.shown import render_run_text

from .hall_script import (
    CallKey,
    answer_in_any_session,
    answer_plainly,
    make_model,
    parse_address,
    run_hall,
    small_hall,
)


def spoil_answers(stage: str, who: str, spoil: Any) -> Any:
    """Return plain answers but for one, made by `spoil` from the answer and the attempt number."""
    tries: dict[CallKey, int] = {}

    def answer(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[:2] != (stage, who):
            return said
        tries[key] = tries.get(key, 0) + 1
        return spoil(said, tries[key])

    return answer


def run_and_read_quality(folder: Path, answer: Any) -> tuple[Any, Any]:
    hall_run = run_hall(folder, small_hall(folder), make_model(answer, keep=True))
    return hall_run, hall_run.folder.read_json("set01_lv2-1/metrics_summary.json")["quality"]


def test_parse_steps_and_reasks_are_counted(tmp_path: Path) -> None:
    tries: dict[CallKey, int] = {}

    def answer(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        tries[key] = tries.get(key, 0) + 1
        match key[:2]:
            case "speak", "A02":
                return f"Here you are:\n```json\n{json.dumps(said)}\n```\nDone."
            case "speak", "A03":
                return json.dumps(said).replace('"', "'")[:-1] + ",}"
            case "speak", "A04" if tries[key] == 1:
                del said["full_statement"]
        return said

    model = make_model(answer, keep=True)
    hall_run = run_hall(tmp_path, small_hall(tmp_path), model)
    quality = hall_run.folder.read_json("set01_lv2-1/metrics_summary.json")["quality"]
    total = 3 * 5 * 2 + 2 * 5 + 3 * 5 + 2
    assert quality["answers"] == total
    assert quality["parse_steps"]["exact"] == total - 2 * 3
    by_step = quality["parse_steps_by_stage"]["speak"]
    assert (by_step["exact"], by_step["fenced"], by_step["repaired"]) == (9, 3, 3)
    assert quality["parse_steps"]["minimal"] == quality["minimal_structures"] == 0
    # The one who left out a field is told so, and the second answer counts.
    assert quality["reasks"] == 3
    again = {a: r.messages[-1].content for a, r in model.seen if a.endswith(".r1")}
    assert len(again) == 3 and all("/A04/" in address for address in again)
    assert all("full_statement: Field required" in text for text in again.values())


def test_after_two_reasks_the_minimal_structure_stands(tmp_path: Path) -> None:
    hall_run, quality = run_and_read_quality(
        tmp_path, spoil_answers("speak", "A02", lambda *_: "I'd rather not.")
    )
    assert quality["reasks"] == 2 * 3
    assert quality["parse_steps"]["minimal"] == 3 and quality["minimal_structures"] == 3
    assert quality["statements_unread"] == 3 and quality["silent_turns"] == 0
    turns = hall_run.folder.read_json("set01_lv2-1/discussion_log.json")["rounds"][0]["turns"]
    said = next(t["speaking"] for t in turns if t["agent_id"] == "A02")
    assert said == {
        "references": [],
        "new_points": [],
        "questions": [],
        "full_statement": "",
        "_parse_error": True,
    }
    # A02 neither reacts nor can be reacted to: 4 · 3 pairs in each of two rounds.
    assert hall_run.table("reactions").height == 2 * 4 * 3
    errors = next((hall_run.path / "logs").glob("*_errors.log")).read_text("utf-8")
    assert errors.count("unreadable_answer") == 3 and "A02" in errors


def test_an_unread_thought_still_speaks_and_has_no_stance(tmp_path: Path) -> None:
    hall_run, quality = run_and_read_quality(
        tmp_path, spoil_answers("think", "A02", lambda *_: "{")
    )
    assert quality["thoughts_unread"] == 3 and quality["statements_unread"] == 0
    rows = hall_run.table("rounds").filter(agent_id="A02")
    assert rows["overall_stance"].to_list() == [None] * 3
    assert rows["thinking_parse_error"].all()


def test_an_answer_without_a_stance_keeps_its_other_fields(tmp_path: Path) -> None:
    """A02 gives null in place of each stance, and A03 leaves out its field."""
    opinion = {"agent_id": "A01", "opinion_summary": "x", "why_compelling": "y"}
    felt = {"my_feeling": "angry", "agree_level": 4, "reason": "r", "want_to_respond": True}

    def without_stance(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        stance = {"think": "overall_stance", "reflect": "stance_evolution"}.get(key[0])
        if key[1] not in ("A02", "A03") or stance is None:
            return said
        del said[stance]
        if key[0] == "reflect":
            said["most_compelling"] = opinion
        elif key[2] != 1:
            said["reactions"] = [{"target_agent": "A01", "target_summary": "rents", **felt}]
        else:
            said["key_concerns"] = ["The rents."]
        return said | ({stance: None} if key[1] == "A02" else {})

    settings = small_hall(tmp_path) | {"levels": ["1", "2-1"]}
    run = run_hall(tmp_path, settings, make_model(answer_in_any_session(without_stance)))
    for level, who in product(("1", "2-1"), ("A02", "A03")):
        rows = run.table("rounds").filter(level=level, agent_id=who).sort("round")
        assert not rows["thinking_parse_error"].any(), (level, who)
        assert rows["stance_missing"].to_list() == ["missing_value"] * 3, (level, who)
        assert rows["most_compelling"].to_list() == ["A01", "A01", None], (level, who)
        reasons = rows["stance_after_missing"].to_list()
        assert reasons == ["missing_value", "missing_value", None], (level, who)
        own = run.table("reactions").filter(level=level, speaker=who, target="A01")
        assert own["agree_level"].to_list() == [4, 4], (level, who)
        quality = run.folder.read_json(f"set01_lv{level}/metrics_summary.json")["quality"]
        assert quality["thoughts_unread"] == 0, level
        assert quality["dropped"]["missing_value"] == 2 * 5, level


@pytest.mark.parametrize("stated", [{}, {"current_stance": None}])
def test_a_reflection_that_states_nothing_is_no_answer(stated: dict[str, Any]) -> None:
    reflection = {"stance_evolution": stated, "most_compelling": None, "next_round_strategy": ""}
    answer_type = Reflection.answer_type(AskContext(("A01", "A02"), "A02", stance="support"))
    assert answer_type.salvage_reply(json.dumps(reflection)) is None
    in_words = reflection | {"stance_evolution": "support", "next_round_strategy": "Ask."}
    rest = answer_type.salvage_reply(json.dumps(in_words))
    assert rest is not None and rest.value.missing == {"stance_evolution": "unknown_value"}
    stance = {"current_stance": None, "change_reason": "The rents."}
    read = answer_type.salvage_reply(json.dumps(reflection | {"stance_evolution": stance}))
    assert read is not None and read.value.stance_evolution is not None
    assert read.value.stance_evolution.missing["current_stance"] == "missing_value"
    assert read.value.stance_evolution.change_reason == "The rents."


def test_bad_references_are_dropped_and_counted(tmp_path: Path) -> None:
    eager = {"target_agent": "A01", "interaction_type": "agree", "content": "Quite so."}

    def refer(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[:2] == ("speak", "A04"):  # in the first round too
            said |= {"full_statement": "Quite so.", "references": [eager]}
        elif key[:2] == ("speak", "A02") and "references" in said:
            said["full_statement"] = "Quite so."
            said["references"] = [
                {"target_agent": t, "interaction_type": k, "content": "Quite so."}
                for t, k in [
                    ("a1", "Agree"),  # both repaired
                    ("A99", "agree"),  # no resident has this id
                    ("A02", "agree"),  # oneself
                    ("A03", "applaud"),  # no such type
                ]
            ]
        return said

    hall_run, quality = run_and_read_quality(tmp_path, refer)
    assert quality["dropped"] == {
        **{"self_reference": 2, "unknown_id": 2, "unknown_value": 2},
        "nothing_said_yet": 1,  # the reference of the first round
    }
    assert quality["repaired"] == {"spelling": 4}
    counted = hall_run.folder.read_json("set01_lv2-1/metrics_summary.json")
    # A reference of an unknown type still counts as a reference. Its level is unknown.
    assert counted["general"]["interaction_count"] == 4 + 2
    assert counted["vulnerable"]["interaction_count"] == 0
    assert hall_run.table("repairs").height == 10 + 1
    unknown = hall_run.table("reactions").filter(speaker="A02", target="A03")
    assert unknown["reaction_level"].to_list() == [None, None]
    assert counted["general"]["total_possible_reactions"] == 3 * 4 * 2 - 2
    references = hall_run.table("references").filter(target="A03")
    assert references["missing"].to_list() == ["unknown_value"] * 2


NO_POINTS: list[Any] = [
    *(["None"], ["None."], ["N/A"], ["nothing"], ["-"], ["no new points"], "none", [None], []),
    *(
        ["I prefer not to say"],
        ["declined", "I prefer not to answer because of my job."],
        ["Nothing to add at this time."],
    ),
    ["No further points this round.", "I have nothing new to add", "I am choosing not to answer."],
]
STATED_POINTS = [
    *("No more cars.", "Nothing has been done for tenants.", "No comment from the council."),
    *("Vote required", "No time", "No one asked us.", "I can't take part in a vote on a Monday."),
    "I cannot judge the plan because it names no costs.",
]


def test_words_for_no_point_are_no_point(tmp_path: Path) -> None:
    points = iter([*NO_POINTS, STATED_POINTS, ["None", "The rents."]])

    def state_points(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        return said | {"new_points": next(points)} if key[0] == "speak" else said

    run = run_hall(tmp_path, small_hall(tmp_path), make_model(state_points))
    rounds = run.table("rounds")
    expected = [*[0] * len(NO_POINTS), 1, len(STATED_POINTS)]
    assert sorted(rounds["new_points"]) == sorted(rounds["speaking_volume"]) == expected
    assert rounds["silent"].sum() == 0
    noted = run.table("repairs").filter(field="new_points", dropped=True)
    assert {"None", "-", "I prefer not to say", "declined"} <= set(noted["was"])


UNREAD_REFERENCES = {
    "absent": None,
    "words": "A01: agree, A03: agree",
    "object": {"A01": "agree", "A03": "agree"},
    "texts": ["A01 (agree)", "A03 (agree)"],
    "unknown": [{"target_agent": "A99", "interaction_type": "agree", "content": "Yes."}],
}


def test_references_that_cannot_be_read_are_unknown_and_ignore_no_one(tmp_path: Path) -> None:
    """In the second round, each resident but the last writes them in another of these ways."""
    written = dict(zip(("A01", "A02", "A03", "A04", "A05"), UNREAD_REFERENCES.items(), strict=True))

    def answer(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[0] != "speak" or key[1] not in written or key[2] != 2:
            return said
        del said["references"]
        _, given = written[key[1]]
        return said | ({} if given is None else {"references": given})

    model = make_model(answer)
    hall_run = run_hall(tmp_path, small_hall(tmp_path, general=4), model)
    quality = hall_run.folder.read_json("set01_lv2-1/metrics_summary.json")["quality"]
    # The statements were heard, so the last resident can ignore their speakers.
    reactions = hall_run.table("reactions").filter(round=2)
    assert set(reactions["speaker"]) == {"A06"}
    assert set(reactions["target"]) == set(written)
    assert quality["reasks"] == 0
    rows = hall_run.table("rounds").filter(round=2)
    for who, (name, _) in written.items():
        assert rows.filter(agent_id=who)["references_made"].item() is None, name
        repairs = hall_run.table("repairs").filter(stage="speak", agent_id=who, dropped=True)
        assert not repairs.is_empty(), name


EMPTY_REFERENCE = {"target_agent": "none", "interaction_type": "none", "content": ""}


NO_REFERENCES: list[Any] = [
    *([], False, "none", ["none"], ["nobody"], ["-"], ["No remarks."], [None], [EMPTY_REFERENCE]),
    "only oneself",
]


def test_a_statement_that_refers_to_no_other_resident_ignores_all(tmp_path: Path) -> None:
    """Five residents in two rounds write that they refer to no other one, each time in other
    words."""
    turns = product(("A01", "A02", "A03", "A04", "A05"), (2, 3))
    written = dict(zip(turns, NO_REFERENCES, strict=True))

    def answer(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[0] != "speak" or key[1:] not in written:
            return said
        given = written[key[1:]]
        if given == "only oneself":
            given = [{"target_agent": key[1], "interaction_type": "cite", "content": "As I said."}]
        return said | {"references": given}

    hall_run, _ = run_and_read_quality(tmp_path, answer)
    for (who, number), given in written.items():
        own = hall_run.table("reactions").filter(speaker=who, round=number)
        assert own["reaction_level"].to_list() == [0] * 4, given
        made = hall_run.table("rounds").filter(agent_id=who, round=number)["references_made"]
        assert made.item() == 0, given


# What the final text is said to reflect, concerns by vulnerable resident, and what is dropped.
REFLECTED_CONCERNS: list[tuple[Any, float | None, list[str]]] = [
    ([], 0, []),
    ({"resident": "A04", "concern": "rent"}, 0.5, []),
    (["A04: rent"], None, ["A04: rent"]),
    ("A04: rent", None, ["A04: rent"]),
    (None, None, [""]),
]


def test_unread_concerns_of_the_final_text_are_unknown(tmp_path: Path) -> None:
    """Each set of residents states them in another way."""
    names = [f"set{number:02}_lv2-1" for number in range(1, len(REFLECTED_CONCERNS) + 1)]
    stated = dict(zip(names, REFLECTED_CONCERNS, strict=True))

    def reply(request: ModelRequest, address: str) -> str:
        said = answer_plainly(parse_address(address), request)
        discussion, _, rest = address.partition("/")
        if rest.startswith("consensus/"):
            said["concerns_reflected"] = stated[discussion][0]
        return json.dumps(said)

    settings = small_hall(tmp_path) | {"sets": len(stated), "rounds": 1}
    hall_run = run_hall(tmp_path, settings, ScriptedProvider(reply))
    repairs = hall_run.table("repairs").filter(stage="consensus", dropped=True)
    texts = hall_run.table("utterances").filter(stage="consensus")
    for name, (given, concerns, dropped) in stated.items():
        found = hall_run.folder.read_json(f"{name}/metrics_summary.json")["vulnerable"]
        assert found["concerns_in_final_per_resident"] == concerns, given
        assert repairs.filter(discussion_id=name)["was"].to_list() == dropped, given
        assert texts.filter(discussion_id=name)["text"].to_list() == ["We agree."], given


def test_a_planner_that_cannot_be_read_leaves_the_measures_unknown(tmp_path: Path) -> None:
    hall_run, quality = run_and_read_quality(
        tmp_path, spoil_answers("plan", "plan", lambda *_: "no")
    )
    found = hall_run.folder.read_json("set01_lv2-1/metrics_summary.json")
    assert quality["ballot_empty"] is True
    assert found["vulnerable"]["items_originated_per_resident"] is None
    assert found["final_consensus"]["vulnerable_opinion_reflection_rate"] is None


def test_unread_ballots_and_scores_are_missing_and_not_guessed(tmp_path: Path) -> None:
    def answer(key: CallKey, request: ModelRequest) -> Any:
        if key[1] == "A05" and key[0] in ("vote", "after"):
            return '{"satisfaction": 11, "V1": {"vote": "perhaps"}}'
        said = answer_plainly(key, request)
        if key[:2] == ("before", "A02"):
            return f"I cannot rate this. {json.dumps(said)}"
        return said

    hall_run, quality = run_and_read_quality(tmp_path, answer)
    assert quality["votes_uncast"] == 1 and quality["satisfaction_unread"] == 2
    outcome = hall_run.folder.read_json("set01_lv2-1/voting_results.json")["items"][0]
    assert (outcome["yes"], outcome["no"], outcome["uncast"]) == (4, 0, 1)
    ballots = hall_run.folder.read_json("set01_lv2-1/voting_results.json")["ballots"]
    assert [b["agent_id"] for b in ballots if b.get("_parse_error")] == ["A05"]
    assert ballots[-1]["votes"][0]["missing"] == "unparsed"
    row = hall_run.folder.read_json("set01_lv2-1/satisfaction.json")["agents"][-1]
    assert row["post_satisfaction"] is None and row["satisfaction_delta"] is None
    # A rating beside a refusal in words does not count.
    rated = hall_run.table("satisfaction").filter(agent_id="A02").row(0, named=True)
    assert (rated["pre_satisfaction"], rated["pre_missing"]) == (None, "unparsed")
    assert rated["post_satisfaction"] == 5


@pytest.mark.parametrize("vote", ["abstain", "", None])
def test_a_vote_that_cannot_be_read_costs_no_other_vote(vote: str | None) -> None:
    question = ballot_type(("V1", "V2"))
    stated = {"V1": {"vote": "yes", "reason": "gladly"}, "V2": {"vote": vote, "reason": "no view"}}
    reply = json.dumps(stated)
    assert isinstance(question.parse_reply(reply), ParseFailure)  # asked for again
    kept = question.salvage_reply(reply)
    assert kept is not None
    assert (kept.value.votes, kept.value.missing) == ({"V1": "yes"}, {"V2": "unparsed"})


def test_a_boolean_in_place_of_words_is_never_heard(tmp_path: Path) -> None:
    booleans = {"A02": False, "A03": True}

    def answer(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        stage, who, number = key
        if who not in booleans or number != 1:
            return said
        stated = booleans[who]
        if stage == "speak":
            return {**said, "full_statement": stated}
        if stage == "think":
            return {**said, "key_concerns": [stated, "noise"], "strategic_notes": stated}
        return said

    hall_run, quality = run_and_read_quality(tmp_path, answer)
    utterances = hall_run.table("utterances")
    assert not utterances["text"].str.contains("(?i)true|false").any()
    assert quality["statements_unread"] == 2
    for who, stated in booleans.items():
        own = utterances.filter(speaker_id=who)
        statement = own.filter(stage="speak", round=1)
        assert (statement["text"].item(), statement["missing"].item()) == ("", "unparsed"), who
        # The other fields of the answer are kept, and each dropped value is a row.
        assert own.filter(stage="think")["text"].str.contains("noise").any(), who
        repairs = hall_run.table("repairs").filter(stage="think", agent_id=who)
        assert set(zip(repairs["field"], repairs["was"], strict=True)) == {
            ("key_concerns", str(stated)),
            ("strategic_notes", str(stated)),
        }


def test_each_unread_vote_is_a_row_of_the_repairs(tmp_path: Path) -> None:
    refusal = "I would rather not say"

    def answer(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[0] == "plan":
            proposals = ("Do it?", "And that?")
            items = [
                {"proposal": text, "reasoning": "", "originating_residents": []}
                for text in proposals
            ]
            return {"items": items}
        return said | {"V1": {"vote": refusal}} if key[:2] == ("vote", "A02") else said

    hall_run, quality = run_and_read_quality(tmp_path, answer)
    repairs = hall_run.table("repairs").filter(stage="vote")
    rows = repairs.select("agent_id", "field", "kind", "was", "dropped").rows()
    assert rows == [("A02", "V1.vote", "unreadable", refusal, True)]
    assert quality["votes_uncast"] == 1


@pytest.mark.parametrize(
    ("first", "votes", "missing"),
    [
        ('{"vote": "yes", "declined": true}', {}, {"V1": "declined"}),
        ('{"vote": "yes", "declined": false}', {"V1": "yes"}, {}),
        ('{"vote": "yes", "declined": "As an AI I cannot vote"}', {}, {"V1": "unparsed"}),
        ('"yes", "v1": "no"', {}, {"V1": "unparsed"}),
        ('"yes", "v1": "yes"', {"V1": "yes"}, {}),
    ],
)
def test_a_vote_that_is_taken_back_in_its_ballot_does_not_count(
    first: str, votes: dict[str, str], missing: dict[str, str]
) -> None:
    answer_type = ballot_type(("V1", "V2"))
    reply = f'{{"V1": {first}, "V2": "no"}}'
    is_reasked = isinstance(answer_type.parse_reply(reply), ParseFailure)
    assert is_reasked == ("unparsed" in missing.values())
    parsed = answer_type.salvage_reply(reply)
    assert parsed is not None
    assert parsed.value.votes == {**votes, "V2": "no"} and parsed.value.missing == missing


def test_a_refusal_is_an_outcome(tmp_path: Path) -> None:
    from folkmoot.errors import RefusedError

    def answer(key: CallKey, request: ModelRequest) -> Any:
        if key == ("speak", "A03", 2):
            raise RefusedError("blocked", reason="filtered")
        return answer_plainly(key, request)

    _, quality = run_and_read_quality(tmp_path, answer)
    assert quality["missing_reasons"] == {"filtered": 1}
    assert quality["statements_unread"] == 1


PROMPT_FIELD = re.compile(r"^\s*- (\w+): (.+)$", re.MULTILINE)


def test_every_prompt_that_wants_json_takes_its_keys_from_the_answer() -> None:
    assert STUDY.prompts is not None
    prompts = {file.stem: file.read_text("utf-8") for file in STUDY.prompts.glob("*.md")}
    forms = {n: text.partition("Reply with only a JSON object")[2] for n, text in prompts.items()}
    asking = {name for name, form in forms.items() if form}
    systems = {
        "heard",
        "persona",
        "portrait",
        "shared_session",
        "planner_system",
        "moderator_system",
    }
    assert asking == forms.keys() - systems
    assert {n for n in asking if "{{ answer_format }}" in forms[n]} == asking
    assert not {name for name in asking if re.search(r"^\s*- \w+:", forms[name], re.MULTILINE)}


# Each resident but the last repeats the sentence of the prompt for one field of a stage.
ECHOED = {
    "A01": ("think", "overall_stance"),
    "A02": ("think", "key_concerns"),
    "A03": ("think", "strategic_notes"),
    "A04": ("speak", "new_points"),
    "A05": ("speak", "full_statement"),
    "A06": ("reflect", "next_round_strategy"),
}


def echo_prompt(key: CallKey, request: ModelRequest) -> Any:
    said = answer_plainly(key, request)
    stage, who, _ = key
    meant = dict(PROMPT_FIELD.findall(request.messages[-1].content))
    if (stage, who) == ("vote", "A02"):
        return {item: {**own, "vote": meant["vote"]} for item, own in said.items()}
    if who in ECHOED and ECHOED[who][0] == stage:
        return {**said, ECHOED[who][1]: meant[ECHOED[who][1]]}
    return said


@pytest.fixture(scope="module")
def echoing_hall(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ScriptedProvider]:
    folder = tmp_path_factory.mktemp("echoes")
    model = make_model(answer_in_any_session(echo_prompt), keep=True)
    settings = small_hall(folder, general=5, vulnerable=2) | {"levels": ["1", "2-1"]}
    return run_hall(folder, settings, model), model


@pytest.mark.parametrize("level", ["1", "2-1"])
def test_a_sentence_of_the_template_costs_its_field_and_nothing_else(
    echoing_hall: tuple[Run, ScriptedProvider], level: str
) -> None:
    """At level 1 one such field once invalidated the answers of all residents of the round."""
    hall_run, model = echoing_hall
    assert not any(".r1" in address for address, _ in model.seen)
    folder = f"set01_lv{level}"
    turns = hall_run.folder.read_json(f"{folder}/discussion_log.json")["rounds"][1]["turns"]
    reflections = hall_run.folder.read_json(f"{folder}/reflection_log.json")["rounds"][0]
    said = {
        "think": {t["agent_id"]: t["thinking"] for t in turns},
        "speak": {t["agent_id"]: t["speaking"] for t in turns},
        "reflect": {r.pop("agent_id"): r for r in reflections["reflections"]},
    }
    for stage, who in product(said, [*ECHOED, "A07"]):
        own, plain = said[stage][who], said[stage]["A07"]
        assert "_parse_error" not in own, (stage, who)
        echo = ECHOED[who][1] if who in ECHOED and ECHOED[who][0] == stage else None
        if echo:
            assert own[echo] is None and own["_missing"] == {echo: "template_sentence"}, who
        else:
            assert "_missing" not in own, (stage, who)
        left_out = {echo, "_missing", "full_statement"}  # which differs between residents
        kept = {field: value for field, value in own.items() if field not in left_out}
        assert kept == {k: v for k, v in plain.items() if k not in left_out}, (stage, who)
    for who in {*said["speak"]} - {"A05"}:
        assert who in said["speak"][who]["full_statement"], who
    quality = hall_run.folder.read_json(f"{folder}/metrics_summary.json")["quality"]
    # Five fields in three rounds, one in two, and a vote.
    assert quality["dropped"] == {"template_sentence": 5 * 3 + 2 + 1}
    assert quality["minimal_structures"] == 0
    # An unknown statement is not a silent turn, and its resident can still react.
    assert quality["silent_turns"] == 0 and quality["statements_unread"] == 3
    reactions = hall_run.table("reactions").filter(level=level)
    assert reactions.height == 2 * (7 * 6 - 6)


def test_a_vote_that_repeats_the_template_is_missing_and_the_ballot_counts(
    echoing_hall: tuple[Run, ScriptedProvider],
) -> None:
    hall_run, _ = echoing_hall
    for level in ("1", "2-1"):
        votes = hall_run.table("votes").filter(level=level)
        assert votes.filter(agent_id="A02")["missing"].to_list() == ["template_sentence"]
        assert votes.filter(agent_id="A02")["reason"].to_list() == ["because"]
        assert votes.filter(pl.col("agent_id") != "A02")["vote"].to_list() == ["yes"] * 6
        assert hall_run.table("items").filter(level=level)["uncast"].to_list() == [1]


def test_an_own_reference_is_kept_beside_one_that_repeats_the_template() -> None:
    echo = str(Speaking.answer_type(AskContext(("A01", "A02"), "A01", round=2)).describe_format())
    echo = re.findall(r"interaction_type: (.+)", echo)[0]
    references = [
        {"target_agent": "A03", "content": "x", "interaction_type": kind}
        for kind in ("agree", echo)
    ]
    said = {"references": references, "new_points": [], "questions": [], "full_statement": "x"}
    asked = AskContext(("A01", "A02", "A03"), "A01")
    read = Speaking.answer_type(asked).parse_reply(json.dumps(said))
    assert isinstance(read, ParsedAnswer)
    assert [r.interaction_type for r in read.value.references] == ["agree", None]


# --- ways out ---


def iterate_closed_fields(schema: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all enumerations and bounded numbers of a schema, with the names of their fields."""
    if isinstance(schema, list):
        for part in schema:
            yield from iterate_closed_fields(part, at)
    elif isinstance(schema, dict):
        if "enum" in schema or "minimum" in schema:
            yield at, schema
        for name, part in schema.items():
            yield from iterate_closed_fields(
                part, at if name in ("anyOf", "items", "properties") else name
            )


@pytest.mark.parametrize("level", ["1", "2-1"])
def test_no_schema_that_is_sent_forces_a_stance_a_vote_or_a_rating(
    plain_hall: Callable[[str], tuple[Run, ScriptedProvider]], level: str
) -> None:
    _, model = plain_hall(level)
    found: set[str] = set()
    for address, request in model.seen:
        stage = parse_address(address)[0]
        if stage in ("plan", "consensus"):
            continue
        text = json.dumps(request.schema)
        assert '"declined": {"type": "boolean"' in text, stage
        for name, schema in iterate_closed_fields(request.schema):
            found.add(name)
            if "enum" in schema:
                assert {"none_of_these", "declined"} <= set(schema["enum"]), name
        assert text.count('"minimum"') == text.count('{"type": "null"}]'), stage
        prompt = request.messages[-1].content
        assert "declined" in prompt and ("null if" in prompt or "none_of_these" in prompt)
    assert found >= {"overall_stance", "my_feeling", "agree_level", "interaction_type", "vote",
                     "current_stance", "change_type", "satisfaction"}  # fmt: skip


def answer_with_ways_out(key: CallKey, request: ModelRequest) -> Any:
    """A02 takes a way out in every closed field."""
    said = answer_plainly(key, request)
    stage, who, number = key
    if who != "A02":
        return said
    if stage == "think":
        said["overall_stance"] = "None of these."
        if number and number > 1:
            said["reactions"] = [
                {"target_agent": "A01", "target_summary": "", "my_feeling": "declined",
                 "agree_level": None, "reason": "", "want_to_respond": True}
            ]  # fmt: skip
    if stage == "speak" and number and number > 1:
        refers = {"target_agent": "A01", "content": "x", "interaction_type": "none_of_these"}
        said["references"] = [refers]
    if stage == "reflect":
        said["stance_evolution"]["current_stance"] = "declined"
    if stage == "vote":
        return {item: {"reason": "no", "vote": "declined"} for item in said}
    if stage == "before":
        said["satisfaction"] = None
    if stage == "after":
        said["satisfaction"] = "declined"
    return said


def test_ways_out_are_recorded_and_counted_apart_and_never_as_an_option(tmp_path: Path) -> None:
    model = make_model(answer_in_any_session(answer_with_ways_out), keep=True)
    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"levels": ["1", "2-1"]}, model)
    assert not any(".r1" in address for address, _ in model.seen)
    for level in ("1", "2-1"):
        assert_ways_out_are_recorded(hall_run, level)


def assert_ways_out_are_recorded(hall_run: Run, level: str) -> None:
    folder = f"set01_lv{level}"
    rounds = hall_run.table("rounds").filter(level=level, agent_id="A02")
    assert rounds["overall_stance"].null_count() == 3
    assert rounds["stance_missing"].to_list() == ["none_of_these"] * 3
    assert rounds["stance_after_missing"].to_list()[:2] == ["declined"] * 2
    assert not rounds["thinking_parse_error"].any()
    reaction = hall_run.table("reactions").filter(level=level, speaker="A02", target="A01", round=2)
    assert reaction.row(0, named=True)["agree_missing"] == "cannot_say"
    assert reaction["reaction_level"].to_list() == [None] and reaction["said_aloud"][0] is False
    assert (
        hall_run.table("references").filter(level=level)["missing"].to_list()
        == ["none_of_these"] * 2
    )
    vote = hall_run.table("votes").filter(level=level, agent_id="A02").row(0, named=True)
    assert (vote["vote"], vote["missing"]) == (None, "declined")
    item = hall_run.table("items").filter(level=level).row(0, named=True)
    assert (item["yes"], item["no"], item["declined"], item["uncast"]) == (4, 0, 1, 0)
    satisfied = (
        hall_run.table("satisfaction").filter(level=level, agent_id="A02").row(0, named=True)
    )
    assert satisfied["pre_satisfaction"] is satisfied["post_satisfaction"] is None
    assert (satisfied["pre_missing"], satisfied["post_missing"]) == ("cannot_say", "declined")
    turns = hall_run.folder.read_json(f"{folder}/discussion_log.json")["rounds"][1]["turns"]
    thought = next(t["thinking"] for t in turns if t["agent_id"] == "A02")
    assert thought["overall_stance"] is None
    assert thought["_missing"] == {"overall_stance": "none_of_these"}
    quality = hall_run.folder.read_json(f"{folder}/metrics_summary.json")["quality"]
    # Stances: 3 in THINK (none of these), 2 in REFLECT; feelings and agreements of 2 rounds;
    # 2 references; 1 vote; 2 surveys.
    assert quality["ways_out"] == {"none_of_these": 5, "declined": 2 + 2 + 1 + 1, "cannot_say": 3}
    assert quality["votes_uncast"] == quality["satisfaction_unread"] == 0
    ballots = hall_run.folder.read_json(f"{folder}/voting_results.json")["ballots"]
    own = next(b["votes"][0] for b in ballots if b["agent_id"] == "A02")
    assert own["vote"] is None and own["missing"] == "declined"
    assert "declined" in render_run_text(hall_run.folder, f"{folder}/A02")


def test_a_declined_answer_is_not_asked_again_and_not_called_unread(tmp_path: Path) -> None:
    def refusing(key: CallKey, request: ModelRequest) -> Any:
        return {"declined": True} if key[1] == "A02" else answer_plainly(key, request)

    model = make_model(answer_in_any_session(refusing), keep=True)
    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"levels": ["1", "2-1"]}, model)
    asked = [address for address, _ in model.seen]
    assert not any(".r1" in address for address in asked)
    assert not any("ask1" in address for address in asked if address.startswith("set01_lv1/"))
    for level in ("1", "2-1"):
        folder = f"set01_lv{level}"
        quality = hall_run.folder.read_json(f"{folder}/metrics_summary.json")["quality"]
        assert quality["minimal_structures"] == quality["statements_unread"] == 0
        assert quality["thoughts_declined"] == quality["statements_declined"] == 3
        assert quality["reflections_declined"] == 2 and quality["silent_turns"] == 0
        turns = hall_run.folder.read_json(f"{folder}/discussion_log.json")["rounds"][0]["turns"]
        said = next(t for t in turns if t["agent_id"] == "A02")
        for part in (said["thinking"], said["speaking"]):
            assert part["_declined"] is True and "_parse_error" not in part
        # Neither a reaction nor a statement of A02 is known: 4 · 3 pairs in each of two rounds.
        assert hall_run.table("reactions").filter(level=level).height == 2 * 4 * 3
        own = hall_run.table("votes").filter(level=level, agent_id="A02")
        assert own["missing"].to_list() == ["declined"]
        rated = hall_run.table("satisfaction").filter(level=level, agent_id="A02")
        assert rated["post_missing"].to_list() == ["declined"]
    errors = next((hall_run.path / "logs").glob("*_errors.log")).read_text("utf-8")
    assert "unreadable_answer" not in errors
    # The design does not show a declined statement to other residents.
    assert describe_deviations(hall_run.folder) == []


def test_a_hall_without_a_statement_is_unusable(tmp_path: Path) -> None:
    def refusing(key: CallKey, request: ModelRequest) -> Any:
        is_resident = key[1].startswith(("A0", "V0"))
        return {"declined": True} if is_resident else answer_plainly(key, request)

    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"levels": ["2-1"]}, make_model(refusing))
    assert (
        hall_run.folder.unusable_reason
        == "no resident made a statement: all declined or could not be read"
    )
    assert hall_run.table("votes")["vote"].null_count() == hall_run.table("votes").height > 0
    assert describe_deviations(hall_run.folder) == []


def test_a_turn_of_a_shared_session_can_be_declined_as_a_whole() -> None:
    asked = AskContext(("A01", "A02"), "A01", 1)
    read = turn_answer_type(asked).parse_reply('{"declined": true}')
    assert isinstance(read, ParsedAnswer) and read.value.thinking is not None
    assert read.value.thinking.declined and read.value.speaking.declined
    no_thoughts = turn_answer_type(AskContext(("A01", "A02"), "A01", 1, think=False)).parse_reply(
        '{"declined": true}'
    )
    assert isinstance(no_thoughts, ParsedAnswer) and no_thoughts.value.thinking is None


# --- orders ---

STAGES = ("think", "speak", "reflect", "plan", "vote", "before", "after", "session")


def list_fields(schema: Any, root: Any) -> list[str]:
    """Return the fields of an object and of its nested objects in the order of the schema."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    if "items" in schema:
        return list_fields(schema["items"], root)
    found: list[str] = []
    for name, part in schema.get("properties", {}).items():
        if name != "declined":
            found += [name, *list_fields(part, root)]
    return found


@pytest.mark.parametrize("level", ["1", "2-1"])
def test_models_write_fields_in_the_order_of_the_prompt_and_reasons_before_decisions(
    plain_hall: Callable[[str], tuple[Run, ScriptedProvider]], level: str
) -> None:
    hall_run, model = plain_hall(level)
    seen = set()
    for address, request in model.seen:
        stage = parse_address(address)[0]
        if stage not in STAGES:
            continue
        seen.add(stage)
        # The order of fields in the bytes that are sent.
        sent = json.loads(json.dumps(request.schema))
        form = request.messages[-1].content.rpartition("Reply with only a JSON object")[2]
        listed = re.findall(r"^\s*- (\w+): ", form, re.MULTILINE)
        listed = [n for n in listed if n != "declined" and not re.fullmatch(r"[AV]\d+", n)]
        order = [n for n in list_fields(sent, sent) if not re.fullmatch(r"[AV]\d+", n)]
        order = [n for n in order if n not in ("turns", "reflections", "items")]
        listed = [n for n in listed if n not in ("turns", "reflections", "items")]
        each = len(order) // len(listed)  # a shared reply has the fields of every resident
        assert order == listed * each or sorted(order) == sorted(listed * each)
        for before, after in (("reason", "vote"), ("reason", "satisfaction"),
                              ("reason", "agree_level"), ("key_concerns", "overall_stance"),
                              ("content", "interaction_type"), ("why_compelling", "agent_id"),
                              ("change_reason", "current_stance"),
                              ("reasoning", "proposal")):  # fmt: skip
            for names in (listed, order):
                if after in names:
                    assert names.index(before) < names.index(after)
    assert seen >= {"plan", "vote", "before", "after"}
    # Files keep the source's order.
    turn = hall_run.folder.read_json(f"set01_lv{level}/discussion_log.json")["rounds"][1]["turns"][
        0
    ]
    assert list(turn["thinking"]) == [
        *("reactions", "overall_stance", "key_concerns", "strategic_notes")
    ]


def test_the_order_of_options_is_drawn_by_the_seed_and_recorded(tmp_path: Path) -> None:
    orders = {}
    for seed in (1, 2, 4):
        settings = small_hall(tmp_path / str(seed), general=2, vulnerable=1)
        settings |= {"levels": ["2-1", "1"], "random_seed": seed, "rounds": 1}
        model = make_model(answer_in_any_session(), keep=True)
        hall_run = run_hall(tmp_path / str(seed), settings, model)
        plan = hall_run.folder.read_json("plan.json")["sealed"]["discussions"]["data"][
            "option_orders"
        ]["set01"]
        table = hall_run.table("option_orders")
        assert table.filter(field="votes").sort("position")["option"].to_list() == plan["votes"]
        for name, field in (("stances", "overall_stance"), ("votes", "vote")):
            sent = {
                tuple(schema["enum"])
                for _, request in model.seen
                for at, schema in iterate_closed_fields(request.schema)
                if at == field or (at == "Vote" and field == "vote")
            }
            assert sent == {(*plan[name], "none_of_these", "declined")}
            worded = {
                tuple(found.split(", "))
                for _, request in model.seen
                for found in re.findall(
                    rf"- {field}: [\w ]+; one of ([\w, ]+)$",
                    request.messages[-1].content,
                    re.MULTILINE,
                )
            }
            assert worded == sent
        orders[seed] = {name: tuple(options) for name, options in plan.items()}
    for name in ("stances", "feelings", "interactions", "changes", "votes"):
        assert len({orders[seed][name] for seed in orders}) > 1
    assert {o["stances"] for o in orders.values()} == {STANCES, STANCES[::-1]}
