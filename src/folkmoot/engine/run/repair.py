"""Repair a damaged journal by setting damaged entries aside. A resume then asks for them again.

`folkmoot verify --repair` uses this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from folkmoot.engine.journal.journal_copy import copy_journal, replace_journal
from folkmoot.engine.journal.journal_file import mark_repaired
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import digests_of
from folkmoot.storage.amendments import Amendment, append_amendments
from folkmoot.storage.json_files import read_json_object, write_json
from folkmoot.storage.manifest import seal_manifest
from folkmoot.storage.run_folder import JOURNAL, MANIFEST, RunFolder, utc_timestamp

KIND = "repair"
# The name of the old journal, which the run folder keeps. It is numbered, because a run may be
# repaired more than once.
KEPT_AS = "journal-damaged-{}.sqlite"


@dataclass(frozen=True)
class RepairPlan:
    """The entries that a repair sets aside and the calls that a resume may then make.

    Costs are in USD, or None if the cost of a reply is unknown. `max_later_calls` is the number of
    intact calls after the first damaged entry. A resume repeats those that differ because of the
    new answers.
    """

    problems: tuple[str, ...]
    damaged_entries: int
    damaged_usd: float | None
    max_later_calls: int
    max_later_usd: float | None


def plan_repair(run: RunFolder) -> RepairPlan:
    """Count what a repair would set aside and estimate what a resume may cost. Change nothing."""
    with JournalReader(run.path / JOURNAL) as journal:
        problems = tuple(map(str, journal.find_damage()))
        kept = [(number, entry) for number, entry, _ in journal.intact_entries("entries")]
        count, last = journal.count_entries(), 0
    calls = [
        (number, journal_entry.cost_usd)
        for number, journal_entry in kept
        if journal_entry.kind != "compute"
    ]
    costs = [usd for _, usd in calls if usd is not None]
    # The cost of a damaged entry cannot be read, so it is taken to be the mean of the intact ones.
    mean = sum(costs) / len(costs) if costs and len(costs) == len(calls) else None
    # Row numbers have no gaps. The first gap among the intact rows is the first damaged entry.
    for place, (number, _) in enumerate(kept, 1):
        if number != place:
            break
        last = number
    later = [usd for number, usd in calls if number > last]
    known = [usd for usd in later if usd is not None]
    return RepairPlan(
        problems,
        count - len(kept),
        None if mean is None else mean * (count - len(kept)),
        len(later),
        sum(known) if len(known) == len(later) else None,
    )


def repair_journal(run: RunFolder, plan: RepairPlan, by: str) -> Path:
    """Set the damaged entries aside and return the path of the old journal, which is kept.

    The caller must hold the lock of the run folder. The run counts as paused until a resume has
    asked for the missing answers.
    """
    path = run.path / JOURNAL
    kept = next(p for n in range(1, 1000) if not (p := run.path / KEPT_AS.format(n)).exists())
    with JournalReader(path) as journal:
        new = copy_journal(journal, lambda entry: entry, skip_damaged=True)
    # The mark lets the resume accept answers that differ, and goes when the run has ended.
    mark_repaired(new)
    # The old journal is copied before it is replaced, so that no crash can lose it.
    kept.write_bytes(path.read_bytes())
    replace_journal(path, new)
    if run.has_file(MANIFEST):
        with JournalReader(path) as journal:
            content, record = digests_of(run, journal)
        changed = {"outcome": "paused", "journal_digest": content, "record_digest": record}
        manifest = {**read_json_object(run.path / MANIFEST), **changed}
        write_json(run.path / MANIFEST, seal_manifest(manifest))
        data = {
            "entries": plan.damaged_entries,
            "problems": list(plan.problems),
            "kept_in": kept.name,
        }
        append_amendments(run.path, [Amendment(KIND, by, utc_timestamp(), data)])
    return kept
