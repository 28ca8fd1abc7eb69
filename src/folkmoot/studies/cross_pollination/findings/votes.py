"""The votes of a run as the findings need them: read once from the tables, never changed."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, TypedDict, TypeVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from folkmoot.kit.claims import read_results
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate
from folkmoot.measures.inference.proportions import wilson
from folkmoot.storage.json_files import iterate_vectors
from folkmoot.storage.run_folder import RowStream, RunFolder, TextStream
from folkmoot.storage.tables import DRAW, units_of
from folkmoot.studies.cross_pollination.config import (
    LABELS,
    SIMPLE_VOTING,
    ConditionDesign,
    CrossPollinationConfig,
    condition_label,
    condition_switches,
    declare_claims,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Voter:
    """One participant, as the row of the table has them."""

    participant_id: str
    condition: str
    status: str
    error_message: str | None
    initial_choice: str | None
    final_choice: str | None
    position_changed: bool | None
    opposition_view: str | None
    cluster_id: str | None
    individual_summary: str | None
    summary_draw: int | None
    confidence_before: float | None
    confidence_after: float | None
    ranking_before: tuple[str, ...]
    ranking_after: tuple[str, ...]
    delayed_choice: str | None
    missing_answers: Mapping[str, str]
    options_shown: tuple[str, ...]
    demographics: Mapping[str, str | float | None]


VOTER = tuple(f.name for f in fields(Voter))


@dataclass(frozen=True, slots=True, eq=False)
class ConditionVotes:
    """One condition. `rows` are its participants; `moved` those with a first and a final vote."""

    condition: str
    rows: tuple[Voter, ...]
    moved: tuple[Voter, ...]

    @property
    def name(self) -> str:
        return condition_label(self.condition)

    @property
    def participant_count(self) -> int:
        """Participants with both votes."""
        return len(self.moved)

    @property
    def changed_count(self) -> int:
        return sum(self.changed_flags)

    @property
    def dropout_count(self) -> tuple[Voter, ...]:
        """Participants without a final vote who should have had one, for whatever reason."""
        return tuple(voter for voter in self.rows if voter.position_changed is None)

    @property
    def first(self) -> list[str]:
        """The first choices of those with both votes."""
        return [str(voter.initial_choice) for voter in self.moved]

    @property
    def final_choices(self) -> list[str]:
        """Their final choices."""
        return [str(voter.final_choice) for voter in self.moved]

    @property
    def changed_flags(self) -> list[bool]:
        """Whether each of them changed."""
        return [bool(voter.position_changed) for voter in self.moved]


class Basis(TypedDict):
    """What is independent in a finding, and how many of it there are."""

    unit: str
    units: int


@dataclass(frozen=True)
class Votes:
    """All that the findings know of a run."""

    run: RunFolder
    options: tuple[str, ...]
    arms: tuple[ConditionVotes, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    terminated: str | None = None

    @property
    def two_vote_conditions(self) -> tuple[ConditionVotes, ...]:
        """Arms in which somebody voted twice."""
        return tuple(
            condition_votes for condition_votes in self.arms if condition_votes.participant_count
        )

    @property
    def informed_conditions(self) -> tuple[ConditionVotes, ...]:
        """Arms that were shown, asked or told something, and voted again."""
        return tuple(
            condition_votes
            for condition_votes in self.two_vote_conditions
            if self.exposure_of(condition_votes) != ConditionDesign()
        )

    def exposure_of(self, arm: ConditionVotes) -> ConditionDesign:
        """What an arm goes through between its votes."""
        return self.condition_switches.get(arm.condition, ConditionDesign())

    @cached_property
    def condition_switches(self) -> dict[str, ConditionDesign]:
        return condition_switches(self.config)

    def conditions_with(self, switch: str) -> list[ConditionVotes]:
        """The arms in which a switch is on, and somebody voted twice."""
        return [
            condition_votes
            for condition_votes in self.two_vote_conditions
            if getattr(self.exposure_of(condition_votes), switch)
        ]

    @cached_property
    def summary_draws(self) -> int:
        """Draws of the summaries over which readers were divided."""
        return max((voter.summary_draw or 1 for voter in self.people), default=1)

    def rate(self, arm: ConditionVotes) -> Estimate:
        """The share that changed. With several draws of the summaries the bounds are those of
        Wilson's interval, or of one clustered by draw, whichever reach further."""
        plain = wilson(arm.changed_count, arm.participant_count)
        if not self._has_several_draws(arm):
            return self._over_draws(plain)
        by_draw = clustered_share(
            arm.changed_flags, [f"draw {voter.summary_draw}" for voter in arm.moved]
        )
        return self._over_draws(_wider_interval(plain, by_draw))

    @cached_property
    def claim_results(self) -> list[Result]:
        """The results of all claims that this study type declares."""
        return read_results(self.run, CrossPollinationConfig, declare_claims)

    def _over_draws(self, estimate: Estimate) -> Estimate:
        """The estimate as one over the draws of the summaries, where they are what it rests on."""
        return (
            replace(estimate, clusters=self.summary_draws)
            if self.summary_draws >= FEWEST_UNITS
            else estimate
        )

    @property
    def analysis_basis(self) -> Basis:
        """What is independent of each other. With five draws of the summaries or more, the draw;
        with fewer, nothing is claimed of another draw, and participants are, given these texts."""
        if self.summary_draws >= FEWEST_UNITS:
            return {"unit": "draw of the summaries", "units": self.summary_draws}
        return self.conditional_basis

    @property
    def conditional_basis(self) -> Basis:
        """The independent units of what holds for these summaries alone: participants."""
        these = (
            f"{self.summary_draws} draws of the summaries"
            if self.summary_draws > 1
            else "summaries"
        )
        given = f" given these {these}" * bool(self.conditions_with("summaries"))
        return {
            "unit": f"participant{given}",
            "units": sum(
                condition_votes.participant_count for condition_votes in self.two_vote_conditions
            ),
        }

    @property
    def compared_by_one_thing(self) -> bool:
        """Whether all that a condition goes through stood in the prompts of its final votes."""
        return self.config.get("exposure") != "source"

    @property
    def wording_source(self) -> str:
        """The source of the prompt wording."""
        return "the study file's own wording" if self.config.get("prompts") else "our wording"

    def _has_several_draws(self, arm: ConditionVotes) -> bool:
        return self.summary_draws > 1 and self.exposure_of(arm).summaries

    def independent_units(self, arm: ConditionVotes) -> list[str]:
        """What is independent in an arm, see `analysis_basis`: its draws of the summaries, or its
        participants."""
        return [self._unit_of_participant[voter.participant_id] for voter in arm.moved]

    @cached_property
    def _unit_of_participant(self) -> dict[str, str]:
        """Participant → independent unit."""
        people = self.run.scan_table("participants")
        known = [
            condition
            for condition in ("participant_id", DRAW)
            if condition in people.collect_schema()
        ]
        rows = people.select(known).collect()
        return dict(zip(rows["participant_id"], units_of(rows).of, strict=True))

    def arm(self, condition: str) -> ConditionVotes | None:
        """The arm, if somebody in it voted twice."""
        return next(
            (
                condition_votes
                for condition_votes in self.two_vote_conditions
                if condition_votes.condition == condition
            ),
            None,
        )

    @property
    def revote_condition(self) -> ConditionVotes | None:
        """The arm that was asked again without being told anything."""
        return self.arm(SIMPLE_VOTING)

    @property
    def dialogue_participants(self) -> list[Voter]:
        """Those who faced an opposing view in a dialogue and voted again."""
        arguing = self.conditions_with("dialogue")
        return [
            voter
            for condition_votes in arguing
            for voter in condition_votes.moved
            if voter.opposition_view is not None
        ]

    @property
    def rebuttal_texts(self) -> Collection[str]:
        """What participants replied to whoever contradicted them."""
        return self.participant_texts(
            pl.col("stage") == "adversarial_dialogue", pl.col("text") != ""
        )

    @property
    def people(self) -> list[Voter]:
        return [voter for condition_votes in self.arms for voter in condition_votes.rows]

    def counts(self, choices: Iterable[str | None]) -> list[int]:
        """Votes per option, in the order of the study file."""
        found = Counter(choices)
        return [found.get(option, 0) for option in self.options]

    @cached_property
    def answers(self) -> Collection[Mapping[str, object]]:
        """The rows of the `answers` table; empty without one."""
        return RowStream(self.run.scan_table("answers")) if self.run.has_table("answers") else ()

    def participant_texts(self, *where: pl.Expr) -> Collection[str]:
        """What participants said, all of it or that of some rows."""
        if not self.run.has_table("utterances"):
            return ()
        own = pl.col("turn").is_not_null() & (pl.col("speaker_role") == "participant")
        spoken = self.run.scan_table("utterances").filter(own, *where)
        return TextStream(spoken.select("text"))

    @cached_property
    def cluster_rows(self) -> list[dict[str, Any]]:
        return list(_table_rows(self.run, "clusters"))

    @property
    def undescribed_clusters(self) -> list[str]:
        """Clusters that the model did not describe, so that nobody was shown their view."""
        lacking = [
            cluster_row["cluster_id"]
            for cluster_row in self.cluster_rows
            if not cluster_row["description"]
        ]
        shown = {(s["draw"], s["cluster_id"]) for s in _table_rows(self.run, "summaries")}
        return lacking + [
            f"{cluster_row['cluster_id']} (draw {draw})"
            for draw in range(2, self.summary_draws + 1)
            for cluster_row in self.cluster_rows
            if (draw, cluster_row["cluster_id"]) not in shown
        ]

    def summary_embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Participant → embedding of the individual summary; empty where there is none. Read anew
        each time: they take much memory."""
        path = self.run.path / "individual_embeddings.json"
        return iterate_vectors(path, "embeddings") if path.exists() else {}


def _wider_interval(plain: Estimate, clustered: Estimate) -> Estimate:
    """The plain estimate with the bounds and the p of whichever of the two claims less."""
    if not clustered.has_interval:
        return replace(plain, each=clustered.each)
    low, high = min(plain.low, clustered.low), max(plain.high, clustered.high)
    p_value = max(
        (p_value for p_value in (plain.p, clustered.p) if math.isfinite(p_value)), default=math.nan
    )
    method = f"{plain.method}, or clustered by draw where that reaches further"
    return replace(plain, low=low, high=high, p=p_value, method=method).clip_bounds(-1.0, 1.0)


def read_votes(run: RunFolder) -> Votes:
    """The votes of a run, conditions in the order of the design.

    A table without a column (everybody failed at the first vote, say) reads as if it were empty.
    """
    config = run.config
    # What nobody counts, and what takes most of the memory, is left out.
    rows = [
        _build_voter(row)
        for row in _table_rows(run, "participants", but=("persona", "base_persona"))
    ]
    options = tuple(config.get("topic", {}).get("options", ())) or _options_shown(rows)
    order = dict.fromkeys((*LABELS, *condition_switches(config)))
    known = [
        condition for condition in order if any(voter.condition == condition for voter in rows)
    ]
    others = sorted({voter.condition for voter in rows} - set(known))
    arms = []
    for condition in (*known, *others):
        own = tuple(voter for voter in rows if voter.condition == condition)
        both = tuple(
            voter
            for voter in own
            if voter.position_changed is not None and voter.status == "complete"
        )
        arms.append(ConditionVotes(condition, own, both))
    checkpoint = run.read_json("checkpoint.json") if run.has_file("checkpoint.json") else {}
    ended = checkpoint.get("termination_reason") if checkpoint.get("terminated_early") else None
    return Votes(run, options, tuple(arms), config, ended)


# Column of `participants` → the stages in which it is voted on.
VOTED_IN = {
    "initial_choice": ("initial_vote",),
    "final_choice": ("cross_pollination", "adversarial_dialogue", "second_vote"),
    "delayed_choice": ("delayed_vote",),
}


def strict_tables(run: RunFolder, excluded: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """`participants` without the votes that are left out, and without the change from or to one."""
    votes = excluded.filter(role="participant", kind="choice")
    left_out = {
        column: pl.col("participant_id").is_in(
            votes.filter(pl.col("stage").is_in(stages))["speaker_id"].implode()
        )
        for column, stages in VOTED_IN.items()
    }
    left_out["position_changed"] = left_out["initial_choice"] | left_out["final_choice"]
    people = run.scan_table("participants")
    blank = {
        column: pl.when(is_left_out).then(None).otherwise(pl.col(column))
        for column, is_left_out in left_out.items()
        if column in people.collect_schema().names()
    }
    return {"participants": people.with_columns(**blank)}


def _table_rows(
    run: RunFolder, table: str, but: tuple[str, ...] = ()
) -> Collection[dict[str, object]]:
    return RowStream(run.scan_table(table).drop(but, strict=False)) if run.has_table(table) else ()


DEMOGRAPHIC = "demographic_"
OWN = ("participant_id", "individual_summary")  # cells that no two rows have alike


def _build_voter(row: Mapping[str, object]) -> Voter:
    """The voter of a row. There may be very many: what many share is one object."""
    cells: dict[str, Any] = {
        name: row.get(name) if name in OWN else _intern_cell(row.get(name)) for name in VOTER
    }
    # Tables keep lists as JSON text.
    for name in ("ranking_before", "ranking_after", "options_shown"):
        cell = cells[name]
        cells[name] = _parse_list(cell) if isinstance(cell, str) else tuple(cell or ())
    reasons = cells["missing_answers"]
    cells["missing_answers"] = json.loads(reasons) if isinstance(reasons, str) else {}
    cells["demographics"] = {
        sys.intern(name.removeprefix(DEMOGRAPHIC)): _intern_cell(cell)
        for name, cell in row.items()
        if name.startswith(DEMOGRAPHIC)
    }
    return Voter(**cells)


def _intern_cell(cell: T) -> T:
    return cast("T", sys.intern(cell)) if isinstance(cell, str) else cell


@lru_cache(maxsize=1024)
def _parse_list(cell: str) -> tuple[str, ...]:
    return tuple(json.loads(cell))


def _options_shown(rows: Iterable[Voter]) -> tuple[str, ...]:
    votes = {vote for voter in rows for vote in (voter.initial_choice, voter.final_choice)}
    return tuple(sorted(vote for vote in votes if vote is not None))
