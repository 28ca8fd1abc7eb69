"""Verify that nothing in a run folder has changed since the run ended."""

# Reports and `load` use `list_changes`, which compares hashes only. `folkmoot verify` uses
# `verify_run`, which replays the journal in a temporary folder, without any call of a model. It
# then compares every rebuilt table and file with the run folder.

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.integrity import BINDING_FORMAT, digest_of_run
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.journal.journal_reader import JournalReader, ReplayJournal
from folkmoot.engine.run.event_loop import run_until_complete
from folkmoot.engine.run.execution import (
    TIME_PLACEHOLDER,
    Execution,
    RunOptions,
    execute_study,
    seal_claims,
)
from folkmoot.engine.run.preflight import preflight_requests_in
from folkmoot.engine.seats.questionnaire import WORDINGS
from folkmoot.engine.seats.withdrawal import (
    UNSEARCHED,
    describe_pending_withdrawals,
    read_withdrawals,
    select_since_withdrawal,
)
from folkmoot.engine.session.folder_access import describe_other_version
from folkmoot.engine.session.plan import (
    ANNOUNCED,
    CLAIMS,
    DESIGN,
    LOBBY,
    RECORDED,
    Plan,
    describe_differences,
    sealed_data,
    without_new_defaults,
)
from folkmoot.engine.study.study import Study, find_study_of_run
from folkmoot.engine.study.study_file import StudyFile, validate_settings
from folkmoot.errors import DriftError, FolkmootError, NotJournaledError, Problem, StorageError
from folkmoot.files import storage_errors
from folkmoot.hints import join_first, shorten
from folkmoot.measures.inference.claims import is_same_comparison
from folkmoot.measures.inference.estimates import format_count
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.randomness import digest
from folkmoot.storage import amendments
from folkmoot.storage.json_files import read_json_object, write_json
from folkmoot.storage.manifest import SEAL, file_sha256, seal_manifest
from folkmoot.storage.run_folder import (
    CODEBOOK,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PERSONAS,
    PLAN,
    TABLES,
    RunFolder,
    first_versions,
)
from folkmoot.storage.tables import PARQUET_ONLY

# Keys of the manifest that differ in every replay: times, machine, hashes of files that hold times.
NON_REPRODUCIBLE_KEYS = frozenset(
    {
        *(
            "finished_at",
            "wall_seconds",
            "processes",
            "retries",
            "lost_tries",
            "software",
            "hashes",
        ),
        *("journal_digest", "record_digest", "seal", "study_file"),
    }
)


DIGESTS = ("content digest", "record digest")


@dataclass
class Verification:
    """The result of `folkmoot verify` for one run."""

    # Sentences on what differs from the state at the end of the run or from a replay of its
    # journal.
    differences: list[str] = field(default_factory=list)
    # Sentences on what could not be compared, with the reason.
    not_compared: list[str] = field(default_factory=list)
    # Changes after the end of the run that were recorded beside it.
    amendments: list[str] = field(default_factory=list)
    # Limits of what the digests prove.
    notes: list[str] = field(default_factory=list)
    # The numbers of entries, tables and files that were compared.
    entries: int = 0
    tables: int = 0
    files: int = 0
    content_digest: str = ""
    record_digest: str = ""
    # Whether one of the two digests equals the published digest. None if no published digest was
    # given.
    digest_matches: bool | None = None

    @property
    def is_consistent(self) -> bool:
        """True if everything was compared and no difference was found."""
        return not self.differences and not self.not_compared

    @property
    def is_verified(self) -> bool:
        """True if the run is consistent and has the published digest."""
        # Without a published digest, a consistent change of the whole folder cannot be detected.
        return self.is_consistent and self.digest_matches is True


