"""Headline figures of the five studies, computed anew from exported CSV files alone.

Nothing of Folkmoot is imported: pandas, scipy and statsmodels read what `folkmoot export --to csv`
wrote. `python tests/recompute.py STUDY FOLDER` prints the figures; `RECOMPUTED` maps a study and
the key of a finding to the rows that its table must hold. Below five independent units there is no
interval and no p.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations
from pathlib import Path

import pandas as pd
from scipy import stats
from scipy.optimize import brentq
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

FEWEST = 5
REFERENCE = "plain"  # the first treatment of the example's sheet
Rows = list[dict[str, object]]
LADDER = (
    "Definitely would not buy",
    "Probably would not buy",
    "Might or might not buy",
    "Probably would buy",
    "Definitely would buy",
)
OUTCOMES = {
    "items originated": "items_originated_per_resident",
    "items passed": "items_passed_per_resident",
    "reflection rate": "opinion_reflection_rate",
    "concerns in the final text": "concerns_in_final_per_resident",
}


def table(folder: Path, name: str) -> pd.DataFrame:
    # Levels and conditions are names, whatever they look like.
    names = dict.fromkeys(("level", "session", "participant_id", "condition", "treatment"), str)
    return pd.read_csv(folder / f"{name}.csv", dtype=names)


def label(condition: str) -> str:
    return "Adversarial (ACP)" if condition == "acp" else condition.replace("_", " ").capitalize()


def _voters(folder: Path) -> dict[str, pd.DataFrame]:
    people = table(folder, "participants")
    return {str(arm): own for arm, own in people.groupby("condition", sort=False)}


def position_change(folder: Path) -> Rows:
    rows = []
    for arm, own in _voters(folder).items():
        done = own[(own.status == "complete") & own.position_changed.notna()]
        changed = int(done.position_changed.astype(bool).sum())
        low, high = proportion_confint(changed, len(done), method="wilson")
        rows.append(
            {
                "condition": label(arm),
                "completed": int((own.status == "complete").sum()),
                "failed": int((own.status == "failed").sum()),
                "skipped": int((own.status == "skipped").sum()),
                "changed": changed,
                "changed_rate": changed / len(done),
                "low_rate": low,
                "high_rate": high,
            }
        )
    return rows


def votes(folder: Path) -> Rows:
    arms = _voters(folder)
    options = table(folder, "participants").initial_choice.dropna().unique()
    return [
        {
            "option": option,
            **{
                label(arm): f"{(own.initial_choice == option).sum()} → "
                f"{(own.final_choice == option).sum()}"
                for arm, own in arms.items()
            },
        }
        for option in options
    ]


def persuasion(folder: Path) -> Rows:
    """Against the floor; p is adjusted for all pairs of conditions."""
    counts = {row["condition"]: row for row in position_change(folder)}
    people = {label(arm): (own.status == "complete").sum() for arm, own in _voters(folder).items()}
    floor = counts.pop("Simple voting")
    rows: Rows = []
    for arm, row in counts.items():
        pairs = row["changed"], people[arm], floor["changed"], people["Simple voting"]
        low, high = newcombe(pairs, 0.05)
        value = row["changed_rate"] - floor["changed_rate"]
        p = newcombe_p(pairs, value)
        rows.append(
            {
                "condition": arm,
                "changed_rate": row["changed_rate"],
                "floor_rate": floor["changed_rate"],
                "above_floor_rate": value,
                "low_rate": low,
                "high_rate": high,
                "p": p,
            }
        )
    others = []
    for first, second in itertools.combinations(counts.values(), 2):
        sides = [(arm["changed"], people[arm["condition"]]) for arm in (second, first)]
        pairs = (*sides[0], *sides[1])
        others.append(newcombe_p(pairs, second["changed_rate"] - first["changed_rate"]))
    holms = multipletests([*(row["p"] for row in rows), *others], method="holm")[1]
    return [{**row, "holm_p": p} for row, p in zip(rows, holms, strict=False)]


def newcombe(pairs: tuple, alpha: float) -> tuple[float, float]:
    return confint_proportions_2indep(*pairs, method="newcomb", compare="diff", alpha=alpha)


def newcombe_p(pairs: tuple, value: float) -> float:
    """The level at which the interval just touches zero, found by its normal quantile."""
    if not value:
        return 1.0
    end = 0 if value > 0 else 1
    sign = 1 if value > 0 else -1
    z = brentq(lambda z: sign * newcombe(pairs, 2 * stats.norm.sf(z))[end], 1e-6, 12)
    return float(2 * stats.norm.sf(z))


def purchase_intent(folder: Path) -> Rows:
    intents = table(folder, "intents")
    if "stimulus" in intents and intents.stimulus.nunique() > 1:
        return []  # several concepts are compared instead
    when = {w: intents[(intents.when == w) & intents.answer.notna()] for w in ("before", "after")}
    return [
        {
            "answer": answer,
            **{f"{w}_share": (own.answer == answer).mean() for w, own in when.items()},
            **{f"people {w}": int((own.answer == answer).sum()) for w, own in when.items()},
        }
        for answer in LADDER
    ]


def positions(folder: Path) -> Rows:
    said = table(folder, "statements")
    who = ["group", "persona_id", "name"]
    wide = said.pivot_table(index=who, columns="when", values="position").reset_index()
    shifts = table(folder, "opinions").groupby(["group", "persona_id"]).changed.sum()
    wide = wide.merge(shifts.rename("shifts").reset_index(), on=["group", "persona_id"])
    if wide.group.nunique() == 1:
        told = wide.rename(columns={"name": "person"})
        return told[["person", "before", "after", "shifts"]].to_dict("records")
    groups = wide.groupby("group")
    return [
        {
            "group": group,
            "mean before": own.before.mean(),
            "mean after": own.after.mean(),
            "shifts": own.shifts.sum(),
        }
        for group, own in groups
    ]


def satisfaction(folder: Path) -> Rows:
    minority = ["minority_coverage_share", "minority_promised_share"]
    columns = ["inequality", "covered_share", *minority]
    means = table(folder, "measures").groupby("condition")[columns].mean()
    content = _satisfaction_of_groups(folder).groupby("condition").mean(numeric_only=True)
    both = means.join(content)
    return [{"condition": arm, **row.to_dict()} for arm, row in both.iterrows()]


def _satisfaction_of_groups(folder: Path) -> pd.DataFrame:
    """From members' own scores and what they get: a slot left open counts as the lowest score."""
    rows = table(folder, "satisfaction")
    known = rows["satisfaction"]
    left_open = known.mask(rows["unknown"] == "left_open", -4)
    rows = rows.assign(
        satisfaction=left_open,
        satisfaction_decided=known,
        satisfaction_if_lowest=known.fillna(-4),
        satisfaction_if_highest=known.fillna(4),
    )
    kinds = [c for c in rows.columns if c.startswith("satisfaction")]
    members = rows.groupby(["group_id", "condition", "member_id"])[kinds].mean()
    groups = members.groupby(["group_id", "condition"]).mean()
    lowest = members["satisfaction"].groupby(["group_id", "condition"]).min()
    groups = groups.assign(lowest_satisfaction=lowest).reset_index()
    groups.loc[groups["condition"] == "C2", "lowest_satisfaction"] = None  # expectations have none
    return groups


