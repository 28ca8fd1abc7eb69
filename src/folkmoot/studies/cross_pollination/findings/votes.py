"""The votes of a run in the form that the findings need.

`read_votes` reads the tables once. All findings share the resulting `Votes`, which never changes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypedDict, TypeVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from folkmoot.kit.claims import read_results
from folkmoot.kit.findings import condition_name
from folkmoot.kit.reply_units import find_humans
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.clustered import clustered_share, wider_interval
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate
from folkmoot.measures.inference.paired_votes import IntArray, transition_table
from folkmoot.measures.inference.proportions import wilson
from folkmoot.measures.position import parse_options
from folkmoot.storage.json_files import iterate_vectors
from folkmoot.storage.run_folder import RowStream, RunFolder, TextStream
from folkmoot.storage.tables import DRAW, DRAWS, DRAWS_OR_OWN, units_of
from folkmoot.studies.cross_pollination.config import (
    CONDITIONS,
    PLACEBOS,
    SIMPLE_VOTING,
    ConditionDesign,
    CrossPollinationConfig,
    condition_switches,
    declare_claims,
)
from folkmoot.studies.cross_pollination.participants import count_changes, has_voted_twice

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Voter:
    """One participant, read from a row of the table `participants`."""

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


# The field names, computed once because `_build_voter` needs them for every row.
VOTER_FIELDS = tuple(voter_field.name for voter_field in fields(Voter))


@dataclass(frozen=True, slots=True, eq=False)
class ConditionVotes:
    """The participants of one condition, with their votes."""

    condition: str
    rows: tuple[Voter, ...]
    # The participants with a first and a final vote, equal or not.
    two_vote_voters: tuple[Voter, ...]

    @property
    def name(self) -> str:
        return condition_name(self.condition)

    @property
    def participant_count(self) -> int:
        """The number of participants with both votes."""
        return len(self.two_vote_voters)

    @property
    def changed_count(self) -> int:
        return count_changes(self.two_vote_voters)[0]

    @property
    def without_first_vote(self) -> tuple[Voter, ...]:
        return tuple(voter for voter in self.rows if voter.initial_choice is None)

    @property
    def without_final_vote(self) -> tuple[Voter, ...]:
        """The participants with a first vote but without a usable final vote.

        The final vote is missing, or the participant dropped out.
        """
        return tuple(
            voter
            for voter in self.rows
            if voter.initial_choice is not None and not has_voted_twice(voter)
        )

    @property
    def first_choices(self) -> list[str]:
        """The first choices of the participants with both votes."""
        return [str(voter.initial_choice) for voter in self.two_vote_voters]

    @property
    def final_choices(self) -> list[str]:
        """The final choices of participants with both votes, in the order of `first_choices`."""
        return [str(voter.final_choice) for voter in self.two_vote_voters]

    @property
    def changed_flags(self) -> list[bool]:
        """The answer to "Did the choice change?" for each participant with both votes."""
        return [bool(voter.position_changed) for voter in self.two_vote_voters]


class Basis(TypedDict):
    """The unit of analysis of a finding, and the number of such units."""

    unit: str
    units: int


@dataclass(frozen=True)
class Votes:
    """The votes and settings of a run, from which all findings are computed."""

    run: RunFolder
    options: tuple[str, ...]
    conditions: tuple[ConditionVotes, ...]
    # The settings as in the run folder, without validation.
    config: Mapping[str, Any] = field(default_factory=dict)
    # The reason for an early end of the study, or None.
    terminated: str | None = None
    # Participants that are left out of `conditions`, because humans played them.
    left_out: frozenset[str] = frozenset()

    @property
    def two_vote_conditions(self) -> tuple[ConditionVotes, ...]:
        """The conditions in which at least one participant voted twice."""
        return tuple(
            condition_votes
            for condition_votes in self.conditions
            if condition_votes.participant_count
        )

    @property
    def informed_conditions(self) -> tuple[ConditionVotes, ...]:
        """The conditions in which participants voted twice and got some information in between."""
        return tuple(
            condition_votes
            for condition_votes in self.two_vote_conditions
            if self.exposure_of(condition_votes) != ConditionDesign()
        )

    def exposure_of(self, condition_votes: ConditionVotes) -> ConditionDesign:
        """Return the switches of a condition: does it have summaries, an interview, a dialogue?"""
        # A condition that the study file does not declare has none of these.
        return self.condition_switches.get(condition_votes.condition, ConditionDesign())

    @cached_property
    def condition_switches(self) -> dict[str, ConditionDesign]:
        return condition_switches(self.config)

    def conditions_with(self, switch: str) -> list[ConditionVotes]:
        """Return the conditions with two votes that switch on `switch`, for example "summaries"."""
        return [
            condition_votes
            for condition_votes in self.two_vote_conditions
            if getattr(self.exposure_of(condition_votes), switch)
        ]

    @cached_property
    def summary_draws(self) -> int:
        """The number of versions of the summaries."""
        # Each version is shown to other participants.
        return max((voter.summary_draw or 1 for voter in self.people), default=1)

    def rate(self, condition_votes: ConditionVotes) -> Estimate:
        """Return the share of participants in a condition who changed their choice."""
        # The interval is Wilson's. If there are several versions of the summaries, it is widened
        # where readers of one version vote alike.
        plain = wilson(condition_votes.changed_count, condition_votes.participant_count)
        if not self._has_several_draws(condition_votes):
            return self._with_draw_count(plain)
        by_draw = clustered_share(
            condition_votes.changed_flags,
            [f"draw {voter.summary_draw}" for voter in condition_votes.two_vote_voters],
        )
        return self._with_draw_count(wider_interval(plain, by_draw))

    @cached_property
    def claim_results(self) -> list[Result]:
        """The results of all claims that this study type declares."""
        return read_results(self.run, CrossPollinationConfig, declare_claims)

    def _with_draw_count(self, estimate: Estimate) -> Estimate:
        return (
            replace(estimate, clusters=self.summary_draws)
            if self.summary_draws >= FEWEST_UNITS
            else estimate
        )

    @property
    def analysis_basis(self) -> Basis:
        """The unit of analysis of most findings: a participant, or a version of the summaries."""
        # Usually the unit is a participant, and the results hold only for the summaries of this
        # run. If a model wrote at least `FEWEST_UNITS` versions of the summaries, the unit is a
        # version.
        if self.summary_draws < FEWEST_UNITS:
            return self.conditional_basis
        all_read = len(self.conditions_with("summaries")) == len(self.two_vote_conditions)
        return {"unit": DRAWS if all_read else DRAWS_OR_OWN, "units": self.summary_draws}

    @property
    def conditional_basis(self) -> Basis:
        """The unit of analysis (participants) of findings on the summaries of this run alone."""
        summaries_phrase = (
            f"{self.summary_draws} draws of the summaries"
            if self.summary_draws > 1
            else "summaries"
        )
        condition_phrase = f" given these {summaries_phrase}" * bool(
            self.conditions_with("summaries")
        )
        return {
            "unit": f"participant{condition_phrase}",
            "units": sum(
                condition_votes.participant_count for condition_votes in self.two_vote_conditions
            ),
        }

    @property
    def neighbours_differ_in_one_switch(self) -> bool:
        """True if each condition differs from the preceding condition in one switch only.

        The switches are the summaries, the interview and the dialogue.
        """
        # It is False with `exposure: source`: final votes after a dialogue then have no summaries.
        return self.config.get("exposure") != "source"

    @property
    def prompts_phrase(self) -> str:
        """A phrase for notes that says whether the prompts are Folkmoot's or the study file's."""
        return (
            "the prompts of the study file"
            if self.config.get("prompts")
            else "the prompts of Folkmoot"
        )

    def _has_several_draws(self, condition_votes: ConditionVotes) -> bool:
        return self.summary_draws > 1 and self.exposure_of(condition_votes).summaries

    def independent_units(self, condition_votes: ConditionVotes) -> list[str]:
        """Return, for each participant with both votes, the name of the independent unit."""
        # Readers of the same version of the summaries share a unit, if a model wrote several
        # versions. Otherwise each participant is a unit.
        return [
            self._unit_of_participant[voter.participant_id]
            for voter in condition_votes.two_vote_voters
        ]

    @cached_property
    def _unit_of_participant(self) -> dict[str, str]:
        people = self.run.scan_table("participants")
        columns = [
            column for column in ("participant_id", DRAW) if column in people.collect_schema()
        ]
        # Runs of earlier versions have no column for draws, so only existing columns are selected.
        rows = people.select(columns).collect()
        return dict(zip(rows["participant_id"], units_of(rows).of, strict=True))

    def find_condition(self, condition: str) -> ConditionVotes | None:
        """Return the votes of the condition with this id.

        Returns None if no participant of the condition voted twice.
        """
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
        """The condition with nothing between the two votes.

        Returns None if no participant of this condition voted twice.
        """
        return self.find_condition(SIMPLE_VOTING)

    @property
    def dialogue_participants(self) -> list[Voter]:
        """The participants of conditions with an adversarial dialogue who voted twice."""
        conditions = self.conditions_with("dialogue")
        return [
            voter
            for condition_votes in conditions
            for voter in condition_votes.two_vote_voters
            if voter.opposition_view is not None
        ]

    @property
    def rebuttal_texts(self) -> Collection[str]:
        """The participants' utterances in adversarial dialogues."""
        return self.participant_texts(
            pl.col("stage") == "adversarial_dialogue", pl.col("text") != ""
        )

    @property
    def people(self) -> list[Voter]:
        return [voter for condition_votes in self.conditions for voter in condition_votes.rows]

    def counts(self, choices: Iterable[str | None]) -> list[int]:
        """Return the number of votes per option, in the order of the study file."""
        counts = Counter(choices)
        return [counts.get(option, 0) for option in self.options]

    def missing_rankings(self) -> dict[str, str]:
        """Return the reason of each missing ranking: address in `answers` → reason."""
        # The table `answers` has no reason for a way out inside the list of a ranking.
        reasons = {
            (voter.participant_id, column): reason
            for voter in self.people
            for column, reason in voter.missing_answers.items()
        }
        if not reasons or not self.run.has_table("answers"):
            return {}
        is_ranking = pl.col("scope").str.ends_with("/ranking")
        rankings = self.run.scan_table("answers").filter(is_ranking)
        found = {}
        columns = ("address", "stage", "speaker_id")
        for address, stage, speaker in rankings.select(columns).collect().iter_rows():
            is_first = stage in VOTED_IN["initial_choice"]
            key = (speaker, "ranking_before" if is_first else "ranking_after")
            if key in reasons:
                found[address] = reasons[key]
        return found

    def participant_texts(self, *where: pl.Expr) -> Collection[str]:
        """Return the utterances of participants in conversations.

        - `where`: filters for the rows of the table `utterances`.
        """
        if not self.run.has_table("utterances"):
            return ()
        # Rows without a turn are private texts, such as restatements.
        by_participants = (
            pl.col("turn").is_not_null()
            & (pl.col("speaker_role") == "participant")
            & ~pl.col("speaker_id").is_in(self.left_out)
        )
        spoken = self.run.scan_table("utterances").filter(by_participants, *where)
        return TextStream(spoken.select("text"))

    def of_models(self) -> Votes:
        """Return the votes of the participants that models played, for the checks of models."""
        humans = find_humans(self.run)
        if not humans:
            return self

        def select_models(voters: Iterable[Voter]) -> tuple[Voter, ...]:
            return tuple(voter for voter in voters if voter.participant_id not in humans)

        conditions = tuple(
            ConditionVotes(
                condition_votes.condition,
                select_models(condition_votes.rows),
                select_models(condition_votes.two_vote_voters),
            )
            for condition_votes in self.conditions
        )
        return replace(self, conditions=conditions, left_out=humans)

    @cached_property
    def cluster_rows(self) -> list[dict[str, Any]]:
        return list(_table_rows(self.run, "clusters"))

    @property
    def undescribed_clusters(self) -> list[str]:
        """The clusters that lack a description in some version of the summaries."""
        # Readers of that version are not shown the cluster.
        undescribed = [
            cluster_row["cluster_id"]
            for cluster_row in self.cluster_rows
            if not cluster_row["description"]
        ]
        # The table `clusters` holds the description of the first draw. `summaries` holds those of
        # all draws.
        shown = {(row["draw"], row["cluster_id"]) for row in _table_rows(self.run, "summaries")}
        return undescribed + [
            f"{cluster_row['cluster_id']} (draw {draw})"
            for draw in range(2, self.summary_draws + 1)
            for cluster_row in self.cluster_rows
            if (draw, cluster_row["cluster_id"]) not in shown
        ]

    def summary_embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Return a map from participant id to the embedding of the participant's summary."""
        # The file is read at each call, because it would take too much memory to keep all
        # embeddings.
        path = self.run.path / "individual_embeddings.json"
        return iterate_vectors(path, "embeddings") if path.exists() else {}


