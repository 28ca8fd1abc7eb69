"""Withdraw a human from a run: remove the human's texts from the journal, tables and files.

The run can be read and reported as before.
"""

# `personal_texts` finds the texts, and quotations of them in replies of others. Changed files are
# prepared in a separate folder, and replace the old files when all are complete. If the process is
# killed, the run is unchanged, or `finish_withdrawal` completes the change. The amendments of the
# run record the withdrawal. `folkmoot verify` cannot recompute results that depend on removed
# texts. Tables of the study still count the options that the human chose.

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from folkmoot.engine.journal.integrity import digest_of_run
from folkmoot.engine.journal.journal_copy import copy_journal, discard_copy, replace_journal
from folkmoot.engine.journal.journal_file import JournalEntry, question_address
from folkmoot.engine.journal.journal_reader import JournalReader, spent_in_journals
from folkmoot.engine.limits.budget import Spent
from folkmoot.engine.seats.personal_texts import (
    QUOTATION,
    PersonalTexts,
    find_personal_texts,
    has_answers,
)
from folkmoot.engine.seats.redaction import Redaction
from folkmoot.engine.seats.seat_manager import WITHDRAWN, read_seats, recruitment_ids, write_private
from folkmoot.engine.seats.seats import Seat
from folkmoot.errors import InputError
from folkmoot.files import TEMPORARY_NAME, csv_text, remove_temporary_files
from folkmoot.hints import command_line
from folkmoot.measures.inference.estimates import format_count
from folkmoot.models.request import ModelRequest
from folkmoot.provenance import SourcedText, Span, replace_parts
from folkmoot.randomness import digest
from folkmoot.storage.amendments import (
    AMENDMENTS_FILE,
    Amendment,
    append_amendments,
    read_amendments,
    rewrite_amendments,
)
from folkmoot.storage.json_files import format_json, read_json_object, write_json, write_text
from folkmoot.storage.manifest import SEAL, file_sha256, parse_step_shares, seal_manifest
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import (
    CODEBOOK,
    CODINGS,
    CONTROLS,
    JOURNAL,
    MANIFEST,
    PEOPLE,
    PLAN,
    SEATS,
    STUDY_FILE_NAME,
    TABLES,
    RunFolder,
    cache_folder,
    is_run_folder,
    utc_timestamp,
)
from folkmoot.storage.table_buffer import ROWS, RowFile
from folkmoot.storage.tables import build_codebook, write_table

AMENDMENT_KIND = "withdrawal"
# The folder of changed files. It has this name only when all of them are complete.
STAGING_FOLDER = ".withdrawal"
# Files that are not redacted like others: they hold no texts of humans, or are changed separately.
UNAFFECTED_FILES = (MANIFEST, PLAN, CODEBOOK, STUDY_FILE_NAME, SEATS, PEOPLE, AMENDMENTS_FILE)
# Columns of `answers` that contain the answer of the participant.
WITHDRAWN_CELLS = ("value", "said", "recorded", "how", "agrees", "position")
# Columns that contain texts of the answer or of the options.
ANSWER_CELLS = (*WITHDRAWN_CELLS, "options")
# Files that are deleted, because they can be made again from the run. The requests and replies of
# controls and later codings quote the human.
DELETED_FILES = ("report.html", "report.pdf", "export-*", CONTROLS, CODINGS)
# The formats of exported tables and of sheets for coders. Such files have any name, and cannot be
# redacted like text files: a cell may hold a few words of a text. So they are deleted.
DELETED_FORMATS = (".parquet", ".xlsx")
# The key of an amendment for the files that could not be searched.
UNSEARCHED = "unsearched_files"
# The key of an amendment for what the deleted controls and codings have spent.
DELETED_SPENDING = "deleted_spending"


class UnredactedFiles(NamedTuple):
    """The paths in a run folder that a withdrawal cannot redact, relative to the folder."""

    # Files and folders that are deleted.
    deleted: tuple[Path, ...]
    # Files that stay, because it is not known what they hold: pictures, archives, other encodings.
    unsearched: tuple[Path, ...]


