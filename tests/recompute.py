"""Recompute headline figures of the five studies from exported CSV files alone.

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
from scipy import special, stats
from scipy.optimize import brentq
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from tests.recompute_claims import infer_jointly, infer_without_variation

MIN_UNITS = 5
FAMILIES = ("primary", "secondary", "exploratory")
VOTING_CONDITIONS = ("simple_voting", "simple_passive", "clarified_passive", "acp")
REFERENCE = "plain"  # the first treatment of the example's sheet
Rows = list[dict[str, object]]
INTENT_OPTIONS = (
    "Definitely would not buy",
    "Probably would not buy",
    "Might or might not buy",
    "Probably would buy",
    "Definitely would buy",
)
OUTCOME_COLUMNS = {
    "items originated": "items_originated_per_resident",
    "items passed": "items_passed_per_resident",
    "reflection rate": "opinion_reflection_rate",
    "concerns in the final text": "concerns_in_final_per_resident",
}


def read_table(folder: Path, name: str) -> pd.DataFrame:
    # Levels and conditions are names, even if they look like numbers.
    dtypes = dict.fromkeys(("level", "session", "participant_id", "condition", "treatment"), str)
    return pd.read_csv(folder / f"{name}.csv", dtype=dtypes)


def label_condition(condition: str) -> str:
    return "Adversarial (ACP)" if condition == "acp" else condition.replace("_", " ").capitalize()


def _voters_by_condition(folder: Path) -> dict[str, pd.DataFrame]:
    participants = read_table(folder, "participants")
    return {
        str(condition): rows for condition, rows in participants.groupby("condition", sort=False)
    }


def position_change_rows(folder: Path) -> Rows:
    rows = []
    for condition, voters in _voters_by_condition(folder).items():
        complete = voters[(voters.status == "complete") & voters.position_changed.notna()]
        changed = int(complete.position_changed.astype(bool).sum())
        low, high = proportion_confint(changed, len(complete), method="wilson")
        rows.append(
            {
                "condition": label_condition(condition),
                "completed": int((voters.status == "complete").sum()),
                "failed": int((voters.status == "failed").sum()),
                "skipped": int((voters.status == "skipped").sum()),
                "changed": changed,
                "changed_rate": changed / len(complete),
                "low_rate": low,
                "high_rate": high,
            }
        )
    return rows


def vote_rows(folder: Path) -> Rows:
    voters = _voters_by_condition(folder)
    options = read_table(folder, "participants").initial_choice.dropna().unique()
    return [
        {
            "option": option,
            **{
                label_condition(condition): f"{(rows.initial_choice == option).sum()} → "
                f"{(rows.final_choice == option).sum()}"
                for condition, rows in voters.items()
            },
        }
        for option in options
    ]


def _infer_families(rows: Rows, infer_row: Callable[[dict, float], tuple | None]) -> Rows:
    """Add interval and p of their families to rows. `infer_row`: a row and the level of its
    interval → low, high, p, or None where there are too few units."""
    for row in rows:
        bounds = infer_row(row, 0.95)
        row |= dict(zip(("low", "high", "p"), bounds or (None,) * 3, strict=True))
        row |= {"adjusted_p": None, "joint_low": None, "joint_high": None}
    for family in FAMILIES:
        tested = [
            tested_row
            for tested_row in rows
            if tested_row["family"] == family and tested_row["p"] is not None
        ]
        holms = (
            multipletests([tested_row["p"] for tested_row in tested], method="holm")[1]
            if tested
            else []
        )
        for row, p in zip(tested, holms, strict=True):
            row["adjusted_p"] = p
    primary = [tested_row for tested_row in rows if tested_row["family"] == "primary"]
    if len(primary) > 1:
        infers = [
            partial(infer_row, tested_row) if tested_row["low"] is not None else None
            for tested_row in primary
        ]
        values = [
            tested_row.get("difference", tested_row.get("difference_points"))
            for tested_row in primary
        ]
        bounds = infer_jointly([{}] * len(primary), values, infers)
        for row, (low, high, p) in zip(primary, bounds, strict=True):
            if p is not None:
                row.update(joint_low=low, joint_high=high, adjusted_p=p)
    return rows


def change_difference_rows(folder: Path) -> Rows:
    """Compare all pairs of conditions. Those with ACP are primary."""
    counts = {row["condition"]: row for row in position_change_rows(folder)}
    complete_counts = {
        label_condition(condition): (voters.status == "complete").sum()
        for condition, voters in _voters_by_condition(folder).items()
    }
    rows: Rows = [
        {
            "first": first,
            "second": second,
            "family": "primary" if first == "Adversarial (ACP)" else "exploratory",
            "difference_points": counts[first]["changed_rate"] - counts[second]["changed_rate"],
        }
        for first, second in combinations(
            [label_condition(condition) for condition in reversed(VOTING_CONDITIONS)], 2
        )
    ]

    def infer_row(row: dict, level: float) -> tuple:
        sides = [
            (counts[row[side]]["changed"], complete_counts[row[side]])
            for side in ("first", "second")
        ]
        pairs = (*sides[0], *sides[1])
        return (*newcombe_interval(pairs, 1 - level), newcombe_p(pairs, row["difference_points"]))

    inferred = _infer_families(rows, infer_row)
    bounds = ("low", "high", "joint_low", "joint_high")
    return [
        {**inferred_row, **{f"{name}_points": inferred_row.pop(name) for name in bounds}}
        for inferred_row in inferred
    ]


def newcombe_interval(pairs: tuple, alpha: float) -> tuple[float, float]:
    return confint_proportions_2indep(*pairs, method="newcomb", compare="diff", alpha=alpha)


def newcombe_p(pairs: tuple, value: float) -> float:
    """Search for the level at which the interval touches zero, by its normal quantile."""
    if not value:
        return 1.0
    end = 0 if value > 0 else 1
    sign = 1 if value > 0 else -1
    z = brentq(lambda z: sign * newcombe_interval(pairs, 2 * stats.norm.sf(z))[end], 1e-6, 12)
    return float(2 * stats.norm.sf(z))


def purchase_intent_rows(folder: Path) -> Rows:
    intents = read_table(folder, "intents")
    if "stimulus" in intents and intents.stimulus.nunique() > 1:
        return []  # several concepts are compared instead
    rows_by_moment = {
        moment: intents[(intents.when == moment) & intents.answer.notna()]
        for moment in ("before", "after")
    }
    return [
        {
            "answer": answer,
            **{
                f"{moment}_share": (rows.answer == answer).mean()
                for moment, rows in rows_by_moment.items()
            },
            **{
                f"people {moment}": int((rows.answer == answer).sum())
                for moment, rows in rows_by_moment.items()
            },
        }
        for answer in INTENT_OPTIONS
    ]


def position_rows(folder: Path) -> Rows:
    statements = read_table(folder, "statements")
    speaker_columns = ["group", "persona_id", "name"]
    speakers = statements.pivot_table(
        index=speaker_columns, columns="when", values="position"
    ).reset_index()
    coded = read_table(folder, "opinions").groupby(["group", "persona_id"]).changed.sum()
    coded = coded.rename("changes coded").reset_index()
    speakers = speakers.merge(coded, on=["group", "persona_id"])
    if speakers.group.nunique() == 1:
        renamed = speakers.rename(columns={"name": "person"})
        return renamed[["person", "before", "after", "changes coded"]].to_dict("records")
    groups = speakers.groupby("group")
    return [
        {
            "group": group,
            "mean before": rows.before.mean(),
            "mean after": rows.after.mean(),
            "changes coded": rows["changes coded"].sum(),
        }
        for group, rows in groups
    ]


def satisfaction_rows(folder: Path) -> Rows:
    minority = ["minority_coverage_share", "minority_promised_share"]
    columns = ["inequality", "covered_share", *minority]
    means = read_table(folder, "measures").groupby("condition")[columns].mean()
    satisfaction = _group_satisfaction(folder).groupby("condition").mean(numeric_only=True)
    joined = means.join(satisfaction)
    return [{"condition": condition, **row.to_dict()} for condition, row in joined.iterrows()]


def _group_satisfaction(folder: Path) -> pd.DataFrame:
    """Average the members' scores of the outcome. An open slot counts as the lowest score."""
    rows = read_table(folder, "satisfaction")
    decided = rows["satisfaction"]
    with_left_open = decided.mask(rows["unknown"] == "left_open", -4)
    rows = rows.assign(
        satisfaction=with_left_open,
        satisfaction_decided=decided,
        satisfaction_if_lowest=decided.fillna(-4),
        satisfaction_if_highest=decided.fillna(4),
    )
    score_columns = [column for column in rows.columns if column.startswith("satisfaction")]
    members = rows.groupby(["group_id", "condition", "member_id"])[score_columns].mean()
    groups = members.groupby(["group_id", "condition"]).mean()
    lowest = members["satisfaction"].groupby(["group_id", "condition"]).min()
    groups = groups.assign(lowest_satisfaction=lowest).reset_index()
    # C2 has expectations only.
    groups.loc[groups["condition"] == "C2", "lowest_satisfaction"] = None
    return groups


