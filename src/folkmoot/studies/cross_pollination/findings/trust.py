"""Findings about how far a run can be trusted, such as noise, option order and missing votes."""

from __future__ import annotations

from collections import Counter

from folkmoot.hints import capitalise, shorten
from folkmoot.kit.findings import (
    Row,
    category_shares,
    condition_name,
    estimate_cells,
    format_points,
    format_share,
    interval_chart,
    p_value_cells,
    respondent_checks_finding,
    with_adjusted_p,
)
from folkmoot.kit.reply_units import name_reply_units, scan_model_answers
from folkmoot.measures.diagnostics import (
    FAILED,
    NOT_KNOWN,
    agreeing_share,
    check_instability,
    check_position_bias,
    check_spread_of_votes,
    check_sycophancy,
)
from folkmoot.measures.inference.estimates import format_count, format_percent, points_span
from folkmoot.measures.inference.paired_votes import moves_towards, towards_target
from folkmoot.measures.position import Shown, position_effects
from folkmoot.measures.reply_checks import check_answer_form
from folkmoot.measures.retest import Repeat
from folkmoot.measures.wording import EXPLORATORY_TESTS, join_sentences, word
from folkmoot.storage.findings import BarChart, Finding, IntervalChart, ResultTable
from folkmoot.storage.run_folder import RowStream
from folkmoot.studies.cross_pollination.config import (
    EMPTY_ARGUMENT,
    PLACEBOS,
    SIMPLE_VOTING,
)
from folkmoot.studies.cross_pollination.findings.votes import ConditionVotes, Votes, count_moves
from folkmoot.studies.cross_pollination.participants import TERMINATED_EARLY

# Both votes can end in each of the three ways out. Texts of errors may all differ.
MAX_REASONS = 6


def persuasion_finding(votes: Votes) -> Finding | None:
    """Return the finding on noise: the share of choices that change without any information.

    This is the share of changed choices under simple voting.

    Returns None if no participant voted twice.
    """
    # Participants of simple voting get no information between their two votes.
    floor = votes.revote_condition
    rates = {
        condition_votes: votes.rate(condition_votes)
        for condition_votes in votes.two_vote_conditions
    }
    if not rates:
        return None
    if floor is None:
        statement = word("refusal", "no floor")
    else:
        placebo_names = [
            condition_votes.name.lower()
            for condition_votes in votes.two_vote_conditions
            if condition_votes.condition in PLACEBOS
        ]
        placebos = capitalise(" and ".join(placebo_names))
        statement = join_sentences(
            [
                word("description", "noise", share=format_share(rates[floor])),
                word("description", "placebos", conditions=placebos) if placebo_names else None,
            ]
        )
    return Finding(
        "persuasion",
        "Persuasion apart from noise",
        statement,
        ResultTable.from_records(
            [
                {
                    "condition": condition_votes.name,
                    "voted_twice": condition_votes.participant_count,
                    "changed": condition_votes.changed_count,
                    **estimate_cells(estimate, "changed_rate", "_rate"),
                }
                for condition_votes, estimate in rates.items()
                if floor in (None, condition_votes)
            ]
        ),
        section="Noise",
        # Who votes twice without information reads no summaries.
        **(
            votes.analysis_basis
            if floor is None
            else {"unit": "participant", "units": floor.participant_count}
        ),
    )


def option_order(votes: Votes) -> Finding | None:
    """Return the finding on how an option's place in the list influences the first vote.

    Returns None if no order of options was recorded.
    """
    first_votes = _first_votes(votes)
    if not first_votes:
        return None
    effects = position_effects(first_votes)
    # With a single order the effect of the place cannot be separated from the option itself.
    title = "Order of the options"
    if effects.first is None:
        return Finding(
            "position_effects",
            title,
            "All participants saw the options in the same order, so a preference for the first "
            "place cannot be separated from a preference for the option. A random order of the "
            "options separates the two.",
            ResultTable((), ()),
            section="Noise",
        )
    first = effects.first
    adjusted_p_values = with_adjusted_p(effects.by_place)
    return Finding(
        "position_effects",
        title,
        word("description", "first place", points=format_points(first)),
        ResultTable.from_records(
            [
                {
                    "listed_as": place,
                    **estimate_cells(estimate, "effect_points", "_points"),
                    **p_value_cells(estimate, adjusted_p_values[place]),
                }
                for place, estimate in effects.by_place.items()
            ],
            f"{effects.orders} orders were shown to {effects.answers} participants.",
        ),
        interval_chart(
            {f"listed {place}": estimate for place, estimate in effects.by_place.items()},
            "change in the chance of being chosen",
            zero=0.0,
            percent=True,
        ),
        notes=(
            "Least squares with one term per option, clustered by participant.",
            EXPLORATORY_TESTS,
        ),
        section="Noise",
        unit="participant",
        units=effects.answers,
    )


def _first_votes(votes: Votes) -> list[Shown]:
    return [
        Shown(voter.options_shown, voter.initial_choice, voter.participant_id)
        for voter in votes.people
        if voter.initial_choice is not None and voter.options_shown
    ]


