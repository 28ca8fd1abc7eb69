"""Findings about changed choices: how many there are, and between which options."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from folkmoot.hints import capitalise, join_first, join_words
from folkmoot.kit.claims import LEVELS, claims_finding, result_cells
from folkmoot.kit.findings import (
    Row,
    all_largest,
    condition_name,
    estimate_cells,
    finite_or_none,
    format_share,
    format_signed,
    interval_chart,
    list_values,
)
from folkmoot.measures.inference.claims import Claim, fitted_result
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    Estimate,
    format_count,
    format_percent,
    share_digits,
)
from folkmoot.measures.inference.factorial import factorial
from folkmoot.measures.inference.families import adjust_families
from folkmoot.measures.inference.paired_votes import (
    bowker,
    mcnemar,
    stuart_maxwell,
)
from folkmoot.measures.inference.proportions import holm
from folkmoot.measures.inference.regression import Column, Logit, logistic
from folkmoot.measures.wording import (
    EXPLORATORY,
    EXPLORATORY_TESTS,
    Sentence,
    join_sentences,
    word,
)
from folkmoot.storage.findings import AlluvialChart, BarChart, Finding, IntervalChart, ResultTable
from folkmoot.studies.cross_pollination.config import (
    CHANGED,
    PLACEBOS,
    ConditionDesign,
)
from folkmoot.studies.cross_pollination.findings.votes import (
    ConditionVotes,
    Voter,
    Votes,
    count_moves,
)

ONE_POOL = (
    "All readers were shown the same summaries, so the intervals hold for these summaries and not "
    "for another draw of them."
)
SEVERAL_POOLS = (
    "Readers were divided among {draws} draws of the summaries. The intervals allow for "
    "differences between draws, so they also hold for other descriptions of the same interviews."
)
FEW_POOLS = (
    "Readers were divided among {draws} draws of the summaries, and the intervals hold for these "
    "draws together. Results for other draws need five or more draws."
)
NOT_BY_DRAW = (
    "These intervals do not allow for differences between draws of the summaries, because there "
    "are too few draws for the number of coefficients."
)
SOURCE_EXPOSURE = (
    "With the exposure of the source study and {wording}, clarified passive is simple passive "
    "under another name. The adversarial condition has a dialogue but no summaries, so it differs "
    "from the reading conditions in two things."
)
OWN_AMONG_OTHERS = (
    "The page of summaries is made from all interviews. Interviewed participants therefore also "
    "read their own reasons, presented as those of other participants (as in the source study)."
)
DEMOGRAPHICS = ("age", "sex", "education", "income", "location_type", "political_leaning")
# Minimum number of changes (or of kept votes, if these are rarer) per coefficient. With fewer, odds
# ratios are unreliable.
EVENTS_PER_TERM = 5


def position_change(votes: Votes) -> Finding:
    """Return the headline finding: the share of changed choices in each condition."""
    # Only participants with both votes count.
    rates = {
        condition_votes.condition: votes.rate(condition_votes)
        for condition_votes in votes.two_vote_conditions
    }
    rows = []
    for condition_votes in votes.conditions:
        status = Counter(voter.status for voter in condition_votes.rows)
        rows.append(
            {
                "condition": condition_votes.name,
                "completed": status["complete"],
                "failed": status["failed"],
                "skipped": status["skipped"],
                # Without a second vote "0 changed" would be wrong, so the cell stays empty.
                "changed": condition_votes.changed_count
                if condition_votes.participant_count
                else None,
                **estimate_cells(rates.get(condition_votes.condition), "changed_rate", "_rate"),
            }
        )
    return Finding(
        "position_change",
        "Who changed their choice",
        _describe_rates(votes, rates),
        ResultTable.from_records(
            rows,
            f"Participants with different first and final votes; {_rate_intervals(votes)}.",
        ),
        interval_chart(
            {
                condition_votes.name: rates[condition_votes.condition]
                for condition_votes in votes.two_vote_conditions
            },
            "changed their choice",
            percent=True,
        ),
        notes=summary_caveats(votes),
        headline=True,
        alarms=_undescribed_cluster_note(votes),
        **votes.analysis_basis,
    )


def _rate_intervals(votes: Votes) -> str:
    # With fewer draws, no interval can be clustered by draw, see `Votes.rate`.
    if votes.summary_draws < FEWEST_UNITS:
        return "95 % Wilson intervals"
    return (
        "95 % Wilson intervals, widened where an interval clustered by draw of the summaries is "
        "wider"
    )


def summary_caveats(votes: Votes) -> tuple[str, ...]:
    """Return notes on how far results from conditions with summaries can be generalised.

    Returns an empty tuple if no condition has summaries.
    """
    if not votes.conditions_with("summaries"):
        return ()
    several = FEW_POOLS if votes.summary_draws < FEWEST_UNITS else SEVERAL_POOLS
    pools = several.format(draws=votes.summary_draws) if votes.summary_draws > 1 else ONE_POOL
    notes = [pools]
    if any(
        votes.exposure_of(condition_votes).interview
        for condition_votes in votes.conditions_with("summaries")
    ):
        notes.append(OWN_AMONG_OTHERS)
    if not votes.neighbours_differ_in_one_switch:
        notes.append(SOURCE_EXPOSURE.format(wording=votes.prompts_phrase))
    return tuple(notes)


def _undescribed_cluster_note(votes: Votes) -> tuple[str, ...]:
    if not votes.undescribed_clusters or not votes.conditions_with("summaries"):
        return ()
    return (
        "Some reasons were shown to no reader, because the model gave no description of "
        f"{format_count(len(votes.undescribed_clusters), 'cluster')}: "
        f"{', '.join(votes.undescribed_clusters)}.",
    )


def _describe_rates(votes: Votes, rates: Mapping[str, Estimate]) -> Sentence:
    if not rates and not votes.terminated:
        return word("refusal", "no second votes")
    sentences = []
    if votes.terminated:
        sentences.append(word("description", "ended early", why=votes.terminated))
    elif not any(condition_votes.changed_count for condition_votes in votes.two_vote_conditions):
        sentences.append(word("description", "no one changed"))
    if rates:
        clauses = (
            word(
                "description",
                "changed",
                condition=condition_votes.name,
                count=condition_votes.changed_count,
                participants=condition_votes.participant_count,
                share=format_share(
                    rates[condition_votes.condition],
                    digits=share_digits(condition_votes.participant_count),
                ),
            )
            for condition_votes in votes.two_vote_conditions
        )
        sentences.append(word("description", "list", values=join_sentences(clauses, "; ")))
    return join_sentences(sentences)


def difference_finding(votes: Votes) -> Finding | None:
    """Return the finding that compares conditions, pair by pair, by their share of changed choices.

    Returns None unless participants vote twice in at least two conditions.
    """
    if not votes.claim_results:
        return None
    # All pairs are compared, the main claims first.
    return claims_finding(
        "change_differences",
        "Differences between conditions",
        votes.claim_results,
        axis="changed their choice",
        notes=summary_caveats(votes),
        **votes.analysis_basis,
    )


def vote_counts(votes: Votes) -> Finding | None:
    """Return the finding with the numbers of first and of final votes for each option.

    Returns None if there are no votes.
    """
    first = votes.counts(voter.initial_choice for voter in votes.people)
    if not any(first):
        return None
    before = {
        condition_votes: votes.counts(voter.initial_choice for voter in condition_votes.rows)
        for condition_votes in votes.conditions
    }
    after = {
        condition_votes: votes.counts(voter.final_choice for voter in condition_votes.rows)
        for condition_votes in votes.conditions
    }
    rows = [
        {
            "option": option,
            **{
                condition_votes.name: f"{before[condition_votes][i]} → {after[condition_votes][i]}"
                if condition_votes.participant_count
                else str(before[condition_votes][i])
                for condition_votes in votes.conditions
            },
        }
        for i, option in enumerate(votes.options)
    ]
    top = all_largest(range(len(first)), first.__getitem__)
    each = " each" if len(top) > 1 else ""
    top_options = join_words([f"“{votes.options[i]}”" for i in top])
    return Finding(
        "votes",
        "Votes before and after",
        join_sentences(
            [
                word(
                    "description",
                    "observed",
                    what=f"{top_options} {'have' if each else 'has'} the most first votes, "
                    f"{first[top[0]]:,} of {sum(first):,}{each} "
                    f"({format_percent(first[top[0]] / sum(first))})",
                ),
                *_describe_missing(votes),
            ]
        ),
        ResultTable.from_records(
            rows, "First → final votes; a single number if there was no final vote."
        ),
        headline=True,
        conclusion=f"most voted {top_options}",
    )


def _describe_missing(votes: Votes) -> list[Sentence]:
    sentences = []
    for vote_label, column in (("first", "initial_choice"), ("final", "final_choice")):
        all_reasons = (voter.missing_answers.get(column) for voter in votes.people)
        reasons = Counter(reason for reason in all_reasons if reason)
        if reasons:
            counted = ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items()))
            what = f"Missing {vote_label} votes"
            sentences.append(word("description", "values", what=what, values=counted))
    return sentences


def transition_finding(votes: Votes) -> Finding | None:
    """Return the finding on votes that moved from one option to another.

    Returns None if there are no second votes.
    """
    links = [
        (condition_votes.name, first_option, final_option, int(count))
        for condition_votes in votes.two_vote_conditions
        for first_option, counts in zip(
            votes.options, count_moves(votes, condition_votes), strict=True
        )
        for final_option, count in zip(votes.options, counts, strict=True)
        if count
    ]
    if not links:
        return None
    statement = word("description", "votes changed", votes="No vote")
    if moves := [link for link in links if link[1] != link[2]]:
        top = all_largest(moves, lambda move: move[3])
        changed = format_count(sum(move[3] for move in moves), "vote")
        top_moves = join_first(
            [f"from “{first}” to “{final}” ({condition})" for condition, first, final, _ in top]
        )
        most = (
            f"the most frequent change is that of {top[0][3]:,} {top_moves}"
            if len(top) == 1
            else f"the most frequent changes are those of {top[0][3]:,} each, {top_moves}"
        )
        statement = join_sentences(
            [
                word("description", "votes changed", votes=changed),
                word("description", "observed", what=most),
            ]
        )
    return Finding(
        "transitions",
        "From first to final vote",
        statement,
        ResultTable(
            ("condition", "first_vote", "final_vote", "participants"),
            tuple(links),
            "Number of participants by first and final vote.",
        ),
        AlluvialChart(tuple(links)),
    )


def marginal_homogeneity(votes: Votes) -> Finding | None:
    """Return the finding on whether the number of votes per option changed, for each condition.

    Returns None if no participant voted twice.
    """
    # The Stuart–Maxwell test compares the totals before and after. Bowker's test also notices moves
    # that cancel out in the totals.
    if not votes.two_vote_conditions:
        return None
    tables = [count_moves(votes, condition_votes) for condition_votes in votes.two_vote_conditions]
    tests = {
        "bowker": [bowker(table) for table in tables],
        "stuart_maxwell": [*map(stuart_maxwell, tables)],
    }
    adjusted_p_values = {
        name: holm([test.p for test in results]) for name, results in tests.items()
    }
    rows: list[Row] = []
    for index, condition_votes in enumerate(votes.two_vote_conditions):
        row: Row = {"condition": condition_votes.name, "n": condition_votes.participant_count}
        for name, results in tests.items():
            test = results[index]
            row |= {name: test.statistic, f"{name}_df": test.df, f"{name}_p": test.p}
            row[f"{name}_holm_p"] = adjusted_p_values[name][index]
        df = tests["bowker"][index].df
        # The tests are asymptotic. Five moves per degree of freedom is the customary minimum.
        rows.append({**row, "reliable": df > 0 and condition_votes.changed_count >= 5 * df})
    tests_by_condition = dict(
        zip(
            (condition_votes.name for condition_votes in votes.two_vote_conditions),
            tests["stuart_maxwell"],
            strict=True,
        )
    )
    # The statement gives no verdict, because the tests are exploratory.
    clauses = (
        (name, f"{test.statistic:.1f} on {format_count(test.df, 'degree')} of freedom")
        for name, test in tests_by_condition.items()
        if test.df
    )
    return Finding(
        "marginal_homogeneity",
        "Did the outcome shift?",
        word("description", "statistic", values=list_values(clauses))
        if any(test.df for test in tests_by_condition.values())
        else word("refusal", "few changes"),
        ResultTable.from_records(
            rows, "Bowker's test of symmetry and Stuart and Maxwell's of equal totals."
        ),
        notes=(
            "Noise changes votes without favouring an option, so these tests react to persuasion "
            "in one direction. “reliable” is no if there are fewer than five changes per degree "
            "of freedom.",
            EXPLORATORY_TESTS,
        ),
        **votes.conditional_basis,
    )


class Shift(NamedTuple):
    """The first and final votes for one option in one condition."""

    condition_votes: ConditionVotes
    option: str
    # The numbers of first and of final votes.
    first: int
    final: int
    # The number of participants who chose the option twice.
    kept: int

    @property
    def gained_votes(self) -> int:
        """The number of participants who changed to this option."""
        return self.final - self.kept

    @property
    def lost_votes(self) -> int:
        """The number of participants who changed from this option to a different option."""
        return self.first - self.kept

    @property
    def net_change(self) -> int:
        """The number of final votes minus the number of first votes."""
        return self.final - self.first

    @property
    def p(self) -> float:
        """The p-value of McNemar's test, which compares gained with lost votes."""
        return mcnemar(self.gained_votes, self.lost_votes).p


