"""Compares runs: two models, two prompts, or a simulation against people.

The first run is the reference for the others. Works on the tables of any study type; where designs
differ it says so first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from folkmoot.errors import InputError, Problem
from folkmoot.hints import enumerated
from folkmoot.kit.findings import (
    ALPHA,
    HOLM,
    Row,
    adjusted,
    cells,
    chance,
    found,
    intervals,
    listed,
    p_cells,
    rates,
)
from folkmoot.measures.bands import human_band, sentence
from folkmoot.measures.clustered import clustered_difference, clustered_mean, paired_difference
from folkmoot.measures.diversity import jensen_shannon, total_variation
from folkmoot.measures.estimates import (
    Estimate,
    p_value,
    plural,
    points,
    points_span,
    span,
)
from folkmoot.measures.paired_votes import paired_shares, stuart_maxwell, transition_table
from folkmoot.measures.proportions import between, holm, homogeneity_p, newcombe
from folkmoot.randomness import digest
from folkmoot.report.people import against_people
from folkmoot.report.samples import (
    EVERYBODY,
    TEXTS,
    Sample,
    condition_name,
    matched,
    people_in,
    same_people,
    samples,
    split,
)
from folkmoot.storage.findings import Finding, Grid
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import by_column, cluster_column, units_of

SECTION = "Comparison"
PAIRED = "paired"
MARGIN = 0.05  # differences of shares within it are called equivalent
# How calls were made: settings that leave the results alone.
HANDLING = frozenset(
    {
        *("pilot_id", "pilot_name", "title", "concurrency", "endpoints"),
        *("max_api_retries", "api_retry_base_seconds", "api_sleep_seconds"),
        *("request_timeout_seconds", "max_reply_mb", "quota_wait_seconds"),
        *("budget_usd", "budget_calls"),
    }
)
# Tables of one row per conversation with its measures come first; they make the rest superfluous.
SUMMARIES = ("measures", "discussions", "sessions")
TABLES = ("participants", "groups", "satisfaction", "intents", "opinions")
NOT_MEASURES = frozenset(
    ("id", "no", "number", "seed", "turn", "question", "round", "place", "row", "x", "y", "age")
)
MOST_FIGURES = 25

CHOICES = ("initial_choice", "final_choice")

Counts = tuple[int, int]  # how many changed, of how many
Difference = Callable[..., Estimate]  # for a `level`


def compare(sources: Sequence[RunFolder | Path | str], margin: float = MARGIN) -> list[Finding]:
    """Findings on how the runs differ. Needs two; raises InputError otherwise.

    Each source is a run folder, or the path of a CSV of answers by people (see
    `samples.people_file`). Runs that drew the same people are compared person by person. Shares
    whose difference lies within ± `margin` with all of its interval are called equivalent.
    """
    read = samples(sources)
    if len(read) < 2:
        raise InputError("a comparison needs two or more runs")
    for s in read:
        if s.human:
            _require_shared(s, [run for run in read if not run.human])
    if not 0 < margin < 1:
        raise InputError(f"--margin {margin}: must be a share between 0 and 1, such as 0.05")
    compared = found(
        change_rates(read, margin), effects(read), starting_points(read), figures(read)
    )
    runs = [s for s in read if not s.human]
    models = [s for s in runs if not s.seated]
    people = [s for s in read if s.human] + [p for s in runs if (p := people_in(s)) is not None]
    beside = [f for s in people for run in (models or runs)[:1] for f in against_people(run, s)]
    return found(designs(read), compared or _nothing_shared(read), beside, beside_people(read))


def designs(runs: Sequence[Sample]) -> Finding:
    """How the runs differ: settings, models as served, study types."""
    flat = {s.name: _settings(s) for s in runs}
    made = [s.name for s in runs if not s.human]
    people = [s.name for s in runs if s.human]
    kinds = sorted({s.kind for s in runs if not s.human})
    keys = dict.fromkeys(key for name in made for key in flat[name])
    differing = [key for key in keys if len({flat[name].get(key, "—") for name in made}) > 1]
    parts = []
    if len(kinds) > 1:
        parts.append(
            f"These are different study types ({', '.join(kinds)}): their figures answer "
            "different questions."
        )
    if differing:
        parts.append(f"The designs differ in {_named(differing)}.")
        if len(differing) > 1:
            parts.append("A difference in results may come from any of these.")
    elif len(made) > 1:
        parts.append("All settings that matter are the same: differences are chance or the model.")
    same = [s.name for s in runs[1:] if same_people(runs[0], s)]
    if same:
        parts.append(f"{_named(same)} drew the same people as {runs[0].name}.")
    if people:
        parts.append(f"{_named(people)}: answers by people.")
        parts += [said for s in runs if s.human for said in _foreign(s, runs)]
    return Finding(
        "designs",
        "Settings that differ",
        " ".join(parts),
        Grid.of(
            [
                {"setting": key, **{name: own.get(key, "—") for name, own in flat.items()}}
                for key in differing
            ],
            "Settings that differ; how calls were made is left out.",
        ),
        section=SECTION,
    )


def _require_shared(people: Sample, runs: Sequence[Sample]) -> None:
    """Raise InputError where none of the arms of a file of people is one of a run, or where it has
    text for a number of a run's."""
    own = people.tables["participants"]
    made = [s.tables["participants"] for s in runs if "participants" in s.tables]
    arms, known = {*split(own)}, {c for table in made for c in split(table)}
    if made and not ({EVERYBODY} & (arms | known) or arms & known):
        message = f"{people.name}: none of its arms ({_named(sorted(arms))}) is one of a run's"
        hint = f"these are {_named(sorted(known))}; leave the column out to compare with all"
        raise InputError(Problem(message, hint=hint))
    for column in (c for c in own.columns if own.schema[c] == pl.String and c not in TEXTS):
        numeric = any(c == column and t[c].dtype.is_numeric() for t in made for c in t.columns)
        if numeric and not column.startswith("demographic_"):
            wrong = own[column].drop_nulls()
            numbers = wrong.cast(pl.Float64, strict=False)
            first = wrong.filter(numbers.is_null())
            if len(first):
                message = f"{people.name}: {column} is a number in the run, and {first[0]!r} is not"
                raise InputError(message)


