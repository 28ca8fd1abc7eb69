"""The findings of a negotiation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import polars as pl
from pydantic import JsonValue

from folkmoot.hints import capitalise, join_words
from folkmoot.kit import coding
from folkmoot.kit import findings as kit
from folkmoot.kit.claims import claims_finding, read_results
from folkmoot.kit.exposure import exposure_finding
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import Estimate, format_count, format_percent
from folkmoot.measures.wording import join_sentences, word
from folkmoot.people.sources.persona_hub import is_english
from folkmoot.storage.findings import CardBoard, Finding, Heatmap, ResultTable, column_heading
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.config import (
    COMPARED,
    NegotiationConfig,
    condition_title,
    declare_claims,
)
from folkmoot.studies.negotiation.measures import Comparison, IntervalEstimate, compare_conditions
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS, VOTE_OPERATORS
from folkmoot.studies.negotiation.rules.tally import STRONG_REJECTION
from folkmoot.studies.negotiation.tables import (
    DecisionRow,
    OwnScoreRow,
    SatisfactionRow,
)

_SCORED = (
    "Satisfaction is each member's own score of the decision, from −4 (wholly against, or a firm "
    "no) to 4 (exactly what I want). Members gave the scores in private, before the mediation. "
    "The same scores are used under all conditions."
)
_BY_TEXT = (
    "An earlier version made this run, in which members gave no scores. Satisfaction is the score "
    "of the stated preference by the rules of the source study. Open slots are left out."
)
_LEFT_OPEN = (
    "An open slot counts as the lowest score, −4. A score is missing if it could not be read or "
    "was not given. The table also has the mean of decided slots alone, and the bounds if open "
    "slots and all unknown scores counted as −4 or as 4."
)
_UNDECIDED = (
    "C2 decides nothing. Its satisfaction is the expectation over the stated first choices. An "
    "expectation has no least satisfied member and no inequality that could be compared with "
    "those of a decision, so C2 has neither."
)
_PAIRED = "Paired: a group's stated preferences are the same under all conditions."
_CONTENT = (
    *("satisfaction", "satisfaction_decided", "satisfaction_if_lowest", "satisfaction_if_highest"),
    *("lowest_satisfaction", "inequality", "covered_share"),
    *("minority_coverage_share", "minority_promised_share"),
)
_PROCESS = (
    *("drift_rate", "feedback_resolution_rate", "split_share", "words_per_decision"),
    *("confirmed_share", "undecided_share"),
)


def compute_findings(run: RunFolder) -> list[Finding]:
    """Return all findings of a run."""
    data = compare_conditions(run)
    decisions = run.read_rows(DecisionRow)
    return kit.collect_findings(
        _satisfaction_finding(data, run),
        _contrast_findings(data, run),
        [
            _by_type(run.read_table("measures")),
            _conflict_finding(data, decisions),
            _process_finding(data),
        ],
        _confirmation_finding(run.read_table("confirmations")),
        [
            _mediator_finding(decisions),
            _counterfactual_finding(run.read_table("counterfactuals"), decisions),
        ],
        [_text_scoring(run.read_rows(OwnScoreRow)), _score_ballots(decisions)],
        [*coded_findings(run), coding.coding_finding(run)],
        _decision_board(decisions),
        exposure_finding(run),
    )


def _confirmation_finding(words: pl.DataFrame) -> Finding | None:
    answered = words.drop_nulls("confirmed")
    conditions = answered["condition"].unique(maintain_order=True).to_list()
    rows_by_condition = {
        condition: answered.filter(condition=condition) for condition in conditions
    }
    confirmed = {
        condition: clustered_share(selected["confirmed"].to_list(), selected["group_id"].to_list())
        for condition, selected in rows_by_condition.items()
    }
    if not confirmed:
        return None
    return Finding(
        "confirmations",
        "Do members confirm the recorded decisions?",
        kit.describe_values(
            "Confirmed as the result of the dialogue",
            ((condition, kit.format_share(estimate)) for condition, estimate in confirmed.items()),
        ),
        ResultTable.from_records(
            [
                {
                    "condition": condition,
                    "words": estimate.n,
                    **kit.estimate_cells(estimate, "confirmed_share", "_share"),
                }
                for condition, estimate in confirmed.items()
            ],
            "Shares of the members who answered. 95 % intervals, clustered by group.",
        ),
        kit.interval_chart(confirmed, "confirmed", percent=True),
        section="Process",
        unit="group",
        units=answered["group_id"].n_unique(),
    )


def _language_caveats(preferences: pl.DataFrame) -> tuple[str, ...]:
    # The parser of the texts reads English only.
    texts_by_member = preferences.drop_nulls("text").group_by(
        "group_id", "member_id", maintain_order=True
    )
    texts = texts_by_member.agg(pl.col("text").str.join(" "))["text"].to_list()
    foreign_count = sum(not is_english(text) for text in texts)
    if not foreign_count:
        return ()
    counted = f"{foreign_count} of {format_count(len(texts), 'member')} do not write in English"
    return (f"{counted}. The parser of the texts reads English only: these scores are unreliable.",)


def _satisfaction_finding(data: Comparison, run: RunFolder) -> Finding:
    means, without = data["conditions"], data.get("without_asked_again")
    # Runs of earlier versions have no own scores.
    by_text = not run.has_table("own_scores")
    language = _language_caveats(run.read_table("preferences"))
    estimates = {
        condition: _parse_estimate(figures["satisfaction"])
        for condition, figures in means.items()
        if figures["satisfaction"]["estimate"] is not None
    }
    statement = word("refusal", "nothing scored")
    if estimates:
        # Naming the highest one would conclude something that no claim tests.
        values = kit.list_values(
            (condition_title(condition), kit.format_mean(estimate))
            for condition, estimate in estimates.items()
        )
        open_slots = _left_open(run.read_rows(SatisfactionRow))
        statement = join_sentences(
            [
                word(
                    "description",
                    "mean scores",
                    least="−2" if by_text else "−4",
                    groups=format_count(data["groups"], "group"),
                    values=values,
                ),
                word("description", "open slots", slots=open_slots) if open_slots else None,
            ]
        )
    return Finding(
        "satisfaction",
        "Satisfaction of members with the decisions",
        statement,
        ResultTable.from_records(
            [
                {
                    "condition": condition,
                    **{
                        member_id: figures[member_id]["estimate"]
                        for member_id in _CONTENT
                        if member_id in figures
                    },
                    **_without_cells(
                        without["conditions"][condition]["satisfaction"] if without else None
                    ),
                }
                for condition, figures in means.items()
            ]
        ),
        kit.interval_chart(
            {condition_title(condition): estimate for condition, estimate in estimates.items()},
            "mean member score",
        ),
        notes=(
            *language,
            *((_BY_TEXT,) if by_text else (_SCORED, _LEFT_OPEN, *_asked_again(data))),
            _UNDECIDED,
        ),
        headline=True,
        unit="group",
        units=data["groups"],
    )


def _left_open(satisfaction: pl.DataFrame) -> str:
    open_rows = satisfaction.filter(unknown="left_open")
    return kit.join_clauses(
        f"{condition}: {len(selected.filter(unknown='left_open'))} of {len(selected)} member scores"
        for (condition,), selected in satisfaction.group_by("condition", maintain_order=True)
        if condition in set(open_rows["condition"])
    ).removesuffix(".")


def _asked_again(data: Comparison) -> tuple[str, ...]:
    not_asked_again = data.get("without_asked_again")
    if not_asked_again is None:
        return ()
    return (
        f"For {format_count(not_asked_again['decisions'], 'decision')}, a reply led to a re-ask "
        "(words of theory under C3, or an entry that is not in the list). The last column leaves "
        "these decisions out, under all conditions of the group.",
    )


def _without_cells(figure: IntervalEstimate | None) -> dict[str, float | None]:
    return {} if figure is None else {"without_asked_again": figure["estimate"]}


def _parse_estimate(figure: IntervalEstimate) -> Estimate:
    return kit.estimate_from_json(cast("Mapping[str, JsonValue]", figure))


def _contrast_findings(data: Comparison, run: RunFolder) -> list[Finding]:
    results_by_outcome: dict[str, list[Result]] = {}
    for result in read_results(run, NegotiationConfig, declare_claims):
        results_by_outcome.setdefault(result.claim.outcome, []).append(result)
    return [
        claims_finding(
            f"paired_{measure}",
            f"Within groups: {outcome}",
            results_by_outcome[outcome],
            axis=outcome,
            notes=(f"{capitalise(data['measures'][measure])}.", _PAIRED),
            units=data["groups"],
        )
        for measure, outcome in COMPARED.items()
        if outcome in results_by_outcome
    ]


def _by_type(measures: pl.DataFrame) -> Finding | None:
    # Strategies differ between group types, so satisfaction may differ too.
    types = measures["group_type"].unique(maintain_order=True).to_list()
    conditions = measures["condition"].unique(maintain_order=True).to_list()
    grouped = measures.group_by("group_type", "condition", maintain_order=True)
    rows = grouped.agg(pl.col("satisfaction").mean()).drop_nulls().rows()
    means = {(kind, condition): mean for kind, condition, mean in rows}
    if len(types) < 2 or len(conditions) < 2 or not means:
        return None
    groups = {kind: measures.filter(group_type=kind)["group_id"].n_unique() for kind in types}
    highest = kit.all_largest(means, lambda key: means[key])
    highest_mean = kit.format_mean_value(means[highest[0]])
    where = join_words([f"{kind} under {condition}" for kind, condition in highest])
    return Finding(
        "by_type",
        "Satisfaction of members, by type of group",
        word(
            "description",
            "observed",
            what=f"the highest mean is that of {where}, {highest_mean}",
        ),
        ResultTable.from_records(
            [
                {
                    "group": kind,
                    "groups": groups[kind],
                    **{condition: means.get((kind, condition)) for condition in conditions},
                }
                for kind in types
            ]
        ),
        Heatmap(
            tuple((kind, condition, mean) for (kind, condition), mean in means.items()),
            row="group",
            column="condition",
            unit="mean member score",
        ),
        notes=("Means without intervals. Each type has its own strategies.",),
        unit="group of a type",
        units=min(groups.values()),
    )


def _conflict_finding(data: Comparison, decisions: pl.DataFrame) -> Finding | None:
    rates = data["conflict_rate_by_slot"]
    items = tuple(
        (condition, topic, value)
        for condition, rates_of in rates.items()
        for topic, value in rates_of.items()
    )
    if not items:
        return None
    highest_rate = max(share for _, _, share in items)
    conditions_of_topic: dict[str, list[str]] = {}
    for condition, topic, share in items:
        if share == highest_rate:
            conditions_of_topic.setdefault(column_heading(topic), []).append(condition)
    topics_text = "; ".join(
        f"{topic} under {join_words(conditions)}"
        for topic, conditions in conditions_of_topic.items()
    )
    # A declined or unreadable reply contains no judgement of the mediator. The stated preferences
    # then say whether there is a conflict, in the negotiation and in this rate.
    mediated = decisions.filter(pl.col("condition").is_in(["C3", "C4", "C5"]))
    judged = mediated.filter(~pl.col("parse_error"))
    origin_note = "C2: by the stated preferences. C3 to C5: as judged by the mediator"
    if unjudged_count := len(mediated) - len(judged):
        decisions_text = format_count(len(mediated), "decision")
        origin_note += (
            f", but by the stated preferences in {unjudged_count} of {decisions_text} without its "
            "judgement"
        )
    agreeing_count = (judged["has_conflict"] == judged["stated_conflict"]).sum()
    agreement_note = (
        f"The mediator's judgement agrees with the stated preferences in {agreeing_count} of "
        f"{format_count(len(judged), 'decision')}."
    )
    return Finding(
        "conflicts",
        "Where preferences conflict",
        word(
            "description",
            "observed",
            what=f"most conflicts, in {format_percent(highest_rate)} of groups: {topics_text}",
        ),
        ResultTable.from_records(
            [{"condition": condition, **rates_of} for condition, rates_of in rates.items()]
        ),
        Heatmap(items, row="condition", column="decision", unit="share of groups"),
        notes=(
            f"{origin_note}.",
            *([agreement_note] if len(judged) else []),
        ),
        section="Process",
        unit="group",
        units=decisions["group_id"].n_unique(),
    )


def _mediator_finding(decisions: pl.DataFrame) -> Finding | None:
    # These checks of the mediator's statements need no coder.
    rows = []
    for (condition,), selected in decisions.group_by("condition", maintain_order=True):
        mediated = selected.filter(pl.col("mediator_words").is_not_null())
        if not mediated.is_empty():
            agreements = mediated["statement_agrees"].drop_nulls()
            rows.append(
                {
                    "condition": condition,
                    "decisions": len(selected),
                    "against_a_firm_no": selected.filter(pl.col("overridden") != "").height,
                    "entries_unread": selected["unread_entries"].sum(),
                    "states_the_operators_decision": agreements.sum() if len(agreements) else None,
                    "of": len(agreements) or None,
                    "undecided": selected["undecided"].is_not_null().sum(),
                    "asked_again": selected["asked_again"].is_not_null().sum(),
                    **_theory_cells(selected, condition),
                }
            )
    if not rows:
        return None
    counts_text = "; ".join(
        f"{row['condition']} {row['against_a_firm_no']} of {row['decisions']}" for row in rows
    )
    return Finding(
        "mediator",
        "The mediator's statements",
        word("description", "rejected", counts=counts_text),
        ResultTable.from_records(rows),
        notes=(
            "Words of theory under C3 are found by a list. Violations are in the final reply. A "
            "first reply with such words led to one re-ask. Quoted words come from an option or "
            "from a member.",
        ),
        section="Process",
        unit="group",
        units=decisions["group_id"].n_unique(),
    )


def _theory_cells(rows: pl.DataFrame, condition: str) -> kit.Row:
    names = ("theory_words", "theory_words_first", "theory_words_quoted")
    labels = ("theory_violations", "theory_in_first_reply", "theory_quoted")
    is_recorded = condition == "C3"
    return {
        label: rows.filter(pl.col(name).fill_null("") != "").height if is_recorded else None
        for label, name in zip(labels, names, strict=True)
    }


def _text_scoring(own: pl.DataFrame) -> Finding | None:
    # The rules of the source study compute one score from the member's text. The member gave the
    # other.
    comparable = own.filter(
        pl.col("score").is_not_null() | pl.col("firm_no").fill_null(value=False),
        pl.col("text_score").is_not_null(),
        entered="before",
    ).with_columns(
        pl.when("firm_no").then(-4).otherwise("score").alias("own"),
        (pl.col("text_score") <= STRONG_REJECTION).alias("text_no"),
    )
    if comparable.is_empty():
        return None
    keys = ["group_id", "topic", "member_id"]
    ranked = comparable.with_columns(
        (pl.col("own") == pl.col("own").max().over(keys)).alias("best")
    )
    first_choices = ranked.filter("text_primary")
    same_first = first_choices.filter("best").height
    members = comparable.select(keys).n_unique()
    firm_noes = comparable.filter(pl.col("firm_no") | pl.col("text_no"))
    signed = comparable.filter(pl.col("text_score") != 0, pl.col("own") != 0)
    same_sign = signed.filter(pl.col("text_score").sign() == pl.col("own").sign()).height
    same_no = firm_noes.filter("firm_no", "text_no").height
    rows: list[kit.Row] = [
        {"of": "first choice", "agree": same_first, "compared": len(first_choices)},
        {"of": "for or against an option", "agree": same_sign, "compared": len(signed)},
        {"of": "firm no", "agree": same_no, "compared": len(firm_noes)},
    ]
    return Finding(
        "text_scoring",
        "Text scores of the source study, compared with members' own scores",
        word(
            "description",
            "text score",
            same=same_first,
            statements=len(first_choices),
            others=members - len(first_choices),
        ),
        ResultTable.from_records(rows),
        notes=(
            "The vote summary, first choices, coverage, splits and feedback use the text scores. "
            "Firm no: strongly rejected in the text, or a firm no in the member's answer. For or "
            "against: options with a score of 0 on either side are left out.",
        ),
        section="Process",
        unit="group",
        units=own["group_id"].n_unique(),
    )


def _counterfactual_finding(rows: pl.DataFrame, decisions: pl.DataFrame) -> Finding | None:
    # What other voting rules would decide on the same ballots.
    keys = ["group_id", "condition", "topic"]
    voted = decisions.filter(pl.col("ballots").is_in(["collected", "partial"])).select(keys)
    rows = rows.join(voted, on=keys).filter(pl.col("operator").is_in(sorted(VOTE_OPERATORS)))
    if rows.is_empty():
        return None
    by_operator = rows.group_by("operator", maintain_order=True).agg(
        pl.len().alias("decisions"),
        pl.col("same_winner").mean().alias("same_winner_rate"),
        pl.col("margin").mean().alias("mean_margin"),
        (pl.col("decided_by") == "alphabetical").mean().alias("alphabet_rate"),
    )
    winners = rows.group_by(keys).agg(pl.col("selected_option").n_unique())
    same_winner_count = (winners["selected_option"] == 1).sum()
    return Finding(
        "counterfactuals",
        "The same ballots under every voting rule",
        word(
            "description",
            "same rules",
            same=same_winner_count,
            decisions=format_count(len(winners), "decision"),
        ),
        ResultTable.from_records(by_operator.to_dicts()),
        notes=(
            "Same winner: the same option as the rule that decided. Each rule measures its margin "
            "in its own unit, so margins of different rules cannot be compared. The table "
            "counterfactuals has all sixteen rules.",
        ),
        section="Process",
        unit="group",
        units=rows["group_id"].n_unique(),
    )


def _score_ballots(decisions: pl.DataFrame) -> Finding | None:
    # One way counts scores of all options. The other first converts the scores into ballots of the
    # source study: a top choice, acceptable options and firm rejections.
    # C5 uses the ballots of C4, so the ballots of one condition are counted.
    voting = decisions.filter(pl.col("condition").is_in(["C4", "C5"]))["condition"].unique().sort()
    scored_votes = decisions.filter(
        pl.col("condition").is_in(voting[:1].to_list()),
        pl.col("winner_by_source_ballots").is_not_null(),
    )
    if scored_votes.is_empty():
        return None
    differing = scored_votes.filter(pl.col("selected_option") != pl.col("winner_by_source_ballots"))
    columns = ["group_id", "condition", "topic", "selected_option", "winner_by_source_ballots"]
    return Finding(
        "score_ballots",
        "Votes by scores, compared with ballots of the source study",
        word(
            "description",
            "other winner",
            differing=len(differing),
            decisions=format_count(len(scored_votes), "decision"),
        ),
        ResultTable.from_records(differing.select(columns).to_dicts()),
        notes=(
            "The ballots of the source study follow from the same scores: top choice, acceptable "
            "and hard no, counted together with the texts.",
        ),
        section="Process",
        unit="group",
        units=scored_votes["group_id"].n_unique(),
    )


def _process_finding(data: Comparison) -> Finding | None:
    means = data["conditions"]
    known_rows = {
        condition: {name: figures[name]["estimate"] for name in _PROCESS if name in figures}
        for condition, figures in means.items()
    }
    known_rows = {
        condition: row
        for condition, row in known_rows.items()
        if any(value is not None for value in row.values())
    }
    if not known_rows:
        return None
    drift_rates = [rate for row in known_rows.values() if (rate := row["drift_rate"]) is not None]
    statement = "No condition of this run locks the strategy."
    if drift_rates:
        statement = (
            "Before the lock, the model named another strategy in "
            f"{format_percent(max(drift_rates))} of locked decisions."
        )
    elif any(CONDITIONS[condition].has_locked_strategy for condition in known_rows):
        statement = (
            "Which strategy the model named before the lock could not be read in any locked "
            "decision."
        )
    return Finding(
        "process",
        "Strategy lock, feedback and length",
        statement,
        ResultTable.from_records(
            [{"condition": condition, **row} for condition, row in known_rows.items()],
            "Means over groups, so that each group counts once.",
        ),
        section="Process",
        unit="group",
        units=data["groups"],
    )


_UNDECIDED_BECAUSE = {
    "left_open": "undecided (left open)",
    "unreadable": "undecided (the reply could not be read)",
    "declined": "undecided (the mediator declined)",
    "dropped": "undecided (the fork left out the mediator's reply)",
}


def _decision_board(decisions: pl.DataFrame) -> Finding | None:
    if decisions.is_empty():
        return None
    last_condition = decisions["condition"][-1]
    rows = decisions.filter(condition=last_condition).to_dicts()
    items = tuple(
        (
            row["group_id"],
            row["topic"],
            _UNDECIDED_BECAUSE.get(
                row["undecided"], row["selected_option"] or "different by member"
            ),
            row["resolution_text"] or "",
        )
        for row in rows
    )
    groups = format_count(len({row["group_id"] for row in rows}), "group")
    return Finding(
        "decisions",
        f"Decisions under {condition_title(last_condition)}",
        word(
            "description",
            "decisions",
            decisions=format_count(len(items), "decision"),
            groups=groups,
        ),
        ResultTable(("group", "decision", "option", "in words"), items),
        CardBoard(items, row="group", column="decision"),
        section="Decisions",
    )


# The codes of the codebook `decision` that give an option to a member.
GIVES = frozenset({"chosen", "later"})


def coded_findings(run: RunFolder) -> Iterator[Finding]:
    """Yield the findings from coded dialogues."""
    # Codes of the embedded coder are left out.
    codings = coding.read_codings(run)
    if (talks := codings.get("decision")) and talks.supports_findings and talks.codes_by_text:
        yield _against_the_record(talks, run.read_table("portions"), run.read_table("members"))
    if (words := codings.get("mediator")) and words.supports_findings and words.codes_by_text:
        yield _purity_finding(words)
    if (wishes := codings.get("conflict")) and wishes.supports_findings and wishes.codes_by_text:
        yield _coded_conflict_finding(wishes, run.read_table("decisions"))


def _against_the_record(
    codings: coding.CodebookResults, portions: pl.DataFrame, members: pl.DataFrame
) -> Finding:
    # Each option of each member is compared with the recorded decision.
    member_names = members.select("group_id", "member_name", "member_id")
    ids = {(group, name): member_id for group, name, member_id in member_names.iter_rows()}
    keys = ("group_id", "condition", "topic", "member_id", "option")
    recorded = set(portions.select(keys).iter_rows())
    pairs_by_condition: dict[str, list[tuple[bool, bool]]] = {}
    for text_id in codings.codes_by_text:
        group, condition, topic = text_id.split("/")
        for target, code, _ in codings.codes_with_target(text_id):
            member = ids[group, target["member"]]
            is_recorded = (group, condition, topic, member, target["option"]) in recorded
            if code != "open":
                pairs_by_condition.setdefault(condition, []).append((code in GIVES, is_recorded))
    agreement_rates = {
        condition: sum(is_coded == is_recorded for is_coded, is_recorded in pairs) / len(pairs)
        for condition, pairs in sorted(pairs_by_condition.items())
    }
    rows: list[kit.Row] = [
        {
            "condition": condition,
            "coded": len(pairs),
            "as_recorded_rate": agreement_rates[condition],
            "only_coded": sum(is_coded and not is_recorded for is_coded, is_recorded in pairs),
            "only_recorded": sum(is_recorded and not is_coded for is_coded, is_recorded in pairs),
        }
        for condition, pairs in sorted(pairs_by_condition.items())
    ]
    rates_text = "; ".join(
        f"{condition} {format_percent(rate)}" for condition, rate in agreement_rates.items()
    )
    return Finding(
        "coded_decisions",
        "Decisions in the dialogues, coded blind",
        word("description", "coded decisions", rates=rates_text or "nothing was coded"),
        ResultTable.from_records(
            rows, "Pairs of a member and an option, without those coded as open."
        ),
        notes=(
            "The record is the mediator's statement (C3, C5) or the operator's decision (C4).",
            codings.note,
        ),
        section="Process",
        unit="group",
        units=_group_count(codings),
    )


def _purity_finding(codings: coding.CodebookResults) -> Finding:
    impure = {
        text_id: codes for text_id in codings.codes_by_text if (codes := codings.codes_of(text_id))
    }
    rows = [
        {
            "group": text_id.split("/")[0],
            "topic": text_id.split("/")[2],
            "code": code,
            "quote": quote,
        }
        for text_id, codes in impure.items()
        for code, quote in codes.items()
    ]
    return Finding(
        "coded_purity",
        "Theory in the mediator's proposals (C3)",
        word(
            "description",
            "impure",
            impure=len(impure),
            proposals=format_count(len(codings.codes_by_text), "proposal"),
        ),
        ResultTable.from_records(rows),
        notes=("The mediator's own text is coded. Members' words are not.", codings.note),
        section="Process",
        unit="group",
        units=_group_count(codings),
    )


def _coded_conflict_finding(codings: coding.CodebookResults, decisions: pl.DataFrame) -> Finding:
    rows = []
    judged = decisions.filter(~pl.col("parse_error"))
    for (condition,), selected in judged.group_by("condition", maintain_order=True):
        if condition == "C1":
            continue
        keys = selected.select("group_id", "topic", "has_conflict").iter_rows()
        pairs = [
            (codings.single_code(f"{group}/{topic}") == "conflict", has_conflict)
            for group, topic, has_conflict in keys
        ]
        agreeing = sum(is_coded == has_conflict for is_coded, has_conflict in pairs)
        rows.append(
            {
                "condition": condition,
                "decisions": len(pairs),
                "as_coded_rate": agreeing / len(pairs),
            }
        )
    conflict_count = sum(
        codings.single_code(text_id) == "conflict" for text_id in codings.codes_by_text
    )
    return Finding(
        "coded_conflict",
        "Conflict in the stated preferences, coded blind",
        f"{conflict_count} of {format_count(len(codings.codes_by_text), 'set')} of "
        "preferences are coded as a "
        "conflict.",
        ResultTable.from_records(
            rows,
            "Share of decisions in which the coded conflict agrees with the record (C2: the text "
            "scores, C3 to C5: the mediator's judgement).",
        ),
        notes=(codings.note,),
        section="Process",
        unit="group",
        units=_group_count(codings),
    )


def _group_count(codings: coding.CodebookResults) -> int:
    return len({text_id.split("/")[0] for text_id in codings.codes_by_text})