def list_changes(run: RunFolder) -> list[str]:
    """Return one sentence for each file of a run that has changed."""
    # Files are compared with the hashes in the manifest, and the journal with its own hashes.
    path, format_version = run.path / JOURNAL, 0
    try:
        with JournalReader(path) as journal:
            format_version = journal.format_version
            damage = journal.find_damage()
            current_digests = ("", "") if damage else digests_of(run, journal)
    except StorageError as error:
        reason = str(error) if path.exists() else f"{JOURNAL} is missing"
        return [
            *_changed_files(run, format_version),
            f"{reason}: requests and replies cannot be checked.",
        ]
    changes = [f"{JOURNAL} was changed after the run: {problem}." for problem in damage]
    recorded = {**run.manifest, **_last_withdrawal(run)}
    recorded_digests = recorded.get("journal_digest"), recorded.get("record_digest")
    # A later process was killed before it could write the manifest. The manifest then describes an
    # earlier state, and nothing can be compared with it.
    if not damage and current_digests[0] != recorded_digests[0] and not run.is_finished:
        return []
    if not damage:
        changes += [
            f"{JOURNAL} or {PLAN} was changed after the run: its {name} is {new}, was {old}."
            for name, new, old in zip(DIGESTS, current_digests, recorded_digests, strict=True)
            if old and old != new
        ]
    return [
        *_changed_files(run, format_version),
        *amendments.list_changes(run.path),
        *_missing_subfolders(run),
        *changes,
    ]


def digests_of(run: RunFolder, journal: JournalReader) -> tuple[str, str]:
    """Return a hash over the requests and replies of a run, and a hash over plan and journal."""
    # The journal must be undamaged.
    return journal.content_digest(), digest_of_run(journal.record_digest(), run.plan)


def verify_run(run: RunFolder, study: Study | None = None, *, published: str = "") -> Verification:
    """Replay a run and compare the result with the run folder.

    - `study`: needed if the study type is neither installed nor beside the run.
    - `published`: a digest of the run that was published elsewhere.
    """
    # This needs no key and no network, and writes nothing into the run folder.
    verification = Verification(list_changes(run))
    # `list_changes` has already reported each StorageError that is suppressed in this function.
    with suppress(StorageError):
        verification.amendments = amendments.describe_amendments(run.path)
        if pending := describe_pending_withdrawals(run):
            verification.notes.append(pending)
    try:
        with JournalReader(run.path / JOURNAL) as journal:
            # `list_changes` has reported the damage itself.
            if journal.find_damage():
                verification.not_compared.append(
                    "The journal is damaged, so the run is not rebuilt from it. `folkmoot verify "
                    "--repair` sets the damaged answers aside, to be asked again."
                )
                return verification
            verification.entries = len(journal)
            verification.content_digest, verification.record_digest = digests_of(run, journal)
            verification.differences += _forged_entries(journal)
            _compare_with_published(verification, journal.format_version, published.strip().lower())
    except StorageError:
        verification.not_compared.append("Without its journal the run cannot be rebuilt.")
        return verification
    if not run.is_finished:
        verification.not_compared.append(
            "The run is not finished, so it cannot be rebuilt; finish it with --resume."
        )
        return verification
    with suppress(StorageError):
        verification.not_compared += _list_withdrawn(run)
    # A replay would ask again for the answers that a withdrawal has removed.
    if verification.not_compared:
        return verification
    with TemporaryDirectory(prefix="folkmoot-verify-") as folder:
        scratch = Path(folder)
        try:
            unasked = _replay_run(run, study, scratch)
        except NotJournaledError as error:
            verification.differences.append(f"{JOURNAL}: {error}. The run cannot be rebuilt.")
        except NotRebuiltError as error:
            verification.not_compared.append(str(error))
        else:
            verification.differences += unasked
            _compare_files(run, RunFolder(scratch), verification)
    return verification


class NotRebuiltError(Exception):
    """A run cannot be rebuilt on this machine, although it may be unchanged."""


def _changed_files(run: RunFolder, journal_format: int) -> list[str]:
    changes = []
    manifest = read_json_object(run.path / MANIFEST) if run.has_file(MANIFEST) else {}
    # Manifests of earlier formats have no seal. From `BINDING_FORMAT` on a missing seal is itself a
    # sign of a change, so the format of the journal decides and not the manifest alone.
    is_sealed = SEAL in manifest or (manifest and journal_format >= BINDING_FORMAT)
    if is_sealed and manifest.get(SEAL) != seal_manifest(manifest)[SEAL]:
        changes.append(f"{MANIFEST} was changed after the run: its seal does not match.")
    recorded_hashes = run.manifest.get("hashes"), _last_withdrawal(run).get("hashes")
    hashes = {
        key: value
        for part in recorded_hashes
        if isinstance(part, Mapping)
        for key, value in part.items()
    }
    for name, recorded_hash in hashes.items():
        path = run.path / name
        if not path.is_file():
            changes.append(f"{name} is missing.")
        elif file_sha256(path) != recorded_hash:
            changes.append(f"{name} was changed after the run: its hash is not the recorded one.")
    return changes


