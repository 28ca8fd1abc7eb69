"""Compare the plan with the run, for the list of deviations in the report.

The sealed plan (`plan.json`) is the design that was fixed before the run called a model.
"""
# `Study.expected_rows` states the planned rows. Settings, seed, files and models are compared for
# all study types.

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise, zip_longest
from typing import Any

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import list_changes
from folkmoot.engine.session.folder_access import describe_other_version
from folkmoot.engine.session.plan import CLAIMS, DESIGN, sealed_data
from folkmoot.engine.settings.hypotheses import hypotheses_of
from folkmoot.engine.settings.run_claims import sealed_claims
from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.engine.study.study import Study, restate_claims
from folkmoot.errors import StorageError
from folkmoot.hints import join_first, shorten
from folkmoot.measures.inference.claims import Claim, is_same_comparison
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.findings import ResultTable, TableCell
from folkmoot.storage.json_files import format_json
from folkmoot.storage.run_folder import JOURNAL, RowStream, RunFolder, first_versions


def list_deviations(run: RunFolder, study: Study) -> list[str]:
    """Return the differences between the run and the sealed plan, in plain words."""
    found = [
        f"The sealed part “{change['name']}” was changed with --accept-changes."
        for change in run.plan.get("changes", [])
    ]
    if _has_other_hypotheses(run):
        found.append(
            "Hypotheses were changed after the first call. The report tests them as registered."
        )
    found += _superseded_requests(run)
    sealed = sealed_data(run.plan)
    if not sealed:
        found.append("There is no sealed plan (plan.json), so deviations cannot be checked.")
    found += _settings_deviations(run, sealed.get(DESIGN, {}))
    if other := list(_other_claims(run, study)):
        claims = format_count(len(other), "claim")
        differ = "differs" if len(other) == 1 else "differ"
        found.append(
            f"{claims} of this report {differ} from the sealed plan. The table shows both versions."
        )
    for planned in study.expected_rows(sealed):
        found += _against_table(run, planned)
    found += list_changes(run)
    found += _served_versions(run.manifest)
    if run.partial:
        found.append(f"{run.partial}.")
    if run.unusable_reason:
        found.append(f"This run has no usable result: {run.unusable_reason}.")
    return found


def _has_other_hypotheses(run: RunFolder) -> bool:
    # True if the registered hypotheses, which the report tests, differ from later ones.
    registered = _without_none(hypotheses_of(first_versions(run.plan).get(DESIGN, {})))
    sealed = _without_none(hypotheses_of(run.plan.get("sealed", {}).get(DESIGN, {})))
    configured = _without_none(run.config.get("hypotheses") or [])
    return bool(registered) and not registered == sealed == configured


def _other_claims(run: RunFolder, study: Study) -> Iterator[tuple[int, object, object]]:
    # (position from 1, sealed claim, present claim). A different wording does not count if another
    # version of Folkmoot made the run. A report uses the claims of a plan that was not edited, so
    # then there are none.
    part = run.plan.get("sealed", {}).get(CLAIMS)
    if part is None or sealed_claims(run) is not None:
        return
    stated = json.loads(format_json([asdict(claim) for claim in restate_claims(study, run)]))
    # A plan of an earlier version has fewer fields. What it does not state has its default.
    defaults = json.loads(format_json(asdict(Claim("", ("", "")))))
    is_other_version = bool(describe_other_version(run.path))
    for place, (was, now) in enumerate(zip_longest(part["data"], stated), 1):
        if is_other_version and was and now and is_same_comparison(was, now):
            continue
        sealed = was and defaults | was
        if sealed != now:
            yield place, sealed, now


def both_versions(run: RunFolder, study: Study) -> ResultTable:
    """Return a table of the differences between the plan and the run."""
    # Three kinds of rows: parts changed with `--accept-changes`, settings in the run's
    # `study.yaml`, and claims that this version of the study type states differently.
    sealed = sealed_data(run.plan)
    rows: list[dict[str, TableCell]] = []

    def describe_difference(part: str, registered: object, later: object) -> None:
        for where, was, now in _differing_leaves(registered, later):
            separator = "." if where and not where.startswith("[") else ""
            place = f"{part}{separator}{where}"
            rows.append(
                {"what": place, "registered": _format_value(was), "later": _format_value(now)}
            )

    versions: dict[str, list[object]] = {}
    for change in run.plan.get("changes", []):
        versions.setdefault(change["name"], []).append(change["was"].get("data"))
    for name, earlier in versions.items():
        for was, now in pairwise([*earlier, sealed.get(name)]):
            describe_difference(name, was, now)
    settings = sealed.get(DESIGN, {}).get("settings", {})
    for key, value in settings.items():
        if key in run.config:
            describe_difference(
                f"study.yaml.{key}", _without_none(value), _without_none(run.config[key])
            )
    for place, was, now in _other_claims(run, study):
        describe_difference(f"claims[{place}]", was, now)
    return ResultTable.from_records(rows, "Both versions in full.")


def _differing_leaves(
    was: object, now: object, where: str = ""
) -> Iterator[tuple[str, object, object]]:
    # (path, first value, second value). A path looks like `hypotheses[1].direction` and counts from
    # 1, as `--set` does. Lists of different lengths count as one difference.
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*was, *now]):
            inner = f"{where}.{key}" if where else str(key)
            yield from _differing_leaves(was.get(key), now.get(key), inner)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, (first, second) in enumerate(zip(was, now, strict=True), 1):
            yield from _differing_leaves(first, second, f"{where}[{place}]")
    elif was != now:
        yield where, was, now


