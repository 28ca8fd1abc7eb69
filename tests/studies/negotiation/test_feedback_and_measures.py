"""Members who are left out, changes by a revision, satisfaction, and the comparison."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl
import pytest

from folkmoot.errors import InputError
from folkmoot.models.request import ModelRequest
from folkmoot.storage.rows import column_meanings
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation import STUDY
from folkmoot.studies.negotiation.config import MemberInput
from folkmoot.studies.negotiation.measures import (
    compare_measures,
    satisfaction_of_members,
    text_scores_of,
)
from folkmoot.studies.negotiation.participants import build_group
from folkmoot.studies.negotiation.quotes import left_out
from folkmoot.studies.negotiation.rules.operators import Portion
from folkmoot.studies.negotiation.rules.strategies import Group, group_type
from folkmoot.studies.negotiation.rules.tally import count_votes
from folkmoot.studies.negotiation.tables import MEASURES
from tests.shown import render_run_text
from tests.studies.negotiation.conftest import GROUPS, Runner, reply_sensibly, select_groups

FOOD = ("barbecue", "diner", "sushi")


def family(children: int = 2) -> Group:
    roles = ["parent", *["child"] * children]
    return build_group("g", group_type("family"), [MemberInput(role=r) for r in roles])


ALL = ("traveler_1", "traveler_2", "traveler_3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Diner for everyone", ["traveler_2", "traveler_3"]),
        ("Diners, and barbecue on Day 2", ["traveler_3"]),
        ("Diner, barbecue and a long walk by the river", []),
        ("Nothing that I want or like", ["traveler_1", "traveler_2", "traveler_3"]),
        # Days and parts of the trip are no wishes: traveler_3 named a day as well.
        (
            "Sushi for everyone (Day 1 and Day 3), whole trip",
            ["traveler_1", "traveler_2", "traveler_3"],
        ),
    ],
)
def test_members_without_a_common_word_are_left_out(text: str, expected: list[str]) -> None:
    texts = {
        "traveler_1": "I love the diner.",
        "traveler_2": "I want barbecue, and nothing else that I like!",
        "traveler_3": "A day's walk by the river on day 3.",
        "traveler_4": "the of and I want",
    }
    assert [m.id for m in left_out(family(3), texts, text)] == expected


def test_satisfaction_is_the_members_own_score_of_what_the_member_gets() -> None:
    texts = {"traveler_1": "I love a diner, no sushi", "traveler_2": "sushi", "traveler_3": "hm"}

    def content(*portions: Portion) -> dict[str, float]:
        scores = text_scores_of(family(), texts, FOOD, portions)
        return satisfaction_of_members(scores, portions)

    assert content(Portion("diner", ALL)) == dict(zip(ALL, (4, 0, 0), strict=True))
    # Options one after the other count by their mean. In branches, each member's option counts.
    days = (Portion("diner", ALL, "Day 1"), Portion("sushi", ALL, "Day 2"))
    assert content(*days) == dict(zip(ALL, (1, 1, 0), strict=True))
    apart = (Portion("diner", ALL[:1], "Group A"), Portion("sushi", ALL[1:], "Group B"))
    assert content(*apart) == dict(zip(ALL, (4, 2, 0), strict=True))
    # Of options at the same time the better one counts, unless one is strongly rejected.
    assert content(Portion("diner", ALL), Portion("sushi", ALL))["traveler_1"] == -2
    assert content(Portion("barbecue", ALL), Portion("sushi", ALL))["traveler_2"] == 2
    assert content() == {}


def test_of_equal_scores_the_first_named_is_the_first_choice() -> None:
    texts = {"traveler_1": "I love sushi. I love barbecue too.", "traveler_2": "I love a diner."}
    assert count_votes(family(1).members, texts, FOOD).first_choice("traveler_1") == "sushi"


def result(group: str, condition: str, value: float) -> dict[str, Any]:
    return {"group_id": group, "condition": condition, "satisfaction": value}


def test_differences_are_paired_within_groups() -> None:
    base = {"a": 0.0, "b": 10.0, "c": 20.0, "d": 30.0, "e": 40.0}
    results = [result(g, "C3", v) for g, v in base.items()]
    results += [
        result(g, "C4", v + gain)
        for (g, v), gain in zip(base.items(), (1, 2, 1, 2, 1), strict=True)
    ]
    decisions = pl.DataFrame(results).select(
        "group_id", "condition", topic=pl.lit("cuisine"), has_conflict=pl.col("satisfaction") > 0
    )
    found = compare_measures(("C3", "C4"), pl.DataFrame(results), decisions)
    (difference,) = found["paired_differences"]
    assert (difference["of"], difference["minus"], difference["n"]) == ("C4", "C3", 5)
    assert difference["estimate"] == pytest.approx(1.4)
    # t with 4 degrees of freedom: 1.4 ± 2.7764 · 0.54772 / √5.
    assert difference["low"] == pytest.approx(1.4 - 2.776445 * 0.244949, abs=1e-5)
    assert difference["high"] == pytest.approx(1.4 + 2.776445 * 0.244949, abs=1e-5)
    # Without pairing, the spread between groups would hide the difference.
    wide = found["conditions"]["C3"]["satisfaction"]
    assert wide["high"] - wide["low"] > 30
    assert found["conflict_rate_by_slot"] == {"C3": {"cuisine": 0.8}, "C4": {"cuisine": 1.0}}


def test_every_finding_counts_its_groups(full_run: Any) -> None:
    """Five groups, one of each type: enough for all groups together, but not for one type."""
    found = {f.key: f for f in full_run.findings}
    about_groups = set(found) - {
        *("decisions", "exposure", "coding", "closed_answers", "claims_tested")
    }
    assert {"satisfaction", "paired_satisfaction", "process", "mediator"} <= about_groups
    assert found["counterfactuals"].units == 4  # the strangers never vote
    for key in about_groups - {"by_type", "counterfactuals"}:
        assert (found[key].unit, found[key].units) == ("group", 5), key
    assert found["by_type"].says.startswith("An illustration, not evidence: 1 group of a type.")


def test_measures_of_a_run_are_what_its_tables_say(full_run: Any) -> None:
    measures = full_run.table("measures")
    assert set(measures.columns) == {"group_id", "group_type", "condition", *MEASURES}
    people = (
        full_run.table("satisfaction")
        .group_by("group_id", "condition", "member_id")
        .agg(pl.col("satisfaction").mean())
        .group_by("group_id", "condition")
        .agg(
            pl.col("satisfaction").mean().alias("mean"), pl.col("satisfaction").min().alias("least")
        )
    )
    joined = measures.join(people, on=["group_id", "condition"])
    assert len(joined) == len(GROUPS) * 5
    for row in joined.to_dicts():
        assert row["satisfaction"] == pytest.approx(row["mean"])
        if row["condition"] == "C2":  # expectations have no least content member
            assert row["lowest_satisfaction"] is row["inequality"] is None
        else:
            assert row["lowest_satisfaction"] == pytest.approx(row["least"])
    c4 = measures.filter(pl.col("condition") == "C4")
    assert c4["conflict_rate"].to_list() == [1.0] * 5
    by_group = dict(zip(c4["group_id"], c4["split_share"], strict=True))
    thirds = {"fam": 0, "old": 1, "team": 2, "pair": 0, "strange": 3}
    assert by_group == {g: pytest.approx(n / 3) for g, n in thirds.items()}
    assert measures.filter(pl.col("condition") == "C5")["feedback_resolution_rate"].mean() == 1.0
    for name in ("drift_rate", "feedback_resolution_rate"):
        assert measures.filter(pl.col("condition") == "C3")[name].is_null().all()


def test_c1_serves_its_one_member(full_run: Any) -> None:
    rows = full_run.table("satisfaction").filter(
        (pl.col("condition") == "C1") & (pl.col("group_id") == "pair")
    )
    by = {m: rows.filter(pl.col("member_id") == m)["satisfaction"].mean() for m in ALL[:2]}
    assert by["traveler_1"] > 2 > by["traveler_2"]


def test_the_findings_read_the_comparison(full_run: Any) -> None:
    found = {f.key: f for f in full_run.findings}
    keys = {"satisfaction", "paired_satisfaction", "by_type", "conflicts", "process", "decisions"}
    assert keys <= set(found)
    assert len(found["by_type"].grid.rows) == 5
    assert found["satisfaction"].headline
    assert [row[0] for row in found["satisfaction"].grid.rows] == ["C1", "C2", "C3", "C4", "C5"]
    assert "100 %" in found["process"].says
    assert len(found["decisions"].grid.rows) == len(GROUPS) * 8


def test_preferences_in_another_language_are_reported(
    run_negotiation: Runner, full_run: Any
) -> None:
    german = {
        "cuisine": "Ich möchte gerne gut essen gehen, am liebsten in einem kleinen Gasthaus.",
        "attraction": "Wir sollten unbedingt zusammen in die Museen der Stadt gehen.",
    }
    groups = json.loads(json.dumps(select_groups("pair")))
    for topic in groups[0]["members"][0]["preferences"]:
        text = german["cuisine" if topic != "attraction" else topic]
        groups[0]["members"][0]["preferences"][topic] = text
    run = run_negotiation(groups=groups, conditions=["C2"])
    notes = {f.key: f for f in run.findings}["satisfaction"].notes
    assert notes[0].startswith("1 of 2 members do not write in English")
    assert "English" not in " ".join({f.key: f for f in full_run.findings}["satisfaction"].notes)


def test_show(full_run: Any) -> None:
    assert "Economical for everyone" in render_run_text(full_run.folder)
    text = render_run_text(full_run.folder, "team/C4/cuisine")
    assert "sys_request_vote_cuisine" in text and "sys_synthesize_event" not in text
    assert "room_type" in render_run_text(full_run.folder, "team/c5/lodging")
    for which in ("nobody", "team/C9", "team/C4/dessert"):
        with pytest.raises(InputError, match=r"there is no|is not in this run"):
            render_run_text(full_run.folder, which)


def test_a_run_that_has_decided_nothing_yet_is_shown_as_that(full_run: Any) -> None:
    class Begun(RunFolder):
        def read_table(self, name: str) -> pl.DataFrame:
            return super().read_table(name).clear()

    assert "No decision has been made yet." in render_run_text(Begun(full_run.path))


def test_the_codebook_explains_every_column(full_run: Any) -> None:
    book = full_run.folder.read_json("codebook.json")
    columns = [(t, c, f) for t, entry in book.items() for c, f in entry["columns"].items()]
    assert len(columns) > 100
    assert [f"{t}.{c}" for t, c, f in columns if not f["meaning"]] == []
    assert set(MEASURES) == column_meanings(STUDY.tables)["measures"].keys() - {
        "group_id",
        "group_type",
        "condition",
    }


def test_slots_that_conflict_equally_often_are_all_named(full_run: Any) -> None:
    found = {f.key: f for f in full_run.findings}["conflicts"]
    grid = [dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows]
    shares = {(row["condition"], t): v for row in grid for t, v in row.items() if t != "condition"}
    most = [of for of, share in shares.items() if share == max(shares.values())]
    assert len(most) > 1
    for condition, topic in most:
        named = topic.replace("_", " ")
        assert re.search(rf"{named} under [^;]*{condition}", found.says), (found.says, topic)


@pytest.mark.parametrize("declined_in", ["all", "cuisine"])
def test_decisions_without_a_judgement_of_the_mediator_are_not_called_judged(
    run_negotiation: Runner, declined_in: str
) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        is_synthesis = request.schema is not None and "Synthesis" in request.schema["title"]
        is_declined = is_synthesis and (declined_in == "all" or declined_in in address)
        return '{"declined": true}' if is_declined else reply_sensibly(request, address)

    run = run_negotiation(reply_to, groups=select_groups("team"), conditions=["C2", "C3", "C4"])
    findings = {finding.key: finding for finding in run.findings}
    count = {"all": 16, "cuisine": 2}[declined_in]
    assert (
        f"as judged by the mediator, but by the stated preferences in {count} of 16 decisions "
        "without its judgement."
    ) in findings["conflicts"].notes[0]
    # C4 locks the strategy, whether or not a reply names one.
    assert findings["process"].says.endswith(
        "Which strategy the model named before the lock could not be read in any locked decision."
        if declined_in == "all"
        else "Before the lock, the model named another strategy in 100 % of locked decisions."
    )
