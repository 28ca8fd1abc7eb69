"""Compare the first and last votes of several runs, or of runs and humans."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from folkmoot.hints import join_words
from folkmoot.kit.findings import ALPHA, HOLM_NOTE, Row, condition_name, finite_or_none
from folkmoot.measures.diversity import jensen_shannon, total_variation
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    format_count,
    format_p_value,
    format_points,
)
from folkmoot.measures.inference.paired_votes import equal_totals_p, transition_table
from folkmoot.measures.inference.proportions import holm, homogeneity_p
from folkmoot.measures.wording import join_sentences, word
from folkmoot.report.comparison.between_runs import SECTION
from folkmoot.report.comparison.samples import (
    EVERYBODY,
    Sample,
    are_independent,
    matched_units,
    read_same_draws,
    same_people,
    shared_arms,
)
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.tables import FEWEST_DRAWS

# A longer list of votes would not be read. The table holds all.
MAX_LISTED_VOTES = 4


class _Votes(NamedTuple):
    # The votes of two samples in one condition, or in all that they share.
    label: str
    condition: str
    first: list[str]
    second: list[str]
    # True if both lists hold the same people in the same order.
    matched: bool
    # True if each vote is independent of the others.
    independent: bool


def compare_votes(runs: Sequence[Sample]) -> Finding | None:
    """Compare the first and last votes of each run with the votes of the first run.

    Returns None unless the first run and at least one other run have votes.
    """
    rows: list[Row] = []
    tests: list[tuple[str, float, float]] = []
    base, *others = runs
    for time in ("initial", "final"):
        for sample in others:
            for votes in _read_votes(base, sample, time):
                options = sorted({*votes.first, *votes.second})
                base_counts, sample_counts = (
                    [choices.count(option) for option in options]
                    for choices in (votes.first, votes.second)
                )
                distance, p_value = (
                    total_variation(base_counts, sample_counts),
                    homogeneity_p(base_counts, sample_counts),
                )
                same_choice = None
                if votes.matched:
                    table = transition_table(votes.first, votes.second, options)
                    same_choice = float(table.trace() / table.sum())
                    p_value = equal_totals_p(table)
                # Both tests assume independent votes, and an interim look tests nothing. Fewer than
                # five people on a side are an illustration.
                is_few = min(len(votes.first), len(votes.second)) < FEWEST_UNITS
                if is_few or not votes.independent or base.partial or sample.partial:
                    p_value = math.nan
                rows.append(
                    {
                        "votes": time,
                        "condition": votes.condition,
                        "runs": f"{sample.name} − {base.name}",
                        "total_variation_distance_points": distance,
                        "jensen_shannon_bits": jensen_shannon(base_counts, sample_counts),
                        "same_person_same_choice_share": same_choice,
                        "p": finite_or_none(p_value),
                    }
                )
                tests.append((votes.label, distance, p_value))
    if not rows:
        return None
    holms = holm([p_value for _, _, p_value in tests])
    rows = [
        {**row, "holm_p": finite_or_none(p_value)} for row, p_value in zip(rows, holms, strict=True)
    ]
    differing = [
        word(
            "runs",
            "votes",
            votes=votes,
            distance=format_points(distance).lstrip("+"),
            p=format_p_value(p_value),
        )
        for (votes, distance, _), p_value in zip(tests, holms, strict=True)
        if p_value < ALPHA
    ]
    sentences = (
        [word("runs", "opinions", first=base.name, votes=join_sentences(differing, "; "))]
        if differing
        else []
    )
    # Only votes with a test are said to show a difference or none.
    tested = [label for label, _, p_value in tests if math.isfinite(p_value)]
    untested = [label for label, _, p_value in tests if not math.isfinite(p_value)]
    if tested and not differing:
        votes_text = _list_votes(tested)
        sentences.append(word("runs", "opinions not shown", votes=votes_text, first=base.name))
    if untested:
        votes_text = _list_votes(untested)
        sentences.append(word("runs", "opinions not tested", votes=votes_text, first=base.name))
    if any(votes.startswith("initial") for votes in differing):
        sentences.append(word("runs", "starting points"))
    return Finding(
        "compare_votes",
        "Is each option chosen equally often in all runs?",
        join_sentences(sentences),
        ResultTable.from_records(
            rows,
            "Initial votes of all shared conditions together, final votes in each. p: Pearson's "
            "χ² (Fisher's exact test where a count below 5 is expected), or Stuart and Maxwell's "
            "test where both runs drew the same people (exact where fewer than 25 changed; all "
            "figures are then of those who voted in both). Both compare how often each option was "
            "chosen, and not whether the same people chose it. No p for votes of fewer than five "
            "people, for votes of people who voted several times, and for final votes of "
            "participants who shared a conversation, or a draw of texts, unless both read the same "
            "texts or the other votes are those of people.",
        ),
        notes=(HOLM_NOTE,),
        section=SECTION,
    )


def _list_votes(labels: Sequence[str]) -> str:
    if len(labels) <= MAX_LISTED_VOTES:
        return join_words(labels)
    return f"{format_count(len(labels), 'row')} of the table"


def _read_votes(base: Sample, sample: Sample, time: str) -> Iterator[_Votes]:
    # Final votes are made in a condition, so only those of the same condition are compared.
    # Initial votes are made before it.
    column = f"{time}_choice"
    tables = [run.tables.get("participants", pl.DataFrame()) for run in (base, sample)]
    if not all(column in table.columns for table in tables):
        return
    parts = shared_arms(*tables)
    label = f"{time} votes of {sample.name}"
    labels = {arm: (label, condition_name(arm)) for arm in parts}
    if time == "initial" and len(parts) > 1:
        first, second = map(pl.concat, zip(*parts.values(), strict=True))
        parts, labels = {EVERYBODY: (first, second)}, {EVERYBODY: (label, "All shared")}
    elif time == "final" and [*parts] != [EVERYBODY]:
        labels = {arm: (f"{label} in {name}", name) for arm, (_, name) in labels.items()}
    # A single draw of texts is shared as well, unless both runs have the same texts.
    fewest_draws = FEWEST_DRAWS if read_same_draws(base, sample) else 1
    # A file of human answers has no claims. It may have the columns that those of the run name.
    designs = [run.design_of("participants") for run in (base, sample)]
    designs = designs[:1] * 2 if sample.is_human else designs[1:] * 2 if base.is_human else designs
    for arm, (first, second) in parts.items():
        matched = matched_units(first, second, column) if same_people(base, sample) else None
        # Of runs that drew the same people, only those who chose in both runs count.
        if matched is not None and matched.height:
            choices = matched["first"].to_list(), matched["second"].to_list()
        else:
            choices = first[column].drop_nulls().to_list(), second[column].drop_nulls().to_list()
        if all(choices):
            yield _Votes(
                *labels[arm],
                *choices,
                matched is not None and matched.height > 0,
                all(
                    are_independent(part, column, design, fewest_draws)
                    for part, design in zip((first, second), designs, strict=True)
                ),
            )
