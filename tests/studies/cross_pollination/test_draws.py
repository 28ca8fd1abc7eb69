"""Several draws of the summaries: their readers, and their variance in the intervals."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.errors import InputError
from folkmoot.kit.exposure import describe_deviations
from folkmoot.measures.inference.proportions import newcombe, wilson
from folkmoot.models.request import ModelRequest
from folkmoot.studies.cross_pollination.findings.votes import read_votes
from tests.studies.cross_pollination.test_exposure import Talkers
from tests.studies.cross_pollination.test_protocol import (
    JOBS,
    join_messages,
    read_participants,
    run_scripted,
)

READERS = ("simple_passive", "clarified_passive", "acp")


def test_readers_are_divided_evenly_over_draws_that_are_sealed_and_kept_apart(
    tmp_path: Path,
) -> None:
    done = run_scripted(tmp_path, Talkers(), summary_draws=3)
    drawn = done.folder.plan["sealed"]["summary_draws"]["data"]
    table = done.table("participants")
    for arm in READERS:
        own = table.filter(condition=arm)
        assert sorted(Counter(own["summary_draw"]).values()) == [2, 2, 2]
        assert {w: drawn[w] for w in own["participant_id"]} == dict(
            own.select("participant_id", "summary_draw").iter_rows()
        )
    assert table.filter(condition="simple_voting")["summary_draw"].null_count() == 6
    pages = {p["cross_pollination_content"] for p in read_participants(done)} - {None}
    assert len(pages) == 3
    assert describe_deviations(done.folder) == []  # no participant read another draw
    summaries = done.table("summaries")
    assert Counter(summaries["draw"]) == dict.fromkeys((1, 2, 3), done.table("clusters").height)


def test_the_first_draw_is_the_one_that_a_run_without_draws_makes(tmp_path: Path) -> None:
    single, several = Talkers(), Talkers()
    run_scripted(tmp_path / "single", single)
    done = run_scripted(tmp_path / "several", several, summary_draws=2)
    assert set(single.requests) < set(several.requests)
    more = set(several.requests) - set(single.requests)
    assert more and all("/descriptions/" in a and a.endswith("ask1") for a in more)
    second = set(done.table("participants").filter(summary_draw=2)["participant_id"])
    for address, request in single.requests.items():
        if address.split("/")[1] not in second:
            assert several.requests[address] == request, address


def vote_by_draw(request: ModelRequest, address: str) -> str:
    """Return JOBS for readers of the second draw, and the own choice for all others."""
    own = join_messages(request).split('You previously chose "')[1].split('"')[0]
    return JOBS if "ask1" in join_messages(request) else own


@pytest.mark.parametrize("draws", [3, 6])
def test_variance_between_draws_is_in_the_intervals(draws: int, tmp_path: Path) -> None:
    parks = Talkers(
        initial_vote=lambda _r, a: JOBS if a.endswith("0/ask0") else "Park improvements",
        cross_pollination=vote_by_draw,
    )
    settings = {"participants_per_condition": 30, "revote": True, "disagreement_threshold": 1.0}
    settings["conditions"] = ["simple_voting", "simple_passive", "clarified_passive"]
    done = run_scripted(tmp_path / "several", parks, summary_draws=draws, **settings)
    votes = read_votes(done.folder)
    arm, floor = votes.find_condition("simple_passive"), votes.revote_condition
    assert arm is not None and floor is not None
    moved = {draw: Counter[bool]() for draw in range(1, draws + 1)}
    for row in arm.two_vote_voters:
        moved[row.summary_draw][row.position_changed] += 1
    assert not moved[1][True] and not moved[3][True] and moved[2][True]
    found, plain = votes.rate(arm), wilson(arm.changed_count, arm.participant_count)
    pair = ("simple_passive", "simple_voting")
    (difference,) = (r.estimate for r in votes.claim_results if r.claim.contrast == pair)
    assert found.value == plain.value
    apart = newcombe(
        arm.changed_count, arm.participant_count, floor.changed_count, floor.participant_count
    )
    assert plain.low > 0 and apart.p < 0.05
    headline, *_ = done.findings
    if draws < 5:  # 0, nearly 1 and 0: sure for these three texts, and for no other
        assert (found.low, found.high, difference.p) == (plain.low, plain.high, apart.p)
        assert sorted(found.each)[:2] == [0, 0] and max(found.each) > 0.5
        assert headline.unit == "participant given these 3 draws of the summaries"
        assert any("need five or more draws" in n for n in headline.notes)
        assert headline.grid.caption.endswith("95 % Wilson intervals.")
        return
    assert headline.unit == "draw of the summaries (participant in conditions that read none)"
    assert headline.units == draws and headline.independent.endswith("read none).")
    assert found.unit_count == draws
    assert "Wilson intervals, widened where an interval clustered by draw" in headline.grid.caption
    assert 0 < found.low < plain.low and found.high > plain.high
    assert difference.p > apart.p
    assert difference.high - difference.low > apart.high - apart.low


def test_figures_of_one_draw_say_that_they_are_of_this_one(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Talkers(), revote=True, participants_per_condition=10)
    told = [f for f in done.findings if f.unit == "participant given these summaries"]
    assert {"position_change", "change_differences"} <= {f.key for f in told}
    # Nobody in simple voting read a summary.
    (noise,) = (f for f in done.findings if f.key == "persuasion")
    assert (noise.unit, noise.units) == ("participant", 10)
    for finding in told:
        if finding.key in ("position_change", "change_differences"):
            assert any("not for another draw of them" in note for note in finding.notes)


def test_equal_draws_give_no_narrower_interval_than_the_plain_one(
    tmp_path: Path,
) -> None:
    done = run_scripted(tmp_path, Talkers(), summary_draws=2, participants_per_condition=10)
    votes = read_votes(done.folder)
    for arm in votes.conditions_with("summaries"):
        found, plain = votes.rate(arm), wilson(arm.changed_count, arm.participant_count)
        assert found.low <= plain.low and found.high >= plain.high
    headline, *_ = done.findings
    assert any("divided among 2 draws" in note for note in headline.notes)


def test_a_view_without_a_description_in_one_draw_is_missing_there_alone(tmp_path: Path) -> None:
    def silent(request: ModelRequest, address: str) -> str:
        return "" if "/descriptions/" in address and "ask1" in address else told(request, address)

    told = Talkers().usual
    done = run_scripted(tmp_path, Talkers(summaries=silent), summary_draws=2)
    second = [p for p in read_participants(done) if p["status"] == "skipped"]
    drawn = done.folder.plan["sealed"]["summary_draws"]["data"]
    assert second and {drawn[p["participant_id"]] for p in second} == {2}
    assert "in draw 2 of the summaries" in done.folder.text("run.log")
    assert set(done.table("summaries")["draw"]) == {1}
    (alarm,) = done.findings[0].alarms
    assert "shown to no reader" in alarm and "_cluster_0 (draw 2)" in alarm


def test_more_draws_than_readers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="summary_draws: 7 draws cannot be divided over 6 readers"):
        run_scripted(tmp_path, Talkers(), summary_draws=7)


def test_the_estimate_counts_the_draws_and_a_smaller_run_has_no_more_than_it_can_read(
    tmp_path: Path,
) -> None:
    pilot = tmp_path / "pilot.yaml"
    pilot.write_text(
        "study: cross_pollination\npilot_id: pilot\nsummary_draws: 3\nrestatement: true\n"
        "topic: {description: One purpose can be funded., options: [Parks, Jobs, Streets]}\n"
        "participants_per_condition: 6\npersonas: {source: quota}\n"
    )
    checked = CliRunner().invoke(app, ["check", str(pilot)])
    assert checked.exit_code == 0 and "rehearsal" not in checked.output
    small = folkmoot.run(pilot, model="synthetic", out=tmp_path / "run", limit=4)
    assert small.table("participants").height == 4
    assert set(small.table("summaries")["draw"]) == {1}
    counted = re.search(r"about ([\d,]+)", checked.output)
    run = folkmoot.run(pilot, model="synthetic", out=tmp_path / "whole")
    assert counted and int(counted[1].replace(",", "")) == pytest.approx(
        run.manifest["calls"], rel=0.15
    )