def _missing_subfolders(run: RunFolder) -> list[str]:
    # Controls and later codings are in folders that amendments name.
    try:
        recorded = select_since_withdrawal(amendments.read_amendments(run.path))
    # `amendments.list_changes` reports damaged amendments.
    except StorageError:
        return []
    folders = [str(row.data["folder"]) for row in recorded if "folder" in row.data]
    return [
        f"The folder {folder} is missing, so its answers do not count."
        for folder in folders
        if run.open_subfolder(folder) is None
    ]


def _last_withdrawal(run: RunFolder) -> Mapping[str, Any]:
    # Returns an empty mapping if no human withdrew.
    try:
        return read_withdrawals(run.path)[-1].data
    # `amendments.list_changes` reports damaged amendments.
    except (StorageError, IndexError):
        return {}


def _list_withdrawn(run: RunFolder) -> list[str]:
    return [
        f"{amendment.data['seat']} withdrew: "
        f"{format_count(amendment.data['answers'], 'answer')} of this participant "
        f"({join_first(amendment.data['addresses'])}) and everything that depends on them "
        "cannot be recomputed."
        + (f" Not searched for their words: {join_first(unsearched)}." if unsearched else "")
        for amendment in read_withdrawals(run.path)
        # Runs of earlier versions lack the key.
        for unsearched in [amendment.data.get(UNSEARCHED, [])]
    ]


def _compare_with_published(
    verification: Verification, format_version: int, published: str
) -> None:
    # The digest of an early format proves nothing.
    if format_version < BINDING_FORMAT:
        messages = verification.not_compared if published else verification.notes
        messages.append(
            f"The digest proves nothing: in journal format {format_version} it is a sum of "
            "hashes, which can be forged."
        )
    elif published:
        verification.digest_matches = published in (
            verification.content_digest,
            verification.record_digest,
        )
        if not verification.digest_matches:
            verification.differences.append(
                f"The run is not the published one: neither of its digests is {published}."
            )


def _forged_entries(journal: JournalReader) -> list[str]:
    forged_addresses = [
        entry.address for entry in journal.read_entries() if not _fingerprint_matches(entry)
    ]
    if not forged_addresses or journal.format_version == 1:
        return []
    return [
        (
            f"{JOURNAL}: the stored request differs from the one that was sent at "
            f"{join_first(forged_addresses)}."
        )
    ]