def option_shifts(votes: Votes) -> Finding | None:
    """Return the finding on the votes that each option gained and lost.

    Returns None if no participant voted twice.
    """
    # One McNemar test for each option in each condition, with p-values adjusted by Holm.
    shifts = [
        Shift(
            condition_votes,
            option,
            *(int(count) for count in (table[i].sum(), table[:, i].sum(), table[i, i])),
        )
        for condition_votes in votes.two_vote_conditions
        for table in [count_moves(votes, condition_votes)]
        for i, option in enumerate(votes.options)
    ]
    if not shifts:
        return None
    adjusted_p = holm([shift.p for shift in shifts])
    top = all_largest(shifts, lambda shift: abs(shift.net_change))
    top_shifts = join_first(
        [
            f"“{shift.option}” {format_signed(shift.net_change, 0)} in "
            f"{shift.condition_votes.name} ({shift.gained_votes} gained, {shift.lost_votes} lost)"
            for shift in top
        ]
    )
    rows: list[Row] = [
        {
            "condition": shift.condition_votes.name,
            "option": shift.option,
            "first_share": shift.first / shift.condition_votes.participant_count,
            "final_share": shift.final / shift.condition_votes.participant_count,
            "gained": shift.gained_votes,
            "lost": shift.lost_votes,
            "p": shift.p,
            "holm_p": holm_p,
        }
        for shift, holm_p in zip(shifts, adjusted_p, strict=True)
    ]
    bars = (
        (
            shift.condition_votes.name,
            shift.option,
            shift.net_change / shift.condition_votes.participant_count,
        )
        for shift in shifts
    )
    return Finding(
        "option_shifts",
        "What each option gained and lost",
        word(
            "description",
            "observed",
            what=f"the largest net {'shifts are' if len(top) > 1 else 'shift is'} {top_shifts}"
            if top[0].net_change
            else "no option gained or lost votes on balance",
        ),
        ResultTable.from_records(rows, "p: McNemar's test per option (exact below 25 moves)."),
        BarChart(tuple(bars), unit="net change in share", percent=True),
        notes=(EXPLORATORY_TESTS,),
        **votes.conditional_basis,
    )