def respondent_checks(votes: Votes) -> Finding:
    """Return the finding on whether the model answers like human respondents."""
    # A check without data is reported as not known.
    votes = votes.of_models()
    run, unit_name = votes.run, name_reply_units(votes.run, "speaker")
    answers = RowStream(scan_model_answers(run)) if run.has_table("answers") else ()
    placebo, floor = votes.find_condition(EMPTY_ARGUMENT), votes.revote_condition
    before = votes.counts(voter.initial_choice for voter in votes.people)
    # The source's conditions are ordered by the number of switches that are on. A loss of variance
    # is looked for in the last one, which is exposed to most.
    moves = count_moves(votes, votes.informed_conditions[-1]) if votes.informed_conditions else None
    yielded_count = sum(
        voter.final_choice == voter.opposition_view for voter in votes.dialogue_participants
    )
    checks = [
        *check_answer_form(
            answers,
            votes.participant_texts(),
            unit_name=unit_name,
            field_reasons=votes.missing_rankings(),
        ),
        check_instability(repeated_votes(votes)),
        check_position_bias(_first_votes(votes)),
        check_sycophancy(
            (placebo.changed_count, placebo.participant_count) if placebo else None,
            (floor.changed_count, floor.participant_count) if floor else None,
            votes.rebuttal_texts,
            (yielded_count, len(votes.dialogue_participants)),
        ),
        check_spread_of_votes(before, moves),
    ]
    return respondent_checks_finding(checks)


def repeated_votes(votes: Votes) -> list[Repeat]:
    """Return the first and the final vote of each participant with two votes."""
    # `untouched` is True for simple voting: participants received nothing between the votes.
    return [
        Repeat(unit, "vote", first, last, untouched=condition_votes is votes.revote_condition)
        for condition_votes in votes.two_vote_conditions
        for unit, first, last in zip(
            votes.independent_units(condition_votes),
            condition_votes.first_choices,
            condition_votes.final_choices,
            strict=True,
        )
    ]


def spread_of_votes(votes: Votes) -> Finding | None:
    """Return the finding on whether votes spread over the options as human votes do.

    Returns None if no spread could be computed.
    """
    # The check is made for all first votes and for each condition.
    checks = {
        "all first votes": check_spread_of_votes(
            votes.counts(voter.initial_choice for voter in votes.people)
        )
    }
    for condition_votes in votes.informed_conditions:
        checks[condition_votes.name] = check_spread_of_votes(
            votes.counts(condition_votes.first_choices), count_moves(votes, condition_votes)
        )
    failed = [name for name, check in checks.items() if check.verdict == FAILED]
    unknown = [name for name, check in checks.items() if check.verdict == NOT_KNOWN]
    if len(unknown) == len(checks) and all(check.value is None for check in checks.values()):
        return None
    inside = ", ".join(name for name in checks if name not in unknown)
    statement = join_sentences(
        [
            word("description", "unlike people", names=", ".join(failed))
            if failed
            else word("description", "inside", names=inside or "none"),
            word("description", "not known", names=", ".join(unknown)) if unknown else None,
        ]
    )
    return Finding(
        "spread_of_votes",
        "Spread of the votes",
        statement,
        ResultTable.from_records(
            [
                {"votes": name, "verdict": check.verdict, "says": check.says}
                for name, check in checks.items()
            ]
        ),
        section="Human benchmarks",
        headline=bool(failed),
    )


def _most_common_and_others(reason_counts: Counter[str]) -> list[tuple[str, int]]:
    listed = reason_counts.most_common(MAX_REASONS)
    others = reason_counts.total() - sum(n for _, n in listed)
    return [*listed, ("other reasons", others)] if others else listed


