"""What a workbook run found: play, trajectories over rounds, treatments, constants, quality.

Everything starts from the tables of the run. Intervals cluster by session, because those who talk
to each other are not independent.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from folkmoot.measures.bands import human_band, place, place_interval
from folkmoot.measures.clustered import clustered_difference, clustered_mean, label_shuffle_p
from folkmoot.measures.estimates import Estimate, percent, plural
from folkmoot.records.findings import Bars, Cell, Finding, Grid, Intervals, Lines
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.workbook.answers import Listed, read_options
from folkmoot.studies.workbook.literals import NotALiteral

MOST_MEASURES = 12
CLUSTER = ("experiment_id", "session")
_ROUND = re.compile(r"^(.*?)[ _-]?(\d{1,3})$")


@dataclass(frozen=True)
class Measure:
    """Something numeric that participants have: one variable, or one variable in rounds."""

    name: str
    rounds: tuple[tuple[int, str], ...]  # (round, variable)
    computed: bool

    @property
    def variables(self) -> list[str]:
        return [variable for _, variable in self.rounds]


def of_participants(run: RunFolder) -> pl.DataFrame:
    responses = run.table("responses")
    seated = run.table("assignment")["participant_id"].unique().to_list()
    return responses.filter(pl.col("participant_id").is_in(seated))


def values_of(run: RunFolder, responses: pl.DataFrame) -> pl.DataFrame:
    """Numbers that count, long: name, participant, session, treatment, number, computed."""
    keys = [*CLUSTER, "treatment", "participant_id"]
    answered = responses.filter(
        pl.col("number").is_not_null() & (pl.col("status") != "invalid")
    ).select(*keys, pl.col("var_name").alias("name"), "number", pl.lit(False).alias("computed"))
    if not run.has_table("computed"):
        return answered
    computed = run.table("computed")
    if "number" not in computed.columns or computed["number"].dtype == pl.String:
        return answered
    personal = computed.filter(
        pl.col("participant_id").is_not_null() & pl.col("number").is_not_null()
    ).select(*keys, "name", pl.col("number").cast(pl.Float64), pl.lit(True).alias("computed"))
    return pl.concat([answered.with_columns(pl.col("number").cast(pl.Float64)), personal])


def measures_of(values: pl.DataFrame) -> list[Measure]:
    """Variables, with those that differ by a number at the end taken together as rounds."""
    stems: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for name, computed in values.select("name", "computed").unique(maintain_order=True).iter_rows():
        match = _ROUND.match(name)
        stem, number = (match[1], int(match[2])) if match and match[1] else (name, 0)
        stems.setdefault((stem, computed), []).append((number, name))
    found = []
    for (stem, computed), rounds in stems.items():
        if len(rounds) > 1:
            found.append(Measure(stem.rstrip(" _-"), tuple(sorted(rounds)), computed))
        else:
            found.append(Measure(rounds[0][1], tuple(rounds), computed))
    return found[:MOST_MEASURES]


def per_participant(data: pl.DataFrame) -> pl.DataFrame:
    """One number a participant: the mean over rounds."""
    keys = [*CLUSTER, "treatment", "participant_id"]
    return data.group_by(keys, maintain_order=True).agg(pl.col("number").mean())


def clusters_of(data: pl.DataFrame) -> list[tuple[str, ...]]:
    return list(data.select(*CLUSTER).iter_rows())


def mean_of(people: pl.DataFrame) -> Estimate:
    return clustered_mean(people["number"].to_numpy(), clusters_of(people))


def cell(number: float) -> float | None:
    return number if math.isfinite(number) else None


def span(label: str, estimate: Estimate) -> tuple[str, float, float, float]:
    """An estimate as a line of a chart; without an interval it is a point."""
    value = estimate.value
    if not estimate.has_interval:
        return label, value, value, value
    return label, value, estimate.low, estimate.high


def signed(number: float) -> str:
    """+1.2 or −1.2; what is zero but for rounding is 0."""
    return "0" if abs(number) < 1e-9 else f"{number:+.3g}".replace("-", "−")


MOST_BARS = 12


def distribution(measure: Measure, values: pl.DataFrame, arms: Sequence[str]) -> Finding:
    data = values.filter(pl.col("name").is_in(measure.variables))
    numbers = data["number"].to_numpy()
    labels = _bins(numbers)
    rows, bars = [], []
    for arm in arms:
        mine = [label for label, a in zip(labels.of, data["treatment"], strict=True) if a == arm]
        for label in labels.names:
            share = mine.count(label) / len(mine) if mine else 0.0
            rows.append({"treatment": arm, measure.name: label, "share": share})
            bars.append((label, arm, share))
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
    middle = float(np.median(numbers)) if len(numbers) else 0.0
    return Finding(
        key=f"distribution_{measure.name}",
        title=f"{measure.name}, how answers spread",
        says=f"Answers run from {low:.3g} to {high:.3g}; half of them are at or below "
        f"{middle:.3g} ({plural(len(numbers), 'answer')}).",
        grid=Grid.of(rows),
        chart=Bars(tuple(bars), unit="share of answers", percent=True),
        section="Answers",
    )


@dataclass(frozen=True)
class _Bins:
    names: list[str]
    of: list[str]


def _bins(numbers: np.ndarray) -> _Bins:
    """Values as they are where there are few, else equal steps."""
    distinct = sorted(set(numbers.tolist()))
    if len(distinct) <= MOST_BARS:
        return _Bins([f"{v:g}" for v in distinct], [f"{v:g}" for v in numbers])
    edges = np.linspace(distinct[0], distinct[-1], MOST_BARS // 2 + 1)
    names = [f"{a:.3g}–{b:.3g}" for a, b in itertools.pairwise(edges)]
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(names) - 1)
    return _Bins(names, [names[i] for i in places])


def shares(
    responses: pl.DataFrame, arms: Sequence[str], listed: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """Answers chosen from a list, by treatment; `listed`: the options in the sheet's order."""
    found = []
    chosen = responses.filter(
        pl.col("options").is_not_null() & (pl.col("status") == "valid") & pl.col("number").is_null()
    )
    for name in chosen["var_name"].unique(maintain_order=True).to_list()[:MOST_MEASURES]:
        mine = chosen.filter(var_name=name)
        counts = Counter(mine["value"].to_list())
        options = list(dict.fromkeys([*listed.get(name, ()), *counts]))
        rows, bars = [], []
        for arm in arms:
            answers = mine.filter(treatment=arm)["value"].to_list()
            for option in options:
                share = answers.count(option) / len(answers) if answers else 0.0
                rows.append({"treatment": arm, "answer": option, "share": share})
                bars.append((option, arm, share))
        top, n = counts.most_common(1)[0]
        found.append(
            Finding(
                key=f"answers_{name}",
                title=f"{name}, by treatment",
                says=f'Most often "{top}" ({percent(n / mine.height)} of '
                f"{plural(mine.height, 'answer')}).",
                grid=Grid.of(rows),
                chart=Bars(tuple(bars), unit="share of answers", percent=True),
                section="Answers",
            )
        )
    return found