def read_votes(run: RunFolder) -> Votes:
    """Read the votes of a run, with conditions in the order of the design."""
    config = run.config
    # The persona texts take most of the memory and no finding uses them.
    rows = [
        _build_voter(row)
        for row in _table_rows(run, "participants", excluded=("persona", "base_persona"))
    ]
    options = tuple(config.get("topic", {}).get("options", ())) or _options_shown(rows)
    order = dict.fromkeys((*CONDITIONS, *PLACEBOS, *condition_switches(config)))
    known = [
        condition for condition in order if any(voter.condition == condition for voter in rows)
    ]
    # A run of another version may have conditions that this version does not know.
    others = sorted({voter.condition for voter in rows} - set(known))
    conditions = []
    for condition in (*known, *others):
        voters = tuple(voter for voter in rows if voter.condition == condition)
        two_vote_voters = tuple(filter(has_voted_twice, voters))
        conditions.append(ConditionVotes(condition, voters, two_vote_voters))
    checkpoint = run.read_json("checkpoint.json") if run.has_file("checkpoint.json") else {}
    termination_reason = (
        checkpoint.get("termination_reason") if checkpoint.get("terminated_early") else None
    )
    return Votes(run, options, tuple(conditions), config, termination_reason)


# Maps a column of `participants` to the stages that fill it by a vote.
VOTED_IN = {
    "initial_choice": ("initial_vote",),
    "final_choice": ("cross_pollination", "adversarial_dialogue", "second_vote"),
    "delayed_choice": ("delayed_vote",),
}