def regression_finding(votes: Votes) -> Finding | None:
    """Return the finding on the odds of changing a choice, from a logistic regression.

    Returns None if participants voted twice in fewer than two conditions.
    """
    # The predictors are condition and first choice, and demographics if the data are rich enough
    # (`_fit_regression`).
    if len(votes.two_vote_conditions) < 2:
        return None
    title = "Change by condition, with first choices held equal"
    voters = [
        voter
        for condition_votes in votes.two_vote_conditions
        for voter in condition_votes.two_vote_voters
    ]
    order = [condition_votes.condition for condition_votes in votes.two_vote_conditions]
    fitted, has_demographics = _fit_regression(voters, order[0], votes)
    if not fitted.terms:
        return Finding("regression", title, _no_fit_reason(fitted), ResultTable((), ()))
    # The reference is the first condition of the design, which is simple voting in the source
    # study.
    base = condition_name(order[0]).lower()
    condition_terms = [term for term in fitted.terms if term.variable == "condition"]
    condition_terms.sort(key=lambda term: order.index(term.level))
    others = [term for term in fitted.terms if term.variable != "condition"]
    results = adjust_families(
        [
            fitted_result(
                _odds_claim(term.level, order[0], has_demographics, votes),
                term.as_log_odds(fitted.n),
            )
            for term in condition_terms
        ]
    )
    odds = []
    rows: list[Row] = []
    for result in results:
        estimate, level = result.estimate, result.claim.arm_labels[0]
        ratio, low, high = map(math.exp, (estimate.value, estimate.low, estimate.high))
        odds.append((level, ratio, low, high))
        tested: Row = {"p": finite_or_none(estimate.p), "adjusted_p": finite_or_none(result.p)}
        about: Row = {"variable": "condition", "level": level, "odds_ratio": ratio}
        family = result.claim.family
        rows.append(about | {"low": low, "high": high, "family": family} | tested)
    # Covariates hold things equal. Intervals would invite readers to take them for effects.
    rows += [
        {"variable": term.variable, "level": term.level, "odds_ratio": term.odds_ratio}
        for term in others
    ]
    return Finding(
        "regression",
        title,
        # Only the claims say how conditions differ. A second sentence about it might contradict
        # them.
        word(
            "description",
            "odds",
            base=base,
            held="first choice and demographics" if has_demographics else "first choice",
        )
        if condition_terms
        else word("refusal", "no estimate"),
        ResultTable.from_records(
            rows,
            f"Logistic regression, {fitted.estimator}, errors {fitted.errors}.",
        ),
        IntervalChart(tuple(odds), f"odds ratio of changing, relative to {base}", 1.0, ratios=True)
        if odds
        else None,
        notes=(
            *_regression_notes(fitted, has_demographics),
            # The regression is not clustered by draw, because the draws are too few for its
            # coefficients.
            *([NOT_BY_DRAW] if votes.summary_draws > 1 else []),
        ),
        **votes.conditional_basis,
    )


