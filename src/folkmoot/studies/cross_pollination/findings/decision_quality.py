"""Findings about the quality of decisions, such as confidence and the spread of votes."""

from __future__ import annotations

import math
from collections.abc import Callable

from folkmoot.hints import capitalise
from folkmoot.kit import coding
from folkmoot.kit.findings import (
    Row,
    describe_values,
    estimate_cells,
    format_change,
    format_share,
    interval_chart,
    list_values,
    wilson_rates,
)
from folkmoot.measures.bands import Band, human_band, sentence
from folkmoot.measures.diversity import (
    effective_number,
    effective_ratio,
    esteban_ray,
    evenness_estimate,
    jensen_shannon,
    polarisation,
    total_variation,
)
from folkmoot.measures.inference.clustered import skewed_mean
from folkmoot.measures.inference.estimates import Estimate, difference_or_none, format_percent
from folkmoot.measures.wording import join_sentences, word
from folkmoot.storage.findings import BarChart, Finding, ResultTable
from folkmoot.studies.cross_pollination.config import CONFIDENCE_SCALE
from folkmoot.studies.cross_pollination.findings.votes import (
    ConditionVotes,
    Voter,
    Votes,
    count_moves,
)

# --- spread of the votes, and comparison with human benchmarks ---------------------------------

# Names of the human benchmarks that fit a table.
SHORT_LABELS = {
    "debate_choice_changed": "changed their choice",
    "debate_effective_number_ratio": "ratio of options after to before",
    "normalised_entropy": "evenness",
}


def diversity_finding(votes: Votes) -> Finding | None:
    """Return the finding on how evenly first and final votes spread over the options.

    Returns None if no participant voted twice.
    """
    # Effective number of options, evenness and polarisation.
    if not votes.two_vote_conditions:
        return None
    rows: list[Row] = []
    bars = []
    parts = []
    for condition_votes in votes.two_vote_conditions:
        numbers = []
        for when, counts in zip(
            ("before", "after"), _vote_counts(votes, condition_votes), strict=True
        ):
            numbers.append(effective_number(counts))
            rows.append(
                {
                    "condition": condition_votes.name,
                    "vote": when,
                    "n": condition_votes.participant_count,
                    "effective_options": numbers[-1],
                    "evenness": evenness_estimate(counts).value,
                    "esteban_ray": esteban_ray(counts),
                    "van_der_eijk_polarisation": polarisation(counts),
                }
            )
            bars.append((condition_votes.name, when, numbers[-1]))
        parts.append(f"{condition_votes.name} from {numbers[0]:.2f} to {numbers[1]:.2f}")
    ratios = {
        condition_votes.name: effective_ratio(count_moves(votes, condition_votes))
        for condition_votes in votes.two_vote_conditions
    }
    options, values = len(votes.options), "; ".join(parts)
    sentences = [word("description", "effective options", options=options, values=values)]
    if any(estimate.has_interval for estimate in ratios.values()):
        clauses = list_values(
            (name, f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})")
            for name, estimate in ratios.items()
        )
        sentences.append(word("description", "ratio", values=clauses))
    return Finding(
        "diversity",
        "How spread the votes are",
        join_sentences(sentences),
        ResultTable.from_records(
            rows, "Esteban–Ray at unit distance (maximum: .25, for two equal camps)."
        ),
        BarChart(tuple(bars), unit="effective number of options"),
        notes=(
            "The effective number of options is the number of equally popular options that would "
            "be as diverse. Evenness is the entropy divided by its maximum, corrected for its bias "
            "in small samples. Van der Eijk's polarisation, (1 − A)/2, treats the options as a "
            "scale in the order of the study file. Ignore it if the options have no order.",
        ),
        section="Diversity",
        **votes.conditional_basis,
    )


