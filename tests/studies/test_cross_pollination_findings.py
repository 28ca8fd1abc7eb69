"""Findings of cross-pollination on tables with results that were computed by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from folkmoot.engine.run.grid import RunGrid, build_cells
from folkmoot.measures.diversity import effective_number
from folkmoot.measures.inference.regression import logistic
from folkmoot.report.comparison.pooled import pooled_findings
from folkmoot.storage.findings import AlluvialChart, Finding, IntervalChart, ScatterChart
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import write_table
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.files import CountedVotes, summarise_conditions
from folkmoot.studies.cross_pollination.findings import compute_findings
from tests.frames import rows_to_frame

PARKS, JOBS, CARE = OPTIONS = ("Parks", "Jobs", "Care")
CLARIFIED = ("clarified_passive", "acp")


class Pilot:
    """Builds the tables of a run, one participant at a time."""

    def __init__(self, folder: Path, **config: object) -> None:
        self.folder = folder
        self.config = {
            "study": "cross_pollination",
            "pilot_id": "t",
            "topic": {"description": "d", "options": list(OPTIONS)},
            "participants_per_condition": 100,
            "revote": True,
            **config,
        }
        self.rows: list[dict[str, object]] = []
        self.answers: list[dict[str, object]] = []
        self.utterances: list[dict[str, object]] = []
        self.embeddings: dict[str, list[float]] = {}
        self.summary: dict[str, object] = {"terminated_early": False}

    def add(self, condition: str, first: str | None, last: str | None, **more: object) -> str:
        who = f"p_{len(self.rows) + 1:04d}"
        n = len(self.rows)
        order = OPTIONS[n % 3 :] + OPTIONS[: n % 3]
        row: dict[str, object] = {
            "participant_id": who,
            "condition": condition,
            "status": "complete" if first else "failed",
            "error_message": None if first else "initial vote: unparsed",
            "initial_choice": first,
            "final_choice": last,
            "position_changed": None if first is None or last is None else first != last,
            "opposition_view": None,
            "cluster_id": None,
            "individual_summary": None,
            "options_shown": list(order),
            "demographic_age": 20 + (7 * n) % 50,
            "demographic_sex": "FM"[n % 2],
        }
        row.update(more)
        self.rows.append(row)
        if first:
            self.answers.append(
                {
                    "stage": "initial_vote",
                    "role": "participant",
                    "kind": "choice",
                    "parse_step": "exact",
                    "reasks": 0,
                    "missing": None,
                    "words": 1,
                    "options": list(order),
                }
            )
        return who

    def add_participants(
        self, condition: str, moves: dict[tuple[str, str], int], **more: object
    ) -> None:
        for (first, last), count in moves.items():
            for _ in range(count):
                self.add(condition, first, last, **more)

    def run(self) -> RunFolder:
        (self.folder / "tables").mkdir(parents=True)
        for name, rows in (
            ("participants", self.rows),
            ("answers", self.answers),
            ("utterances", self.utterances),
        ):
            if rows:
                write_table(self.folder / "tables", name, rows_to_frame(rows))
        (self.folder / "study.yaml").write_text(yaml.safe_dump(self.config))
        (self.folder / "manifest.json").write_text(json.dumps({"outcome": "done"}))
        (self.folder / "checkpoint.json").write_text(json.dumps(self.summary))
        (self.folder / "individual_embeddings.json").write_text(
            json.dumps({"embeddings": self.embeddings})
        )
        return RunFolder(self.folder)

    def read_findings(self) -> dict[str, Finding]:
        return {finding.key: finding for finding in compute_findings(self.run())}


STILL = {(PARKS, PARKS): 30, (JOBS, JOBS): 30, (CARE, CARE): 30}


@pytest.fixture
def pilot(tmp_path: Path) -> Pilot:
    """Make 100 participants per condition, 130 in the adversarial one: 5, 10, 10, 40 changes."""
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants(
        "simple_voting", {**STILL, (PARKS, JOBS): 3, (JOBS, PARKS): 2, (CARE, CARE): 35}
    )
    pilot.add_participants("simple_passive", {**STILL, (PARKS, JOBS): 6, (CARE, JOBS): 4})
    pilot.add_participants("clarified_passive", {**STILL, (PARKS, JOBS): 6, (CARE, PARKS): 4})
    pilot.add_participants("acp", {**STILL, (CARE, PARKS): 8}, opposition_view=JOBS)
    pilot.add_participants("acp", {(PARKS, JOBS): 32}, opposition_view=JOBS)
    return pilot


def column(finding: Finding, name: str) -> dict[str, object]:
    """Return a column of a grid by its first column."""
    at = finding.grid.columns.index(name)
    return {str(r[0]): r[at] for r in finding.grid.rows}


def test_headline_rates(pilot):
    finding = pilot.read_findings()["position_change"]
    assert finding.headline
    assert column(finding, "changed") == {
        "Simple voting": 5,
        "Simple passive": 10,
        "Clarified passive": 10,
        "Adversarial (ACP)": 40,
    }
    assert column(finding, "changed_rate")["Simple passive"] == pytest.approx(0.1)
    # Wilson for 10 of 100.
    assert column(finding, "low_rate")["Simple passive"] == pytest.approx(0.0552291, abs=1e-6)
    assert column(finding, "high_rate")["Simple passive"] == pytest.approx(0.1743657, abs=1e-6)
    assert "Simple passive: 10 of 100 changed, 10 % (6 to 17 %)" in finding.says
    assert isinstance(finding.chart, IntervalChart)


def test_votes_before_and_after(pilot):
    votes = pilot.read_findings()["votes"]
    assert votes.headline
    assert column(votes, "Adversarial (ACP)") == {
        PARKS: "62 → 38",
        JOBS: "30 → 62",
        CARE: "38 → 30",
    }
    # The most votes are no majority.
    assert f"“{PARKS}” has the most first votes, 167 of 430 (39 %)" in votes.says


def test_options_with_equal_numbers_of_votes_are_all_named(tmp_path: Path) -> None:
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants("acp", {(PARKS, JOBS): 4, (JOBS, CARE): 4, (CARE, CARE): 4})
    found = pilot.read_findings()
    most_voted = f"“{PARKS}”, “{JOBS}” and “{CARE}”"
    assert f"{most_voted} have the most first votes, 4 of 12 each (33 %)" in found["votes"].says
    assert found["votes"].conclusion == f"most voted {most_voted}"
    assert (
        f"the most frequent changes are those of 4 each, from “{PARKS}” to “{JOBS}” "
        f"(Adversarial (ACP)) and from “{JOBS}” to “{CARE}” (Adversarial (ACP))."
    ) in found["transitions"].says
    assert (
        f"the largest net shifts are “{PARKS}” −4 in Adversarial (ACP) (0 gained, 4 lost) and "
        f"“{CARE}” +4 in Adversarial (ACP) (4 gained, 0 lost)."
    ) in found["option_shifts"].says


def test_differences_and_floor(pilot):
    found = pilot.read_findings()
    pairs = found["change_differences"]
    assert len(pairs.grid.rows) == 6
    assert pairs.headline
    shown = r"Adversarial \(ACP\) − Simple voting \+26 points \(\+16 to \+35 by itself, "
    shown += r"\+14 to \+37 jointly, adjusted p < \.001\)"
    assert re.search(f"{shown}: a difference is shown", pairs.says)
    # Only the table contains pairs that are not primary.
    assert pairs.says.endswith("The table also has 3 exploratory estimates, without a conclusion.")
    assert "Clarified passive − Simple passive" not in pairs.says
    values = {(r[0], r[1]): r[3] for r in pairs.grid.rows}
    assert values["Simple passive", "Simple voting"] == pytest.approx(10 / 100 - 5 / 100)
    assert values["Adversarial (ACP)", "Simple voting"] == pytest.approx(40 / 130 - 5 / 100)
    assert (
        "When asked again without new information, 5 % (2 to 11 %) choose differently"
        in found["persuasion"].says
    )
    # The unit counts the participants of this figure, not those of the run.
    assert found["persuasion"].units == found["persuasion"].grid.rows[0][1] == 100


def test_moves(pilot):
    found = pilot.read_findings()
    flow = found["transitions"].chart
    assert isinstance(flow, AlluvialChart)
    assert ("Adversarial (ACP)", PARKS, JOBS, 32) in flow.links
    assert sum(n for *_, n in flow.links) == 100 + 100 + 100 + 130
    says = found["towards_opposition"].says
    assert "Of 130 participants who faced an opposing view, 32 moved to it, 8 to another" in says
    assert "That is 80 % (65 to 90 %) of those who moved; random moves would give 50 %" in says
    shifted = found["marginal_homogeneity"]
    assert "Adversarial (ACP) 40.0 on 2 degrees of freedom" in shifted.says
    assert "p " not in shifted.says
    assert column(shifted, "bowker")["Simple voting"] == pytest.approx(1 / 5)
    net = found["option_shifts"]
    assert "“Jobs” +32 in Adversarial (ACP) (32 gained, 0 lost" in net.says


def test_regression_is_that_of_the_measure(pilot):
    finding = pilot.read_findings()["regression"]
    odds = {(r[0], r[1]): r[2] for r in finding.grid.rows}
    rows = [r for r in pilot.rows if r["position_changed"] is not None]
    direct = logistic(
        [bool(r["position_changed"]) for r in rows],
        {
            "condition": [r["condition"] for r in rows],
            "first choice": [r["initial_choice"] for r in rows],
            "age": [r["demographic_age"] for r in rows],
            "sex": [r["demographic_sex"] for r in rows],
        },
        reference={"condition": "simple_voting", "first choice": PARKS},
    )
    expected = {(t.variable, t.level): t.odds_ratio for t in direct.terms}
    assert odds["condition", "Adversarial (ACP)"] == pytest.approx(expected["condition", "acp"])
    assert "demographics held equal" in finding.says


def test_spread_and_bands(pilot):
    found = pilot.read_findings()
    spread = {(r[0], r[1]): r[3] for r in found["diversity"].grid.rows}
    assert spread["Simple passive", "before"] == pytest.approx(effective_number([36, 30, 34]))
    assert spread["Simple passive", "after"] == pytest.approx(effective_number([30, 40, 30]))
    bands = found["human_bands"]
    # Short texts are compared with a short debate, and not with days of deliberation.
    design = "agreement of 1 to 5 with a proposition before and after a short written debate"
    people = f"35 % to 42 % in people ({design})"
    assert f"(against, undecided, for): {people}; in this run Simple passive 10 %" in bands.says
    assert "inside" not in bands.says and "outside" not in bands.says
    assert len([n for n in bands.notes if n.startswith("Source:")]) == 2
    assert "evenness 0.99" in found["spread_of_votes"].grid.rows[0][2]


def test_order_of_options_is_estimated(pilot):
    finding = pilot.read_findings()["position_effects"]
    assert column(finding, "effect_points").keys() == {"1", "2", "3"}
    assert "effect of being listed first" in finding.says


def test_losses_are_bounded(tmp_path):
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants("simple_voting", {(PARKS, PARKS): 90, (PARKS, JOBS): 10})
    pilot.add_participants("acp", {(PARKS, PARKS): 60, (PARKS, JOBS): 20})
    for _ in range(20):
        pilot.add("acp", PARKS, None, status="failed", error_message="final vote: unparsed")
    finding = pilot.read_findings()["attrition"]
    assert "20 participants who should have voted twice did not" in finding.says
    assert isinstance(finding.chart, IntervalChart)
    ((name, *bounds),) = finding.chart.items
    assert name == "Adversarial (ACP) − Simple voting"
    assert bounds == pytest.approx([0.15, 0.1, 0.3])
    assert column(finding, "reasons")["Adversarial (ACP)"] == "final vote: unparsed (20)"
    assert column(finding, "no_final_vote") == {"Simple voting": 0, "Adversarial (ACP)": 20}


def test_a_difference_with_bounds_is_pooled_once(tmp_path):
    """Only some cells of a grid miss votes. The difference is that of all cells, with one p."""
    axes: dict[str, list[str]] = {}
    cells = tuple(build_cells(axes, 6, 1))
    findings_by_cell = {}
    for cell in cells:
        pilot = Pilot(tmp_path / cell.name)
        pilot.add_participants("simple_voting", {(PARKS, PARKS): 90, (PARKS, JOBS): 10})
        pilot.add_participants("acp", {(PARKS, PARKS): 60, (PARKS, JOBS): 20 + cell.repeat})
        for _ in range(10 * (cell.repeat % 2)):
            pilot.add("acp", PARKS, None, status="failed", error_message="final vote: unparsed")
        findings_by_cell[cell.name] = list(pilot.read_findings().values())
    findings = pooled_findings(RunGrid(tmp_path, axes, 6, cells), findings_by_cell)
    curves = [finding.title for finding in findings if finding.section == "Specification curves"]
    difference = "Adversarial (ACP) − Simple voting"
    assert curves.count(f"Specification curve: {difference}") == 1
    (table,) = (finding.grid for finding in findings if finding.key == "grid_standing")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    (row,) = (row for row in rows if row["figure"] == difference)
    assert (row["finding"], row["cells"]) == ("Differences between conditions", "6 of 6")
    # The difference is a primary claim, which has its p elsewhere.
    assert row["p"] is row["holm_p"] is None


def test_a_condition_that_votes_once_loses_only_those_without_a_first_vote(tmp_path):
    pilot = Pilot(tmp_path / "run", revote=False)
    pilot.add_participants("simple_voting", {(PARKS, None): 47})
    for _ in range(3):
        pilot.add("simple_voting", None, None)
    pilot.add_participants("acp", STILL)
    pilot.add("acp", None, None)
    pilot.add("acp", PARKS, None, status="failed", error_message="final vote: unparsed")
    # The participant voted twice and failed later, so no rate of change counts this vote.
    pilot.add("acp", PARKS, JOBS, status="failed", error_message="delayed vote: unparsed")
    found = pilot.read_findings()
    finding = found["attrition"]
    assert column(finding, "no_first_vote") == {"Simple voting": 3, "Adversarial (ACP)": 1}
    assert column(finding, "no_final_vote") == {"Simple voting": None, "Adversarial (ACP)": 2}
    shares = column(finding, "missing_share")
    assert shares == pytest.approx({"Simple voting": 3 / 50, "Adversarial (ACP)": 3 / 93})
    assert column(finding, "reasons")["Simple voting"] == "initial vote: unparsed (3)"
    assert "3 participants who should have voted twice did not" in finding.says
    assert column(found["position_change"], "changed")["Adversarial (ACP)"] == 0
    counted = [CountedVotes(*(row[name] for name in CountedVotes._fields)) for row in pilot.rows]
    summary = summarise_conditions(CrossPollinationConfig.model_validate(pilot.config), counted)
    assert summary["acp"]["position_changed_rate"] == 0
    assert summary["simple_voting"]["position_changed_rate"] is None


def test_each_missing_participant_has_a_reason_in_the_table(tmp_path):
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants("acp", STILL)
    ways_out = ("declined", "none_of_these", "cannot_say")
    for reason in [f"{vote} vote: {way}" for vote in ("initial", "final") for way in ways_out]:
        first = PARKS if reason.startswith("final") else None
        pilot.add("acp", first, None, status="skipped", error_message=reason)
    for n in range(4):
        pilot.add("simple_voting", PARKS, None, status="failed", error_message=f"error {n}")
    pilot.add("simple_voting", PARKS, None, status="skipped", error_message="final vote: declined")
    for n in range(4):
        pilot.add("simple_voting", PARKS, None, status="failed", error_message=f"error {n + 4}")
    finding = pilot.read_findings()["attrition"]
    reasons = column(finding, "reasons")
    assert "final vote: declined (1)" in reasons["Adversarial (ACP)"]
    for name, listed in reasons.items():
        counts = [int(text) for text in re.findall(r"\((\d+)\)", listed)]
        without = column(finding, "no_first_vote")[name] + column(finding, "no_final_vote")[name]
        assert sum(counts) == without
    assert reasons["Simple voting"].endswith("; other reasons (3)")


def test_a_reason_with_an_address_is_whole_and_a_longer_one_is_marked_as_cut(tmp_path):
    address = "adversarial_dialogue/p_0008/ask1"
    reason = f"adversarial dialogue (participant): withdrawn: asked at {address}"
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants("acp", STILL)
    for message in (reason, "error " * 50):
        pilot.add("acp", PARKS, None, status="failed", error_message=message)
    reasons = column(pilot.read_findings()["attrition"], "reasons")["Adversarial (ACP)"]
    assert f"{reason} (1)" in reasons
    assert "… (1)" in reasons


def test_losses_that_could_overturn_are_named(tmp_path):
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants("simple_voting", {(PARKS, PARKS): 90, (PARKS, JOBS): 10})
    pilot.add_participants("acp", {(PARKS, PARKS): 40, (PARKS, JOBS): 20})
    for _ in range(140):
        pilot.add("acp", PARKS, None, status="failed")
    assert (
        "Their votes could change the sign of: Adversarial (ACP) − Simple voting (0 to"
        in pilot.read_findings()["attrition"].says
    )


def test_without_revote_there_is_no_floor(tmp_path):
    pilot = Pilot(tmp_path / "run", revote=False)
    pilot.add_participants("simple_voting", {(PARKS, None): 50})
    pilot.add_participants("simple_passive", {**STILL, (PARKS, JOBS): 10})
    pilot.add_participants("acp", {**STILL, (PARKS, JOBS): 40})
    found = pilot.read_findings()
    assert column(found["position_change"], "changed_rate")["Simple voting"] is None
    assert column(found["votes"], "Simple voting")[PARKS] == "50"
    assert "cannot separate persuasion from noise" in found["persuasion"].says
    assert not found["persuasion"].headline
    assert "No participant who should have voted twice is missing." in found["attrition"].says
    assert len(found["change_differences"].grid.rows) == 1


def test_findings_without_changes(tmp_path):
    pilot = Pilot(tmp_path / "run")
    for condition in ("simple_voting", "simple_passive", "acp"):
        pilot.add_participants(
            condition, STILL, opposition_view=JOBS if condition == "acp" else None
        )
    found = pilot.read_findings()
    assert found["position_change"].says.startswith("No participant changed their choice.")
    assert "no regression can be fitted" in found["regression"].says
    assert "No vote changed." in found["transitions"].says
    told = found["change_differences"].says
    assert told.count("neither shown nor ruled out") == 2 and "is shown" not in told
    assert "every option kept its number of votes" in found["outcome_shift"].says
    assert "0 moved to it" in found["towards_opposition"].says


def test_findings_where_all_participants_changed(tmp_path):
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants("simple_voting", {(PARKS, JOBS): 20})
    pilot.add_participants("acp", {(PARKS, CARE): 20}, opposition_view=CARE)
    found = pilot.read_findings()
    assert "Every participant changed" in found["regression"].says
    assert column(found["position_change"], "changed_rate")["Simple voting"] == 1.0


def test_early_end(tmp_path):
    pilot = Pilot(tmp_path / "run")
    for condition in ("simple_passive", "acp"):
        for _ in range(20):
            pilot.add(condition, PARKS, None, status="skipped", error_message="terminated early")
    pilot.summary = {"terminated_early": True, "termination_reason": "all for Parks"}
    found = pilot.read_findings()
    assert found["position_change"].says == (
        "The study ended before the final votes: all for Parks."
    )
    assert found["position_change"].chart is None
    assert "persuasion" not in found
    assert found["attrition"].says == (
        "The study ended early: 40 participants did not vote a second time."
    )
    assert "spread of the votes is unlike that of people" in found["spread_of_votes"].says


def test_findings_without_answers(tmp_path):
    pilot = Pilot(tmp_path / "run")
    for condition in ("simple_passive", "acp"):
        for _ in range(3):
            pilot.add(condition, None, None)
    found = pilot.read_findings()
    assert "No participant voted twice" in found["position_change"].says
    assert "transitions" not in found
    assert column(found["position_change"], "failed") == {
        "Simple passive": 3,
        "Adversarial (ACP)": 3,
    }
    assert "6 participants who should have voted twice did not" in found["attrition"].says


def test_no_tables(tmp_path):
    pilot = Pilot(tmp_path / "run")
    assert "No participant voted twice" in pilot.read_findings()["position_change"].says


def test_one_participant_per_condition(tmp_path):
    pilot = Pilot(tmp_path / "run")
    pilot.add("simple_voting", PARKS, PARKS)
    pilot.add("simple_passive", JOBS, JOBS)
    pilot.add("acp", CARE, PARKS, opposition_view=PARKS)
    found = pilot.read_findings()
    assert column(found["position_change"], "changed_rate")["Adversarial (ACP)"] == 1.0
    assert "Too few participants" in found["regression"].says
    assert all(finding.says for finding in found.values())


def clustered(tmp_path: Path, noise: float) -> dict[str, Finding]:
    pilot = Pilot(tmp_path / "run")
    rng = np.random.default_rng(0)
    for i in range(40):
        group = i % 2
        who = pilot.add(
            CLARIFIED[i // 2 % 2],
            PARKS,
            PARKS,
            cluster_id=f"Parks_cluster_{group}",
            individual_summary=f"reason {group} of person {i}",
        )
        vector = np.eye(16)[group] + rng.normal(0, noise, 16)
        pilot.embeddings[who] = (vector / np.linalg.norm(vector)).tolist()
    return pilot.read_findings()


def test_clusters_that_hold(tmp_path):
    found = clustered(tmp_path, 0.02)
    quality = found["cluster_quality"]
    assert "Structure by the silhouette: strong in Parks." in quality.says
    assert "stable when members are redrawn" in quality.says
    assert column(quality, "clusters") == {"Parks": 2}
    assert column(quality, "stability")["Parks"] == pytest.approx(1.0)
    assert column(quality, "silhouette")["Parks"] > 0.8
    chart = found["cluster_map"].chart
    assert isinstance(chart, ScatterChart)
    assert len(chart.items) == 40
    words = found["cluster_words"].grid
    assert len(words.rows) == 6
    for row in words.rows:
        assert f"reason {str(row[0])[-1]}" in str(row[4])


def test_clusters_of_noise_are_called_weak(tmp_path):
    found = clustered(tmp_path, 2.0)
    assert "Structure by the silhouette: none in Parks." in found["cluster_quality"].says
    tried = found["cluster_number"].grid
    assert [r[1] for r in tried.rows] == [2, 3, 4, 5, 6]


def test_a_changed_number_of_clusters_is_reported(tmp_path):
    pilot = Pilot(tmp_path / "run")
    for i in range(30):  # three groups apart, two of them called one cluster by the run
        group = i % 3
        who = pilot.add("acp", PARKS, PARKS, cluster_id=f"Parks_cluster_{group // 2}")
        pilot.embeddings[who] = (np.eye(16)[group] + 0.01 * np.eye(16)[i % 5 + 5]).tolist()
    says = pilot.read_findings()["cluster_number"].says
    assert "was chosen: Parks 2." in says
    assert says.endswith("In a recomputation the largest silhouette is at: Parks 3.")


def test_fit_model_raises_no_flag_and_an_unfit_one_does(tmp_path):
    fit = Pilot(tmp_path / "fit")
    fit.add_participants("simple_voting", {**STILL, (PARKS, JOBS): 5})
    fit.add_participants("acp", {**STILL, (PARKS, JOBS): 20})
    says = fit.read_findings()["respondent_checks"]
    assert not says.headline
    assert "failed" not in column(says, "verdict").values()
    unfit = Pilot(tmp_path / "unfit")
    unfit.add_participants(
        "simple_voting", {(PARKS, JOBS): 40, (PARKS, PARKS): 20, (JOBS, JOBS): 30}
    )
    for row in unfit.answers[:30]:
        row.update(parse_step="missing", reasks=2, missing="unparsed", words=40)
    flagged = unfit.read_findings()["respondent_checks"]
    assert flagged.headline
    flags = column(flagged, "verdict")
    assert flags["Instability"] == "failed"
    assert flags["Answers off the list"] == "failed"
    assert flags["Over-long replies"] == "failed"
    # Thirty unreadable replies may be refusals in other words, so no doubt is removed.
    assert flags["Refusals"] == "not known"


def test_placebo_arms_tell_sycophancy(tmp_path):
    pilot = Pilot(tmp_path / "run", extra_conditions=["names_only", "empty_argument"])
    pilot.add_participants("simple_voting", {(PARKS, PARKS): 95, (PARKS, JOBS): 5})
    pilot.add_participants("empty_argument", {(PARKS, PARKS): 50, (PARKS, JOBS): 50})
    pilot.add_participants("names_only", {(PARKS, PARKS): 94, (PARKS, JOBS): 6})
    found = pilot.read_findings()
    assert "Names only and empty argument contain no argument" in found["persuasion"].says
    assert column(found["respondent_checks"], "verdict")["Sycophancy"] == "failed"


def test_a_weak_structure_is_not_called_a_good_one(tmp_path):
    found = clustered(tmp_path, 0.17)
    silhouette = column(found["cluster_quality"], "silhouette")["Parks"]
    assert 0.26 <= silhouette <= 0.5
    says = found["cluster_quality"].says
    assert "Structure by the silhouette: weak in Parks." in says
    assert "separated" not in says and "not as real groups of opinion" in says


def test_a_test_that_is_not_significant_shows_no_equality(tmp_path):
    """Losses of one option to another, too few to be significant: nothing says that moves cancel
    out, that anything stayed the same, or that as many came as went."""
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants(
        "simple_voting", {(PARKS, PARKS): 40, (JOBS, JOBS): 40, (PARKS, JOBS): 2}
    )
    pilot.add_participants("acp", {(PARKS, PARKS): 30, (JOBS, JOBS): 30, (PARKS, JOBS): 25})
    found = pilot.read_findings()
    shifted = found["marginal_homogeneity"].says
    assert "Simple voting 2.0 on 1 degree of freedom; Adversarial (ACP) 25.0 on 1" in shifted
    for finding in found.values():
        for words in ("cancel out", "as many moved", "no change", "well separated"):
            assert words not in finding.says, finding.key


def test_a_difference_that_is_not_shown_is_not_ruled_out(tmp_path):
    pilot = Pilot(tmp_path / "run")
    pilot.add_participants(
        "simple_voting", {(PARKS, PARKS): 40, (JOBS, JOBS): 40, (PARKS, JOBS): 4}
    )
    pilot.add_participants("acp", {(PARKS, PARKS): 40, (JOBS, JOBS): 40, (JOBS, PARKS): 4})
    found = pilot.read_findings()
    assert "a difference is neither shown nor ruled out" in found["change_differences"].says


def test_a_contrast_is_in_one_table_with_one_adjusted_p(pilot):
    holders = [
        finding.key
        for finding in pilot.read_findings().values()
        for row in finding.grid.rows
        if row[:2] == ("Adversarial (ACP)", "Simple voting")
    ]
    assert holders == ["change_differences"]


@pytest.mark.parametrize(
    ("prompts", "wording"),
    [(None, "the prompts of Folkmoot"), ("mine", "the prompts of the study file")],
)
def test_the_exposure_of_the_source_in_other_words_is_called_that(tmp_path, prompts, wording):
    pilot = Pilot(tmp_path / "run", exposure="source", prompts=prompts)
    pilot.add_participants("simple_voting", STILL)
    pilot.add_participants("acp", STILL)
    notes = " ".join(pilot.read_findings()["position_change"].notes)
    assert f"With the exposure of the source study and {wording}," in notes
    assert "source's prompts" not in notes
    assert "as those of other participants" in notes


def test_the_interval_of_a_change_in_confidence_stays_on_the_scale(tmp_path: Path) -> None:
    pilot = Pilot(tmp_path / "run")
    for gain in (30, 30, 31, 29, 30, -88):
        before = 90 if gain < 0 else 10
        pilot.add(
            "acp",
            PARKS,
            JOBS,
            confidence_before=float(before),
            confidence_after=before + float(gain),
        )
    found = pilot.read_findings()["confidence"]
    (row,) = (dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows)
    # The unbounded interval begins at -119.6.
    assert row["change"] == pytest.approx(62 / 6)
    assert row["low"] == -100.0 and row["high"] == pytest.approx(40.09, abs=0.01)
    assert "+10.33 (−100.00 to +40.09)" in found.says
