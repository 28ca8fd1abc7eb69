"""What the controls of a run say: user drift, persona kept, reliability of decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import polars as pl

from folkmoot.kit.controls.asking import finished_controls
from folkmoot.kit.controls.conversations import FINAL, FIRST
from folkmoot.kit.controls.tables import FACT, NEGATIVE, RETEST, ControlRow
from folkmoot.kit.findings import cells, intervals, p, share
from folkmoot.measures.agreement import kappa_of_possible
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, PASSED, Margin
from folkmoot.measures.drift import Answers, Drift, measure_drift
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import Estimate, known, percent, plural
from folkmoot.measures.inference.proportions import wilson
from folkmoot.randomness import generator
from folkmoot.storage.findings import Cell, Finding, Grid
from folkmoot.storage.run_folder import CONTROLS, RunFolder

SECTION = "Controls"
BY_QUESTION = "negative_controls"  # the key of a wide table
MOST_DRIFT = Margin(high=0.1)  # of the mean distance: a tenth of the answers
LEAST_KEPT = Margin(low=0.9)
LEAST_RELIABLE = Margin(low=0.8)  # share of decisions that a second asking gives again
_MOST_CONDITIONS = 6  # of which all pairs are compared


class Contrast(NamedTuple):
    """Two groups of control answers: (condition, moment) each."""

    first: tuple[str, str]
    second: tuple[str, str]

    @property
    def says(self) -> str:
        if self.first[0] == self.second[0]:
            return f"{self.first[0]}: {self.second[1]} against {self.first[1]} decision"
        return f"{self.first[0]} against {self.second[0]}"


def control_findings(run: RunFolder) -> list[Finding]:
    """The findings of the controls of a run; empty where it names none and has none."""
    if finished_controls(run) is None:
        return [_unfinished()] if run.config.get("controls") and run.finished else []
    table = RunFolder(run.path / CONTROLS).table(ControlRow.table)
    others = (_kept(table), _reliability(table))
    return [*_drift(table), *(finding for finding in others if finding is not None)]


def _unfinished() -> Finding:
    return Finding(
        "controls_unfinished",
        "Controls are not finished",
        "The study file names controls, and not all of them were asked: a resume of the run "
        "(--resume) asks the rest.",
        Grid((), ()),
        section=SECTION,
        headline=True,
    )


def _drift(table: pl.DataFrame) -> list[Finding]:
    """The drift of each contrast, and the questions behind it."""
    negative = table.filter(control=NEGATIVE).filter(pl.col("missing").is_null())
    questions = negative["question"].unique(maintain_order=True).to_list()
    drifts = {c: _measure(negative, c, questions) for c in _contrasts(negative)}
    if not drifts:
        return []
    verdicts = {c: MOST_DRIFT.judge(drift.mean) for c, drift in drifts.items()}
    rows = [
        {
            "contrast": contrast.says,
            **cells(drift.mean, "drift_share", "_share"),
            "p": p(drift.mean),
            "units": drift.mean.units,
            "verdict": verdicts[contrast],
        }
        for contrast, drift in drifts.items()
    ]
    failed = [c.says for c, verdict in verdicts.items() if verdict == FAILED]
    lines = {contrast.says: drift.mean for contrast, drift in drifts.items()}
    drift_finding = Finding(
        "user_drift",
        "Does the treatment change who answers?",
        _drift_aloud(list(verdicts.values()), failed),
        Grid.of(
            rows,
            "Drift: the mean total variation of the answers beyond chance. 95 % intervals by "
            "bootstrap over independent units, p by exchanging them.",
        ),
        intervals(lines, "drift", percent=True),
        notes=(
            "Negative controls are questions that no treatment can change. Where their answers "
            "differ between conditions, the model plays other people than before, and an effect "
            'may be theirs ("The Illusion of Intervention", arXiv 2605.20767).',
        ),
        section=SECTION,
        headline=bool(failed),
        alarms=tuple(f"User drift: {name}." for name in failed),
        unit=_unit_of(negative),
        units=min(drift.mean.units for drift in drifts.values()),
    )
    return [drift_finding, _questions(drifts, questions)]


def _drift_aloud(verdicts: Sequence[str], failed: Sequence[str]) -> str:
    margin, among = percent(MOST_DRIFT.high), plural(len(verdicts), "contrast")
    said = [f"Drift is at most {margin} in {verdicts.count(PASSED)} of {among}"]
    said += [f"above it in {', '.join(failed)}"] if failed else []
    unknown = verdicts.count(NOT_KNOWN)
    said += [f"not known in {unknown}"] if unknown else []
    return "; ".join(said) + "."


def _questions(drifts: Mapping[Contrast, Drift], questions: Sequence[str]) -> Finding:
    """How far each question differs, so that a drift can be traced."""
    rows: list[dict[str, Cell]] = [
        {"question": name, **{c.says: known(d.questions[at].distance) for c, d in drifts.items()}}
        for at, name in enumerate(questions)
    ]
    return Finding(
        BY_QUESTION,
        "Negative controls, question by question",
        f"{plural(len(questions), 'question')} that no treatment can change.",
        Grid.of(
            rows,
            "Total variation between the two sides: half the sum of the absolute differences of "
            "shares; numbers are divided at their quartiles. Finite samples differ by chance.",
        ),
        section=SECTION,
    )


def _unit_of(rows: pl.DataFrame) -> str:
    alone = rows.select((pl.col("unit") == pl.col("participant_id")).all()).item()
    return "participant" if alone else "conversation"


def _contrasts(negative: pl.DataFrame) -> Iterator[Contrast]:
    """The final decisions of each two conditions, then first and final decisions of the same
    people."""
    groups = negative.select("condition", "moment").unique(maintain_order=True).rows()
    final = [group for group in groups if group[1] == FINAL]
    yield from (Contrast(*pair) for pair in combinations(final[:_MOST_CONDITIONS], 2))
    yield from (
        Contrast((condition, FIRST), (condition, FINAL))
        for condition, _ in final
        if (condition, FIRST) in groups
    )


def _measure(negative: pl.DataFrame, contrast: Contrast, questions: Sequence[str]) -> Drift:
    arms = [
        negative.filter(condition=condition, moment=moment)
        for condition, moment in (contrast.first, contrast.second)
    ]
    pairs = [(_answers(arms[0], name), _answers(arms[1], name)) for name in questions]
    return measure_drift(pairs, generator(0, ("drift", *contrast.first, *contrast.second)))


def _answers(arm: pl.DataFrame, question: str) -> Answers:
    rows = arm.filter(question=question)
    values = [v if v is not None else n for v, n in rows.select("value", "number").iter_rows()]
    return Answers(tuple(values), tuple(rows["unit"].to_list()))


def _kept(table: pl.DataFrame) -> Finding | None:
    facts = table.filter(control=FACT)
    if facts.is_empty():
        return None
    shares: dict[str, Estimate] = {}
    for (condition, moment), rows in facts.group_by("condition", "moment", maintain_order=True):
        hits = [
            number is not None and float(expected) == number
            for number, expected in rows.select("number", "expected").iter_rows()
        ]
        shares[f"{condition}, {moment} decision"] = _share_of_units(hits, rows["unit"].to_list())
    failed = [name for name, e in shares.items() if LEAST_KEPT.judge(e) == FAILED]
    return Finding(
        "persona_kept",
        "Is the persona kept?",
        "; ".join(f"{name}: {share(e)}" for name, e in shares.items()) + ".",
        Grid.of(
            [
                {
                    "after": name,
                    **cells(e, "kept_share", "_share"),
                    "answers": e.n,
                    "verdict": LEAST_KEPT.judge(e),
                }
                for name, e in shares.items()
            ],
            "Share of participants who give the age that their persona states. A refusal counts as "
            "not kept.",
        ),
        intervals(shares, "share who give the persona's age", percent=True),
        section=SECTION,
        headline=bool(failed),
        alarms=tuple(f"Persona not kept: {name}." for name in failed),
        unit=_unit_of(facts),
        units=min(e.units for e in shares.values()),
    )


def _reliability(table: pl.DataFrame) -> Finding | None:
    again = table.filter(control=RETEST).filter(
        pl.col("value").is_not_null() & pl.col("expected").is_not_null()
    )
    if again.is_empty():
        return None
    rows, units = [], []
    verdicts = []
    for (decision,), own in again.group_by("question", maintain_order=True):
        first, second = own["expected"].to_list(), own["value"].to_list()
        hits = [a == b for a, b in zip(first, second, strict=True)]
        same = _share_of_units(hits, own["unit"].to_list())
        kappa = kappa_of_possible(first, second)
        verdict = LEAST_RELIABLE.judge(same)
        verdicts.append((str(decision), same, verdict))
        units.append(same.units)
        rows.append(
            {
                "decision": str(decision),
                **cells(same, "same_share", "_share"),
                "kappa of possible": known(kappa.value),
                "answers": same.n,
                "verdict": verdict,
            }
        )
    failed = [name for name, _, verdict in verdicts if verdict == FAILED]
    return Finding(
        "reliability",
        "Would the same people decide the same again?",
        "; ".join(f"{name}: {share(e)} the same" for name, e, _ in verdicts) + ".",
        Grid.of(
            rows,
            "The decision asked again in a fresh conversation. Share of equal answers with its "
            "95 % interval, and agreement beyond chance as a share of the largest possible kappa.",
        ),
        section=SECTION,
        headline=bool(failed),
        alarms=tuple(f"Unreliable decision: {name}." for name in failed),
        unit=_unit_of(again),
        units=min(units),
    )


def _share_of_units(hits: Sequence[bool], units: Sequence[str]) -> Estimate:
    """The share of hits: Wilson's interval where each unit has one, else by clusters. Where all
    clusters agree there is no variance to go by, so each counts once."""
    if len(set(units)) == len(hits):
        return wilson(sum(hits), len(hits))
    found = clustered_share([float(hit) for hit in hits], units)
    if found.has_interval or not all(hits):
        return found
    whole = wilson(len(set(units)), len(set(units)))
    return replace(found, low=whole.low, high=whole.high, method=whole.method)