def find_unredacted_files(run: Path) -> UnredactedFiles:
    """Return the files of a run that a withdrawal deletes, and those that it cannot search."""
    deleted = _find_deleted_files(run)
    unsearched = [
        _find_hidden_folder(path) or path
        for path in _list_files(run)
        # Journals are redacted entry by entry.
        if not _is_table(run, path)
        and not path.suffix.startswith(".sqlite")
        and not _is_below(path, deleted)
        and _read_text(run / path) is None
    ]
    # A hidden folder, such as that of a version control, is listed once.
    return UnredactedFiles(tuple(deleted), tuple(dict.fromkeys(unsearched)))


def _list_files(run: Path) -> list[Path]:
    # Without the files that are deleted in any case, because they are unfinished.
    return [
        path.relative_to(run)
        for path in sorted(run.rglob("*"))
        if path.is_file()
        and not path.relative_to(run).parts[0].startswith((STAGING_FOLDER, ROWS))
        and not TEMPORARY_NAME.fullmatch(path.name)
    ]


def _find_deleted_files(run: Path) -> list[Path]:
    deleted = [path.relative_to(run) for name in DELETED_FILES for path in sorted(run.glob(name))]
    return deleted + [
        path
        for path in _list_files(run)
        if path.suffix.lower() in DELETED_FORMATS
        and not _is_table(run, path)
        and not _is_below(path, deleted)
        and not _is_in_other_run(run, path)
    ]


def _is_table(run: Path, path: Path) -> bool:
    # Tables of the run are redacted row by row, and written in both formats.
    is_written = path.suffix in (".parquet", ".csv") and path.parent == Path(TABLES)
    return is_written and (run / path).with_suffix(".parquet").exists()


def _is_below(path: Path, deleted: Collection[Path]) -> bool:
    return not {path, *path.parents}.isdisjoint(deleted)


def _find_hidden_folder(path: Path) -> Path | None:
    # The topmost one that contains the file.
    folders = reversed(path.parents)
    return next((folder for folder in folders if folder.name.startswith(".")), None)


def _is_in_other_run(run: Path, path: Path) -> bool:
    # A fork may be inside the folder of its run. Without its tables it could not be read.
    return any(is_run_folder(run / folder) for folder in [*path.parents][:-1])


def _read_text(path: Path) -> str | None:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return None
    # Archives (tar) and UTF-16 without a mark can be valid UTF-8, but have null characters.
    return None if "\0" in text else text


def describe_unredacted_files(files: UnredactedFiles) -> Iterator[str]:
    """Yield sentences for the researcher on the files that a withdrawal would not redact."""
    if files.deleted:
        yield (
            "These files are deleted as a whole. Read coding sheets first (`folkmoot codes RUN "
            "--read FILE --by NAME`), and move files of your own away:"
        )
    yield from (f"  {path}" for path in files.deleted)
    if files.unsearched:
        yield "These files cannot be searched, and stay. Delete those that quote this participant:"
    yield from (f"  {path}" for path in files.unsearched)