def attrition_finding(votes: Votes) -> Finding:
    """Return the finding on missing votes: how many, why, and the possible bias."""
    rows: list[Row] = []
    lost = 0
    # Participants of `simple_voting` keep the status of their first vote if the study ends early.
    ended = TERMINATED_EARLY + votes.terminated if votes.terminated else None
    for condition_votes in votes.conditions:
        is_asked_twice = _votes_twice(votes, condition_votes)
        no_first_vote = condition_votes.without_first_vote
        # A condition that votes once by design cannot lose a final vote.
        no_final_vote = condition_votes.without_final_vote if is_asked_twice else ()
        missing = (*no_first_vote, *no_final_vote)
        # Long messages would make the table unreadable, so they are cut.
        reason_counts = Counter(
            shorten(str(voter.error_message or ended or voter.status), 120) for voter in missing
        )
        status = Counter(voter.status for voter in condition_votes.rows)
        rows.append(
            {
                "condition": condition_votes.name,
                "participants": len(condition_votes.rows),
                "failed": status["failed"],
                "skipped": status["skipped"],
                "no_first_vote": len(no_first_vote),
                "no_final_vote": len(no_final_vote) if is_asked_twice else None,
                "missing_share": len(missing) / len(condition_votes.rows),
                "reasons": "; ".join(
                    f"{reason} ({n})" for reason, n in _most_common_and_others(reason_counts)
                ),
            }
        )
        lost += len(missing) if is_asked_twice else 0
    bounds, overturn_note = _claim_bounds(votes)
    if not lost:
        statement = "No participant who should have voted twice is missing."
    elif votes.terminated:
        statement = (
            f"The study ended early: {format_count(lost, 'participant')} did not vote a second "
            "time."
        )
    else:
        lost_participants = format_count(lost, "participant")
        statement = (
            f"{lost_participants} who should have voted twice did not. {overturn_note}".strip()
        )
    return Finding(
        "attrition",
        "Who is missing",
        statement,
        ResultTable.from_records(
            rows,
            "No final vote: voted first and not again; empty in conditions that vote once. "
            "Missing: without one of the votes that their condition asks for.",
        ),
        IntervalChart(
            tuple(bounds),
            unit="difference at worst and at best",
            reference_line=0.0,
            percent=True,
            are_bounds=True,
        )
        if bounds and lost
        else None,
        notes=(
            "At worst, all participants lost from the first condition would have kept their choice "
            "and all those lost from the second would have changed it; at best the reverse "
            "(Horowitz and Manski 2000). These bounds do not include sampling error.",
        )
        if lost
        else (),
        section="Attrition",
        unit="participant",
        units=sum(
            condition_votes.participant_count for condition_votes in votes.two_vote_conditions
        ),
    )


def _votes_twice(votes: Votes, condition_votes: ConditionVotes) -> bool:
    return (
        condition_votes.condition != SIMPLE_VOTING
        or bool(votes.config.get("revote"))
        or condition_votes.participant_count > 0
    )


def _claim_bounds(votes: Votes) -> tuple[list[tuple[str, float, float, float]], str]:
    # Each tuple is (label, observed difference, lowest, highest). The text names the differences
    # that could change their sign.
    bounded = [
        (result, result.bounds) for result in votes.claim_results if result.bounds is not None
    ]
    intervals = [
        (result.claim.contrast_label, bounds.observed, bounds.low, bounds.high)
        for result, bounds in bounded
    ]
    shown = [pair for pair in bounded if pair[0].is_shown]
    fragile = [
        f"{result.claim.contrast_label} ({points_span(bounds.low, bounds.high)})"
        for result, bounds in shown
        if not bounds.sign_holds
    ]
    if fragile:
        return intervals, f"Their votes could change the sign of: {', '.join(fragile)}."
    if shown:
        return intervals, "Even in the worst case, no difference shown changes its sign."
    return intervals, ""


def towards_opposition(votes: Votes) -> Finding | None:
    """Return the finding on moves to the option for which the moderator argued.

    Returns None if no participant with a dialogue voted twice.
    """
    # The share of such moves is compared with the share that random moves would have.
    participants = votes.dialogue_participants
    if not participants:
        return None
    moves = moves_towards(
        [str(voter.initial_choice) for voter in participants],
        [str(voter.final_choice) for voter in participants],
        [str(voter.opposition_view) for voter in participants],
        len(votes.options),
    )
    sentences = [
        word(
            "description",
            "opposing view",
            participants=format_count(moves.n, "participant"),
            moved=moves.to_target,
            elsewhere=moves.elsewhere,
            stayed=moves.stayed,
        )
    ]
    # The comparison with chance needs participants who moved and more than one other option.
    if excess := towards_target(moves.moved_count, moves.to_target, len(votes.options)):
        share, expected = format_share(excess.share), format_percent(excess.expected)
        sentences.append(word("description", "beyond chance", share=share, expected=expected))
    if agreeing := agreeing_share(votes.rebuttal_texts):
        share = format_percent(agreeing.value)
        sentences.append(word("description", "agreeing replies", share=share))
    counts = {
        "to the opposing view": moves.to_target,
        "to another option": moves.elsewhere,
        "stayed": moves.stayed,
    }
    shares = category_shares(counts)
    conditions = votes.conditions_with("dialogue")
    group_label = conditions[0].name if len(conditions) == 1 else "With a dialogue"
    return Finding(
        "towards_opposition",
        "Moved towards the opposing view",
        join_sentences(sentences),
        ResultTable.from_records(
            [
                {"move": move, "participants": count, "participants_share": shares[move]}
                for move, count in counts.items()
            ],
            "Participants of a dialogue, by the change of their vote.",
        ),
        BarChart(
            tuple((group_label, move, count / moves.n) for move, count in counts.items()),
            unit="share of those who faced an opposing view",
            percent=True,
        ),
        notes=(
            "A share above chance may be persuasion or giving in. The condition "
            f"“{condition_name(EMPTY_ARGUMENT)}” separates the two. The share of replies that "
            "open by agreeing is a rough count of English phrases.",
        ),
        unit=votes.conditional_basis["unit"],
        units=len(participants),
    )