MEASURES = ("satisfaction", "lowest_satisfaction", "minority_promised_share")
SHARE_MEASURES = {"minority_promised_share"}
NEGOTIATION_CONDITIONS = {
    "C1": "C1 (single user)",
    "C2": "C2 (all preferences, no mediation)",
    "C3": "C3 (raw synthesis)",
    "C4": "C4 (guided synthesis)",
    "C5": "C5 (active mediator)",
}


def paired_satisfaction_rows(folder: Path) -> Rows:
    """Compare conditions. Claims on the other measures are in the same families."""
    measures = read_table(folder, "measures")
    wide_tables = {
        measure: measures.pivot(index="group_id", columns="condition", values=measure)
        for measure in MEASURES
    }
    values_by_condition = {
        measure: {name: by_group[name] for name in by_group.columns}
        for measure, by_group in wide_tables.items()
    }
    rows = _paired_claim_rows(values_by_condition, NEGOTIATION_CONDITIONS.__getitem__, last=True)
    return [row for row in rows if row["measure"] == "satisfaction"]


def _paired_claim_rows(
    measures: Mapping[str, Mapping[str, pd.Series]], name: Callable[[str], str], *, last: bool
) -> Rows:
    """All pairs of arms, by paired t tests. In the first measure the first three steps are primary,
    or the last three; other steps are secondary. C2 has no least satisfied member."""
    differences: dict[tuple[str, str, str], pd.Series] = {}
    rows: Rows = []
    for measure, arms in measures.items():
        steps = list(itertools.pairwise(arms))
        primary = (steps[-3:] if last else steps[:3]) if measure == next(iter(measures)) else []
        for before, after in combinations(arms, 2):
            if measure == "lowest_satisfaction" and "C2" in (before, after):
                continue
            family = "secondary" if (before, after) in steps else "exploratory"
            key = measure, name(after), name(before)
            differences[key] = (arms[after] - arms[before]).dropna()
            rows.append(
                {
                    **dict(zip(("measure", "first", "second"), key, strict=True)),
                    "family": "primary" if (before, after) in primary else family,
                    "difference": differences[key].mean(),
                }
            )
    return _infer_families(
        rows,
        lambda row, level: _infer_mean(
            differences[row["measure"], row["first"], row["second"]],
            level,
            row["measure"] in SHARE_MEASURES,
        ),
    )