def withdraw_texts(run: RunFolder, personal: PersonalTexts, requested_by: str) -> None:
    """Remove the texts of a human, and all quotations of these texts, from a run.

    The caller must hold the lock of the run folder.
    """
    prepared = run.path / f"{STAGING_FOLDER}.new"
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    spans: dict[str, list[Span]] = {}
    entries = _prepare_journals(run.path, prepared, personal, spans)
    coded_ids = _prepare_tables(run, prepared, personal, spans)
    files = find_unredacted_files(run.path)
    _prepare_files(run.path, prepared, personal.redaction, files.deleted)
    link_ids = dict(recruitment_ids(run.path))
    if link_ids.pop(personal.seat.name, None) is not None:
        write_private(prepared / PEOPLE, link_ids)
    for name in filter(run.has_file, (MANIFEST, AMENDMENTS_FILE)):
        shutil.copyfile(run.path / name, prepared / name)
    _count_answers_again(run, prepared)
    rewrite_amendments(prepared, partial(_change_amendment, personal.redaction, coded_ids))

    def path_of(name: str) -> Path:
        return prepared / name if (prepared / name).exists() else run.path / name

    with closing(JournalReader(path_of(JOURNAL))) as journal:
        content_digest, record_digest = journal.content_digest(), journal.record_digest()
    data = {
        "seat": personal.seat.name,
        "answers": personal.answers,
        "entries": entries,
        "addresses": sorted(personal.addresses),
        "summaries": sorted(personal.summaries),
        "quotations": sorted(
            {reply.address for reply in personal.replies if reply.use == QUOTATION}
        ),
        "journal_digest": content_digest,
        "record_digest": digest_of_run(record_digest, run.plan),
        "hashes": {
            name: file_sha256(path_of(name))
            for name in run.manifest.get("hashes", {})
            if run.has_file(name)
        },
        # Their journals are deleted, so what was paid for them is recorded here.
        DELETED_SPENDING: spent_in_journals(
            path for name in (CONTROLS, CODINGS) for path in (run.path / name).rglob(JOURNAL)
        )._asdict(),
        UNSEARCHED: [path.as_posix() for path in files.unsearched],
    }
    append_amendments(prepared, [Amendment(AMENDMENT_KIND, requested_by, utc_timestamp(), data)])
    prepared.rename(run.path / STAGING_FOLDER)
    finish_withdrawal(run.path)


