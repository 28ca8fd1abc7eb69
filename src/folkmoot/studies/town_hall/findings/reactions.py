"""The findings on how residents react to each other, and on their stances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl

from folkmoot.hints import join_words
from folkmoot.kit.findings import (
    Row,
    all_largest,
    category_shares,
    estimate_cells,
    format_share,
    interaction_matrix,
)
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import Estimate, format_count
from folkmoot.measures.wording import join_sentences, word
from folkmoot.storage.findings import BarChart, Finding, ResultTable
from folkmoot.studies.town_hall.answers.options import CHANGES
from folkmoot.studies.town_hall.tables import SPECTRUM

INTERVALS = (
    "95 % intervals over sets on the log-odds scale, not adjusted for the number of rows. If all "
    "sets are equal, the interval allows for sets that were not observed. There is no interval "
    "with fewer than five sets, or with few sets of unequal size."
)


def spectrum_finding(reactions: pl.DataFrame) -> Finding | None:
    """Build the finding on reactions to vulnerable and to general residents.

    Returns None if no reaction has a known type.
    """
    # References of unknown type have no level.
    reactions = reactions.filter(pl.col("reaction").is_not_null())
    if reactions.is_empty():
        return None
    rows: list[Row] = []
    bars, ignored_shares = [], []
    partitions = reactions.group_by("target_vulnerable", "level", maintain_order=True)
    # Vulnerable residents first. Sorting is stable, so levels keep their order.
    for (vulnerable, level), group_reactions in sorted(partitions, key=lambda part: not part[0][0]):
        group = "vulnerable" if vulnerable else "general"
        shares, estimate, columns = _category_columns(
            group_reactions, "reaction", SPECTRUM, "ignore"
        )
        rows.append({"to": group, "level": str(level), **columns})
        # The bars leave out `ignore`, which would dwarf the other levels.
        bars += [
            (f"{group}, level {level}", text, value or 0.0)
            for text, value in shares.items()
            if text != "ignore"
        ]
        ignored_shares += [f"{format_share(estimate)} at level {level}"] * bool(vulnerable)
    return Finding(
        "spectrum",
        "How others react",
        word(
            "description",
            "values",
            what="The vulnerable residents got no reaction in these shares of cases",
            values="; ".join(ignored_shares),
        ),
        ResultTable.from_records(
            rows, "Share of possible reactions. Low and high: interval of the share ignored."
        ),
        BarChart(tuple(bars), unit="share of possible reactions", percent=True),
        notes=(
            "Five-level reaction spectrum after Park & Lee (2016). No reference counts as "
            "`ignore`.",
            INTERVALS,
        ),
        unit="set",
        units=reactions["set"].n_unique(),
    )


def _category_columns(
    rows: pl.DataFrame, column: str, categories: Sequence[str], main: str
) -> tuple[Mapping[str, float | None], Estimate, Row]:
    # (share by category, estimate of the share of `main`, cells of a table with both)
    counts = Counter(rows[column].to_list())
    shares = category_shares({name: counts[name] for name in categories})
    estimate = clustered_share((rows[column] == main).to_list(), rows["set"].to_list())
    bounds = estimate_cells(estimate, main, "_share")
    cells: Row = {f"{name}_share": value for name, value in shares.items()}
    cells.update((key, value) for key, value in bounds.items() if key != main)
    return shares, estimate, {**cells, "n": rows.height}


def stance_finding(rounds: pl.DataFrame) -> Finding | None:
    """Build the finding on changes of stances.

    Returns None if no change is known.
    """
    with_change = rounds.filter(pl.col("change_type").is_not_null())
    if with_change.is_empty():
        return None
    rows: list[Row] = []
    kept_shares = []
    for (level,), level_rows in with_change.group_by("level", maintain_order=True):
        _, estimate, columns = _category_columns(level_rows, "change_type", CHANGES, "maintain")
        rows.append({"level": str(level), **columns})
        kept_shares.append(f"{format_share(estimate)} at level {level}")
    return Finding(
        "stances",
        "How stances move between rounds",
        word(
            "description",
            "values",
            what="The share of reflections in which a stance was kept",
            values="; ".join(kept_shares),
        ),
        ResultTable.from_records(
            rows, "Share of reflections. Low and high: interval of the share kept."
        ),
        notes=(INTERVALS,),
        unit="set",
        units=with_change["set"].n_unique(),
    )


def response_findings(reactions: pl.DataFrame, residents: pl.DataFrame) -> list[Finding]:
    """Build the findings on who responded to whom in the first set of residents.

    The result is empty if there are no reactions.
    """
    # There is one heat map per level. Rows are speakers, and columns are targets. A response is any
    # reaction except `ignore`.
    if reactions.is_empty():
        return []
    # One set is shown, because residents with the same id differ between sets.
    first_set = min(reactions["set"].to_list())
    first_reactions = reactions.filter(set=first_set)
    names = {
        row["id"]: f"{row['id']}*" if row["is_vulnerable"] else row["id"]
        for row in residents.filter(set=first_set).sort("id").iter_rows(named=True)
    }
    note = (
        f"* vulnerable resident. Shown is set {first_set}; the table reactions has all sets. A "
        "response refutes, asks, cites or agrees."
    )
    findings = []
    for level in sorted(first_reactions["level"].unique()):
        # A reference of unknown type is a response, too.
        is_response = (pl.col("reaction") != "ignore").fill_null(True)
        responses = first_reactions.filter(pl.col("level") == level, is_response)
        counts = Counter(responses.select("speaker", "target").iter_rows())
        rows = [
            {
                "who": names[resident_id],
                **{
                    names[other]: None if resident_id == other else counts[resident_id, other]
                    for other in names
                },
                "given": sum(counts[resident_id, other] for other in names),
                "received": sum(counts[other, resident_id] for other in names),
            }
            for resident_id in names
        ]
        caption = "Responses over all rounds, of residents in rows to residents in columns"
        findings.append(
            Finding(
                f"who_responded_{level}",
                f"Who responded to whom, level {level}",
                _describe_responses(counts, names),
                ResultTable.from_records(rows, caption),
                interaction_matrix(counts, names, "responses"),
                notes=(note,),
                section="Who responded to whom",
            )
        )
    return findings


def _describe_responses(counts: Counter[tuple[str, str]], names: Mapping[str, str]) -> str:
    if not counts:
        return "No resident responded to another."
    if not names:
        return (
            f"{format_count(counts.total(), 'response')} between residents who are not in the "
            "table of residents."
        )
    received = {
        label: sum(counts[speaker, resident_id] for speaker in names)
        for resident_id, label in names.items()
    }
    most_answered = all_largest(received, lambda name: received[name])
    each = " each" if len(most_answered) > 1 else ""
    unheard = [name for name, count in received.items() if not count]
    unheard_text = (
        f"{format_count(len(unheard), 'resident')} got no response ({', '.join(unheard)})"
        if unheard
        else "Every resident got a response"
    )
    most = (
        f"{join_words(most_answered)} got the most responses ({received[most_answered[0]]}{each})"
    )
    return join_sentences(
        [
            word(
                "description",
                "responses",
                responses=format_count(counts.total(), "response"),
                residents=format_count(len(names), "resident"),
            ),
            word("description", "observed", what=most),
            word("description", "list", values=unheard_text),
        ]
    )
