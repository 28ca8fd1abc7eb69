"""Planted effects in the codes of utterances, and not in closed answers.

The embedded coder sees one text and the codebook. What it finds is held against what is planted and
against a null: the same product twice, a level that differs in nothing, a mediator who follows
nobody, people who read nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from folkmoot.storage.run_folder import RunFolder
from tests.planted import test_planted_focus_group as focus_group
from tests.planted.test_planted_truth import run_pilot
from tests.studies.negotiation import test_planted_truth as negotiation
from tests.studies.town_hall import test_planted_hall as town_hall


def read_codes(run: RunFolder, codebook: str) -> pl.DataFrame:
    """Return a row for each text and code of the coder."""
    return run.read_table("codes").filter(codebook=codebook, by="coder")


def test_a_good_and_a_bad_product_are_told_apart_by_what_people_say(tmp_path: Path) -> None:
    def praised(settings: dict[str, object], name: str) -> dict[str, float]:
        run = focus_group.run_groups(tmp_path / name, settings, groups=2, coding="on")
        found = read_codes(run, "opinion").with_columns(
            of=pl.col("text_id").str.split("/").list.get(1),
            praise=pl.col("code").is_in(["keen", "favourable"]),
        )
        return dict(found.group_by("of").agg(pl.col("praise").mean()).iter_rows())

    share = praised(focus_group.TWO_STIMULI, "two")
    assert share["good"] > share["bad"] + 0.4
    twice = [{**stimulus, "stimulus_material": focus_group.GOOD} for stimulus in list_stimuli()]
    same = praised({"stimuli": twice}, "same")
    assert abs(same["good"] - same["bad"]) < 0.15


def list_stimuli() -> list[dict[str, str]]:
    return focus_group.TWO_STIMULI["stimuli"]


# Daily, test_planted_hall has this effect without codes, and two tests here read other codes.
@pytest.mark.nightly(part="truths")
def test_a_chair_who_names_people_has_their_concerns_answered(tmp_path: Path) -> None:
    """Over five seeds the shares with and without a chair differ by .33 on average, those of two
    levels without one by .14 at most."""
    run = town_hall.run_planted_hall(
        tmp_path, ["quiet", "again", "chaired"], sets=3, coding="on"
    ).folder
    met = read_codes(run, "concern").filter(pl.col("code").is_in(["understood", "answered"]))
    texts = run.read_table("texts").filter(codebook="concern")["text_id"]
    voiced, heard = (Counter(map(parse_level, some)) for some in (texts, set(met["text_id"])))
    share = {name: heard[name] / n for name, n in voiced.items()}
    gain = share["chaired"] - (share["quiet"] + share["again"]) / 2
    assert gain > 0.15
    assert abs(share["again"] - share["quiet"]) < gain


def parse_level(text_id: str) -> str:
    """Return the level of a text id: quiet, of set01_lvquiet/A09."""
    return text_id.split("/")[0].split("_lv")[1]


# Daily, test_planted_truth of the negotiation finds this without codes.
@pytest.mark.nightly(part="truths")
def test_a_minority_gets_its_wish_as_often_as_the_mediator_follows_it(tmp_path: Path) -> None:
    found = []
    for follows in (0.0, 0.35, 1.0):
        out = tmp_path / str(follows)
        some = negotiation.FEW if follows in (0, 1) else {}
        run = negotiation.run_groups(out, follows, ["C3"], coding="on", **some).folder
        found.append(compute_own_wish_share(run))
    assert found[0] < 0.15 and found[2] > 0.7
    assert found[0] + 0.15 < found[1] < found[2] - 0.15


def compute_own_wish_share(run: RunFolder) -> float:
    """Return the share of members who get their first wish, now or later, by the codes of the
    dialogue. Members with the most common wish of the group do not count."""
    gets = {
        (row["text_id"], of["option"].casefold(), of["member"])
        for row in read_codes(run, "decision").iter_rows(named=True)
        if row["code"] in ("chosen", "later", "fallback") and (of := json.loads(row["of"]))
    }
    got = []
    wishes = run.read_table("preferences").group_by("group_id", "topic", maintain_order=True)
    for (group, topic), rows in wishes:
        first = {row["member_name"]: first_named_option(row) for row in rows.iter_rows(named=True)}
        common = Counter(first.values()).most_common(1)[0][0]
        got += [
            (f"{group}/C3/{topic}", wish, name) in gets
            for name, wish in first.items()
            if wish not in ("", common)
        ]
    return sum(got) / len(got)


def first_named_option(row: dict[str, str]) -> str:
    text = row["text"].casefold()
    options = [o.casefold() for o in row["options_shown"].split("; ")]
    return min((o for o in options if o in text), key=text.index, default="")


def test_readers_of_the_other_side_can_give_its_reasons(tmp_path: Path) -> None:
    run = run_pilot(tmp_path, 12, restatement=True, coding="on")
    arms = run.read_table("participants").select("participant_id", "condition")
    found = read_codes(run, "restated").join(arms, on="participant_id")
    share = dict(found.group_by("condition").agg((pl.col("code") == "restated").mean()).iter_rows())
    assert share.pop("simple_voting") < 0.2
    assert len(share) == 3 and min(share.values()) > 0.8
