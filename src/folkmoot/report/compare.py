"""Runs side by side: two models, two prompts, or a simulation against people.

The first run is what the others are set against. Works on the tables of any study type; where
designs differ it says so before it compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from folkmoot.errors import InputError
from folkmoot.measures.diversity import jensen_shannon, total_variation
from folkmoot.measures.estimates import p_value, percent
from folkmoot.randomness import digest
from folkmoot.records.findings import Cell, Finding, Grid
from folkmoot.records.run_folder import RunFolder
from folkmoot.report.compare_figures import figures
from folkmoot.report.compare_rates import beside_people, change_rates, effects
from folkmoot.report.samples import Sample, samples

SECTION = "Comparison"
HANDLING = frozenset(
    {
        "pilot_id",
        "pilot_name",
        "concurrency",
        "max_api_retries",
        "api_retry_base_seconds",
        "api_sleep_seconds",
        "request_timeout_seconds",
        "max_reply_mb",
        "quota_wait_seconds",
        "budget_usd",
        "budget_calls",
        "endpoints",
        "title",
    }
)


def compare(runs: Sequence[RunFolder | Path | str]) -> list[Finding]:
    """Findings on how the runs differ. Needs two; raises InputError otherwise.

    Each run is a run folder, or the path of a CSV of answers by people (see
    `samples.people_file`).
    """
    found = samples(runs)
    if len(found) < 2:
        raise InputError("a comparison needs two or more runs")
    compared = [change_rates(found), effects(found), starting_points(found), figures(found)]
    told = [f for f in compared if f is not None] or [_nothing_shared(found)]
    beside = beside_people(found)
    return [designs(found), *told, *([beside] if beside else [])]


def designs(found: Sequence[Sample]) -> Finding:
    """What was run differently: settings, models as served, study types."""
    flat = [_settings(s) for s in found]
    runs = [i for i, s in enumerate(found) if not s.human]
    keys = list(dict.fromkeys(k for i in runs for k in flat[i]))
    differing = [k for k in keys if len({flat[i].get(k, "—") for i in runs}) > 1]
    rows: list[dict[str, Cell]] = [
        {"setting": k, **{s.name: flat[i].get(k, "—") for i, s in enumerate(found)}}
        for k in differing
    ]
    kinds = {s.kind for s in found if not s.human}
    people = [s.name for s in found if s.human]
    parts = []
    if len(kinds) > 1:
        parts.append(
            f"These are different study types ({', '.join(sorted(kinds))}): their figures answer "
            "different questions."
        )
    if len(runs) > 1 and not differing:
        parts.append("All settings that matter are the same: differences are chance or the model.")
    elif differing:
        parts.append(f"The designs differ in {_listed(differing)}.")
        if len(differing) > 1:
            parts.append("A difference in results may come from any of these.")
    if people:
        parts.append(f"{_listed(people)}: answers by people.")
    return Finding(
        "designs",
        "What was done differently",
        " ".join(parts),
        Grid.of(rows, "Settings that differ; how calls were made is left out."),
        section=SECTION,
    )


def starting_points(found: Sequence[Sample]) -> Finding | None:
    """Whether the runs begin and end with the same opinions."""
    rows: list[dict[str, Cell]] = []
    apart = []
    for column in ("initial_choice", "final_choice"):
        first = _choices(found[0], column)
        for s in found[1:]:
            own = _choices(s, column)
            if not first or not own:
                continue
            options = sorted(set(first) | set(own))
            a, b = [first.get(o, 0) for o in options], [own.get(o, 0) for o in options]
            p = _homogeneity(a, b)
            which = column.split("_", maxsplit=1)[0]
            rows.append(
                {
                    "votes": which,
                    "runs": f"{s.name} − {found[0].name}",
                    "total_variation_share": total_variation(a, b),
                    "jensen_shannon_bits": jensen_shannon(a, b),
                    "p": p,
                }
            )
            if p < 0.05:
                tv = percent(total_variation(a, b))
                apart.append(f"{which} votes of {s.name} ({tv} of votes apart, {p_value(p)})")
    if not rows:
        return None
    says = (
        f"Other opinions than in {found[0].name}: {'; '.join(apart)}."
        if apart
        else f"First and final votes are distributed as in {found[0].name}, as far as can be told."
    )
    if any(a.startswith("initial") for a in apart):
        says += " Runs that start from other opinions have different room for change."
    return Finding(
        "compare_votes",
        "Do the runs hold the same opinions?",
        says,
        Grid.of(rows, "Votes of all conditions together; p: Pearson's χ²."),
        section=SECTION,
    )


def _homogeneity(a: Sequence[int], b: Sequence[int]) -> float:
    """p for equal distributions of two rows of counts."""
    import numpy as np
    from scipy.stats import chi2_contingency

    table = np.array([[x, y] for x, y in zip(a, b, strict=True) if x + y]).T
    if table.shape[1] < 2:
        return 1.0
    return float(chi2_contingency(table, correction=False).pvalue)


def _nothing_shared(found: Sequence[Sample]) -> Finding:
    names = ", ".join(sorted({t for s in found for t in s.tables}))
    return Finding(
        "compare_nothing",
        "Nothing to compare",
        "The runs share no condition with a change of choice and no numeric measure.",
        Grid((), ()),
        notes=(f"Tables found: {names}.",),
        section=SECTION,
    )


def _choices(s: Sample, column: str) -> dict[str, int]:
    table = s.tables.get("participants")
    if table is None or column not in table.columns:
        return {}
    known = table[column].drop_nulls()
    return {str(k): int(n) for k, n in known.value_counts(sort=True).iter_rows()}


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


def _flatten(key: str, value: Any, into: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _flatten(f"{key}.{name}", inner, into)
    else:
        text = str(value)
        # A long text is cut for the eye, with a mark that tells different ones apart.
        into[key] = text if len(text) <= 80 else f"{text[:70]}… #{digest(text, size=3).hex()}"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:6])
    if len(names) > 6:
        shown.append(f"{len(names) - 6} more")
    if len(shown) == 1:
        return shown[0]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