def _foreign(people: Sample, runs: Sequence[Sample]) -> list[str]:
    """What a file of answers by people holds that no run does, and that is therefore lost."""
    made = [s.tables["participants"] for s in runs if not s.human and "participants" in s.tables]
    said = []
    arms = {c for table in made for c in split(table)}
    own = [c for c in split(people.tables["participants"]) if c not in (*arms, EVERYBODY)]
    if own and arms:
        said.append(f"{people.name} has arms that no run has, which are left out: {_named(own)}.")
    told = sorted({c for column in CHOICES for c in _choices(people, column)})
    known = {c for s in runs if not s.human for column in CHOICES for c in _choices(s, column)}
    if told and known and not known & {*told}:
        said.append(
            f"No choice in {people.name} is one of a run ({_named(told)}): see how options are "
            "written."
        )
    return said


def _settings(s: Sample) -> dict[str, str]:
    """The settings that can matter, flattened; and the models as served."""
    flat: dict[str, str] = {"study type": s.kind}
    for key, value in s.config.items():
        if key not in HANDLING:
            _flatten(key, value, flat)
    served = sorted({m for use in s.manifest.get("models", []) for m in use.get("served", [])})
    if served:
        flat["models as served"] = ", ".join(served)
    return flat


def _flatten(key: str, value: object, into: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _flatten(f"{key}.{name}", inner, into)
    else:
        text = str(value)
        # A long text is cut for the eye, with a mark that tells different ones apart.
        into[key] = text if len(text) <= 80 else f"{text[:70]}… #{digest(text, size=3).hex()}"


def _named(names: Sequence[str]) -> str:
    shown = [*names[:6], *([f"{len(names) - 6} more"] if len(names) > 6 else [])]
    return enumerated(shown)


def change_rates(runs: Sequence[Sample], margin: float = MARGIN) -> Finding | None:
    """The share that changed, per condition and run, and differences to the first run."""
    base, *others = runs
    counts = {s.name: _changed(s) for s in runs}
    rows: list[Row] = []
    for condition in dict.fromkeys(c for own in counts.values() for c in own):
        own = {name: of[condition] for name, of in counts.items() if condition in of}
        for name, rate in rates(own).items():
            rows.append(_change_row(condition, name, rate))
    tests = [
        (condition, s.name, d())
        for s in others
        for condition, d in _differences(base, s, counts).items()
    ]
    if not tests:
        return None
    holms = adjusted(dict(enumerate(d for _, _, d in tests)))
    verdicts = []
    for (condition, name, d), p in zip(tests, holms.values(), strict=True):
        rows.append(_change_row(condition, f"{name} − {base.name}", d, p))
        verdicts.append(f"{condition_name(condition)}: {_verdict(name, base.name, d, p, margin)}")
    paired = [
        s.name for s in others if any(n == s.name and PAIRED in d.method for _, n, d in tests)
    ]
    return Finding(
        "compare_change",
        "Share that changed their choice, run by run",
        " ".join(verdicts),
        Grid.of(rows, _how_compared(base.name, paired, [s.name for s in others])),
        intervals(
            {f"{condition_name(condition)}: {name}": d for condition, name, d in tests},
            f"difference to {base.name}",
            zero=0.0,
            percent=True,
        ),
        notes=(
            f"“Equivalent”: the whole interval lies within ±{100 * margin:g} points (`--margin`). "
            "It is judged one by one, not adjusted. Not significantly different is not the same as "
            "equal: look at the width of the interval.",
            HOLM,
        ),
        section=SECTION,
        headline=True,
        unit="participant",
        units=sum(n for own in counts.values() for _, n in own.values()),
    )


def _differences(
    base: Sample, s: Sample, counts: Mapping[str, Mapping[str, Counts]]
) -> dict[str, Difference]:
    """Condition → the difference in the share that changed, person by person where possible."""
    apart: dict[str, Difference] = {
        condition: partial(newcombe, *there, *here)
        for condition, here, there in _paired(counts[base.name], counts[s.name])
    }
    if not same_people(base, s):
        return apart
    first, second = (split(_voted_twice(run)) for run in (base, s))
    for condition in apart.keys() & first.keys() & second.keys():
        people = matched(first[condition], second[condition], "position_changed")
        if people.height:
            one, two = people["first"], people["second"]
            moves = (one & two, one & ~two, ~one & two, ~one & ~two)
            apart[condition] = partial(paired_shares, *(int(n.sum()) for n in moves))
    return apart


def _how_compared(base: str, paired: Sequence[str], others: Sequence[str]) -> str:
    parts = ["95 % Wilson intervals"]
    apart = [name for name in others if name not in paired]
    if paired:
        parts.append(
            f"{_named(paired)} drew the same people as {base}: differences are paired (McNemar's "
            "test, Tango's interval)"
        )
    if apart:
        parts.append(f"differences of {_named(apart)} are between different people (Newcombe)")
    return f"{'; '.join(parts)}."


def _change_row(condition: str, name: str, e: Estimate, p: float = math.nan) -> Row:
    return {
        "condition": condition_name(condition),
        "run": name,
        "n": e.n,
        **cells(e, "changed_rate", "_rate"),
        **p_cells(e, p),
    }


def _verdict(name: str, base: str, d: Estimate, p: float, margin: float) -> str:
    if not d.has_interval:
        return f"{name} minus {base} is {points(d.value)}, of too few people for a test."
    measured = ", ".join(filter(None, (points(d.value), points_span(d.low, d.high), chance(d, p))))
    equivalent = d.low > -margin and d.high < margin
    if p < ALPHA:
        more = "more" if d.value > 0 else "fewer"
        aside = "; equivalent within the margin all the same" if equivalent else ""
        return f"in {name} {more} change than in {base} ({measured}{aside})."
    if equivalent:
        return f"{name} and {base} are equivalent ({measured})."
    return f"{name} and {base} do not differ significantly ({measured})."


def _voted_twice(s: Sample) -> pl.DataFrame:
    """The participants who came to the end, where the table says who changed; else no rows."""
    table = s.tables.get("participants")
    if table is None or "position_changed" not in table.columns:
        return pl.DataFrame()
    return table.filter(pl.col("status") == "complete") if "status" in table.columns else table


def _changed(s: Sample) -> dict[str, Counts]:
    """Condition → (changed, voted twice)."""
    table = _voted_twice(s)
    if not table.height:
        return {}
    changed = {c: part["position_changed"].drop_nulls() for c, part in split(table).items()}
    return {c: (int(known.sum()), len(known)) for c, known in changed.items() if len(known)}


def _paired(
    base: Mapping[str, Counts], own: Mapping[str, Counts]
) -> list[tuple[str, Counts, Counts]]:
    """What is set against what: (condition, in the first run, in the other).

    A sample without conditions (a survey, say) is set against every condition of the other.
    """
    if set(own) == {EVERYBODY}:
        return [(c, counts, own[EVERYBODY]) for c, counts in base.items()]
    if set(base) == {EVERYBODY}:
        return [(c, base[EVERYBODY], counts) for c, counts in own.items()]
    return [(c, base[c], own[c]) for c in base if c in own]


def effects(runs: Sequence[Sample]) -> Finding | None:
    """Each condition against the first one within a run, and whether runs agree on that effect."""
    counts = [_changed(s) for s in runs]
    floor, *rest = [c for c in counts[0] if all(c in own for own in counts)] or [""]
    if not rest:
        return None
    base, *others = runs
    named = {s.name: own for s, own in zip(runs, counts, strict=True)}
    changes = {s.name: _differences(base, s, named) for s in others}
    tests: dict[tuple[str, str], Estimate] = {}
    for c in rest:
        within = {name: partial(newcombe, *own[c], *own[floor]) for name, own in named.items()}
        tests |= {(c, name): e() for name, e in within.items()}
        for s in others:
            change, noise = changes[s.name][c], changes[s.name][floor]
            paired = all(PAIRED in d().method for d in (change, noise))
            # Over the same people the noise that both runs share drops out.
            gap = (change, noise) if paired else (within[s.name], within[base.name])
            tests[c, f"{s.name} − {base.name}"] = between(*gap)
    holms = adjusted(tests)
    orders = {
        tuple(sorted((floor, *rest), key=lambda c: (-own[c][0] / own[c][1], c))) for own in counts
    }
    alike = "put" if len(orders) == 1 else "do not put"
    who = "All runs" if len(orders) == 1 else "The runs"
    said = [
        f"{condition_name(c)}: {_agreement(s.name, base.name, c, tests, holms)}"
        for c in rest
        for s in others
    ]
    against = f"against {condition_name(floor).lower()}"
    return Finding(
        "compare_effects",
        f"Effects {against}, run by run",
        f"{' '.join(said)} {who} {alike} the conditions in the same order.",
        Grid.of(
            [
                {
                    "condition": condition_name(c),
                    "run": name,
                    **cells(e, "effect_rate", "_rate"),
                    **p_cells(e, holms[c, name]),
                }
                for (c, name), e in tests.items()
            ],
            "Differences of rates (Newcombe); between runs by MOVER.",
        ),
        intervals(
            {f"{condition_name(c)}: {name}": e for (c, name), e in tests.items() if name in named},
            against,
            zero=0.0,
            percent=True,
        ),
        notes=(HOLM,),
        section=SECTION,
        unit="participant",
        units=sum(n for own in counts for _, n in own.values()),
    )


def _agreement(
    run: str,
    base: str,
    condition: str,
    tests: Mapping[tuple[str, str], Estimate],
    holms: Mapping[tuple[str, str], float],
) -> str:
    """Whether two runs show an effect alike, by the adjusted p."""
    first, own = tests[condition, base], tests[condition, run]
    gap = condition, f"{run} − {base}"
    told = f"{points(first.value)} in {base}, {points(own.value)} in {run}"
    if not tests[gap].has_interval:
        return f"too few people to compare the effects ({told})."
    sizes = f"{told}; {chance(tests[gap], holms[gap])}"
    if holms[gap] < ALPHA:
        return f"the effects differ ({sizes})."
    clear = max(holms[condition, base], holms[condition, run]) < ALPHA
    if clear and own.value * first.value > 0:
        return f"both show the effect ({sizes} for the difference between them)."
    return f"the effects do not differ significantly ({sizes})."


def starting_points(runs: Sequence[Sample]) -> Finding | None:
    """Whether the runs start and end with the same opinions."""
    rows: list[Row] = []
    tests: list[tuple[str, float, float]] = []
    base, *others = runs
    for which in ("initial", "final"):
        first = _choices(base, f"{which}_choice")
        for s in others:
            own = _choices(s, f"{which}_choice")
            if not first or not own:
                continue
            options = sorted({*first, *own})
            a, b = ([of.get(o, 0) for o in options] for of in (first, own))
            moved, p = total_variation(a, b), homogeneity_p(a, b)
            same = _same_choice(base, s, f"{which}_choice", options)
            p = same[1] if same else p
            rows.append(
                {
                    "votes": which,
                    "runs": f"{s.name} − {base.name}",
                    "total_variation_share": moved,
                    "jensen_shannon_bits": jensen_shannon(a, b),
                    "same_person_same_choice_share": same[0] if same else None,
                    "p": p,
                }
            )
            tests.append((f"{which} votes of {s.name}", moved, p))
    if not rows:
        return None
    holms = holm([p for _, _, p in tests])
    rows = [{**row, "holm_p": p} for row, p in zip(rows, holms, strict=True)]
    apart = [
        f"{what} ({points(moved).lstrip('+')} apart, adjusted {p_value(p)})"
        for (what, moved, _), p in zip(tests, holms, strict=True)
        if p < ALPHA
    ]
    says = (
        f"Other opinions than in {base.name}: {listed(apart)}"
        if apart
        else f"First and final votes: no difference from {base.name} is statistically significant."
    )
    if any(a.startswith("initial") for a in apart):
        says += " Runs that start from different opinions leave different room for change."
    return Finding(
        "compare_votes",
        "Do the runs express the same opinions?",
        says,
        Grid.of(
            rows,
            "Votes of all conditions together; p: Pearson's χ², or Stuart and Maxwell's test where "
            "both runs drew the same people.",
        ),
        notes=(HOLM,),
        section=SECTION,
    )


def _same_choice(
    base: Sample, s: Sample, column: str, options: Sequence[str]
) -> tuple[float, float] | None:
    """The share of people who chose the same in both runs, and the p of marginal homogeneity;
    None where the runs drew different people."""
    if not same_people(base, s):
        return None
    people = matched(base.tables["participants"], s.tables["participants"], column)
    if not people.height:
        return None
    table = transition_table(people["first"].to_list(), people["second"].to_list(), options)
    return float(table.trace() / table.sum()), stuart_maxwell(table).p


def _choices(s: Sample, column: str) -> dict[str, int]:
    table = s.tables.get("participants")
    if table is None or column not in table.columns:
        return {}
    known = table[column].drop_nulls()
    return {str(k): int(n) for k, n in known.value_counts(sort=True).iter_rows()}


def figures(runs: Sequence[Sample]) -> Finding | None:
    """Numeric measures that all runs record, per condition, clustered by conversation."""
    rows = []
    tests: list[tuple[str, Estimate]] = []
    base, *others = runs
    for table, column in _shared_figures(runs):
        parts = split(base.tables[table])
        for condition, s in ((c, s) for c in parts for s in others):
            own = split(s.tables[table]).get(condition)
            d = None if own is None else _figure(base, s, (parts[condition], own), column)
            if own is None or d is None:
                continue
            (first, here), (second, there) = (_values(t, column) for t in (parts[condition], own))
            rows.append(
                {
                    "measure": column,
                    "condition": condition_name(condition),
                    base.name: clustered_mean(first, here).value,
                    "run": s.name,
                    "there": clustered_mean(second, there).value,
                    "paired": d.method == PAIRED,
                    **cells(d, "difference"),
                }
            )
            tests.append((f"{column} in {condition_name(condition)}, {s.name} {d.value:+.3g}", d))
    if not rows:
        return None
    holms = adjusted(dict(enumerate(d for _, d in tests))).values()
    rows = [{**row, **p_cells(d, p)} for row, (_, d), p in zip(rows, tests, holms, strict=True)]
    clear = [said for (said, _), p in zip(tests, holms, strict=True) if p < ALPHA]
    return Finding(
        "compare_figures",
        "Measures, run by run",
        f"Statistically significant: {listed(clear[:8])}"
        if clear
        else f"None of {plural(len(tests), 'comparison')} of measures is statistically significant "
        "(Holm-adjusted).",
        Grid.of(rows, "Means and differences; 95 % intervals clustered by conversation."),
        notes=(
            "Units that shared a conversation are one cluster; without such a column, rows. "
            "Runs that drew the same people are compared unit by unit (`paired`).",
        ),
        section=SECTION,
        unit="conversation or, without one, row of the table",
        units=max(d.units for _, d in tests),
    )


def _figure(
    base: Sample, s: Sample, parts: tuple[pl.DataFrame, pl.DataFrame], column: str
) -> Estimate | None:
    """The difference in a measure, unit by unit where both runs drew the same people; None where
    there is nothing to compare."""
    if same_people(base, s):
        units = matched(*parts, column)
        if units.height and len({*units["first"], *units["second"]}) > 1:
            paired = paired_difference(
                units["second"], units["first"], units_of(units).of.to_list()
            )
            return replace(paired, method=PAIRED)
    (first, here), (second, there) = (_values(part, column) for part in parts)
    if not first or not second or len({*first, *second}) < 2:
        return None
    treated = [False] * len(first) + [True] * len(second)
    groups = [*(("first", c) for c in here), *(("second", c) for c in there)]
    return clustered_difference([*first, *second], treated, groups)


def _shared_figures(runs: Sequence[Sample]) -> list[tuple[str, str]]:
    """Numeric columns of tables that all samples have, ids and counters left out."""
    tables = [t for t in runs[0].tables if all(t in s.tables for s in runs)]
    summaries = [t for t in SUMMARIES if t in tables]
    pairs = [
        (t, c)
        for t in summaries[:1] or [t for t in TABLES if t in tables]
        for c in runs[0].tables[t].columns
        if c not in (by_column(runs[0].tables[t]), cluster_column(runs[0].tables[t]))
        and c.split("_")[-1] not in NOT_MEASURES
        and not c.startswith("demographic_")
        and all(c in s.tables[t].columns and s.tables[t].schema[c].is_numeric() for s in runs)
    ]
    # A gap between groups says more than its two sides.
    pairs.sort(key=lambda pair: not pair[1].startswith("gap_"))
    return pairs[:MOST_FIGURES]


def _values(part: pl.DataFrame, column: str) -> tuple[list[float], list[object]]:
    """The known values and the independent unit that each came from."""
    told = part.filter(pl.col(column).is_not_null())
    return [float(v) for v in told[column].to_list()], units_of(told).of.to_list()


def beside_people(runs: Sequence[Sample]) -> Finding | None:
    """Rates of change beside published human figures, unless people are in the comparison."""
    counts = {s.name: own for s in runs if (own := _changed(s))}
    if not counts or any(s.human for s in runs):
        return None
    band = human_band("top_choice_changed")
    rows: list[Row] = []
    said = []
    for name, own in counts.items():
        condition, rate = max(rates(own).items(), key=lambda item: item[1].value)
        said.append(sentence(f"{name}, {condition_name(condition)}", rate.value, band))
        rows.append(
            {
                "run": name,
                "condition": condition_name(condition),
                "changed_rate": rate.value,
                "interval": span(rate.low, rate.high) if rate.has_interval else None,
                "people_low_rate": band.low,
                "people_high_rate": band.high,
            }
        )
    return Finding(
        "compare_people",
        "Compared with people",
        " ".join(said),
        Grid.of(rows, "Of each run the condition in which most changed."),
        notes=(f"{band.range.capitalize()}. {band.caveat} Source: {band.source}.",),
        section=SECTION,
    )


def _nothing_shared(runs: Sequence[Sample]) -> Finding:
    names = ", ".join(sorted({t for s in runs for t in s.tables}))
    return Finding(
        "compare_nothing",
        "Nothing to compare",
        "The runs share no condition with a change of choice and no numeric measure.",
        Grid((), ()),
        notes=(f"Tables found: {names}.",),
        section=SECTION,
    )