def finish_withdrawal(run: Path) -> bool:
    """Put the prepared versions of files in place of the files.

    Returns whether there were prepared versions. The caller must hold the lock of the run folder.
    """
    # If the process is killed during the call, the next process that locks the folder calls the
    # function again.
    staged = run / STAGING_FOLDER
    if not staged.exists():
        return False
    # A killed process may have left rows with the texts. A resume records the rows again.
    RowFile(run).remove_file()
    for path in (run / name for name in _find_deleted_files(run)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    # Unfinished files may contain the texts, also those of a report or an export that another
    # process is writing. It fails then.
    remove_temporary_files(run)
    # The pages cache results that may contain the texts.
    shutil.rmtree(cache_folder(run), ignore_errors=True)
    for path in sorted(path for path in staged.rglob("*") if path.is_file()):
        target = run / path.relative_to(staged)
        if path.suffix == ".sqlite":
            replace_journal(target, path)
        else:
            path.replace(target)
    shutil.rmtree(staged)
    return True


def spent_before_withdrawals(run: Path) -> Spent:
    """Return what the controls and codings that withdrawals deleted have spent.

    Raises StorageError if the amendments of the run were edited by hand.
    """
    spent = Spent()
    # The runs of earlier versions lack the key.
    for amendment in read_withdrawals(run):
        if DELETED_SPENDING in amendment.data:
            spent = spent.add_spending(Spent.from_json(amendment.data[DELETED_SPENDING]))
    return spent


def process_pending_withdrawals(run: RunFolder) -> None:
    """Remove the texts of all humans who withdrew during the run.

    The caller must hold the lock of the run folder.
    """
    for seat in _find_pending_withdrawals(run):
        # The run may be of a version that recorded no sources.
        with suppress(InputError):
            withdraw_texts(run, find_personal_texts(run, seat), "participant")


def describe_pending_withdrawals(run: RunFolder) -> str:
    """Return a sentence on humans who withdrew, if their texts are not removed yet.

    Returns "" if there are none. Raises StorageError if the run cannot be read.
    """
    # The texts are removed at the end of a run. The process may have been killed before.
    seats = _find_pending_withdrawals(run)
    if not seats:
        return ""
    command = command_line("withdraw", run.path, seats[0].name)
    more = ", and so on" if len(seats) > 1 else ""
    return (
        f"{format_count(len(seats), 'human')} withdrew, and the run still contains their words. "
        "They are deleted when the run ends. If its process was killed, resume the run with "
        f"--resume, or delete the words: {command}{more}."
    )


def _find_pending_withdrawals(run: RunFolder) -> list[Seat]:
    withdrawn = [seat for seat, reason in read_seats(run.path).items() if reason == WITHDRAWN]
    # Few runs have such seats, so that a list of many runs reads no further files.
    if not withdrawn:
        return []
    carried_out = {amendment.data.get("seat") for amendment in read_withdrawals(run.path)}
    pending = [seat for seat in withdrawn if seat.name not in carried_out]
    # A human who left before any question has no texts.
    return [seat for seat in pending if not run.has_table("answers") or has_answers(run, seat)]


def read_withdrawals(run: Path) -> list[Amendment]:
    """Return the amendments of all withdrawals, oldest first.

    Raises StorageError if the file cannot be read.
    """
    return [amendment for amendment in read_amendments(run) if amendment.kind == AMENDMENT_KIND]


def select_since_withdrawal(
    amendments: Iterable[Amendment], kind: str | None = None
) -> list[Amendment]:
    """Return the amendments since the last withdrawal, oldest first.

    - `kind`: the kind of the amendments, or None for all of them.

    These name the controls or later codings that exist, because a withdrawal deletes them.
    """
    found: list[Amendment] = []
    for amendment in amendments:
        if amendment.kind == AMENDMENT_KIND:
            found.clear()
        elif kind is None or amendment.kind == kind:
            found.append(amendment)
    return found


def _prepare_tables(
    run: RunFolder, prepared: Path, personal: PersonalTexts, spans: Mapping[str, Sequence[Span]]
) -> set[str]:
    # Returns the ids of the changed texts that a coder coded.
    coded_ids = set[str]()
    codebook = run.codebook()
    for name in run.table_names():
        table = run.read_table(name)
        if name == PROVENANCE:
            changed = _with_spans(table, spans, personal.redaction)
        else:
            changed = _without_texts(table, name, personal)
        if changed.equals(table):
            continue
        write_table(prepared / TABLES, name, changed)
        if {"text_id", "text"} <= {*table.columns}:
            is_changed = table["text"].ne_missing(changed["text"])
            coded_ids.update(table.filter(is_changed)["text_id"])
        # The codebook lists the values of columns, so it is made from the new table.
        if name in codebook:
            columns = codebook[name]["columns"].items()
            meanings = {column: entry.get("meaning", "") for column, entry in columns}
            codebook |= build_codebook({name: changed}, {name: meanings})
    if run.has_file(CODEBOOK):
        write_json(prepared / CODEBOOK, codebook)
    return coded_ids


def _count_answers_again(run: RunFolder, prepared: Path) -> None:
    # Reports and pages read from the manifest how many answers are missing.
    if not (prepared / MANIFEST).exists():
        return
    changed_run = RunFolder(prepared)
    answers = (changed_run if changed_run.has_table("answers") else run).read_table("answers")
    if "parse_step" in answers.columns:
        step = pl.when(missing=WITHDRAWN).then(pl.lit("missing")).otherwise("parse_step")
        answers = answers.with_columns(parse_step=step)
    manifest = read_json_object(prepared / MANIFEST)
    changed = {**manifest, "answers": parse_step_shares(answers)}
    # A seal that does not match stays so, because it shows a change by hand.
    is_unchanged = manifest.get(SEAL) == seal_manifest(manifest)[SEAL]
    write_json(prepared / MANIFEST, seal_manifest(changed) if is_unchanged else changed)


def _change_amendment(redaction: Redaction, coded_ids: Collection[str], line: str) -> str:
    # A correction of a code quotes the coded text, often only a few of its words.
    amendment = json.loads(redaction.redact_text(line))
    if amendment.get("text_id") in coded_ids and amendment.get("quote"):
        amendment["quote"] = redaction.mark(amendment["quote"])
    return json.dumps(amendment, ensure_ascii=False)


def _without_texts(table: pl.DataFrame, name: str, personal: PersonalTexts) -> pl.DataFrame:
    text_columns = [
        column for column, kind in table.schema.items() if kind in (pl.String, pl.List(pl.String))
    ]

    def redact_row(row: Mapping[str, Any]) -> dict[str, Any]:
        address = row.get("address") or ""
        is_own = personal.is_own(address) or (
            not address and personal.redaction.is_row_of_person(row.items())
        )
        changed = {
            column: personal.redaction.redact_json(row[column], own=is_own)
            for column in text_columns
        }
        if is_own and address and row.get("text"):
            changed["text"] = personal.redaction.mark(row["text"])
        elif question_address(address) in personal.quotable:
            for column in ANSWER_CELLS if name == "answers" else ():
                if cell := changed.get(column):
                    changed[column] = personal.redact_reply(address, str(cell))
            if row.get("text"):
                changed["text"] = personal.without_quotations(address, row["text"])
        if name == "answers" and address in personal.addresses:
            changed |= dict.fromkeys(set(WITHDRAWN_CELLS) & row.keys()) | {"missing": WITHDRAWN}
        return {**row, **changed}

    rows = [redact_row(row) for row in table.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=table.schema)


def _with_spans(
    table: pl.DataFrame, spans: Mapping[str, Sequence[Span]], redaction: Redaction
) -> pl.DataFrame:
    parts: list[pl.DataFrame] = []
    for (address,), rows in table.group_by("address", maintain_order=True):
        span_rows = [
            (address, number, start, end, source.kind, source.id, source.speaker, source.altered)
            for start, end, source, number in spans.get(str(address), ())
        ]
        changed = pl.DataFrame(span_rows, schema=table.schema, orient="row")
        parts.append(changed if address in spans else rows)
    # The key of a cell can be a personal text: that of an option is the option itself.
    source_ids = [source_id for source_id in table["source_id"].unique() if source_id]
    id_parts = {
        source_id: [redaction.find_whole(part) or part for part in source_id.split("/")]
        for source_id in source_ids
    }
    renamed = {source_id: "/".join(parts) for source_id, parts in id_parts.items()}
    return pl.concat([table.clear(), *parts]).with_columns(pl.col("source_id").replace(renamed))


def _prepare_files(
    run: Path, prepared: Path, redaction: Redaction, deleted: Collection[Path]
) -> None:
    for path in _list_files(run):
        if path.parts[0] in UNAFFECTED_FILES or _is_table(run, path) or _is_below(path, deleted):
            continue
        text = _read_text(run / path)
        changed = None if text is None else _change_file(path, text, redaction)
        if changed is not None and changed != text:
            write_text(prepared / path, changed)


def _change_file(path: Path, text: str, redaction: Redaction) -> str:
    if path.suffix == ".jsonl":
        return "".join(f"{redaction.redact_text(line)}\n" for line in text.splitlines())
    if path.suffix == ".json":
        with suppress(ValueError):
            value = json.loads(text)
            changed = redaction.redact_json(value, frozenset(path.parts))
            return text if changed == value else format_json(changed)
    if path.suffix == ".csv":
        # A cell above the size limit of `csv` is an error.
        with suppress(csv.Error):
            rows = [*csv.reader(io.StringIO(text))]
            header = rows[0] if rows else []
            changed_rows = [_change_row(header, row, redaction) for row in rows]
            return text if changed_rows == rows else csv_text(changed_rows)
    return redaction.redact_text(text)


def _change_row(header: Sequence[str], row: Sequence[str], redaction: Redaction) -> list[str]:
    is_own = redaction.is_row_of_person(zip_longest(header, row, fillvalue=""))
    return [redaction.redact_text(cell, own=is_own) for cell in row]


def _prepare_journals(
    run: Path, prepared: Path, personal: PersonalTexts, spans: dict[str, list[Span]]
) -> int:
    # Returns the number of changes. `spans` receives, by address, the parts of known source in each
    # changed request.

    # Each journal is copied into a new file. A changed SQLite file would keep pages with old texts.
    changed_count = 0
    derived = {path for name in DELETED_FILES for path in run.glob(name)}
    journals = [
        path for path in sorted(run.rglob("*.sqlite")) if not {prepared, *derived} & {*path.parents}
    ]
    for path in journals:
        with closing(JournalReader(path)) as old:
            current = {entry.address: entry.fingerprint for entry in old.read_entries("ask")}
            count_before = changed_count

            def redact_entry(
                entry: JournalEntry, current: Mapping[str, bytes] = current
            ) -> JournalEntry:
                nonlocal changed_count
                # The provenance table has no spans of a superseded request.
                is_current = current.get(entry.address, entry.fingerprint) == entry.fingerprint
                changed = _change_entry(entry, personal, spans if is_current else None)
                changed_count += changed != entry
                return changed

            new = copy_journal(old, redact_entry)
        if changed_count > count_before:
            target = prepared / path.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            new.replace(target)
        discard_copy(new)
    return changed_count


def _change_entry(
    entry: JournalEntry, personal: PersonalTexts, spans: dict[str, list[Span]] | None
) -> JournalEntry:
    redaction, original = personal.redaction, dict(entry.request)
    request: Any = {
        key: value if key == "messages" else redaction.redact_json(value)
        for key, value in original.items()
    }
    if entry.kind == "embed":
        blob = entry.blob
        if request != original and blob:
            blob = _blank_embeddings(blob, original["texts"], request["texts"])
        return _with_new_fingerprint(entry._replace(blob=blob), request)
    if entry.kind != "ask":
        return entry._replace(reply=redaction.redact_text(entry.reply))
    request["messages"] = _change_messages(entry, personal, spans)
    if "schema" in request:
        request["schema"] = personal.redact_schema(entry.address, request["schema"])
    if personal.is_own(entry.address):
        is_summary = question_address(entry.address) in personal.summaries
        finish = entry.finish if is_summary else f"refused:{WITHDRAWN}"
        return _with_new_fingerprint(
            entry._replace(reply=redaction.mark(entry.reply), finish=finish), request
        )
    reply = personal.redact_reply(entry.address, entry.reply)
    return _with_new_fingerprint(entry._replace(reply=reply), request)


def _change_messages(
    entry: JournalEntry, personal: PersonalTexts, spans: dict[str, list[Span]] | None
) -> list[dict[str, str]]:
    # `spans` receives the parts of known source in the new messages.
    messages: list[dict[str, str]] = []
    moved: list[Span] = []
    originals: Sequence[Mapping[str, str]] = entry.request["messages"]
    all_spans = personal.spans.spans_at(entry.address) if spans is not None else []
    for number, message in enumerate(originals):
        content = message["content"]
        message_spans = [span for span in all_spans if span.message == number]
        if spans is None:
            changed = SourcedText(personal.redaction.redact_text(content))
        else:
            parts = personal.find_parts(entry, number, all_spans)
            changed = replace_parts(SourcedText(content, message_spans), parts)
        messages.append({**message, "content": str(changed)})
        moved += (span._replace(message=number) for span in changed.spans)
    if spans is not None and messages != originals:
        spans[entry.address] = moved
    return messages


def _blank_embeddings(blob: bytes, old_texts: Sequence[str], new_texts: Sequence[str]) -> bytes:
    # Embeddings are float32 bytes with one row for each text. A text that changed gets NaN.
    vectors = np.frombuffer(blob, dtype=np.float32).reshape(len(old_texts), -1).copy()
    vectors[[old != new for old, new in zip(old_texts, new_texts, strict=True)]] = np.nan
    return vectors.tobytes()


def _with_new_fingerprint(entry: JournalEntry, request: Mapping[str, Any]) -> JournalEntry:
    fingerprint = entry.fingerprint
    if request != entry.request and entry.kind == "embed":
        fingerprint = digest(request["model"], *request["texts"])
    elif request != entry.request and entry.kind == "ask":
        fingerprint = ModelRequest.from_json(request).fingerprint()
    return entry._replace(request=request, fingerprint=fingerprint)
