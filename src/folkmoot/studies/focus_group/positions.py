"""Positions on the concept: moves, and approaches to the other participants.

A move is a change of position in any direction. An approach makes the distance to the mean position
of the others smaller.
"""
# The module also pairs answers that were given twice, and removes excluded answers from tables.

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from folkmoot.hints import number_text
from folkmoot.kit.findings import split_address
from folkmoot.kit.reply_units import drop_humans
from folkmoot.kit.retest import pair_answers
from folkmoot.measures.reply_checks import part_of_stage
from folkmoot.measures.retest import Repeat
from folkmoot.people.sources.grounded.attributes import valence_label
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.config import parse_amount
from folkmoot.studies.focus_group.discussion import InterviewTime

# Positions have two decimals, so their differences have two as well. Without rounding, floating
# point makes 0.7 - 0.6 less than 0.1.
DECIMALS = 2
# A smaller difference is a matter of wording and not a change of mind.
SMALLEST_MOVE = 0.1

LEANINGS = {
    "very negative": "strongly against it",
    "negative": "rather against it",
    "neutral": "undecided",
    "positive": "rather in favor of it",
    "very positive": "strongly in favor of it",
}

Positions = Mapping[str, float]


def describe_position(position: float) -> str:
    """Return a position in words, such as `rather in favor of it`.

    `position` is from −1 to 1.
    """
    return LEANINGS[valence_label(position)]


def has_moved(before: float | None, after: float | None) -> bool:
    """Return whether two positions of one participant differ by at least `SMALLEST_MOVE`.

    Returns False if either position is unknown.
    """
    if before is None or after is None:
        return False
    return abs(round(after - before, DECIMALS)) >= SMALLEST_MOVE


def count_moved(pairs: pl.DataFrame) -> int:
    """Return the number of rows for which `has_moved(before, after)` is true."""
    return sum(has_moved(*pair) for pair in pairs.select("before", "after").iter_rows())


def measure_approach(
    start: Positions, participant_id: str, before: float | None, after: float | None
) -> float | None:
    """Return how many points closer a participant came to the first positions of the others.

    - `start`: a map from participant id to first position.
    - `before`, `after`: the two positions of the participant.

    Negative if the distance grew. Returns None if a position is unknown.
    """
    # The distance is that to the mean of the others' first positions.
    # First positions are the reference, so noise in later positions does not bias the result.
    other_positions = [
        position for other_id, position in start.items() if other_id != participant_id
    ]
    if before is None or after is None or not other_positions:
        return None
    reference = math.fsum(other_positions) / len(other_positions)
    return round(abs(before - reference) - abs(after - reference), 4)


# The columns that name a discussion, and a person in it.
TALK = ["group", "stimulus"]
PERSON = [*TALK, "persona_id"]
# Maximum number of participants or groups that a chart can show apart.
MAX_LINES = 20


def carry_positions_forward(opinions: pl.DataFrame) -> list[tuple[str, float, float]]:
    """Return the known positions as tuples (name, turn, position).

    The last position of each participant is repeated at the last turn of the discussion.
    """
    # The last position is repeated at the last turn, so that all lines of the chart end there.
    known_opinions = opinions.filter(pl.col("valence").is_not_null()).sort(
        "turn", maintain_order=True
    )
    rows = known_opinions.select("name", "turn", "valence").rows()
    last_turn = float(max((turn for _, turn, _ in rows), default=0))
    end_points = {name: (name, last_turn, valence) for name, _, valence in rows}
    return [(name, float(turn), valence) for name, turn, valence in rows] + list(
        end_points.values()
    )


def mean_position_by_question(opinions: pl.DataFrame) -> list[tuple[str, float, float]]:
    """Return one tuple (group, question, mean position) for each group and question."""
    # The mean is over the last known position of each participant. Groups after the first MAX_LINES
    # are left out.
    points: list[tuple[str, float, float]] = []
    for group in opinions["group"].unique(maintain_order=True).to_list()[:MAX_LINES]:
        current_positions: dict[str, float] = {}
        means: dict[int, float] = {}
        group_opinions = opinions.filter(
            (pl.col("group") == group) & pl.col("valence").is_not_null()
        )
        for row in group_opinions.iter_rows(named=True):
            current_positions[row["persona_id"]] = row["valence"]
            means[row["question"]] = math.fsum(current_positions.values()) / len(current_positions)
        points += [(group, float(question), round(mean, 4)) for question, mean in means.items()]
    return points