def by_round(measure: Measure, data: pl.DataFrame, arms: Sequence[str]) -> Finding:
    number = {variable: k for k, variable in measure.rounds}
    rows: list[dict[str, str | float | int]] = []
    lines: list[tuple[str, float, float]] = []
    for arm in arms:
        for variable, k in number.items():
            mine = data.filter(treatment=arm, name=variable)["number"]
            if mine.is_empty():
                continue
            mean = float(np.mean(mine.to_numpy()))
            rows.append({"treatment": arm, "round": k, "mean": mean, "n": len(mine)})
            lines.append((arm, float(k), mean))
    said = "; ".join(_course(arm, [p for p in lines if p[0] == arm]) for arm in arms)
    return Finding(
        key=f"rounds_{measure.name}",
        title=f"{measure.name}, round by round",
        says=f"Mean {measure.name} under {said}.",
        grid=Grid.of(rows),
        chart=Lines(tuple(lines), x="round", y=measure.name),
        section="Rounds",
        headline=measure.computed,
    )


def _course(arm: str, points: Sequence[tuple[str, float, float]]) -> str:
    if not points:
        return f"{arm}: no values"
    first, last = points[0], points[-1]
    start, end = f"{first[2]:.3g} in round {first[1]:.0f}", f"{last[2]:.3g} in round {last[1]:.0f}"
    return f"{arm}: {start}, {end}"


