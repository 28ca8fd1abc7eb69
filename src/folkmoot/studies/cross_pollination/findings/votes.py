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
from folkmoot.storage.json_files import read_vectors
from folkmoot.storage.run_folder import RunFolder, Streamed, Texts
from folkmoot.storage.tables import DRAW, units_of
from folkmoot.studies.cross_pollination.config import (
    LABELS,
    SIMPLE_VOTING,
    CrossPollinationConfig,
    Exposed,
    claims,
    label,
    switches,
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
class Arm:
    """One condition. `rows` are its participants; `moved` those with a first and a final vote."""

    condition: str
    rows: tuple[Voter, ...]
    moved: tuple[Voter, ...]

    @property
    def name(self) -> str:
        return label(self.condition)

    @property
    def n(self) -> int:
        """Participants with both votes."""
        return len(self.moved)

    @property
    def changed(self) -> int:
        return sum(self.moves)

    @property
    def lost(self) -> tuple[Voter, ...]:
        """Participants without a final vote who should have had one, for whatever reason."""
        return tuple(r for r in self.rows if r.position_changed is None)

    @property
    def first(self) -> list[str]:
        """The first choices of those with both votes."""
        return [str(r.initial_choice) for r in self.moved]

    @property
    def final(self) -> list[str]:
        """Their final choices."""
        return [str(r.final_choice) for r in self.moved]

    @property
    def moves(self) -> list[bool]:
        """Whether each of them changed."""
        return [bool(r.position_changed) for r in self.moved]


class Basis(TypedDict):
    """What is independent in a finding, and how many of it there are."""

    unit: str
    units: int


@dataclass(frozen=True)
class Votes:
    """All that the findings know of a run."""

    run: RunFolder
    options: tuple[str, ...]
    arms: tuple[Arm, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    terminated: str | None = None

    @property
    def twice(self) -> tuple[Arm, ...]:
        """Arms in which somebody voted twice."""
        return tuple(a for a in self.arms if a.n)

    @property
    def informed(self) -> tuple[Arm, ...]:
        """Arms that were shown, asked or told something, and voted again."""
        return tuple(a for a in self.twice if self.shown(a) != Exposed())

    def shown(self, arm: Arm) -> Exposed:
        """What an arm goes through between its votes."""
        return self.switches.get(arm.condition, Exposed())

    @cached_property
    def switches(self) -> dict[str, Exposed]:
        return switches(self.config)

    def having(self, switch: str) -> list[Arm]:
        """The arms in which a switch is on, and somebody voted twice."""
        return [a for a in self.twice if getattr(self.shown(a), switch)]

    @cached_property
    def draws(self) -> int:
        """Draws of the summaries over which readers were divided."""
        return max((r.summary_draw or 1 for r in self.people), default=1)

    def rate(self, arm: Arm) -> Estimate:
        """The share that changed. With several draws of the summaries the bounds are those of
        Wilson's interval, or of one clustered by draw, whichever reach further."""
        plain = wilson(arm.changed, arm.n)
        if not self._drawn(arm):
            return self._over_draws(plain)
        by_draw = clustered_share(arm.moves, [f"draw {r.summary_draw}" for r in arm.moved])
        return self._over_draws(_wider(plain, by_draw))

    @cached_property
    def results(self) -> list[Result]:
        """The results of all claims that this study type declares."""
        return read_results(self.run, CrossPollinationConfig, claims)

    def _over_draws(self, e: Estimate) -> Estimate:
        """The estimate as one over the draws of the summaries, where they are what it rests on."""
        return replace(e, clusters=self.draws) if self.draws >= FEWEST_UNITS else e

    @property
    def basis(self) -> Basis:
        """What is independent of each other. With five draws of the summaries or more, the draw;
        with fewer, nothing is claimed of another draw, and participants are, given these texts."""
        if self.draws >= FEWEST_UNITS:
            return {"unit": "draw of the summaries", "units": self.draws}
        return self.given_these

    @property
    def given_these(self) -> Basis:
        """The independent units of what holds for these summaries alone: participants."""
        these = f"{self.draws} draws of the summaries" if self.draws > 1 else "summaries"
        given = f" given these {these}" * bool(self.having("summaries"))
        return {"unit": f"participant{given}", "units": sum(a.n for a in self.twice)}

    @property
    def compared_by_one_thing(self) -> bool:
        """Whether all that a condition goes through stood in the prompts of its final votes."""
        return self.config.get("exposure") != "source"

    @property
    def wording(self) -> str:
        """The source of the prompt wording."""
        return "the study file's own wording" if self.config.get("prompts") else "our wording"

    def _drawn(self, arm: Arm) -> bool:
        return self.draws > 1 and self.shown(arm).summaries

    def units(self, arm: Arm) -> list[str]:
        """What is independent in an arm, see `basis`: its draws of the summaries, or its
        participants."""
        return [self._units[r.participant_id] for r in arm.moved]

    @cached_property
    def _units(self) -> dict[str, str]:
        """Participant → independent unit."""
        people = self.run.lazy("participants")
        known = [c for c in ("participant_id", DRAW) if c in people.collect_schema()]
        rows = people.select(known).collect()
        return dict(zip(rows["participant_id"], units_of(rows).of, strict=True))

    def arm(self, condition: str) -> Arm | None:
        """The arm, if somebody in it voted twice."""
        return next((a for a in self.twice if a.condition == condition), None)

    @property
    def floor(self) -> Arm | None:
        """The arm that was asked again without being told anything."""
        return self.arm(SIMPLE_VOTING)

    @property
    def facing(self) -> list[Voter]:
        """Those who faced an opposing view in a dialogue and voted again."""
        arguing = self.having("dialogue")
        return [r for a in arguing for r in a.moved if r.opposition_view is not None]

    @property
    def rebuttals(self) -> Collection[str]:
        """What participants replied to whoever contradicted them."""
        return self.said(pl.col("stage") == "adversarial_dialogue", pl.col("text") != "")

    @property
    def people(self) -> list[Voter]:
        return [r for a in self.arms for r in a.rows]

    def counts(self, choices: Iterable[str | None]) -> list[int]:
        """Votes per option, in the order of the study file."""
        found = Counter(choices)
        return [found.get(o, 0) for o in self.options]

    @cached_property
    def answers(self) -> Collection[Mapping[str, object]]:
        """The rows of the `answers` table; empty without one."""
        return Streamed(self.run.lazy("answers")) if self.run.has_table("answers") else ()

    def said(self, *where: pl.Expr) -> Collection[str]:
        """What participants said, all of it or that of some rows."""
        if not self.run.has_table("utterances"):
            return ()
        own = pl.col("turn").is_not_null() & (pl.col("speaker_role") == "participant")
        spoken = self.run.lazy("utterances").filter(own, *where)
        return Texts(spoken.select("text"))

    @cached_property
    def clusters(self) -> list[dict[str, Any]]:
        return list(_rows(self.run, "clusters"))

    @property
    def undescribed(self) -> list[str]:
        """Clusters that the model did not describe, so that nobody was shown their view."""
        lacking = [c["cluster_id"] for c in self.clusters if not c["description"]]
        shown = {(s["draw"], s["cluster_id"]) for s in _rows(self.run, "summaries")}
        return lacking + [
            f"{c['cluster_id']} (draw {draw})"
            for draw in range(2, self.draws + 1)
            for c in self.clusters
            if (draw, c["cluster_id"]) not in shown
        ]

    def embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Participant → embedding of the individual summary; empty where there is none. Read anew
        each time: they take much memory."""
        path = self.run.path / "individual_embeddings.json"
        return read_vectors(path, "embeddings") if path.exists() else {}


def _wider(plain: Estimate, clustered: Estimate) -> Estimate:
    """The plain estimate with the bounds and the p of whichever of the two claims less."""
    if not clustered.has_interval:
        return replace(plain, each=clustered.each)
    low, high = min(plain.low, clustered.low), max(plain.high, clustered.high)
    p = max((p for p in (plain.p, clustered.p) if math.isfinite(p)), default=math.nan)
    method = f"{plain.method}, or clustered by draw where that reaches further"
    return replace(plain, low=low, high=high, p=p, method=method).within(-1.0, 1.0)


def read(run: RunFolder) -> Votes:
    """The votes of a run, conditions in the order of the design.

    A table without a column (everybody failed at the first vote, say) reads as if it were empty.
    """
    config = run.config
    # What nobody counts, and what takes most of the memory, is left out.
    rows = [_voter(r) for r in _rows(run, "participants", but=("persona", "base_persona"))]
    options = tuple(config.get("topic", {}).get("options", ())) or _seen(rows)
    order = dict.fromkeys((*LABELS, *switches(config)))
    known = [c for c in order if any(r.condition == c for r in rows)]
    others = sorted({r.condition for r in rows} - set(known))
    arms = []
    for condition in (*known, *others):
        own = tuple(r for r in rows if r.condition == condition)
        both = tuple(r for r in own if r.position_changed is not None and r.status == "complete")
        arms.append(Arm(condition, own, both))
    checkpoint = run.json("checkpoint.json") if run.has("checkpoint.json") else {}
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
    people = run.lazy("participants")
    blank = {
        column: pl.when(is_left_out).then(None).otherwise(pl.col(column))
        for column, is_left_out in left_out.items()
        if column in people.collect_schema().names()
    }
    return {"participants": people.with_columns(**blank)}


def _rows(run: RunFolder, table: str, but: tuple[str, ...] = ()) -> Collection[dict[str, object]]:
    return Streamed(run.lazy(table).drop(but, strict=False)) if run.has_table(table) else ()


DEMOGRAPHIC = "demographic_"
OWN = ("participant_id", "individual_summary")  # cells that no two rows have alike


def _voter(row: Mapping[str, object]) -> Voter:
    """The voter of a row. There may be very many: what many share is one object."""
    cells: dict[str, Any] = {n: row.get(n) if n in OWN else _shared(row.get(n)) for n in VOTER}
    # Tables keep lists as JSON text.
    for name in ("ranking_before", "ranking_after", "options_shown"):
        cell = cells[name]
        cells[name] = _list(cell) if isinstance(cell, str) else tuple(cell or ())
    reasons = cells["missing_answers"]
    cells["missing_answers"] = json.loads(reasons) if isinstance(reasons, str) else {}
    cells["demographics"] = {
        sys.intern(n.removeprefix(DEMOGRAPHIC)): _shared(cell)
        for n, cell in row.items()
        if n.startswith(DEMOGRAPHIC)
    }
    return Voter(**cells)


def _shared(cell: T) -> T:
    return cast("T", sys.intern(cell)) if isinstance(cell, str) else cell


@lru_cache(maxsize=1024)
def _list(cell: str) -> tuple[str, ...]:
    return tuple(json.loads(cell))


def _seen(rows: Iterable[Voter]) -> tuple[str, ...]:
    votes = {vote for r in rows for vote in (r.initial_choice, r.final_choice)}
    return tuple(sorted(vote for vote in votes if vote is not None))
