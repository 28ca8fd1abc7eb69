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
from functools import partial
from itertools import combinations, permutations
from pathlib import Path

import pandas as pd
from scipy import stats
from scipy.optimize import brentq
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from tests.recompute_claims import equal_units, joint

FEWEST = 5
FAMILIES = ("primary", "secondary", "exploratory")
VOTING_CONDITIONS = ("simple_voting", "simple_passive", "clarified_passive", "acp")
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


def _as_families(rows: Rows, test: Callable[[dict, float], tuple | None]) -> Rows:
    """Rows of claims with interval and p of their families. `test`: a row and the level of its
    interval → low, high, p, or None where there are too few units."""
    for row in rows:
        found = test(row, 0.95)
        row |= dict(zip(("low", "high", "p"), found or (None,) * 3, strict=True))
        row |= {"adjusted_p": None, "joint_low": None, "joint_high": None}
    for family in FAMILIES:
        known = [r for r in rows if r["family"] == family and r["p"] is not None]
        holms = multipletests([r["p"] for r in known], method="holm")[1] if known else []
        for row, p in zip(known, holms, strict=True):
            row["adjusted_p"] = p
    primary = [r for r in rows if r["family"] == "primary"]
    if len(primary) > 1:
        infers = [partial(test, r) if r["low"] is not None else None for r in primary]
        values = [r.get("difference", r.get("difference_points")) for r in primary]
        found = joint([{}] * len(primary), values, infers)
        for row, (low, high, p) in zip(primary, found, strict=True):
            if p is not None:
                row.update(joint_low=low, joint_high=high, adjusted_p=p)
    return rows


def change_differences(folder: Path) -> Rows:
    """All pairs of conditions; those of ACP are primary."""
    counts = {row["condition"]: row for row in position_change(folder)}
    people = {label(arm): (own.status == "complete").sum() for arm, own in _voters(folder).items()}
    rows: Rows = [
        {
            "first": first,
            "second": second,
            "family": "primary" if first == "Adversarial (ACP)" else "exploratory",
            "difference_points": counts[first]["changed_rate"] - counts[second]["changed_rate"],
        }
        for first, second in combinations([label(arm) for arm in reversed(VOTING_CONDITIONS)], 2)
    ]

    def test(row: dict, level: float) -> tuple:
        sides = [(counts[row[w]]["changed"], people[row[w]]) for w in ("first", "second")]
        pairs = (*sides[0], *sides[1])
        return (*newcombe(pairs, 1 - level), newcombe_p(pairs, row["difference_points"]))

    told = _as_families(rows, test)
    bounds = ("low", "high", "joint_low", "joint_high")
    return [{**r, **{f"{name}_points": r.pop(name) for name in bounds}} for r in told]


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


MEASURES = ("satisfaction", "lowest_satisfaction", "minority_promised_share")
SHARES = {"minority_promised_share"}
NEGOTIATION_CONDITIONS = {
    "C1": "C1 (single user)",
    "C2": "C2 (all preferences, no mediation)",
    "C3": "C3 (raw synthesis)",
    "C4": "C4 (guided synthesis)",
    "C5": "C5 (active mediator)",
}


def paired_satisfaction(folder: Path) -> Rows:
    """Claims on the other measures are in the same families."""
    measures = table(folder, "measures")
    wide = {m: measures.pivot(index="group_id", columns="condition", values=m) for m in MEASURES}
    arms = {m: {name: own[name] for name in own.columns} for m, own in wide.items()}
    rows = _paired_claims(arms, NEGOTIATION_CONDITIONS.__getitem__, last=True)
    return [row for row in rows if row["measure"] == "satisfaction"]