def shift_finding(votes: Votes) -> Finding | None:
    """Return the finding on how far the distribution of votes moved in each condition.

    Returns None if no participant voted twice.
    """
    # Two distances: total variation (a share of the votes) and Jensen–Shannon divergence (bits).
    if not votes.two_vote_conditions:
        return None
    rows: list[Row] = []
    moved_share = {}
    for condition_votes in votes.two_vote_conditions:
        before, after = _vote_counts(votes, condition_votes)
        moved_share[condition_votes.name] = total_variation(before, after)
        rows.append(
            {
                "condition": condition_votes.name,
                "changed_rate": votes.rate(condition_votes).value,
                "total_variation_share": moved_share[condition_votes.name],
                "jensen_shannon_bits": jensen_shannon(before, after),
            }
        )
    clauses = ((name, format_percent(share)) for name, share in moved_share.items())
    return Finding(
        "outcome_shift",
        "How far the outcome moved",
        word("description", "moved outcome", values=list_values(clauses))
        if any(moved_share.values())
        else word("description", "same outcome"),
        ResultTable.from_records(
            rows, "Total variation and Jensen–Shannon divergence of first and final votes."
        ),
        section="Diversity",
    )


def human_bands(votes: Votes) -> Finding | None:
    """Return the finding that compares values of this run with the results of human studies.

    Returns None if the run has no value to compare.
    """
    # No verdict is given, because the human studies differ in design.
    # A participant reads a few texts or has a short conversation. So the human figures are those of
    # a short debate, not of days of deliberation.
    change = human_band("debate_choice_changed")
    ratio = human_band("debate_effective_number_ratio")
    level = human_band("normalised_entropy")
    change_rates = wilson_rates(
        {
            condition_votes.name: (condition_votes.changed_count, condition_votes.participant_count)
            for condition_votes in votes.informed_conditions
        }
    )
    ratios = {
        condition_votes.name: effective_ratio(count_moves(votes, condition_votes))
        for condition_votes in votes.informed_conditions
    }
    first = votes.counts(voter.initial_choice for voter in votes.people)
    # Evenness is that of first votes, before any treatment, so all conditions count.
    evenness = {"all first votes": evenness_estimate(first)} if sum(first) else {}
    comparisons = ((change, change_rates), (ratio, ratios), (level, evenness))
    observed = [(band, values) for band, values in comparisons if values]
    if not observed:
        return None
    bands = (change, ratio, level)
    return Finding(
        "human_bands",
        "Comparison with human benchmarks",
        join_sentences(
            sentence({"in this run": {name: value.value for name, value in values.items()}}, band)
            for band, values in observed
        ),
        ResultTable.from_records(
            [
                _band_row(label, band, estimate)
                for band, values in observed
                for label, estimate in values.items()
            ],
            "Ranges over human studies. This comparison has no verdict, because their questions "
            "and texts differ from those of this study. The spread of votes is judged apart, by a "
            "check of the model.",
        ),
        interval_chart(
            change_rates, change.label, percent=True, bands=(("people", change.low, change.high),)
        ),
        notes=(
            *(
                f"{capitalise(SHORT_LABELS[band.key])}: {band.range}. {band.caveat}"
                for band in bands
            ),
            *dict.fromkeys(f"Source: {band.source}." for band in bands),
        ),
        section="Human benchmarks",
        **(votes.analysis_basis if change_rates else {"unit": "participant", "units": sum(first)}),
    )


def _band_row(label: str, band: Band, estimate: Estimate) -> Row:
    return {
        "what": f"{label}: {SHORT_LABELS[band.key]}",
        **estimate_cells(estimate, "simulated"),
        "people_low": band.low,
        "people_high": band.high,
        "people_centre": band.centre,
        "people_design": band.design,
    }


def _vote_counts(votes: Votes, condition_votes: ConditionVotes) -> tuple[list[int], list[int]]:
    return votes.counts(condition_votes.first_choices), votes.counts(condition_votes.final_choices)


# --- optional measures of decision quality -----------------------------------------------------

QUALITY = "Decision quality"


def quality_findings(votes: Votes) -> list[Finding]:
    """Return one finding for each optional question with at least one answer."""
    findings = (
        _confidence_finding(votes),
        _ranking_finding(votes),
        _restatement_finding(votes),
        _delayed_vote_finding(votes),
    )
    return [finding for finding in findings if finding is not None]