def _odds_claim(condition: str, base: str, has_demographics: bool, votes: Votes) -> Claim:
    equal = f"first choice{' and demographics' if has_demographics else ''} held equal"
    return Claim(
        CHANGED,
        (condition, base),
        "mean",
        unit=votes.conditional_basis["unit"],
        estimand=(
            f"The log odds of changing in {condition_name(condition)} minus those in "
            f"{condition_name(base)}, with {equal}, by logistic regression."
        ),
        names=(condition_name(condition), condition_name(base)),
        outcome=f"log odds of changing, with {equal}",
    )


def _fit_regression(voters: list[Voter], base: str, votes: Votes) -> tuple[Logit, bool]:
    # The second value is True if demographics are among the predictors.
    outcome = [bool(voter.position_changed) for voter in voters]
    columns: dict[str, Column] = {
        "condition": [str(voter.condition) for voter in voters],
        "first choice": [voter.initial_choice for voter in voters],
    }
    demographics = {
        demographic.replace("_", " "): [voter.demographics.get(demographic) for voter in voters]
        for demographic in DEMOGRAPHICS
    }
    # A demographic with a single known value cannot be a predictor.
    all_columns = columns | {
        name: values for name, values in demographics.items() if len(set(values) - {None}) > 1
    }
    reference = {"condition": base, "first choice": votes.options[0]}
    rarer_count = min(sum(outcome), len(outcome) - sum(outcome))
    terms = sum(_coefficient_count(column) for column in all_columns.values())
    if len(all_columns) > len(columns) and rarer_count >= EVENTS_PER_TERM * terms:
        full = logistic(outcome, all_columns, reference=reference)
        # Rows with an unknown demographic drop out of the full model. If they are more than a
        # fifth, the remaining participants are too selected a group.
        if full.terms and full.incomplete <= 0.2 * len(voters):
            return full, True
    return logistic(outcome, columns, reference=reference), False