def _fingerprint_matches(entry: JournalEntry) -> bool:
    request = entry.request
    # The journal does not store the arguments of a computation.
    if entry.kind == "compute":
        return True
    if entry.kind == "embed":
        return digest(request["model"], *request["texts"]) == entry.fingerprint
    try:
        return ModelRequest.from_json(request).fingerprint() == entry.fingerprint
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _replay_run(run: RunFolder, study: Study | None, scratch: Path) -> list[str]:
    # Returns descriptions of entries that the replay did not ask for. Raises NotJournaledError if
    # the journal lacks an entry that the replay asks for. Raises NotRebuiltError if the study
    # cannot be run here.
    try:
        change = ReplyChange.from_plan(run.plan)
        study_file, providers = study_as_it_was_run(run, study, change, with_other_prompts=True)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotRebuiltError(f"{MANIFEST} or {PLAN} is damaged: {error!r}") from error
    # The replay seals everything itself, so that its plan can be compared with that of the run. The
    # start time, the changes and the people who came to a lobby cannot be recomputed.
    observed = {LOBBY: part} if (part := run.plan.get("sealed", {}).get(LOBBY)) else {}
    plan = {"sealed": observed, "changes": run.plan.get("changes", [])}
    plan[RECORDED] = sealed_data(run.plan)
    if announced := run.plan.get(ANNOUNCED):
        plan[ANNOUNCED] = announced
    write_json(scratch / PLAN, {"started_at": run.plan.get("started_at", ""), **plan})
    _seal_first_claims(run, study_file.study, scratch / PLAN)
    if run.has_file(PERSONAS):
        with storage_errors(scratch):
            copyfile(run.path / PERSONAS, scratch / PERSONAS)
    replay = ReplayJournal(run.path / JOURNAL)
    options = RunOptions(preflight_requests=preflight_requests_in(replay), change=change)
    try:
        run_until_complete(
            lambda stopper: execute_study(
                Execution(
                    study_file,
                    options,
                    providers,
                    scratch,
                    stopper,
                    replay=replay,
                    records_wordings=_knows_table(run, WORDINGS)
                    or not _describe_code_difference(run),
                )
            )
        )
    except (NotJournaledError, DriftError) as error:
        prompts = study_file.prompt_library().hashes()
        # Changed prompts matter only if a request of the run used them, as here.
        if changed_prompts := _changed_prompts(_sealed_prompts(run.plan), prompts):
            raise _other_prompts_error(run, changed_prompts) from error
        # Otherwise NotJournaledError is a finding about the journal, so the caller handles it.
        if isinstance(error, NotJournaledError):
            raise
        raise _not_rebuilt_error(run, error) from error
    # Code of the study may raise any exception for input that it did not expect.
    except Exception as error:
        raise _not_rebuilt_error(run, error) from error
    with JournalReader(run.path / JOURNAL) as journal:
        unasked = [address for address in journal.list_addresses() if address not in replay.asked]
    # A resume with `--accept-changes` may leave entries that the changed study no longer asks for.
    if not unasked or plan["changes"]:
        return []
    return [f"{JOURNAL} contains entries that the run does not ask for: {join_first(unasked)}."]


def _seal_first_claims(run: RunFolder, study: Study, path: Path) -> None:
    # A resume with `--accept-changes` keeps the claims of the design with which the run started.
    first = first_versions(run.plan).get(DESIGN, {})
    if first == run.plan["sealed"][DESIGN] or "data" not in first:
        return
    try:
        config = validate_settings(study, {**run.config, **first["data"]["settings"]})
    except (FolkmootError, KeyError, TypeError) as error:
        raise _not_rebuilt_error(run, error) from error
    plan = Plan(path, started_at="")
    seal_claims(plan, study, config)
    plan.write_plan()


def _not_rebuilt_error(run: RunFolder, error: Exception) -> NotRebuiltError:
    reason = str(error) or type(error).__name__
    return NotRebuiltError(f"The run cannot be rebuilt{_describe_code_difference(run)}: {reason}")


def study_as_it_was_run(
    run: RunFolder,
    study: Study | None,
    change: ReplyChange | None = None,
    *,
    with_other_prompts: bool = False,
) -> tuple[StudyFile, ModelRouter]:
    """Return the study file and the model router with which a run was made.

    - `with_other_prompts`: accept prompts that changed since the run.

    Raises NotRebuiltError if the study file or the router cannot be restored.
    Raises NotRebuiltError also for changed prompts.
    """
    # Both are rebuilt from the plan and the manifest of the run.
    sealed = run.plan.get("sealed", {}).get("design", {}).get("data")
    if not sealed:
        raise NotRebuiltError(f"{PLAN} contains no design, so the run cannot be rebuilt.")
    manifest = run.manifest
    if "override" not in manifest:
        raise NotRebuiltError(
            f"{MANIFEST} was written by an earlier version{_describe_code_difference(run)}."
        )
    source = run.path / manifest["study_file"]
    try:
        study_type = study or find_study_of_run(run)
        config = validate_settings(study_type, {**run.config, **sealed["settings"]})
        study_file = StudyFile(source, study_type, config, {}, manifest["override"])
        prompts = study_file.prompt_library().hashes()
        # A replay calls no provider. But whether the run had a custom one decides its embedding
        # model and its provenance labels, so an empty one takes its place.
        no_provider = (
            ScriptedProvider(lambda _request, _address: "") if manifest["scripted"] else None
        )
        extra_models = study_type.extra_models(config)
        providers = ModelRouter(
            config, manifest["override"], None, no_provider, extra_models
        ).change_for(change)
        # The default depends on the servers that the environment names, so the sealed one counts.
        if "embedding_model" in sealed:
            providers.embedding_choice = sealed["embedding_model"] or Problem(
                "the run was made without an embedding model", key="embedding_model"
            )
    except FolkmootError as error:
        raise NotRebuiltError(
            f"The run cannot be rebuilt{_describe_code_difference(run)}: {error}"
        ) from error
    changed_prompts = _changed_prompts(_sealed_prompts(run.plan), prompts)
    if changed_prompts and not with_other_prompts:
        raise _other_prompts_error(run, changed_prompts)
    return study_file, providers