def _condition_mean(
    votes: Votes,
    condition_votes: ConditionVotes,
    value_of: Callable[[Voter], float | None],
    bounds: tuple[float, float],
) -> Estimate | None:
    # Over the participants with both votes. None if `value_of` returns None for all of them. The
    # interval of few values can pass the ends of the scale. The mean cannot, so it is cut there.
    known = {
        n: value
        for n, voter in enumerate(condition_votes.two_vote_voters)
        if (value := value_of(voter)) is not None
    }
    units = votes.independent_units(condition_votes)
    if not known:
        return None
    return skewed_mean([*known.values()], [units[n] for n in known]).clip_bounds(*bounds)


def _confidence_finding(votes: Votes) -> Finding | None:
    def confidence_gain(voter: Voter) -> float | None:
        return difference_or_none(voter.confidence_after, voter.confidence_before)

    largest_gain = float(CONFIDENCE_SCALE[1] - CONFIDENCE_SCALE[0])
    bounds = (-largest_gain, largest_gain)
    estimates = {
        condition_votes: estimate
        for condition_votes in votes.two_vote_conditions
        if (estimate := _condition_mean(votes, condition_votes, confidence_gain, bounds))
        is not None
    }
    if not estimates:
        return None
    rows: list[Row] = []
    for condition_votes, estimate in estimates.items():
        # The levels are means of the same participants as the change. Otherwise "after minus
        # before" would not equal the change.
        both = [
            voter for voter in condition_votes.two_vote_voters if confidence_gain(voter) is not None
        ]
        levels = {
            "before": math.fsum(voter.confidence_before or 0.0 for voter in both) / len(both),
            "after": math.fsum(voter.confidence_after or 0.0 for voter in both) / len(both),
        }
        rows.append(
            {
                "condition": condition_votes.name,
                "participants": len(both),
                **levels,
                **estimate_cells(estimate, "change"),
            }
        )
    return Finding(
        "confidence",
        "How sure they are of their choice",
        describe_values(
            "Change in confidence (0 to 100)",
            (
                (condition_votes.name, format_change(estimate))
                for condition_votes, estimate in estimates.items()
            ),
        ),
        ResultTable.from_records(rows, "Means of participants who were asked before and after."),
        interval_chart(
            {condition_votes.name: estimate for condition_votes, estimate in estimates.items()},
            "change in confidence",
            zero=0.0,
        ),
        notes=(
            "Confidence is the model's own statement. It measures quality only together with the "
            "quality of the choice.",
        ),
        section=QUALITY,
        **votes.analysis_basis,
    )


def _ranking_finding(votes: Votes) -> Finding | None:
    def ranking_distance(voter: Voter) -> float | None:
        before, after = voter.ranking_before, voter.ranking_after
        return _discordant_share(before, after) if before and after else None

    estimates = {
        condition_votes: estimate
        for condition_votes in votes.two_vote_conditions
        if (estimate := _condition_mean(votes, condition_votes, ranking_distance, (0.0, 1.0)))
        is not None
    }
    if not estimates:
        return None
    return Finding(
        "rankings",
        "How far the rankings of all options moved",
        describe_values(
            "Share of pairs of options that changed places",
            (
                (condition_votes.name, format_share(estimate))
                for condition_votes, estimate in estimates.items()
            ),
        ),
        ResultTable.from_records(
            [
                {
                    "condition": condition_votes.name,
                    "participants": estimate.n,
                    **estimate_cells(estimate, "pairs_share", "_share"),
                    "top_is_the_vote_share": _top_is_vote(condition_votes),
                }
                for condition_votes, estimate in estimates.items()
            ],
            "Kendall's distance of the rankings before and after, as a share of all pairs.",
        ),
        interval_chart(
            {condition_votes.name: estimate for condition_votes, estimate in estimates.items()},
            "pairs that changed places",
            percent=True,
        ),
        notes=(
            "“top is the vote”: share of participants who ranked the option of their final vote "
            "first.",
        ),
        section=QUALITY,
        **votes.analysis_basis,
    )