def paired_satisfaction(folder: Path) -> Rows:
    wide = table(folder, "measures").pivot(
        index="group_id", columns="condition", values="satisfaction"
    )
    rows: Rows = []
    for first, second in combinations(wide.columns, 2):
        differences = (wide[second] - wide[first]).dropna()
        tested = {**_paired(differences), "n": len(differences)}
        rows.append({"of": second, "minus": first, **tested})
    return _with_holm(rows)


def _paired(differences: pd.Series) -> dict[str, object]:
    """A paired t test; nothing but the mean below five units."""
    row: dict[str, object] = {"estimate": differences.mean()}
    row |= dict.fromkeys(("low", "high", "p", "holm_p"))
    if len(differences) < FEWEST or differences.std() < 1e-12:
        return row
    test = stats.ttest_1samp(differences, 0)
    low, high = test.confidence_interval()
    return {**row, "low": low, "high": high, "p": test.pvalue}


def _with_holm(rows: Rows) -> Rows:
    known = [row for row in rows if row["p"] is not None]
    holms = multipletests([row["p"] for row in known], method="holm")[1] if known else []
    for row, p in zip(known, holms, strict=True):
        row["holm_p"] = p
    return rows


def _main_levels(folder: Path) -> dict[str, pd.DataFrame]:
    held = table(folder, "discussions")
    held = held[held.part == "main"]
    return {str(level): own.set_index("set") for level, own in held.groupby("level", sort=False)}


def inclusion(folder: Path) -> Rows:
    rows = []
    for level, own in _main_levels(folder).items():
        score = {
            w: own[f"{w}_weighted_inclusivity_score"] for w in ("vulnerable", "general", "gap")
        }
        over = _paired(score["gap"])
        means = {w: values.mean() for w, values in score.items()}
        bounds = {"low": over["low"], "high": over["high"]}
        aloud = {
            f"{w}_said_aloud": own[f"{w}_weighted_inclusivity_score_said_aloud"].mean()
            for w in ("vulnerable", "general", "gap")
        }
        rows.append({"level": level, **means, **bounds, **aloud, "sets": len(own)})
    return rows


def steps(folder: Path) -> Rows:
    scores = {
        level: own[
            [
                *(f"{w}_weighted_inclusivity_score" for w in ("gap", "vulnerable")),
                "gap_weighted_inclusivity_score_said_aloud",
            ]
        ]
        for level, own in _main_levels(folder).items()
    }
    rows: Rows = []
    for first, second in combinations(scores, 2):
        moved = scores[second] - scores[first]
        paired = _paired(moved["gap_weighted_inclusivity_score"].dropna())
        paired["gap"] = paired.pop("estimate")
        paired["vulnerable"] = moved["vulnerable_weighted_inclusivity_score"].mean()
        paired["gap_said_aloud"] = moved["gap_weighted_inclusivity_score_said_aloud"].mean()
        rows.append({"step": f"{first} → {second}", **paired})
    return _with_holm(rows)