def position_pairs(
    statements: pl.DataFrame, end_time: InterviewTime = InterviewTime.AFTER
) -> pl.DataFrame:
    """Return the private positions before the discussion and at `end_time`.

    One row per participant, with the columns PERSON, `name`, `before` and `after`.
    """
    # Participants with only one of the two positions are left out.
    before, after = (
        statements.filter((pl.col("when") == when.value) & pl.col("position").is_not_null())
        for when in (InterviewTime.BEFORE, end_time)
    )
    pairs = before.join(after, on=PERSON, suffix="_after", maintain_order="left")
    return pairs.select(*PERSON, "name", before=pl.col("position"), after=pl.col("position_after"))


def tabulate_positions(
    pairs: pl.DataFrame, opinions: pl.DataFrame, *, by_group: bool
) -> pl.DataFrame:
    """Return positions and the number of coded changes, in one row per participant or group.

    - `pairs`: the result of `position_pairs`.
    """
    # The coder also read the answers of participants without one of the two private positions.
    coded_changes = opinions.group_by(PERSON, maintain_order=True).agg(
        pl.col("name").first(), pl.col("changed").sum().alias("changes coded")
    )
    known = pairs.drop("name")
    people = coded_changes.join(known, on=PERSON, how="left", maintain_order="left")
    if not by_group:
        return people.select(pl.col("name").alias("person"), "before", "after", "changes coded")
    return people.group_by("group", maintain_order=True).agg(
        pl.col("before").mean().alias("mean before"),
        pl.col("after").mean().alias("mean after"),
        pl.col("changes coded").sum(),
    )


def repeated_positions(run: RunFolder) -> list[Repeat]:
    """Return pairs of private answers by the same participant to the same question."""
    # Some participants are asked for their opinion twice before the discussion. All other pairs
    # compare an answer before the discussion with one after it.
    statements = run.read_table("statements").filter(~pl.col("planted"))
    statements = drop_humans(run, statements, "group", "persona_id", unit_of=part_of_stage)
    statements = statements.rename({"position": "answer", "when": "occasion"})
    intents = run.read_table("intents")
    intents = drop_humans(run, intents, "group", "persona_id", unit_of=part_of_stage)
    intents = intents.rename({"when": "occasion"})
    participant_keys, talk_times = (
        ["stimulus", "group", "persona_id"],
        [(InterviewTime.BEFORE.value, InterviewTime.AFTER.value)],
    )
    retest_times = [(InterviewTime.BEFORE.value, InterviewTime.RETEST.value)]
    participant_unit, question_keys = ["group", "persona_id"], ["stimulus", "price"]
    return [
        *pair_answers(
            statements,
            retest_times,
            participant_keys,
            unit=participant_unit,
            question=["stimulus"],
            untouched=True,
        ),
        *pair_answers(
            statements, talk_times, participant_keys, unit=["group"], question=["stimulus"]
        ),
        *pair_answers(
            intents,
            talk_times,
            [*participant_keys, "price"],
            unit=["group"],
            question=question_keys,
        ),
    ]


def missing_positions(run: RunFolder) -> dict[str, str]:
    """Return the reason of each missing position: address in `answers` → reason."""
    # The table `answers` has no reason for them, because the opinion in words is an answer.
    asked = run.read_table("statements").filter(pl.col("missing").is_not_null())
    reasons = {
        tuple(key): reason
        for *key, reason in asked.select(*TALK, "when", "persona_id", "missing").iter_rows()
    }
    found = {}
    for (address,) in run.rows("answers", "address") if reasons else ():
        # Addresses end in `group/concept/when/who/opinion/ask0`. The second answer of a retest is
        # at `opinion_retest`.
        match split_address(address):
            case [_, group, concept, when, persona_id, "opinion" | "opinion_retest" as name, _]:
                time = when if name == "opinion" else InterviewTime.RETEST.value
                if (key := (group, concept, time, persona_id)) in reasons:
                    found[address] = reasons[key]
    return found


def strict_tables(run: RunFolder, excluded: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """Return the answers on buying the product, with excluded answers set to null."""
    # `excluded` holds the excluded rows of the table `answers`.
    excluded_keys = set()
    is_intent = (pl.col("kind") == "choice") & pl.col("address").str.contains("/intent/")
    for address in excluded.filter(is_intent)["address"]:
        # Addresses end in `group/concept/when/who/intent/ask0`, with a ladder price before `ask0`.
        _, group, concept, when, persona_id, _, *price, _ask = split_address(address)
        excluded_keys.add((group, concept, when, persona_id, *price))
    intents = run.read_table("intents")
    keys = intents.select(*TALK, "when", "persona_id", "ladder", "price").iter_rows()
    is_excluded = pl.Series(
        [
            (*key, number_text(parse_amount(price))) in excluded_keys
            if ladder
            else tuple(key) in excluded_keys
            for *key, ladder, price in keys
        ],
        dtype=pl.Boolean,
    )
    kept_columns = pl.when(~pl.lit(is_excluded)).then(pl.col("answer", "score"))
    return {"intents": intents.lazy().with_columns(kept_columns)}