def _paired_claims(
    measures: Mapping[str, Mapping[str, pd.Series]], name: Callable[[str], str], *, last: bool
) -> Rows:
    """All pairs of arms, by paired t tests. In the first measure the first three steps are primary,
    or the last three; other steps are secondary. C2 has no least content member."""
    moved: dict[tuple[str, str, str], pd.Series] = {}
    rows: Rows = []
    for measure, arms in measures.items():
        steps = list(itertools.pairwise(arms))
        primary = (steps[-3:] if last else steps[:3]) if measure == next(iter(measures)) else []
        for before, after in combinations(arms, 2):
            if measure == "lowest_satisfaction" and "C2" in (before, after):
                continue
            family = "secondary" if (before, after) in steps else "exploratory"
            key = measure, name(after), name(before)
            moved[key] = (arms[after] - arms[before]).dropna()
            rows.append(
                {
                    **dict(zip(("measure", "first", "second"), key, strict=True)),
                    "family": "primary" if (before, after) in primary else family,
                    "difference": moved[key].mean(),
                }
            )
    return _as_families(
        rows,
        lambda row, level: _t(
            moved[row["measure"], row["first"], row["second"]], level, row["measure"] in SHARES
        ),
    )


def _t(differences: pd.Series, level: float = 0.95, shares: bool = False) -> tuple | None:
    """The t interval and p of a mean; None below five units. Where all say the same there is no
    interval but for shares."""
    if len(differences) < FEWEST:
        return None
    if differences.std() < 1e-12 and shares:
        return equal_units([differences.rename_axis("unit")], -1.0, level)
    if differences.std() < 1e-12:
        return (None, None, 1.0) if abs(differences.mean()) < 1e-12 else None
    test = stats.ttest_1samp(differences, 0)
    return (*test.confidence_interval(level), test.pvalue)


def _mean(values: pd.Series) -> dict[str, object]:
    low, high, _ = _t(values) or (None,) * 3
    return {"estimate": values.mean(), "low": low, "high": high}


def _skewed(values: pd.Series) -> dict[str, object]:
    """The mean of values of one unit each, by Hall's transformation of the t statistic; its bounds
    are found by search."""
    plain = _mean(values)
    skew = stats.skew(values, bias=False) / len(values) ** 0.5
    if plain["low"] is None or abs(skew) < 1e-6:
        return plain
    error, limit = stats.sem(values), stats.t.ppf(0.975, len(values) - 1)

    def transformed(mean: float) -> float:
        t = (values.mean() - mean) / error
        return t + skew / 3 * t**2 + skew**2 / 27 * t**3 + skew / 6

    def mean_at(statistic: float) -> float:
        ends = (values.mean() - 1e3 * error, values.mean() + 1e3 * error)
        return float(brentq(lambda mean: transformed(mean) - statistic, *ends))

    return plain | {"low": mean_at(limit), "high": mean_at(-limit)}


# The four levels of the study as readers are told them.
LEVEL_LABELS = {
    "1": "level 1 (shared session)",
    "2-1": "level 2-1 (own sessions)",
    "3": "level 3 (own sessions, 5 models)",
    "4": "level 4 (own sessions, 5 models, moderator)",
}


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
        over = _mean(score["gap"])
        means = {w: values.mean() for w, values in score.items()}
        bounds = {"low": over["low"], "high": over["high"]}
        aloud = {
            f"{w}_said_aloud": own[f"{w}_weighted_inclusivity_score_said_aloud"].mean()
            for w in ("vulnerable", "general", "gap")
        }
        rows.append({"level": level, **means, **bounds, **aloud, "sets": len(own)})
    return rows


def steps(folder: Path) -> Rows:
    gaps = {
        level: own["gap_weighted_inclusivity_score"] for level, own in _main_levels(folder).items()
    }
    return _paired_claims({"gap": gaps}, LEVEL_LABELS.__getitem__, last=False)


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


