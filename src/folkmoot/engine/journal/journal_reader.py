"""Read a journal: look up recorded replies, and answer queries for reports and `verify`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from folkmoot.engine.journal.earlier_replies import RESEARCHER, TAKEN_OVER
from folkmoot.engine.journal.integrity import (
    BINDING_FORMAT,
    COLUMNS,
    NAMES,
    Damage,
    digest_of_content,
    digest_of_record,
    find_damage,
    has_intact_usage,
    has_table,
    is_intact,
    read_meta_value,
)
from folkmoot.engine.journal.journal_file import (
    BATCH_COLUMNS,
    SELECT_SQL,
    SET_ASIDE,
    BatchRecord,
    BrokenReply,
    FirstReply,
    JournalEntry,
    batch_key,
    format_difference,
    open_for_reading,
    question_address,
    storage_error,
)
from folkmoot.engine.journal.journal_loans import OutstandingLoan, read_loans
from folkmoot.engine.limits.budget import Amount, Spent
from folkmoot.errors import (
    DriftError,
    ForeignJournalError,
    NotJournaledError,
    StorageError,
)
from folkmoot.json_text import replace_lone_surrogates
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.models.request import FINISH_REFUSED, Message
from folkmoot.randomness import digest
from folkmoot.storage.manifest import ModelUsage, RunTotals

# Calls with an answer that was replaced later count, too. Calls that were copied from another run
# do not.
_IS_MADE_CALL = f"kind != 'compute' AND attempts != {TAKEN_OVER}"
_MADE_CALLS = (
    f"(SELECT address, finish, model_asked, cost_usd FROM entries WHERE {_IS_MADE_CALL} UNION ALL "
    f"SELECT address, finish, model_asked, cost_usd FROM superseded WHERE {_IS_MADE_CALL})"
)
# Refusals of unknown cost that are also in the table of lost replies.
_IS_LOST_REFUSAL = (
    f"cost_usd IS NULL AND finish LIKE '{FINISH_REFUSED}%' AND address IN "
    "(SELECT address FROM broken)"
)


class JournalReader:
    """A journal of any format opened for reading, closed by `with` or `close`.

    Raises ForeignJournalError for a file that is corrupt or not a journal.
    Raises StorageError if the file does not exist.
    """

    def __init__(self, path: Path, db: sqlite3.Connection | None = None) -> None:
        self.path = path
        self._reader = open_for_reading(path) if db is None else db

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._reader.execute("SELECT count(*) FROM entries").fetchone()[0])

    def close(self) -> None:
        self._reader.close()

    def count_calls(self) -> int:
        """Return the number of calls, with replaced ones and the answers of humans."""
        return self._sum_calls()[0]

    def spent(self) -> Spent:
        """Return what all processes of this run have spent, as the budget of the run counts it."""
        # Answers by humans cost nothing and count against no budget, also if --accept-changes
        # replaced them later.
        calls, human_answers, usd, unpriced = self._sum_calls()
        broken = self.read_broken_replies()
        broken_usd = sum(reply.max_usd or 0.0 for reply in broken)
        unbounded = {reply.model for reply in broken if reply.max_usd is None}
        return Spent(
            calls - human_answers,
            usd + broken_usd,
            Amount(len(broken), broken_usd),
            self.possibly_paid(),
            tuple(sorted(unpriced | unbounded)),
            is_broken_unpriced=bool(unbounded),
            is_possible_unpriced=any(
                loan.max_usd is None for loan in self.read_outstanding_loans()
            ),
            open_batch_calls=self.count_open_batch_calls(),
        )

    def _sum_calls(self) -> tuple[int, int, float, set[str]]:
        # The calls, how many of them humans answered, the known cost in USD, and the models with
        # calls of unknown cost. Refusals among the lost replies are left out.
        is_lost = _IS_LOST_REFUSAL if has_table(self._reader, "broken") else "0"
        calls, human_answers, usd, unpriced = self._reader.execute(
            "SELECT count(*), coalesce(sum(model_asked = ?), 0), coalesce(sum(cost_usd), 0), "
            "json_group_array(DISTINCT iif(cost_usd IS NULL, model_asked, NULL)) "
            f"FROM {_MADE_CALLS} WHERE NOT ({is_lost})",
            (HUMAN_MODEL,),
        ).fetchone()
        return calls, human_answers, float(usd), set(json.loads(unpriced)) - {None}

    def usage_by_model(self) -> dict[str, ModelUsage]:
        """Return the usage of all calls in the journal, by the model that was asked.

        Models are in the order of their first calls. Answers by humans are included. Calls that
        were copied from another run are included with a cost of 0. `replayed` and `retries` are 0.
        """
        # A replaced answer was paid like the answer that replaced it.
        columns = (
            "rowid, model_asked, model_served, attempts, input_tokens, output_tokens, "
            "cached_tokens, cost_usd"
        )
        rows = self._reader.execute(
            "SELECT model_asked, count(*), coalesce(sum(input_tokens), 0), "
            "coalesce(sum(output_tokens), 0), coalesce(sum(cached_tokens), 0), "
            "coalesce(sum(cost_usd), 0.0), sum(input_tokens IS NULL OR output_tokens IS NULL), "
            "sum(cost_usd IS NULL), json_group_array(DISTINCT model_served) FROM ("
            f"SELECT {columns} FROM entries WHERE kind != 'compute' UNION ALL "
            f"SELECT {columns} FROM superseded WHERE {_IS_MADE_CALL}"
            ") GROUP BY model_asked ORDER BY min(rowid)"
        )
        return {
            model: ModelUsage(
                calls=calls,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached_tokens,
                cost_usd=cost_usd,
                calls_without_token_count=calls_without_token_count,
                calls_without_price=calls_without_price,
                served_models=set(json.loads(served)) - {"", RESEARCHER},
            )
            for (
                model,
                calls,
                input_tokens,
                output_tokens,
                cached_tokens,
                cost_usd,
                calls_without_token_count,
                calls_without_price,
                served,
            ) in rows
        }

    def read_totals(self) -> RunTotals:
        """Return the calls, cost, batches and possibly paid calls of all processes of the run."""
        return RunTotals(
            self.usage_by_model(),
            sum(batch.calls for batch in self.read_batches().values() if batch.id),
            [(broken.model, broken.max_usd) for broken in self.read_broken_replies()],
            [(loan.who, loan.calls, loan.max_usd) for loan in self.read_outstanding_loans()],
        )

    @property
    def has_own_loan(self) -> bool:
        """True if this process has ended calls that may be billed without an answer."""
        # A reader makes no calls.
        return False

    def read_broken_replies(self) -> list[BrokenReply]:
        """Return the broken-off replies that may have been billed, in order of time."""
        if not has_table(self._reader, "broken"):
            return []
        rows = self._reader.execute("SELECT at, address, model, max_usd FROM broken ORDER BY at")
        return [BrokenReply._make(row) for row in rows]

    def read_outstanding_loans(self) -> list[OutstandingLoan]:
        """Return the possibly billed calls without a journal entry, one item for each process."""
        # If no process of the run is active, these are calls of killed processes.
        return read_loans(self._reader)

    def possibly_paid(self) -> Amount:
        """Return the number and the maximum cost of the calls in the table `loans`.

        These calls may be billed but have no journal entry.
        """
        # If a price is unknown, the cost is a lower bound.
        loans = self.read_outstanding_loans()
        return Amount(
            sum(loan.calls for loan in loans),
            sum(loan.max_usd or 0.0 for loan in loans),
        )

    def human_answer_count(self) -> int:
        """Return the number of answers by humans."""
        # No budget counts them.
        query = "SELECT count(*) FROM entries WHERE model_asked = ?"
        return int(self._reader.execute(query, (HUMAN_MODEL,)).fetchone()[0])

    def call_times_by_model(self) -> dict[str, tuple[float, float]]:
        """Return the times of each model's first and last call, in seconds since 1970."""
        rows = self._reader.execute(
            "SELECT model_asked, min(started_at), max(started_at) FROM entries "
            "WHERE kind != 'compute' GROUP BY model_asked"
        )
        return {name: (first, last) for name, first, last in rows}

    def call_time(self, address: str) -> float:
        """Return the time of the call at an address, in seconds since 1970.

        Returns 0 if there was no call.
        """
        query = "SELECT started_at FROM entries WHERE address = ?"
        row = self._reader.execute(query, (address,)).fetchone()
        return float(row[0]) if row else 0.0

    @cached_property
    def format_version(self) -> int:
        """The format of the journal file, 1 to 4."""
        return int(self._reader.execute("SELECT value FROM meta WHERE key='format'").fetchone()[0])

    def _read_rows(
        self, where: str, parameters: Sequence[object] = (), table: str = "entries"
    ) -> Iterator[tuple[Any, ...]]:
        # Raises ForeignJournalError at a changed entry. `where` is the end of the SQL query: a
        # condition, an order, or both.
        # Entries of older formats have no hashes to check.
        if self.format_version < BINDING_FORMAT:
            yield from self._reader.execute(f"SELECT {NAMES} FROM {table} {where}", parameters)
            return
        query = f"SELECT number, {NAMES}, content, seal FROM {table} {where}"
        for row in self._reader.execute(query, parameters):
            if not is_intact(row):
                raise ForeignJournalError(
                    f"{self.path}: the entry at {row[1]} changed since it was written; "
                    "`folkmoot verify` lists what is damaged"
                )
            yield row[1 : 1 + len(COLUMNS)]

    def _read_entries(
        self, where: str, parameters: Sequence[object] = (), table: str = "entries"
    ) -> Iterator[JournalEntry]:
        for row in self._read_rows(where, parameters, table):
            yield JournalEntry._make((*row[:3], self._restore_texts(json.loads(row[3])), *row[4:]))

    def superseded_count(self, *, set_aside: bool = True) -> int:
        """Return how many entries have been replaced by entries with a new answer.

        - `set_aside`: if false, entries that a repair removed are not counted.
        """
        query = "SELECT count(*) FROM superseded"
        if not set_aside:
            query += f" WHERE finish != '{SET_ASIDE}'"
        return int(self._reader.execute(query).fetchone()[0])

    def content_digest(self) -> str:
        """Return the SHA-256 over all requests and replies, without times and costs."""
        # Formats before 4 have a sum of hashes instead, which can be forged. The digest is valid
        # only if `find_damage` finds nothing.
        return digest_of_content(self._reader, self.format_version)

    def record_digest(self) -> str:
        """Return the SHA-256 over everything in the journal.

        Returns an empty string for formats before 4.
        """
        return digest_of_record(self._reader, self.format_version)

    def find_damage(self) -> list[Damage]:
        """Return all signs of damage."""
        # Damaged text must not raise an error here, because the check has to name its entry.
        self._reader.text_factory = _as_text
        try:
            return find_damage(self._reader, self.format_version)
        finally:
            self._reader.text_factory = str

    def list_addresses(self) -> list[str]:
        """Return all addresses, sorted."""
        return [
            row[0] for row in self._reader.execute("SELECT address FROM entries ORDER BY address")
        ]

    def messages(self, address: str) -> list[Message]:
        """Return the messages of the request at an address.

        Returns an empty list if nothing was asked there.
        """
        row = next(self._read_rows("WHERE address = ?", (address,)), None)
        request = self._restore_texts(json.loads(row[3])) if row else {}
        return [
            Message(message["role"], message["content"]) for message in request.get("messages", ())
        ]

    def addresses_containing(self, name: str, *, whole_part: bool = True) -> list[str]:
        """Return the sorted addresses that have `name` as one of their parts.

        - `name`: escaped as in addresses.
        - `whole_part`: if false, a part that begins with `name` counts as well.
        """
        searched = f"/{name}/" if whole_part else f"/{name}"
        condition = "instr('/' || address || '/', ?)"
        rows = self._reader.execute(
            f"SELECT address FROM entries WHERE {condition} ORDER BY address", (searched,)
        )
        return [row[0] for row in rows]

    def addresses_in_scope(self, scope: str) -> list[str]:
        """Return the sorted addresses of the questions in a scope, but not in its child scopes."""
        rows = self._reader.execute(
            "SELECT address FROM entries WHERE address >= ? AND address < ? AND kind = 'ask'",
            # "0" is the character after "/": the range holds all addresses that begin with the
            # scope and a slash, and the index on `address` serves it.
            (f"{scope}/", f"{scope}0"),
        )
        return [row[0] for row in rows if "/" not in row[0][len(scope) + 1 :]]

    def list_ask_addresses(self, address: str) -> list[str]:
        """Return the sorted addresses of a question and of its repetitions."""
        # The addresses of re-asks end in `.r1`, `.long` and the like.
        rows = self._reader.execute(
            "SELECT address FROM entries WHERE address = ? OR (address >= ? AND address < ?) "
            "ORDER BY address",
            (address, f"{address}.", f"{address}/"),
        )
        return [row[0] for row in rows]

    def entry_at(self, address: str, *, expand_texts: bool = True) -> JournalEntry | None:
        """Return the entry at an address, or None.

        `expand_texts`: if false, the request holds hashes in place of its long texts.
        """
        row = next(self._read_rows("WHERE address = ?", (address,)), None)
        if row is None:
            return None
        request = json.loads(row[3])
        return JournalEntry._make(
            (*row[:3], self._restore_texts(request) if expand_texts else request, *row[4:])
        )

    def replies_after_row(self, row: int, max_rows: int) -> list[tuple[int, str, str]]:
        """Return at most `max_rows` replies after a journal row, in row order.

        Each item holds row, address and text.
        """
        rows = self._reader.execute(
            "SELECT rowid, address, reply FROM entries WHERE rowid > ? AND kind = 'ask' "
            "ORDER BY rowid LIMIT ?",
            (row, max_rows),
        )
        return rows.fetchall()

    def first_replies(self) -> Iterator[FirstReply]:
        """Yield the first reply to each question, in order of address.

        Raises StorageError if entries are damaged.
        """

        try:
            rows = self._read_rows("WHERE kind = 'ask' ORDER BY address")
            for address, question_rows in groupby(
                rows, key=lambda row: question_address(str(row[0]))
            ):
                replies = {
                    row[0]: JournalEntry._make((*row[:3], {}, *row[4:])) for row in question_rows
                }
                if first := replies.get(address):
                    asked_again = f"{address}.r1" in replies
                    yield FirstReply(
                        first.model_asked, first.reply, first.finish, asked_again, address
                    )
        except sqlite3.Error as error:
            raise storage_error(self.path, error) from None

    def calls(self, *, taken_over: bool) -> list[str]:
        """Return the sorted addresses of calls in the journal of a fork.

        `taken_over`: True for calls copied from the earlier run, False for calls made by the fork.
        """
        condition = "kind != 'compute' AND (attempts = ?) = ? ORDER BY address"
        parameters = (TAKEN_OVER, taken_over)
        rows = self._reader.execute(f"SELECT address FROM entries WHERE {condition}", parameters)
        return [row[0] for row in rows]

    def last_row(self) -> int:
        """Return the number of the last written row, or 0 for an empty journal."""
        return int(self._reader.execute("SELECT max(rowid) FROM entries").fetchone()[0] or 0)

    def read_batches(self) -> dict[str, BatchRecord]:
        """Return the batches submitted to vendors, as a map from name to batch."""
        if not has_table(self._reader, "batches"):
            return {}
        rows = self._reader.execute(f"SELECT {BATCH_COLUMNS} FROM batches")
        return {row[0]: BatchRecord._make(row) for row in rows}

    def keys_of(self, batch: str) -> list[str]:
        """Return the keys of the requests in a batch."""
        rows = self._reader.execute(
            "SELECT key FROM batched WHERE batch = ? ORDER BY key", (batch,)
        )
        return [row[0] for row in rows]

    def count_open_batch_calls(self) -> int:
        """Return how many calls in batches have neither an entry nor a lost reply.

        The vendor may bill them.
        """
        batches = self.read_batches()
        keys = {key for name in batches for key in self.keys_of(name)}
        run = next(iter(batches), "").partition("-")[0]
        rows = (
            "SELECT address, fingerprint FROM entries WHERE kind = 'ask' UNION ALL "
            "SELECT address, fingerprint FROM superseded WHERE kind = 'ask'"
        )
        answered = set()
        for address, fingerprint in self._reader.execute(rows) if keys else ():
            answered.add(address)
            # A call that was submitted several times has a key for each time.
            step = 0
            while (key := batch_key(run, address, fingerprint, step)) in keys:
                keys.remove(key)
                step += 1
        # A result that could not be read is recorded as a lost reply. Its key is not known, because
        # it depends on the request.
        models = {batch.model for batch in batches.values()}
        first = min((batch.submitted_at for batch in batches.values()), default=0)
        lost = sum(
            reply.model in models and reply.at >= first and reply.address not in answered
            for reply in self.read_broken_replies()
        )
        return max(0, len(keys) - lost)

    def find_batch(self, key: str) -> str | None:
        """Return the name of the batch that holds a request, or None."""
        if not has_table(self._reader, "batched"):
            return None
        row = self._reader.execute("SELECT batch FROM batched WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def lookup_entry(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        """Return the entry at an address, or None if this call has not been made.

        Raises DriftError if the entry holds a request that differs from `request`.
        """
        # `request` is called only for this error, which shows a diff.
        # No check of hashes here, because every replayed call passes: resume and `verify` check the
        # whole file before.
        row = self._reader.execute(f"{SELECT_SQL} WHERE address = ?", (address,)).fetchone()
        if row is None:
            return None
        if row[2] == fingerprint:
            # Do not decode the stored request: its fingerprint is equal, so the caller has the same
            # one.
            return JournalEntry(row[0], row[1], row[2], {}, *row[4:])
        return self._drift_error(address, row[3], request)

    def _drift_error(
        self, address: str, stored: str, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        changed_lines = format_difference(self._restore_texts(json.loads(stored)), request())
        summary = f"{address}: the request differs from the one in the journal."
        error = DriftError(
            f"{summary} Restore the study as it was, or add --accept-changes to ask again where "
            f"it differs.\n{changed_lines}"
        )
        error.difference = f"{summary}\n{changed_lines}"
        raise error

    def read_entries(self, kind: str | None = None) -> Iterable[JournalEntry]:
        """Yield the committed entries in address order, with long texts restored.

        `kind`: only entries of this kind, "ask", "embed" or "compute".
        """
        where, parameters = ("WHERE kind = ?", (kind,)) if kind else ("", ())
        return self._read_entries(f"{where} ORDER BY address", parameters)

    def all_rows(self, table: str) -> Iterable[tuple[JournalEntry, float]]:
        """Yield each entry of a table with the time when the entry was replaced, in writing order.

        - `table`: `entries`, or `superseded` for replaced entries.

        Times are in seconds since 1970. All times are 0 for the table `entries`.
        """
        at = "at" if table == "superseded" else "0.0"
        times = self._reader.execute(f"SELECT {at} FROM {table} ORDER BY rowid").fetchall()
        entries = self._read_entries("ORDER BY rowid", table=table)
        for entry, (superseded_at,) in zip(entries, times, strict=True):
            yield entry, superseded_at

    def count_entries(self) -> int:
        """Return how many entries were ever written, including entries that have been lost."""
        # The journal stores the number of its events separately.
        event_count = read_meta_value(self._reader, "chain").partition(" ")[0]
        # The chain counts a superseded entry twice: when it was written and when it was superseded.
        superseding_rows = self._reader.execute("SELECT 2 * count(*) FROM superseded").fetchone()[0]
        return max(int(event_count) - superseding_rows if event_count.isdigit() else 0, len(self))

    def intact_entries(self, table: str) -> Iterator[tuple[int, JournalEntry, float]]:
        """Yield the number, the entry and the replacement time of each undamaged row of a table.

        - `table`: `entries`, or `superseded` for replaced entries.

        All times are 0 for the table `entries`.
        """
        at = "at" if table == "superseded" else "0.0"
        try:
            rows = self._reader.execute(f"SELECT rowid FROM {table} ORDER BY rowid").fetchall()
        except StorageError:
            # The table cannot be listed. Its rows may still be readable one by one.
            rows = [(number,) for number in range(1, self.last_row() + 1)]
        for (row,) in rows:
            try:
                # One query for each row: a damaged page ends a query, and later rows would be lost.
                entries = list(self._read_entries("WHERE rowid = ?", (row,), table))
                query = f"SELECT number, {at} FROM {table} WHERE rowid = ?"
                number, superseded_at = self._reader.execute(query, (row,)).fetchone() or (0, 0.0)
            except (StorageError, ValueError, TypeError, AttributeError):
                continue
            for entry in entries:
                yield number, entry, float(superseded_at)

    def damaged_calls(self) -> tuple[list[JournalEntry], int]:
        """Return the damaged calls of models, and the number of entries that cannot be read at all.

        The calls have no texts. Tokens and cost are None if they may have changed. Calls with a
        reply that a resume fetches from a batch again are left out.
        """
        # Whether all intact calls of each model are free. A model on this machine has no bill.
        free: dict[str, bool] = {}
        intact = set[int]()
        for table in ("entries", "superseded"):
            for number, entry, _ in self.intact_entries(table):
                intact.add(number)
                if entry.kind != "compute":
                    is_free = entry.cost_usd == 0.0 and free.get(entry.model_asked, True)
                    free[entry.model_asked] = is_free
        run = next(iter(self.read_batches()), "").partition("-")[0]
        calls: list[JournalEntry] = []
        # The number of events without the events of superseding.
        lost_count = self.count_entries() + self.superseded_count() - len(intact)
        self._reader.text_factory = _as_text
        try:
            for row in self._damaged_rows(intact):
                call, has_usage = _without_texts(row), has_intact_usage(row)
                is_call = bool(call.model_asked) if has_usage else row[2] != "compute"
                if is_call and not has_usage:
                    if call.model_asked not in free:
                        continue
                    cost_usd = 0.0 if free[call.model_asked] else None
                    call = JournalEntry(*call[:7], cost_usd=cost_usd, model_asked=call.model_asked)
                lost_count -= 1
                is_made = (
                    is_call and call.model_asked != HUMAN_MODEL and call.attempts != TAKEN_OVER
                )
                if is_made and not self.find_batch(batch_key(run, *call[:3:2], 0)):
                    calls.append(call)
        finally:
            self._reader.text_factory = str
        is_billed = not free or not all(free.values())
        return calls, max(0, lost_count) if is_billed else 0

    def _damaged_rows(self, intact: Collection[int]) -> Iterator[tuple[Any, ...]]:
        # Yields the rows that are not intact, with their number first.
        for table in ("entries", "superseded"):
            try:
                rows = self._reader.execute(f"SELECT rowid FROM {table}").fetchall()
            except StorageError:
                rows = [(number,) for number in range(1, self.last_row() + 1)]
            for (rowid,) in rows:
                query = f"SELECT number, {NAMES}, content, seal FROM {table} WHERE rowid = ?"
                try:
                    row = self._reader.execute(query, (rowid,)).fetchone()
                except StorageError:
                    continue
                if row is not None and row[0] not in intact:
                    yield row

    def entries_with_prefix(self, prefix: str) -> Iterable[JournalEntry]:
        """Return the entries at all addresses that begin with `prefix`, in the order of writing."""
        condition = "WHERE substr(address, 1, ?) = ? ORDER BY rowid"
        return self._read_entries(condition, (len(prefix), prefix))

    def row_number(self, address: str) -> int:
        """Return the row number of the entry at an address, or 0 if there is none."""
        row = self._reader.execute("SELECT rowid FROM entries WHERE address = ?", (address,))
        return int((row.fetchone() or (0,))[0])

    def entries_in_scope(self, scope: str) -> Iterable[JournalEntry]:
        """Yield the entries of a scope and its child scopes, without the requests."""
        # The entries come in address order.
        where = "WHERE address >= ? AND address < ? ORDER BY address"
        # "0" is the character after "/", see `addresses_in_scope`.
        bounds = (f"{scope}/", f"{scope}0")
        for row in self._read_rows(where, bounds):
            yield JournalEntry._make((*row[:3], {}, *row[4:]))

    def has_entries_in_scope(self, scope: str) -> bool:
        """Return whether the journal has an entry in a scope or in one of its child scopes."""
        # "0" is the character after "/", see `addresses_in_scope`.
        query = "SELECT 1 FROM entries WHERE address >= ? AND address < ? LIMIT 1"
        return self._reader.execute(query, (f"{scope}/", f"{scope}0")).fetchone() is not None

    def entries_after_row(self, row: int) -> Iterable[JournalEntry]:
        """Return the entries after this row, in the order of writing."""
        return self._read_entries("WHERE rowid > ? ORDER BY rowid", (row,))

    def _restore_texts(self, value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$text"}:
                key = bytes.fromhex(value["$text"])
                found = self._reader.execute(
                    "SELECT text FROM texts WHERE hash = ?", (key,)
                ).fetchone()
                if found is None or digest(found[0]) != key:
                    raise ForeignJournalError(
                        f"{self.path}: a long text of a request changed since it was written or "
                        "is missing; `folkmoot verify` lists the damaged requests"
                    )
                return found[0]
            return {name: self._restore_texts(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._restore_texts(item) for item in value]
        return value


class ReplayJournal(JournalReader):
    """A journal for replays, which refuses new entries.

    `asked`: the addresses that were looked up.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: set[str] = set()
        self.accept_changes = self.repaired = False
        self.changed = False
        self.before_change: Callable[[], None] | None = None

    def content_digest(self) -> str:
        """Return an empty string, since a replay writes nothing."""
        return ""

    def record_digest(self) -> str:
        """Return an empty string, since a replay writes nothing."""
        return ""

    def lookup_entry(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry:
        """Return the entry at an address.

        Raises NotJournaledError if there is no entry.
        Raises DriftError if the entry holds a request that differs from `request`.
        """
        found = super().lookup_entry(address, fingerprint, request)
        if found is None:
            raise NotJournaledError(f"{address} is not in the journal")
        self.asked.add(address)
        return found

    def end_repair(self) -> None:
        """Do nothing, because a replay writes nothing."""

    def notify_change(self) -> None:
        """Do nothing, because a replay writes nothing."""

    def append(self, entry: JournalEntry, covered_usd: float | None = None) -> None:
        raise NotJournaledError(f"{entry.address} is not in the journal")

    async def flush(self) -> None:
        """Do nothing, because a replay writes nothing."""


def _without_texts(row: Sequence[Any]) -> JournalEntry:
    # `row` is a damaged row with its number first. Returns the call without request and reply.
    address, kind, fingerprint = row[1:4]
    cells: tuple[Any, ...] = (
        replace_lone_surrogates(str(address)),
        kind if kind in ("ask", "embed") else "ask",
        fingerprint if isinstance(fingerprint, bytes) else b"",
        {"messages": []},
        "",
        None,
        SET_ASIDE,
    )
    return JournalEntry._make((*cells, *row[1 + len(cells) : 1 + len(COLUMNS)]))


def _as_text(stored: bytes) -> str:
    # Bytes that are not UTF-8 become surrogates.
    return stored.decode("utf-8", "surrogateescape")


def spent_in_journals(journals: Iterable[Path]) -> Spent:
    """Return what the runs with these journals have spent together."""
    total = Spent()
    # A process that was killed when it created the journal leaves an empty file.
    for path in (path for path in journals if path.stat().st_size):
        with JournalReader(path) as journal:
            total = total.add_spending(journal.spent())
    return total