def _discordant_share(before: tuple[str, ...], after: tuple[str, ...]) -> float:
    # Kendall's distance: the share of option pairs in opposite order. Both rankings must contain
    # the same options.
    rank_of = {option: rank for rank, option in enumerate(after)}
    pairs = [(preferred, other) for i, preferred in enumerate(before) for other in before[i + 1 :]]
    return sum(rank_of[preferred] > rank_of[other] for preferred, other in pairs) / len(pairs)


def _top_is_vote(condition_votes: ConditionVotes) -> float | None:
    tops = [(voter.ranking_after, voter.final_choice) for voter in condition_votes.two_vote_voters]
    known = [ranked[0] == vote for ranked, vote in tops if ranked]
    return sum(known) / len(known) if known else None


def _restatement_finding(votes: Votes) -> Finding | None:
    codings = coding.read_codings(votes.run).get("restated")
    if codings is None:
        return None
    title = "Can they state the opposing view?"
    # The codes of the embedded coder must not become a result.
    if not codings.supports_findings:
        return Finding(
            "restated",
            title,
            "The restatements are recorded, but no model or human has coded them yet.",
            ResultTable((), ()),
            notes=(codings.note,),
            section=QUALITY,
        )
    # Without a code the restatement was not given or not coded. It does not count as "not
    # restated".
    codes = {
        condition_votes: [
            codings.single_code(voter.participant_id) for voter in condition_votes.two_vote_voters
        ]
        for condition_votes in votes.two_vote_conditions
    }
    counts = {
        condition_votes.name: (
            participant_codes.count("restated"),
            len(participant_codes) - participant_codes.count(None),
        )
        for condition_votes, participant_codes in codes.items()
    }
    rates = wilson_rates(counts)
    return Finding(
        "restated",
        title,
        describe_values(
            "Gave the main reason of the opposing view so that its holders would recognise it",
            ((name, format_share(estimate)) for name, estimate in rates.items()),
        ),
        ResultTable.from_records(
            [
                {
                    "condition": condition_votes.name,
                    "coded": counts[condition_votes.name][1],
                    **{
                        code: participant_codes.count(code)
                        for code in ("restated", "partly", "not_restated")
                    },
                    **estimate_cells(rates.get(condition_votes.name), "restated_rate", "_rate"),
                }
                for condition_votes, participant_codes in codes.items()
            ],
            "Coded blind to condition; 95 % Wilson intervals.",
        ),
        interval_chart(rates, "restated", percent=True),
        notes=(codings.note,),
        section=QUALITY,
        **votes.analysis_basis,
    )


def _delayed_vote_finding(votes: Votes) -> Finding | None:
    agreements = {
        condition_votes.name: [
            (
                voter.delayed_choice == voter.final_choice,
                voter.delayed_choice == voter.initial_choice,
            )
            for voter in condition_votes.two_vote_voters
            if voter.delayed_choice is not None
        ]
        for condition_votes in votes.two_vote_conditions
    }
    kept_rates = wilson_rates(
        {
            name: (sum(as_final for as_final, _ in agreement_flags), len(agreement_flags))
            for name, agreement_flags in agreements.items()
        }
    )
    if not kept_rates:
        return None
    return Finding(
        "delayed_vote",
        "Does the change last?",
        describe_values(
            "Same option as in the final vote, when asked later",
            ((name, format_share(estimate)) for name, estimate in kept_rates.items()),
        ),
        ResultTable.from_records(
            [
                {
                    "condition": name,
                    "participants": len(agreements[name]),
                    **estimate_cells(estimate, "kept_rate", "_rate"),
                    "back_to_first": sum(
                        as_first and not as_final for as_final, as_first in agreements[name]
                    ),
                }
                for name, estimate in kept_rates.items()
            ],
            "Third votes, with only the two earlier votes in the prompt; 95 % Wilson intervals.",
        ),
        interval_chart(kept_rates, "same option as in the final vote", percent=True),
        notes=(
            "A model neither forgets nor reflects between two calls. The third vote tests whether "
            "the choice lasts without the texts that led to it.",
        ),
        section=QUALITY,
        **votes.analysis_basis,
    )
