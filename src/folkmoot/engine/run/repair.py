"""Repair a damaged journal by removing damaged entries."""

# A resume makes the removed calls again. Their cost stays in the journal, because it was paid.
# `folkmoot verify --repair` uses this module.

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from folkmoot.engine.journal.journal_copy import copy_journal, replace_journal
from folkmoot.engine.journal.journal_file import mark_repaired
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.limits.budget import Amount
from folkmoot.engine.run.verify import digests_of
from folkmoot.storage.amendments import Amendment, append_amendments
from folkmoot.storage.json_files import read_json_object, write_json
from folkmoot.storage.manifest import SEAL, seal_manifest
from folkmoot.storage.run_folder import JOURNAL, MANIFEST, RunFolder, utc_timestamp

AMENDMENT_KIND = "repair"
# The name of the old journal, which the run folder keeps. It is numbered, because a run may be
# repaired more than once.
DAMAGED_COPY_NAME = "journal-damaged-{}.sqlite"
# The cost of a manifest has six decimals.
MAX_ROUNDING_USD = 1e-6


@dataclass(frozen=True)
class RepairPlan:
    """The entries that a repair removes and the calls that a resume may make.

    Costs are in USD, or None if the cost of a reply is unknown.
    """

    problems: tuple[str, ...]
    damaged_entries: int
    damaged_usd: float | None
    # The number of intact calls after the first damaged entry. A resume repeats such a call only if
    # new answers have changed its request.
    max_later_calls: int
    max_later_usd: float | None


def plan_repair(run: RunFolder) -> RepairPlan:
    """Count the entries that a repair would remove, and estimate the cost."""
    # The function changes nothing. The cost is that of the resume.
    with JournalReader(run.path / JOURNAL) as journal:
        problems = tuple(map(str, journal.find_damage()))
        intact_entries = [(number, entry) for number, entry, _ in journal.intact_entries("entries")]
        count, last_contiguous = journal.count_entries(), 0
    calls = [
        (number, entry.cost_usd) for number, entry in intact_entries if entry.kind != "compute"
    ]
    costs = [cost for _, cost in calls if cost is not None]
    # The cost of a damaged entry cannot be read, so it is taken to be the mean of the intact ones.
    mean_cost = math.fsum(costs) / len(costs) if costs and len(costs) == len(calls) else None
    # Row numbers have no gaps. The first gap among the intact rows is the first damaged entry.
    for expected_number, (number, _) in enumerate(intact_entries, 1):
        if number != expected_number:
            break
        last_contiguous = number
    later_costs = [usd for number, usd in calls if number > last_contiguous]
    known_costs = [usd for usd in later_costs if usd is not None]
    return RepairPlan(
        problems,
        count - len(intact_entries),
        None if mean_cost is None else mean_cost * (count - len(intact_entries)),
        len(later_costs),
        math.fsum(known_costs) if len(known_costs) == len(later_costs) else None,
    )


def _recorded_use(run: RunFolder) -> Amount | None:
    # Returns the calls of the run and their cost by its manifest, or None if the manifest does not
    # tell all costs, or changed. The cost is rounded there, so what that may take off is added.
    manifest = read_json_object(run.path / MANIFEST) if run.has_file(MANIFEST) else {}
    models = manifest.get("models") or []
    if manifest.get(SEAL) != seal_manifest(manifest)[SEAL] or any(
        model.get("cost_usd") is None for model in models
    ):
        return None
    return Amount(int(manifest["calls"]), float(manifest["cost_usd"] or 0.0) + MAX_ROUNDING_USD)


def repair_journal(run: RunFolder, plan: RepairPlan, requested_by: str) -> Path:
    """Remove the damaged entries from a journal, and return the path of a copy of the old file."""
    # The caller must hold the lock of the run folder. The run counts as paused until a resume has
    # asked for the missing answers.
    path = run.path / JOURNAL
    damaged_copy = next(
        candidate
        for number in range(1, 1000)
        if not (candidate := run.path / DAMAGED_COPY_NAME.format(number)).exists()
    )
    with JournalReader(path) as journal:
        new = copy_journal(
            journal, lambda entry: entry, skip_damaged=True, undamaged_use=_recorded_use(run)
        )
    # The mark lets the resume accept answers that differ. It is removed when the run has ended.
    mark_repaired(new)
    # The old journal is copied before it is replaced, so that no crash can lose it.
    damaged_copy.write_bytes(path.read_bytes())
    replace_journal(path, new)
    if run.has_file(MANIFEST):
        with JournalReader(path) as journal:
            content_digest, record_digest = digests_of(run, journal)
        changed_keys = {
            "outcome": "paused",
            "journal_digest": content_digest,
            "record_digest": record_digest,
        }
        manifest = {**read_json_object(run.path / MANIFEST), **changed_keys}
        write_json(run.path / MANIFEST, seal_manifest(manifest))
        data = {
            "entries": plan.damaged_entries,
            "problems": list(plan.problems),
            "kept_in": damaged_copy.name,
        }
        append_amendments(
            run.path, [Amendment(AMENDMENT_KIND, requested_by, utc_timestamp(), data)]
        )
    return damaged_copy