def _infer_mean(differences: pd.Series, level: float = 0.95, shares: bool = False) -> tuple | None:
    """Return the t interval and p of a mean; None below five units. Without variation there is no
    interval except for shares."""
    if len(differences) < MIN_UNITS:
        return None
    if differences.std() < 1e-12 and shares:
        return infer_without_variation([differences.rename_axis("unit")], -1.0, level)
    if differences.std() < 1e-12:
        return (None, None, 1.0) if abs(differences.mean()) < 1e-12 else None
    result = stats.ttest_1samp(differences, 0)
    return (*result.confidence_interval(level), result.pvalue)


def _estimate_mean(values: pd.Series) -> dict[str, object]:
    low, high, _ = _infer_mean(values) or (None,) * 3
    return {"estimate": values.mean(), "low": low, "high": high}


def _estimate_skewed_mean(values: pd.Series) -> dict[str, object]:
    """The mean of values of one unit each, by Hall's transformation of the t statistic; its bounds
    are found by search."""
    symmetric = _estimate_mean(values)
    skew = stats.skew(values, bias=False) / len(values) ** 0.5
    if symmetric["low"] is None or abs(skew) < 1e-6:
        return symmetric
    error, limit = stats.sem(values), stats.t.ppf(0.975, len(values) - 1)

    def transform_mean(mean: float) -> float:
        value = (values.mean() - mean) / error
        return value + skew / 3 * value**2 + skew**2 / 27 * value**3 + skew / 6

    def find_mean(statistic: float) -> float:
        search_bounds = (values.mean() - 1e3 * error, values.mean() + 1e3 * error)
        return float(brentq(lambda mean: transform_mean(mean) - statistic, *search_bounds))

    return symmetric | {"low": find_mean(limit), "high": find_mean(-limit)}


