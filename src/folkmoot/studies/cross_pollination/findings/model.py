"""The regression beside the plain rates: change by condition, first choice and demographics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from folkmoot.measures.estimates import p_value
from folkmoot.measures.regression import Column, Logit, Term, logistic
from folkmoot.records.findings import Cell, Finding, Grid, Intervals
from folkmoot.studies.cross_pollination.findings.data import Votes, label

DEMOGRAPHICS = ("age", "sex", "education", "income", "location_type", "political_leaning")
# Fewer changes (or keeps) per coefficient than this make odds ratios unreliable.
EVENTS_PER_TERM = 5


def regression(votes: Votes) -> Finding | None:
    """Odds of changing by condition and first choice, with demographics if the data bear them."""
    if len(votes.twice) < 2:
        return None
    rows = [r for a in votes.twice for r in a.moved]
    base = votes.twice[0].condition
    fitted, with_people = _fit(rows, base, votes)
    if not fitted.terms:
        return Finding(
            "regression",
            "Change by condition, all else equal",
            _why_not(fitted),
            Grid((), ()),
        )
    order = [a.condition for a in votes.twice]
    arms = [t for t in fitted.terms if t.variable == "condition"]
    arms.sort(key=lambda t: order.index(t.level))
    says = (
        f"Against {label(base).lower()}, with first choice"
        f"{' and demographics' if with_people else ''} held equal, the odds of changing are: "
        + "; ".join(_aloud(t) for t in arms)
        + "."
        if arms
        else "The conditions cannot be told apart by this model."
    )
    others = [t for t in fitted.terms if t.variable != "condition"]
    grid: list[dict[str, Cell]] = [_row(t) for t in (*arms, *others)]
    return Finding(
        "regression",
        "Change by condition, all else equal",
        says,
        Grid.of(grid, f"Logistic regression, {fitted.estimator}, errors {fitted.errors}."),
        Intervals(
            tuple(
                (label(t.level), math.log(t.odds_ratio), math.log(t.low), math.log(t.high))
                for t in arms
            ),
            unit=f"log odds of changing, against {label(base).lower()}",
            zero=0.0,
        )
        if arms
        else None,
        notes=_notes(fitted, with_people),
    )


def _fit(rows: list[Mapping[str, Any]], base: str, votes: Votes) -> tuple[Logit, bool]:
    outcome = [bool(r["position_changed"]) for r in rows]
    columns: dict[str, Column] = {
        "condition": [str(r["condition"]) for r in rows],
        "first choice": [r["initial_choice"] for r in rows],
    }
    people = {**columns, **_demographics(rows)}
    reference = {"condition": base, "first choice": votes.options[0]}
    rarer = min(sum(outcome), len(outcome) - sum(outcome))
    terms = sum(_width(c) for c in people.values())
    if len(people) > len(columns) and rarer >= EVENTS_PER_TERM * terms:
        full = logistic(outcome, people, reference=reference)
        if full.terms and full.incomplete <= 0.2 * len(rows):
            return full, True
    return logistic(outcome, columns, reference=reference), False


def _demographics(rows: list[Mapping[str, Any]]) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for name in DEMOGRAPHICS:
        values = [r.get(f"demographic_{name}") for r in rows]
        if len(set(values) - {None}) > 1:
            found[name.replace("_", " ")] = values
    return found


def _width(values: Column) -> int:
    kinds = {v for v in values if v is not None}
    numbers = all(isinstance(v, (int, float)) for v in kinds)
    return 1 if numbers else max(0, len(kinds) - 1)


def _why_not(fitted: Logit) -> str:
    if fitted.events == 0:
        return "Nobody changed, so no regression can be fitted."
    if fitted.events == fitted.n:
        return "Everybody changed, so no regression can be fitted."
    return f"Too few participants ({fitted.n}) for a regression."


def _aloud(t: Term) -> str:
    span = f"{t.low:.2g} to {t.high:.2g}"
    return f"{label(t.level)} × {t.odds_ratio:.2g} ({span}, {p_value(t.p)})"


def _row(t: Term) -> dict[str, Cell]:
    level = label(t.level) if t.variable == "condition" else t.level
    return {
        "variable": t.variable,
        "level": level,
        "odds_ratio": t.odds_ratio,
        "low": t.low,
        "high": t.high,
        "p": t.p if math.isfinite(t.p) else None,
    }


def _notes(fitted: Logit, with_people: bool) -> tuple[str, ...]:
    against = ", ".join(
        f"{name}: {label(lv) if name == 'condition' else lv}"
        for name, lv in fitted.reference.items()
    )
    notes = [f"Odds ratios against — {against}. {fitted.n} participants, {fitted.events} changed."]
    if fitted.estimator.startswith("Firth"):
        notes.append(
            "Some group changed never or always, where plain odds ratios run to infinity; Firth's "
            "penalised likelihood keeps them finite."
        )
    if not with_people:
        notes.append(
            "Demographics are left out: unknown, or too few changes for so many coefficients."
        )
    if fitted.incomplete:
        notes.append(f"{fitted.incomplete} participants lack a value and are left out.")
    if fitted.left_out:
        notes.append(f"Left out for want of information: {', '.join(fitted.left_out)}.")
    return tuple(notes)