def _per_person(folder: Path) -> dict[str, pd.Series]:
    """Measure → one number a participant, the mean over rounds: computed values, then answers, each
    in the order of the sheets."""
    answers = table(folder, "responses")
    numeric = answers[answers.var_type.isin(["integer", "float"]) & (answers.status != "invalid")]
    computed = table(folder, "computed")
    parts = (
        # The earnings are a helper: the sum of the payoffs, which is no second measure.
        computed[computed.participant_id.notna() & (computed.name != "earnings")],
        numeric.rename(columns={"var_name": "name"}),
    )
    ordered = table(folder, "variables").var_name.str.replace(r"_\d+$", "", regex=True)
    found = {}
    for part in parts:
        own = dict(list(part.groupby(part.name.str.replace(r"_\d+$", "", regex=True))))
        for measure in (m for m in ordered.unique() if m in own):
            rows = own[measure]
            by = [rows.treatment, rows.session, rows.participant_id]
            found[str(measure)] = rows.number.astype(float).groupby(by, sort=False).mean()
    return found


def _against_first(
    folder: Path, people: Mapping[str, pd.Series]
) -> dict[tuple[str, str], dict[str, object]]:
    """Measure and treatment → its claim against the first treatment. With as many sessions of one
    size in each arm, clustering is a t test of session means."""
    rows: Rows = []
    sides = {}
    treatments = table(folder, "treatments").treatment.unique()
    for measure, own in people.items():
        means = own.groupby(level=["treatment", "session"], sort=False).mean()
        arms = dict(list(means.groupby(level="treatment", sort=False)))
        for arm in (a for a in treatments if a in arms and a != REFERENCE):
            sides[measure, arm] = arms[arm], arms[REFERENCE]
            difference = arms[arm].mean() - arms[REFERENCE].mean()
            rows.append({"measure": measure, "arm": arm, "difference": difference})
    # Where values are computed, questions are secondary.
    computed = {*table(folder, "computed").name.str.replace(r"_\d+$", "", regex=True)}
    for n, row in enumerate(rows):
        main = n < 3 and row["measure"] in computed
        row["family"] = "primary" if main else "secondary"

    def test(row: dict, level: float) -> tuple | None:
        one, other = sides[row["measure"], row["arm"]]
        if min(len(one), len(other)) < FEWEST:
            return None
        assert len(one) == len(other)
        found = stats.ttest_ind(one, other)
        return (*found.confidence_interval(level), found.pvalue)

    return {(r["measure"], r["arm"]): r for r in _as_families(rows, test)}


def _by_treatment(measure: str, *, share: bool = False) -> Callable[[Path], Rows]:
    """Means over sessions, and their difference to the first treatment. The columns of a share are
    named as such."""
    of, minus = ("_share", "_points") if share else ("", "")

    def rows(folder: Path) -> Rows:
        people = _per_person(folder)
        claims = _against_first(folder, people)
        sessions = people[measure].groupby(level=["treatment", "session"], sort=False)
        assert sessions.size().nunique() == 1
        told: Rows = []
        for arm, own in sessions.mean().groupby(level="treatment", sort=False):
            e = _skewed(own)
            claim = claims.get((measure, str(arm)), {})
            base = people[measure][REFERENCE].mean()
            told.append(
                {
                    "treatment": arm,
                    f"mean{of}": e["estimate"],
                    f"low{of}": e["low"],
                    f"high{of}": e["high"],
                    "participants": len(people[measure][arm]),
                    "sessions": len(own),
                    f"minus_first{minus}": own.mean() - base if claim else None,
                    f"minus_low{minus}": claim.get("low"),
                    f"minus_high{minus}": claim.get("high"),
                    f"minus_joint_low{minus}": claim.get("joint_low"),
                    f"minus_joint_high{minus}": claim.get("joint_high"),
                    "p": claim.get("p"),
                    "adjusted_p": claim.get("adjusted_p"),
                }
            )
        return told

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
        "change_differences": change_differences,
    },
    "focus_group": {"purchase_intent": purchase_intent, "positions": positions},
    "negotiation": {"satisfaction": satisfaction, "paired_satisfaction": paired_satisfaction},
    "town_hall": {"inclusion": inclusion, "steps": steps, "outcome": outcome},
    "workbook": {
        "play": play,
        "rounds_payoff": rounds_payoff,
        "treatment_payoff": _by_treatment("payoff"),
        "treatment_share_given": _by_treatment("share_given", share=True),
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