def _estimate_mean_share(values: pd.Series) -> dict[str, object]:
    """The mean of shares of one unit each, by a t interval on the scale of log odds. The squares
    of few large deviations have few degrees of freedom."""
    symmetric = _estimate_mean(values)
    if symmetric["low"] is None:
        return symmetric
    mean, squares = values.mean(), (values - values.mean()) ** 2
    of_squares = max(2.0, 3 * squares.sum() ** 2 / (squares**2).sum() - 1)
    limit = stats.t.ppf(0.975, min(len(values) - 1, of_squares))
    reach = limit * stats.sem(values) / (mean * (1 - mean))
    low, high = (float(special.expit(special.logit(mean) + way * reach)) for way in (-1, 1))
    return symmetric | {"low": low, "high": high}


# The four levels of the study as findings name them.
LEVEL_LABELS = {
    "1": "level 1 (shared session)",
    "2-1": "level 2-1 (own sessions)",
    "3": "level 3 (own sessions, 5 models)",
    "4": "level 4 (own sessions, 5 models, moderator)",
}


def _main_discussions_by_level(folder: Path) -> dict[str, pd.DataFrame]:
    discussions = read_table(folder, "discussions")
    discussions = discussions[discussions.part == "main"]
    return {
        str(level): rows.set_index("set")
        for level, rows in discussions.groupby("level", sort=False)
    }


def inclusion_rows(folder: Path) -> Rows:
    rows = []
    for level, discussions in _main_discussions_by_level(folder).items():
        score = {
            resident_group: discussions[f"{resident_group}_weighted_inclusivity_score"]
            for resident_group in ("vulnerable", "general", "gap")
        }
        gap = _estimate_mean(score["gap"])
        means = {resident_group: values.mean() for resident_group, values in score.items()}
        bounds = {"low": gap["low"], "high": gap["high"]}
        public_means = {
            f"{resident_group}_said_aloud": discussions[
                f"{resident_group}_weighted_inclusivity_score_said_aloud"
            ].mean()
            for resident_group in ("vulnerable", "general", "gap")
        }
        rows.append({"level": level, **means, **bounds, **public_means, "sets": len(discussions)})
    return rows


def step_rows(folder: Path) -> Rows:
    gaps = {
        level: discussions["gap_weighted_inclusivity_score"]
        for level, discussions in _main_discussions_by_level(folder).items()
    }
    return _paired_claim_rows({"gap": gaps}, LEVEL_LABELS.__getitem__, last=False)