def by_treatment(
    measure: Measure, data: pl.DataFrame, arms: Sequence[str], *, main: bool = True
) -> Finding:
    """A measure compared between treatments; `main` puts it among the main findings."""
    people = per_participant(data)
    estimates = {arm: mean_of(people.filter(treatment=arm)) for arm in arms}
    estimates = {arm: e for arm, e in estimates.items() if e.n}
    rows = [
        {
            "treatment": arm,
            "mean": e.value,
            "low": cell(e.low),
            "high": cell(e.high),
            "participants": e.n,
            "sessions": e.clusters,
        }
        for arm, e in estimates.items()
    ]
    says, notes = _compared(measure, people, list(estimates))
    spans = tuple(span(arm, e) for arm, e in estimates.items())
    return Finding(
        key=f"treatment_{measure.name}",
        title=f"{measure.name}, by treatment",
        says=says,
        grid=Grid.of(rows, "95 % intervals, clustered by session"),
        chart=Intervals(spans, unit=measure.name) if len(spans) > 1 else None,
        notes=notes,
        section="Treatments",
        headline=main and len(spans) > 1,
    )


def _compared(
    measure: Measure, people: pl.DataFrame, arms: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    over = f" (mean of {len(measure.rounds)} rounds)" if len(measure.rounds) > 1 else ""
    what = f"{measure.name}{over}"
    if len(arms) < 2:
        mean = float(people["number"].mean() or 0)  # type: ignore[arg-type]
        return f"Mean {what}: {mean:.3g} over {plural(people.height, 'participant')}.", ()
    said = [_contrast(people, arms[0], arm) for arm in arms[1:]]
    sessions = people.select(*CLUSTER).n_unique()
    notes = (
        f"{plural(sessions, 'session')} in all: with so few, even large differences can be chance."
        if sessions < 12
        else "Sessions are the units that were assigned.",
    )
    return f"For {what}, {'; '.join(said)}.", notes


def _contrast(people: pl.DataFrame, base: str, arm: str) -> str:
    both = people.filter(pl.col("treatment").is_in([base, arm]))
    treated = (both["treatment"] == arm).to_numpy()
    means = {a: _session_means(both.filter(treatment=a)) for a in (base, arm)}
    gap = float(np.mean(both["number"].to_numpy()[treated])) - float(
        np.mean(both["number"].to_numpy()[~treated])
    )
    head = f"{arm} minus {base} is {signed(gap)}"
    if min(len(m) for m in means.values()) < 2:
        return f"{head}, with too few sessions for an interval"
    found = clustered_difference(both["number"].to_numpy(), treated, clusters_of(both))
    p = label_shuffle_p(means[arm], means[base])
    exact = f", p = {p:.2g} by relabelling sessions" if math.isfinite(p) else ""
    return f"{head} (95 % interval {signed(found.low)} to {signed(found.high)}{exact})"


def _session_means(people: pl.DataFrame) -> list[float]:
    return (
        people.group_by(CLUSTER, maintain_order=True)
        .agg(pl.col("number").mean())["number"]
        .to_list()
    )


def by_constants(
    run: RunFolder, measures: Sequence[Measure], values: pl.DataFrame
) -> list[Finding]:
    """How each measure differs between the values of the constants."""
    if not run.has_table("permutations"):
        return []
    table = run.table("permutations")
    if table["experiment_id"].n_unique() < 2:
        return []
    labels = {
        experiment: ", ".join(
            f"{r['constant']} = {r['value']}"
            for r in table.filter(experiment_id=experiment).to_dicts()
        )
        for experiment in table["experiment_id"].unique(maintain_order=True).to_list()
    }
    found = []
    for measure in measures:
        people = per_participant(values.filter(pl.col("name").is_in(measure.variables)))
        means = {label: mean_of(people.filter(experiment_id=e)) for e, label in labels.items()}
        means = {label: e for label, e in means.items() if e.n}
        if len(means) < 2:
            continue
        rows = [
            {"experiment": label, "mean": e.value, "low": cell(e.low), "high": cell(e.high)}
            for label, e in means.items()
        ]
        spans = tuple(span(label, e) for label, e in means.items())
        found.append(
            Finding(
                key=f"constants_{measure.name}",
                title=f"{measure.name}, by constants",
                says=_extremes(measure.name, {label: e.value for label, e in means.items()}),
                grid=Grid.of(rows, "95 % intervals, clustered by session"),
                chart=Intervals(spans[:40], unit=measure.name),
                section="Constants",
                headline=True,
            )
        )
    return found


def _extremes(name: str, means: Mapping[str, float]) -> str:
    """Where a mean is lowest and highest, unless it is the same as far as it is shown."""
    ordered = sorted(means, key=lambda label: means[label])
    low, high = (f"{means[label]:.3g}" for label in (ordered[0], ordered[-1]))
    if low == high:
        return f"Mean {name} is {low} with all of them."
    return (
        f"Mean {name} is lowest with {ordered[0]} ({low}) and highest with {ordered[-1]} ({high})."
    )


# A value of this name is what a participant gave to the public good, as a share (0 to 1).
SHARES = ("share_given", "share_contributed", "contribution_share")
OF = 20.0  # the published figures are of an endowment of 20


def beside_people(
    measures: Sequence[Measure], values: pl.DataFrame, arms: Sequence[str]
) -> list[Finding]:
    """Mean and spread of contributions per treatment, inside or outside the human range."""
    measure = next((m for m in measures if m.name in SHARES), None)
    if measure is None:
        return []
    people = per_participant(values.filter(pl.col("name").is_in(measure.variables)))
    if people.is_empty() or not people["number"].is_between(0, 1).all():
        return []
    mean, spread = human_band("public_goods_contribution"), human_band("public_goods_sd")
    low, high = mean.low / OF, mean.high / OF
    said: list[str] = []
    narrow: list[str] = []
    rows: list[dict[str, Cell]] = []
    lines: list[tuple[str, float, float, float]] = []
    for arm in arms:
        mine = people.filter(treatment=arm)
        if mine.is_empty():
            continue
        estimate = _bounded(mean_of(mine))
        sd = float(np.std(mine["number"].to_numpy(), ddof=1)) if mine.height > 1 else None
        if sd is not None and place(sd * OF, spread) == "below":
            narrow.append(arm)
        where = place(estimate.value * OF, mean)
        near = estimate.has_interval and (
            place_interval(estimate.low * OF, estimate.high * OF, mean) == "inside"
        )
        beside = "inside" if where == "inside" else f"outside ({where})"
        doubt = ", but within its uncertainty" if where != "inside" and near else ""
        said.append(f"{arm} {percent(estimate.value)}, {beside}{doubt}")
        rows.append(
            {
                "treatment": arm,
                "given_share": estimate.value,
                "given_share_low": cell(estimate.low),
                "given_share_high": cell(estimate.high),
                "people_low_share": low,
                "people_high_share": high,
                "place": where,
                "standard deviation": sd,
                "people_sd_low": spread.low / OF,
                "people_sd_high": spread.high / OF,
            }
        )
        lines.append(span(arm, estimate))
    flag = (
        f" Variance collapse: answers spread less than people's under {', '.join(narrow)} (a mean "
        "over rounds does so by itself)."
        if narrow
        else " Answers spread no less than people's."
    )
    return [
        Finding(
            key="human_bands",
            title="Contributions beside those of people",
            says=f"People give {percent(low)} to {percent(high)} of what they have; "
            f"{'; '.join(said)}.{flag}",
            grid=Grid.of(rows, "95 % intervals, clustered by session"),
            chart=Intervals(
                tuple(lines),
                unit="share given to the public good",
                percent=True,
                bands=(("people", low, high),),
            ),
            notes=(
                f"Range: {mean.range}. {mean.caveat}",
                f"Source: {mean.source}.",
            ),
            section="Human bands",
        )
    ]


def _bounded(estimate: Estimate) -> Estimate:
    """A share lies between 0 and 1, and so does its interval."""
    if not estimate.has_interval:
        return estimate
    return replace(estimate, low=max(0.0, estimate.low), high=min(1.0, estimate.high))


def quality(responses: pl.DataFrame) -> list[Finding]:
    rows = []
    for name in responses["var_name"].unique(maintain_order=True).to_list():
        mine = responses.filter(var_name=name)
        status = mine["status"].to_list()
        scores = mine["speculation_score"].drop_nulls() if "speculation_score" in mine else None
        rows.append(
            {
                "variable": name,
                "answers": mine.height,
                "invalid_rate": status.count("invalid") / mine.height,
                "missing_rate": status.count(None) / mine.height,
                "re-asks per answer": float(mine["reasks"].mean() or 0),  # type: ignore[arg-type]
                "speculation": _mean_or_none(scores),
            }
        )
    bad = sum(responses["status"] == "invalid")
    gone = responses["status"].null_count()
    found = [
        Finding(
            key="answer_quality",
            title="How the answers were had",
            says=f"Of {plural(responses.height, 'answer')} {bad} failed validation to the end and "
            f"were kept as they were, and {gone} could not be had.",
            grid=Grid.of(rows),
            notes=(
                "Invalid answers stay in the files and are left out of computed values.",
                "Speculation: 0 not speculative at all, 100 entirely, by the model's own word.",
            ),
            section="Noise",
            headline=bool(bad or gone),
        )
    ]
    return [*found, *_positions(responses)]


def _mean_or_none(scores: pl.Series | None) -> float | None:
    if scores is None or scores.is_empty() or scores.dtype == pl.String:
        return None
    return float(np.mean(scores.to_numpy()))


def _positions(responses: pl.DataFrame) -> list[Finding]:
    """Whether options are chosen for standing first: expected is one in as many as there are."""
    if (
        "position" not in responses.columns
        or responses["position"].null_count() == responses.height
    ):
        return []
    chosen = responses.filter(pl.col("position").is_not_null()).with_columns(
        pl.col("options").str.json_decode(pl.List(pl.String)).list.len().alias("listed")
    )
    shuffled = chosen.group_by("var_name", maintain_order=True).agg(
        pl.col("options").n_unique().alias("orders")
    )
    names = shuffled.filter(pl.col("orders") > 1)["var_name"].to_list()
    chosen = chosen.filter(pl.col("var_name").is_in(names))
    if chosen.is_empty():
        return []
    first = (chosen["position"] == 1).to_numpy().astype(float)
    expected = float((1 / chosen["listed"].to_numpy()).mean())
    found = clustered_mean(first, clusters_of(chosen))
    row = {
        "answers": chosen.height,
        "first_chosen_rate": found.value,
        "low_rate": cell(found.low),
        "high_rate": cell(found.high),
        "expected_rate": expected,
    }
    return [
        Finding(
            key="position",
            title="Are options chosen for standing first?",
            says=f"The option listed first was chosen in {percent(found.value)} of "
            f"{plural(chosen.height, 'answer')} from shuffled lists; {percent(expected)} is "
            "expected if the place does not matter.",
            grid=Grid.of([row]),
            section="Noise",
        )
    ]


def findings(run: RunFolder) -> list[Finding]:
    """All findings of a finished run."""
    if not run.has_table("sessions"):
        return []
    sessions = run.table("sessions")
    responses = of_participants(run)
    values = values_of(run, responses)
    measures = measures_of(values)
    design = run.config.get("workbook", {})
    arms = _arms(design, sessions)
    headlines = any(m.computed for m in measures)
    found = [_play(sessions, arms)]
    for measure in measures:
        data = values.filter(pl.col("name").is_in(measure.variables))
        if len(measure.rounds) > 1:
            found.append(by_round(measure, data, arms))
        main = measure.computed or not headlines
        found.append(by_treatment(measure, data, arms, main=main))
    found += [distribution(m, values, arms) for m in measures if not m.computed]
    found += shares(responses, arms, _listed(design))
    found += by_constants(run, measures, values)
    found += beside_people(measures, values, arms)
    found += quality(responses)
    return found


def _arms(design: Mapping[str, Any], sessions: pl.DataFrame) -> list[str]:
    """The treatments that were played, in the order of the sheet: the first is compared against."""
    played = list(dict.fromkeys(sessions["treatment"].to_list()))
    ordered = [t["label"] for t in design.get("treatments", ()) if t["label"] in played]
    return [*ordered, *(arm for arm in played if arm not in ordered)]


def _listed(design: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Variable → its options in the order of the sheet, where they are one plain list."""
    found: dict[str, tuple[str, ...]] = {}
    for task in design.get("tasks", ()):
        with contextlib.suppress(NotALiteral):
            options = read_options(task.get("response_options") or "")
            if isinstance(options, Listed):
                found[task["var_name"]] = options.options
    return found


def _play(sessions: pl.DataFrame, arms: Sequence[str]) -> Finding:
    rows: list[dict[str, str | int]] = []
    for arm in arms:
        mine = sessions.filter(treatment=arm)
        rows.append(
            {
                "treatment": arm,
                "sessions": mine.height,
                "participants": int(mine["participants"].sum()),
                "messages": int(mine["messages"].sum()),
                "cut short": mine.filter(pl.col("ended") != "completed").height,
            }
        )
    cut = sessions.filter(pl.col("ended") != "completed").height
    ended = f"{plural(cut, 'session')} reached a limit and ended there" if cut else "all to the end"
    many = sessions["experiment_id"].n_unique()
    across = f" of {plural(many, 'experiment')}" if many > 1 else ""
    return Finding(
        key="play",
        title="What was played",
        says=f"{plural(sessions.height, 'session')}{across} with "
        f"{plural(int(sessions['participants'].sum()), 'participant')} were played, {ended}.",
        grid=Grid.of(rows),
        section="Play",
        headline=True,
    )