def _coefficient_count(values: Column) -> int:
    # A numeric column adds one coefficient, a column of categories one less than its levels.
    distinct_values = {value for value in values if value is not None}
    numbers = all(isinstance(value, (int, float)) for value in distinct_values)
    return 1 if numbers else max(0, len(distinct_values) - 1)


def _no_fit_reason(fitted: Logit) -> Sentence:
    quantifier = {0: "No participant", fitted.n: "Every participant"}.get(fitted.events)
    if quantifier:
        return word("refusal", "nothing to fit", who=quantifier)
    return word("refusal", "too few to fit", participants=fitted.n)


def _regression_notes(fitted: Logit, has_demographics: bool) -> list[str]:
    reference_levels = ", ".join(
        f"{name}: {condition_name(level) if name == 'condition' else level}"
        for name, level in fitted.reference.items()
    )
    notes = [
        f"Reference levels of the odds ratios: {reference_levels}. "
        f"{fitted.n} participants, of whom {fitted.events} changed.",
        EXPLORATORY,
        "adjusted p: by Holm's method over the conditions. The other coefficients are controls.",
    ]
    if fitted.estimator.startswith("Firth"):
        notes.append(
            "In some group no participant or every participant changed. Plain odds ratios would "
            "be infinite there. Firth's penalised likelihood keeps them finite."
        )
    if not has_demographics:
        notes.append(
            "Demographics are left out, because they are unknown or there are too few changes."
        )
    if fitted.incomplete:
        notes.append(f"{fitted.incomplete} participants lack a value and are left out.")
    if fitted.left_out:
        notes.append(f"Left out for lack of data: {', '.join(fitted.left_out)}.")
    return notes