def _format_value(value: object) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def changes_since_run(run: RunFolder, study: Study) -> list[str]:
    """Return a sentence for each packaged prompt that changed after the run."""
    sealed = run.plan.get("sealed", {}).get("design", {}).get("data", {}).get("prompts", {})
    # This compares prompts that ship with the package, so a run with its own prompts is skipped.
    if study.prompts is None or run.config.get("prompts") or not sealed:
        return []
    now = {
        path.stem: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in study.prompts.glob("*.md")
    }
    changed = sorted(name for name in {*sealed, *now} if sealed.get(name) != now.get(name))
    if not changed:
        return []
    return [
        f"Prompts of Folkmoot that have changed since this run: {join_first(changed)}. A new run "
        "would use the new prompts."
    ]


def _superseded_requests(run: RunFolder) -> list[str]:
    path = run.path / JOURNAL
    try:
        with JournalReader(path) as journal:
            replaced = journal.superseded_count(set_aside=False)
    # `list_changes` reports an unreadable journal.
    except StorageError:
        return []
    if not replaced:
        return []
    return [
        f"{replaced} requests changed and were sent again (--accept-changes); the journal keeps "
        "the old replies."
    ]


def _settings_deviations(run: RunFolder, design: Mapping[str, Any]) -> list[str]:
    planned = design.get("settings", {})
    given = {key: _without_none(run.config[key]) for key in planned if key in run.config}
    sealed = {key: _without_none(planned[key]) for key in given}
    found = [
        f"study.yaml has {where.replace('_', ' ')}: {_shorten(now)}; the sealed plan has "
        f"{_shorten(was)}."
        for where, was, now in _differing_leaves(sealed, given)
    ]
    seed, was = run.manifest.get("seed"), planned.get("random_seed")
    if None not in (seed, was) and seed != was:
        found.append(f"The run used seed {seed}; the sealed plan has {was}.")
    return found


def _against_table(run: RunFolder, planned: ExpectedRows) -> list[str]:
    if not run.has_table(planned.table):
        return [
            f"The table {planned.table} is missing; {len(planned.rows)} rows were planned for it."
        ]
    table = run.scan_table(planned.table)
    columns = table.collect_schema().names()
    known = [column for column in planned.key if column in columns]
    # Only planned columns are read. A table may hold long texts of many thousand participants.
    wanted = {*planned.key, planned.done[0], planned.stopped[0]}
    wanted.update(column for row in planned.rows for column in row)
    recorded_rows = {
        _row_key(row, known): row
        for row in RowStream(table.select(column for column in columns if column in wanted))
    }
    planned_rows = {_row_key(row, known): row for row in planned.rows}
    unit = planned.noun
    absent = [key for key in planned_rows if key not in recorded_rows]
    found = []
    if absent:
        found.append(
            f"No record of {format_count(len(absent), f'planned {unit}')}: {join_first(absent)}."
        )
    unplanned = [key for key in recorded_rows if key not in planned_rows]
    if unplanned:
        found.append(
            f"Not in the plan: {format_count(len(unplanned), unit)} ({join_first(unplanned)})."
        )
    found += _changed_values(planned_rows, recorded_rows, unit)
    column, done = planned.done
    if column in columns:
        unfinished = [
            key
            for key, row in recorded_rows.items()
            if key in planned_rows and str(row[column]) != done
        ]
        # The plan states the stopping rule, so rows that it ended follow the plan.
        reason, beginning = planned.stopped
        stopped = {
            key
            for key in unfinished
            if beginning and str(recorded_rows[key].get(reason)).startswith(beginning)
        }
        unfinished = [key for key in unfinished if key not in stopped]
        if unfinished:
            ended = len(planned_rows) - len(absent) - len(unfinished) - len(stopped)
            found.append(
                f"{len(planned_rows)} were planned and {ended} finished; "
                f"{f'the stopping rule ended {len(stopped)}; ' if stopped else ''}"
                f"{format_count(len(unfinished), unit)} "
                f"did not: {join_first(unfinished)}."
            )
    return found


def _changed_values(
    planned_rows: Mapping[str, Mapping[str, object]],
    recorded_rows: Mapping[str, Mapping[str, object]],
    unit: str,
) -> list[str]:
    # `unit` is the noun for a row, such as "participant".
    found: dict[str, list[str]] = {}
    for key, row in planned_rows.items():
        for column, value in row.items():
            real = recorded_rows.get(key, {}).get(column, value)
            if str(real) != str(value):
                found.setdefault(column, []).append(f"{key} ({value} planned, {real} recorded)")
    return [
        f"{format_count(len(names), unit)} with a different {column.replace('_', ' ')} than "
        "planned: "
        f"{join_first(names)}."
        for column, names in found.items()
    ]


def _served_versions(manifest: Mapping[str, Any]) -> list[str]:
    several = sorted(
        f"{model['asked']} was answered by {', '.join(model['served'])}"
        for model in manifest.get("models", [])
        if len(model.get("served", [])) > 1
    )
    return [f"More than one model version answered: {text}." for text in several]


def _row_key(row: Mapping[str, object], columns: Sequence[str]) -> str:
    return " ".join(str(row[column]) for column in columns)


def _shorten(value: object) -> str:
    return shorten(str(value), 60)


def _without_none(value: object) -> object:
    # The plan writes null for keys without a value, and `study.yaml` leaves such keys out.
    if isinstance(value, Mapping):
        return {key: _without_none(value) for key, value in value.items() if value is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(value) for value in value]
    return value