def strict_tables(run: RunFolder, excluded: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """Return the table `participants`, with null in place of excluded votes.

    - `excluded`: the excluded rows of the table `answers`.
    """
    # `position_changed` is null if it needs an excluded vote.
    votes = excluded.filter(role="participant", kind="choice")
    exclusions = {
        column: pl.col("participant_id").is_in(
            votes.filter(pl.col("stage").is_in(stages))["speaker_id"].implode()
        )
        for column, stages in VOTED_IN.items()
    }
    exclusions["position_changed"] = exclusions["initial_choice"] | exclusions["final_choice"]
    people = run.scan_table("participants")
    blank = {
        column: pl.when(is_excluded).then(None).otherwise(pl.col(column))
        for column, is_excluded in exclusions.items()
        if column in people.collect_schema().names()
    }
    return {"participants": people.with_columns(**blank)}


def _table_rows(
    run: RunFolder, table: str, excluded: tuple[str, ...] = ()
) -> Collection[dict[str, object]]:
    return (
        RowStream(run.scan_table(table).drop(excluded, strict=False))
        if run.has_table(table)
        else ()
    )


DEMOGRAPHIC = "demographic_"
# Cells that differ in every row, so that interning them would not save memory.
NOT_INTERNED = ("participant_id", "individual_summary")


def _build_voter(row: Mapping[str, object]) -> Voter:
    # Equal texts of different rows share one object, to save memory.
    cells: dict[str, Any] = {
        name: row.get(name) if name in NOT_INTERNED else _intern_cell(row.get(name))
        for name in VOTER_FIELDS
    }
    # Tables keep lists as JSON text.
    for name in ("ranking_before", "ranking_after", "options_shown"):
        cell = cells[name]
        cells[name] = parse_options(cell) if isinstance(cell, str) else tuple(cell or ())
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


def _options_shown(rows: Iterable[Voter]) -> tuple[str, ...]:
    votes = {vote for voter in rows for vote in (voter.initial_choice, voter.final_choice)}
    return tuple(sorted(vote for vote in votes if vote is not None))


def count_moves(votes: Votes, condition_votes: ConditionVotes) -> IntArray:
    """Return how many participants moved between options, shape (options, options).

    Rows are first votes and columns are final votes, in the order of the study file.
    """
    return transition_table(
        condition_votes.first_choices, condition_votes.final_choices, votes.options
    )