def outcome_rows(folder: Path) -> Rows:
    return [
        {
            "figure": figure,
            "level": level,
            **{
                resident_group: discussions[f"{resident_group}_{column}"].mean()
                for resident_group in ("vulnerable", "general", "gap")
            },
        }
        for figure, column in OUTCOME_COLUMNS.items()
        for level, discussions in _main_discussions_by_level(folder).items()
    ]


def play_rows(folder: Path) -> Rows:
    sessions = read_table(folder, "sessions")
    return [
        {
            "treatment": treatment,
            "sessions": len(rows),
            "participants": int(rows.participants.sum()),
            "messages": int(rows.messages.sum()),
            "cut short": int((rows.ended != "completed").sum()),
        }
        for treatment, rows in sessions.groupby("treatment", sort=False)
    ]


def _computed_numbers(folder: Path, names: list[str]) -> pd.DataFrame:
    computed = read_table(folder, "computed")
    selected = computed[computed.name.isin(names) & computed.participant_id.notna()]
    return selected.assign(number=selected.number.astype(float))


def round_payoff_rows(folder: Path) -> Rows:
    payoffs = _computed_numbers(folder, ["payoff_1", "payoff_2", "payoff_3"])
    groups = payoffs.groupby(["treatment", "name"], sort=False).number
    return [
        {"treatment": treatment, "round": int(name[-1]), "mean": values.mean(), "n": len(values)}
        for (treatment, name), values in groups
    ]


def _measures_by_participant(folder: Path) -> dict[str, pd.Series]:
    """Map each measure to the participants' means over rounds: computed values, then answers, each
    in the order of the sheets."""
    answers = read_table(folder, "responses")
    numeric = answers[answers.var_type.isin(["integer", "float"]) & (answers.status != "invalid")]
    computed = read_table(folder, "computed")
    sources = (
        # The earnings are the sum of the payoffs and not a second measure.
        computed[computed.participant_id.notna() & (computed.name != "earnings")],
        numeric.rename(columns={"var_name": "name"}),
    )
    measure_order = read_table(folder, "variables").var_name.str.replace(r"_\d+$", "", regex=True)
    values_by_measure = {}
    for source in sources:
        rows_by_measure = dict(
            list(source.groupby(source.name.str.replace(r"_\d+$", "", regex=True)))
        )
        for measure in (name for name in measure_order.unique() if name in rows_by_measure):
            rows = rows_by_measure[measure]
            keys = [rows.treatment, rows.session, rows.participant_id]
            values_by_measure[str(measure)] = (
                rows.number.astype(float).groupby(keys, sort=False).mean()
            )
    return values_by_measure


def _claims_against_first(
    folder: Path, values_by_measure: Mapping[str, pd.Series]
) -> dict[tuple[str, str], dict[str, object]]:
    """Map measure and treatment to the claim against the first treatment. With equal numbers of
    sessions of equal size in each arm, clustering is a t test of session means."""
    rows: Rows = []
    sides = {}
    treatments = read_table(folder, "treatments").treatment.unique()
    for measure, values in values_by_measure.items():
        means = values.groupby(level=["treatment", "session"], sort=False).mean()
        session_means = dict(list(means.groupby(level="treatment", sort=False)))
        for arm in (
            treatment
            for treatment in treatments
            if treatment in session_means and treatment != REFERENCE
        ):
            sides[measure, arm] = session_means[arm], session_means[REFERENCE]
            difference = session_means[arm].mean() - session_means[REFERENCE].mean()
            rows.append({"measure": measure, "arm": arm, "difference": difference})
    # Where values are computed, questions are secondary.
    computed = {*read_table(folder, "computed").name.str.replace(r"_\d+$", "", regex=True)}
    for n, row in enumerate(rows):
        is_primary = n < 3 and row["measure"] in computed
        row["family"] = "primary" if is_primary else "secondary"

    def infer_row(row: dict, level: float) -> tuple | None:
        arm_means, reference_means = sides[row["measure"], row["arm"]]
        if min(len(arm_means), len(reference_means)) < MIN_UNITS:
            return None
        assert len(arm_means) == len(reference_means)
        result = stats.ttest_ind(arm_means, reference_means)
        return (*result.confidence_interval(level), result.pvalue)

    return {
        (claim_row["measure"], claim_row["arm"]): claim_row
        for claim_row in _infer_families(rows, infer_row)
    }