# --- effects of summaries, interview and dialogue ----------------------------------------------

SWITCHES = tuple(ConditionDesign.model_fields)


def main_effects(votes: Votes) -> Finding | None:
    """Return the finding that separates the effects of summaries, interview and dialogue.

    Returns None if the run has too few combinations of these three switches.
    """
    # `difference_finding` shows the same then.
    # The effects come from a factorial regression by least squares.
    conditions = [
        condition_votes
        for condition_votes in votes.two_vote_conditions
        if condition_votes.condition not in PLACEBOS
    ]
    varied = [
        switch
        for switch in SWITCHES
        if len(
            {getattr(votes.exposure_of(condition_votes), switch) for condition_votes in conditions}
        )
        > 1
    ]
    if (
        not votes.neighbours_differ_in_one_switch
        or len({votes.exposure_of(condition_votes) for condition_votes in conditions})
        <= len(varied) + 1
    ):
        return None
    fitted = factorial(
        [changed for condition_votes in conditions for changed in condition_votes.changed_flags],
        {
            switch: [
                getattr(votes.exposure_of(condition_votes), switch)
                for condition_votes in conditions
                for _ in condition_votes.two_vote_voters
            ]
            for switch in varied
        },
        [
            unit
            for condition_votes in conditions
            for unit in votes.independent_units(condition_votes)
        ],
    )
    effects = {capitalise(name): estimate for name, estimate in fitted.main.items()}
    effects |= {
        f"{capitalise(first)} × {second}": estimate
        for (first, second), estimate in fitted.pairs.items()
    }
    if not effects:
        return None
    results = adjust_families(
        [fitted_result(_effect_claim(name, votes), estimate) for name, estimate in effects.items()]
    )
    estimates = list_values(
        (
            result.claim.outcome,
            f"{result.value_text} ({result.interval_text})",
        )
        for result in results
    )
    about = f"Effects on the share that changed, over {len(conditions)} conditions"
    return Finding(
        "main_effects",
        "What summaries, interview and dialogue each do",
        word("estimate", "listed of a measure", about=about, estimates=estimates),
        ResultTable.from_records(
            [
                {"effect": result.claim.outcome, **result_cells(result, "change_points", "_points")}
                for result in results
            ],
            "Least squares with switches coded −½ and ½.",
        ),
        interval_chart(effects, "effect on the share that changed", zero=0.0, percent=True),
        notes=(
            LEVELS,
            "A main effect is the share with the switch on minus the share with it off, averaged "
            "over the other switches. A × B is the additional effect of A if B is on. Effects that "
            "these conditions cannot separate are left out. Interactions that are left out are "
            "assumed to be zero.",
            EXPLORATORY,
            *summary_caveats(votes),
        ),
        **votes.analysis_basis,
    )


def _effect_claim(effect: str, votes: Votes) -> Claim:
    return Claim(
        CHANGED,
        ("on", "off"),
        unit=votes.analysis_basis["unit"],
        estimand=f"{effect}, over all conditions, by least squares on the switches of conditions.",
        outcome=effect,
    )