def _changed_prompts(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    return sorted(name for name in recorded if recorded[name] != present.get(name))


def _other_prompts_error(run: RunFolder, changed_prompts: Sequence[str]) -> NotRebuiltError:
    return NotRebuiltError(
        f"The prompts {join_first(changed_prompts)} differ from those of the run, so the "
        f"run cannot be rebuilt here{_describe_code_difference(run)}."
    )


def _describe_code_difference(run: RunFolder) -> str:
    # Returns an empty string if the versions are the same.
    other = describe_other_version(run.path)
    return f" ({other})" if other else ""


def _compare_files(run: RunFolder, rebuilt: RunFolder, verification: Verification) -> None:
    code_difference = _describe_code_difference(run)
    table_differences: list[str] = []
    new_tables: list[str] = []
    for name in dict.fromkeys([*run.table_names(), *rebuilt.table_names()]):
        verification.tables += 1
        table_path = f"{TABLES}/{name}"
        # A table that the version of the run did not write changes none of its results.
        is_new = code_difference and not _knows_table(run, name)
        found = _prefixed(f"{table_path}.parquet", _compare_table(run, rebuilt, name))
        if name not in PARQUET_ONLY:
            found += _prefixed(
                f"{table_path}.csv", _compare_text(run, rebuilt, f"{table_path}.csv")
            )
        (new_tables if is_new else table_differences).extend(found)
    # A newer version may add keys to the manifest, which the run then lacks.
    rebuilt_manifest = {
        key: value
        for key, value in rebuilt.manifest.items()
        if key in run.manifest or not code_difference
    }
    differences = [
        *_prefixed(MANIFEST, _compare_manifests(run.manifest, rebuilt_manifest)),
        *table_differences,
        *new_tables,
    ]
    reworded: list[str] = []
    if code_difference and _claims_differ_in_wording(run.plan, rebuilt.plan):
        reworded.append("the claims in plan.json")
    plan_before, plan_now, changed_prompts = _comparable_plans(run, rebuilt)
    if changed_prompts:
        verification.notes.append(
            f"The prompts {join_first(changed_prompts)} have changed since the run, in parts that "
            "no request of the run shows: every request is the same."
        )
    ignored_parts = {CLAIMS} if reworded else set()
    differences[:0] = _prefixed(PLAN, _compare_plans(plan_before, plan_now, ignored=ignored_parts))
    # Logs hold times and retries, which no replay repeats.
    compared_names = {PLAN, MANIFEST, LOG, LOG_LINES}
    for path in sorted(rebuilt.path.rglob("*")):
        name = path.relative_to(rebuilt.path).as_posix()
        if path.is_file() and name not in compared_names and path.parent.name != TABLES:
            verification.files += 1
            found = _prefixed(name, _compare_text(run, rebuilt, name))
            if found and code_difference and name == CODEBOOK and _same_columns(run, rebuilt):
                reworded.append("the meanings in codebook.json")
            else:
                differences += found
    if not code_difference:
        verification.differences += differences
        return
    if reworded:
        verification.notes.append(
            f"Only the wording differs between the two versions{code_difference}: "
            f"{' and '.join(reworded)}."
        )
    # Another version may write other files without any change to the run. The hashes have already
    # shown real changes, so these differences count as not compared.
    if differences:
        result = (
            "This code gives other results"
            if table_differences
            else "All tables are equal, but this code writes other files"
        )
        verification.not_compared += [f"{result}{code_difference}:", *differences]


def _knows_table(run: RunFolder, name: str) -> bool:
    # A deleted table still has a hash.
    recorded_hashes = run.manifest.get("hashes") or {}
    return f"{TABLES}/{name}.parquet" in recorded_hashes or run.has_table(name)


def _comparable_plans(
    run: RunFolder, rebuilt: RunFolder
) -> tuple[Mapping[str, Any], Mapping[str, Any], list[str]]:
    # Returns both plans without what another version may add or change without effect on the
    # requests of the run, and the names of changed prompts.
    code_difference = _describe_code_difference(run)
    recorded: Mapping[str, Any] = run.plan
    now: Mapping[str, Any] = rebuilt.plan
    prompts_before, prompts_now = _sealed_prompts(recorded), _sealed_prompts(now)
    changed_prompts = _changed_prompts(prompts_before, prompts_now)
    # A newer version may also have added prompts.
    if changed_prompts or (code_difference and prompts_before != prompts_now):
        recorded, now = _without_prompts(recorded), _without_prompts(now)
    if code_difference:
        recorded, now = _without_new_settings(recorded, now)
    return recorded, now, changed_prompts


def _sealed_prompts(plan: Mapping[str, Any]) -> Mapping[str, str]:
    design = plan.get("sealed", {}).get(DESIGN, {}).get("data")
    prompts = design.get("prompts") if isinstance(design, Mapping) else None
    return prompts if isinstance(prompts, Mapping) else {}


def _without_prompts(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    design = plan.get("sealed", {}).get(DESIGN, {}).get("data")
    if not isinstance(design, Mapping):
        return plan
    kept = {key: value for key, value in design.items() if key != "prompts"}
    return _with_design(plan, kept)


def _without_new_settings(
    recorded: Mapping[str, Any], rebuilt: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    # A newer version adds settings, and the replay gives them their default.
    before, now = (
        plan.get("sealed", {}).get(DESIGN, {}).get("data") for plan in (recorded, rebuilt)
    )
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return recorded, rebuilt
    settings = without_new_defaults(now.get("settings") or {}, before.get("settings") or {}, {})
    return _with_design(recorded, before), _with_design(rebuilt, {**now, "settings": settings})


def _with_design(plan: Mapping[str, Any], design: Mapping[str, Any]) -> Mapping[str, Any]:
    # Without the hash, which is that of the whole design.
    return {**plan, "sealed": {**plan.get("sealed", {}), DESIGN: {"data": design}}}


def _prefixed(name: str, sentences: Iterable[str]) -> list[str]:
    return [f"{name}: {sentence}" for sentence in sentences]


def _claims_differ_in_wording(recorded: Mapping[str, Any], rebuilt: Mapping[str, Any]) -> bool:
    before, now = (plan.get("sealed", {}).get(CLAIMS, {}) for plan in (recorded, rebuilt))
    claims_before, claims_now = before.get("data") or [], now.get("data") or []
    if before == now or len(claims_before) != len(claims_now):
        return False
    return all(map(is_same_comparison, claims_before, claims_now))


def _same_columns(run: RunFolder, rebuilt: RunFolder) -> bool:
    # The descriptions of columns are left out of the comparison.
    def without_meanings(value: object) -> object:
        if isinstance(value, Mapping):
            return {
                key: without_meanings(part)
                for key, part in value.items()
                # A column may itself be called "meaning", and then it is a mapping.
                if key != "meaning" or not isinstance(part, str)
            }
        return [without_meanings(part) for part in value] if isinstance(value, list) else value

    try:
        books = [read_json_object(folder.path / CODEBOOK) for folder in (run, rebuilt)]
    except StorageError:
        return False
    return without_meanings(books[0]) == without_meanings(books[1])


def _compare_plans(
    recorded: Mapping[str, Any], rebuilt: Mapping[str, Any], *, ignored: Collection[str]
) -> list[str]:
    sealed_before, sealed_now = recorded.get("sealed", {}), rebuilt.get("sealed", {})
    names = [*sealed_before, *(name for name in sealed_now if name not in sealed_before)]
    # After accepted changes the study may no longer seal a part that it sealed at first.
    if recorded.get("changes"):
        names = [name for name in names if name in sealed_now]
    differences = []
    for name in names:
        if name in ignored:
            continue
        if name not in sealed_now or name not in sealed_before:
            where = "the plan" if name in sealed_before else "the rebuilt plan"
            differences.append(f"the sealed part “{name}” is only in {where}.")
        elif sealed_before[name] != sealed_now[name]:
            difference = describe_differences(sealed_before[name], sealed_now[name])
            differences.append(
                f"the sealed part “{name}” differs from that of the run: {difference}."
            )
    return differences


def _compare_manifests(recorded: Mapping[str, object], rebuilt: Mapping[str, object]) -> list[str]:
    names = (name for name in rebuilt if name not in NON_REPRODUCIBLE_KEYS or name not in recorded)
    return [
        f"{name} is {_shorten(recorded.get(name))}, rebuilt {_shorten(rebuilt[name])}."
        for name in names
        if _in_any_order(name, recorded.get(name)) != _in_any_order(name, rebuilt[name])
    ]


def _in_any_order(name: str, value: object) -> object:
    # The manifest lists models as they first answered, which depends on their speed and on people.
    if name != "models" or not isinstance(value, list):
        return value
    return sorted(value, key=lambda model: json.dumps(model, sort_keys=True))


def _compare_table(run: RunFolder, rebuilt: RunFolder, name: str) -> list[str]:
    if not rebuilt.has_table(name):
        return ["the run does not write such a table."]
    if not run.has_table(name):
        return ["is not there; the rebuilt run writes it."]
    new = rebuilt.read_table(name)
    try:
        old = run.read_table(name)
    except StorageError as error:
        return [str(error)]
    # The usual case. One comparison of all columns is much quicker than one of each.
    if old.schema == new.schema and old.equals(new):
        return []
    differences = []
    if missing_columns := [column for column in new.columns if column not in old.columns]:
        differences.append(f"lacks the columns {', '.join(missing_columns)}.")
    if further_columns := [column for column in old.columns if column not in new.columns]:
        differences.append(
            f"has the columns {', '.join(further_columns)}, which the run does not write."
        )
    if old.height != new.height:
        return [*differences, f"has {format_count(old.height, 'row')}, rebuilt {new.height}."]
    for column in new.columns:
        if column in old.columns:
            differences += _first_cell_difference(old[column], new[column])
    return differences


def _first_cell_difference(old: pl.Series, new: pl.Series) -> list[str]:
    if old.dtype != new.dtype:
        return [f"column {old.name} is {old.dtype}, rebuilt {new.dtype}."]
    rows = [int(index) for index in (~old.eq_missing(new)).arg_true()]
    if not rows:
        return []
    first = f"{_shorten(old[rows[0]])}, rebuilt {_shorten(new[rows[0]])}"
    row_numbers = join_first([str(i + 1) for i in rows])
    return [
        f"column {old.name} differs in {format_count(len(rows), 'row')} ({row_numbers}): {first}."
    ]


def _compare_text(run: RunFolder, rebuilt: RunFolder, name: str) -> list[str]:
    if not (run.path / name).is_file():
        return ["is not there; the rebuilt run writes it."]
    with (run.path / name).open("rb") as old, (rebuilt.path / name).open("rb") as new:
        # Line by line, because a file may be too large for the memory.
        for number, pair in enumerate(zip_longest(old, new), 1):
            if pair[0] != pair[1]:
                old_line, new_line = (
                    line and line.decode("utf-8", "replace").rstrip("\n") for line in pair
                )
                if not (old_line and new_line and _differs_only_in_time(old_line, new_line)):
                    return [f"line {number} is {_shorten(old_line)}, rebuilt {_shorten(new_line)}."]
    return []


def _differs_only_in_time(old_line: str, new_line: str) -> bool:
    if TIME_PLACEHOLDER not in new_line:
        return False
    # An ISO 8601 time with seconds and UTC offset has 25 characters.
    pattern = re.escape(new_line).replace(re.escape(TIME_PLACEHOLDER), r"[\d:T+-]{25}")
    return re.fullmatch(pattern, old_line) is not None


def _shorten(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(text)