def _treatment_rows_function(measure: str, *, share: bool = False) -> Callable[[Path], Rows]:
    """Return a function for means over sessions and their differences to the first treatment.
    Columns of shares have a suffix."""
    suffix, difference_suffix = ("_share", "_points") if share else ("", "")

    def compute_rows(folder: Path) -> Rows:
        values_by_measure = _measures_by_participant(folder)
        claims = _claims_against_first(folder, values_by_measure)
        sessions = values_by_measure[measure].groupby(level=["treatment", "session"], sort=False)
        assert sessions.size().nunique() == 1
        rows: Rows = []
        for treatment, session_means in sessions.mean().groupby(level="treatment", sort=False):
            estimate_mean = _estimate_mean_share if share else _estimate_skewed_mean
            estimate = estimate_mean(session_means)
            claim = claims.get((measure, str(treatment)), {})
            base = values_by_measure[measure][REFERENCE].mean()
            rows.append(
                {
                    "treatment": treatment,
                    f"mean{suffix}": estimate["estimate"],
                    f"low{suffix}": estimate["low"],
                    f"high{suffix}": estimate["high"],
                    "participants": len(values_by_measure[measure][treatment]),
                    "sessions": len(session_means),
                    f"minus_first{difference_suffix}": session_means.mean() - base
                    if claim
                    else None,
                    f"minus_low{difference_suffix}": claim.get("low"),
                    f"minus_high{difference_suffix}": claim.get("high"),
                    f"minus_joint_low{difference_suffix}": claim.get("joint_low"),
                    f"minus_joint_high{difference_suffix}": claim.get("joint_high"),
                    "p": claim.get("p"),
                    "adjusted_p": claim.get("adjusted_p"),
                }
            )
        return rows

    return compute_rows


def pool_change_p_values(cells: Mapping[int, Sequence[Path]]) -> Mapping[str, float]:
    """Map each difference in the share that changed to its p over a grid. `cells` are the folders
    of each repeat. The mean of a repeat is one observation of a t test."""
    by_repeat = [
        pd.DataFrame(
            {row["condition"]: row["changed_rate"] for row in position_change_rows(folder)}
            for folder in folders
        ).mean()
        for folders in cells.values()
    ]
    rates = pd.DataFrame(by_repeat)
    return {
        f"{first} − {second}": float(stats.ttest_1samp(rates[first] - rates[second], 0).pvalue)
        for first, second in permutations(rates.columns, 2)
    }


RECOMPUTED: Mapping[str, Mapping[str, Callable[[Path], Rows]]] = {
    "cross_pollination": {
        "position_change": position_change_rows,
        "votes": vote_rows,
        "change_differences": change_difference_rows,
    },
    "focus_group": {"purchase_intent": purchase_intent_rows, "positions": position_rows},
    "negotiation": {
        "satisfaction": satisfaction_rows,
        "paired_satisfaction": paired_satisfaction_rows,
    },
    "town_hall": {"inclusion": inclusion_rows, "steps": step_rows, "outcome": outcome_rows},
    "workbook": {
        "play": play_rows,
        "rounds_payoff": round_payoff_rows,
        "treatment_payoff": _treatment_rows_function("payoff"),
        "treatment_share_given": _treatment_rows_function("share_given", share=True),
    },
}


def cells_agree(ours: object, theirs: object) -> bool:
    """Return whether two cells agree. Numbers are compared to five digits, because tables round."""
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