def outcome(folder: Path) -> Rows:
    return [
        {
            "figure": figure,
            "level": level,
            **{w: own[f"{w}_{column}"].mean() for w in ("vulnerable", "general", "gap")},
        }
        for figure, column in OUTCOMES.items()
        for level, own in _main_levels(folder).items()
    ]


def play(folder: Path) -> Rows:
    held = table(folder, "sessions")
    return [
        {
            "treatment": arm,
            "sessions": len(own),
            "participants": int(own.participants.sum()),
            "messages": int(own.messages.sum()),
            "cut short": int((own.ended != "completed").sum()),
        }
        for arm, own in held.groupby("treatment", sort=False)
    ]


def _numbers(folder: Path, names: list[str]) -> pd.DataFrame:
    computed = table(folder, "computed")
    found = computed[computed.name.isin(names) & computed.participant_id.notna()]
    return found.assign(number=found.number.astype(float))


def rounds_payoff(folder: Path) -> Rows:
    found = _numbers(folder, ["payoff_1", "payoff_2", "payoff_3"])
    groups = found.groupby(["treatment", "name"], sort=False).number
    return [
        {"treatment": arm, "round": int(name[-1]), "mean": own.mean(), "n": len(own)}
        for (arm, name), own in groups
    ]


def _by_treatment(*names: str) -> Callable[[Path], Rows]:
    """Means of sessions, and their difference to the first treatment: with as many sessions of one
    size in each arm, clustering is a t test of session means."""

    def rows(folder: Path) -> Rows:
        found = _numbers(folder, list(names))
        people = found.groupby(["treatment", "session", "participant_id"], sort=False).number.mean()
        sessions = people.groupby(level=["treatment", "session"], sort=False)
        assert sessions.size().nunique() == 1
        means = list(sessions.mean().groupby(level="treatment", sort=False))
        arms = dict(sorted(means, key=lambda arm: arm[0] != REFERENCE))
        told: Rows = []
        for arm, own in arms.items():
            e = _paired(own)
            told.append(
                {
                    "treatment": arm,
                    "mean": e["estimate"],
                    "low": e["low"],
                    "high": e["high"],
                    "participants": len(people[arm]),
                    "sessions": len(own),
                    **dict.fromkeys(("minus_first", "minus_low", "minus_high", "p", "holm_p")),
                }
            )
        first, *others = arms.values()
        for row, own in zip(told[1:], others, strict=True):
            row["minus_first"] = own.mean() - first.mean()
            if len(own) + len(first) >= FEWEST:
                assert len(own) == len(first)
                test = stats.ttest_ind(own, first)
                low, high = test.confidence_interval()
                row |= {"minus_low": low, "minus_high": high, "p": test.pvalue}
        return _with_holm(told)

    return rows


def pooled_changes(cells: Mapping[int, Sequence[Path]]) -> Mapping[str, float]:
    """Difference in the share that changed → p, over a grid: `cells` are the exported folders of
    each repeat, whose mean is one observation of a t test."""
    by_repeat = [
        pd.DataFrame(
            {row["condition"]: row["changed_rate"] for row in position_change(folder)}
            for folder in folders
        ).mean()
        for folders in cells.values()
    ]
    rates = pd.DataFrame(by_repeat)
    return {
        f"{one} − {other}": float(stats.ttest_1samp(rates[one] - rates[other], 0).pvalue)
        for one, other in permutations(rates.columns, 2)
    }


RECOMPUTED: Mapping[str, Mapping[str, Callable[[Path], Rows]]] = {
    "cross_pollination": {
        "position_change": position_change,
        "votes": votes,
        "persuasion": persuasion,
    },
    "focus_group": {"purchase_intent": purchase_intent, "positions": positions},
    "negotiation": {"satisfaction": satisfaction, "paired_satisfaction": paired_satisfaction},
    "town_hall": {"inclusion": inclusion, "steps": steps, "outcome": outcome},
    "workbook": {
        "play": play,
        "rounds_payoff": rounds_payoff,
        "treatment_payoff": _by_treatment("payoff_1", "payoff_2", "payoff_3"),
        "treatment_earnings": _by_treatment("earnings"),
        "treatment_share_given": _by_treatment("share_given"),
    },
}


def same(ours: object, theirs: object) -> bool:
    """Whether two cells agree; a figure to five digits, as tables of the studies' own round."""
    missing = [x is None or (isinstance(x, float) and math.isnan(x)) for x in (ours, theirs)]
    if any(missing):
        return all(missing)
    if isinstance(ours, str) or isinstance(theirs, str):
        return str(ours) == str(theirs)
    return math.isclose(float(ours), float(theirs), rel_tol=1e-4, abs_tol=1e-5)  # type: ignore[arg-type]


if __name__ == "__main__":
    kind, out = sys.argv[1], Path(sys.argv[2])
    figures = {key: rows(out) for key, rows in RECOMPUTED[kind].items()}
    print(json.dumps(figures, indent=1, default=float, ensure_ascii=False))
