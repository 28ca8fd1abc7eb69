"""A person withdraws: what they wrote goes from the journal, every table and every file of a run.

It goes where it stood in others' prompts and replies too: every run of `GRAM` words of theirs,
quotations of fewer, shorter texts where they stand alone, and what was cut off. In its place is a
mark with a hash, salted with what nobody keeps, so that equal marks show equal words and no mark
can be tried against a guess. Options that the person chose stay counted in the study's own tables;
the answers themselves are gone.

`amendments.jsonl` says what was done. The run can be read and reported as before, but what the
words led to can no longer be recomputed, which `folkmoot verify` says.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import JsonValue, ValidationError

from folkmoot.engine.desk import WITHDRAWN, recruitment_ids, seats_in, write_private
from folkmoot.engine.integrity import digest_of_run
from folkmoot.engine.journal import JournalReader
from folkmoot.engine.journal_copy import copy_journal, discard_copy, replace_journal
from folkmoot.engine.journal_file import Entry
from folkmoot.engine.seats import OwnCard, Playable, own_card_at
from folkmoot.errors import InputError, Problem
from folkmoot.models.catalog import HUMAN
from folkmoot.models.request import Request
from folkmoot.randomness import digest
from folkmoot.storage.amendments import Amendment, amend, amendments, rewrite
from folkmoot.storage.files import dumps, write_text
from folkmoot.storage.manifest import sha256
from folkmoot.storage.recording import RowFile
from folkmoot.storage.run_folder import (
    JOURNAL,
    MANIFEST,
    PEOPLE,
    PLAN,
    SEATS,
    STUDY_FILE,
    TABLES,
    RunFolder,
    cache_of,
    time_of_day,
)
from folkmoot.storage.tables import write_table

KIND = "withdrawal"
GRAM = 6  # consecutive words of theirs that count as their words, whoever wrote them down
FEW = 4  # words of a text shorter than that which do so anywhere
QUOTED = 3  # words of theirs that do so as a whole quotation, or as all that a cell holds
VECTOR = 16  # a list of so many numbers stands for a text
KEPT = (MANIFEST, PLAN, STUDY_FILE, SEATS, PEOPLE)  # hold nothing that a person wrote
# Cells of a row of `answers` that tell what its participant answered.
WITHDRAWN_CELLS = ("value", "said", "recorded", "how", "agrees", "position")
DERIVED = ("report.html", "report.pdf")  # made anew when wanted
# Not the name of a character in HTML, nor the letter of an escape within JSON.
_WORD = re.compile(r"(?<!&)(?<!&#)(?<!\\)\b\w+|(?<=\\[nrt])\w+")
# What a text that stands alone has on its sides: it is a line, an entry of a list, a quotation.
_BEFORE = re.compile(r"(?:^|[\n:;,.!?…/|(\[{)\]\"“‘«*>–—]|\\[nrt\"])[\s\"'“‘«•*_-]*$")
_AFTER = re.compile(r"[\s'’*_]*(?:$|[.!?…]|[\n;,/|()\[\]}\"”’»<–—]|\\[nrt\"])")
_OPENED, _CLOSED = re.compile(r"(?:^|[\"“‘«])[\s…]*$"), re.compile(r"[\s.!?…,]*(?:$|[\"”’»\\])")
_CUT = re.compile(r"[\s.!?,]*\w*…")
MARK = re.compile(r"\[withdrawn [0-9a-f]{12}\]")  # stands where words were


@dataclass
class Words:
    """What one person wrote, and how it is found again. `theirs` are addresses of their answers;
    `ids` names them in the study's files. `own` texts and rows are those that only they were shown
    or that tell of them: there every part of what they wrote counts."""

    theirs: frozenset[str]
    ids: frozenset[str]
    material: str  # words of the study itself, which are nobody's
    card: str = ""  # what they said of themselves, as it stands in their prompts
    grams: set[tuple[str, ...]] = field(default_factory=set)
    alone: set[tuple[str, ...]] = field(default_factory=set)
    quoted: set[tuple[str, ...]] = field(default_factory=set)
    started: set[tuple[str, ...]] = field(default_factory=set)  # of a text that was cut
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def learn(self, text: str, asked: Collection[str] = ()) -> None:
        """Take in something that the person wrote. Figures, and single words of what was `asked`,
        are no words of theirs."""
        for line in text.splitlines():
            words = _folded(line)
            letters = any(c.isalpha() for w in words for c in w)
            if 0 < len(words) < GRAM and letters and not (len(words) == 1 and words[0] in asked):
                self.alone |= {words, *_runs(words, FEW)}
            self.grams |= _runs(words, GRAM)
            for size in range(QUOTED, GRAM):
                self.quoted |= _runs(words, size)
            self.started |= {words[:size] for size in range(1, QUOTED)}

    def leave(self, text: str) -> None:
        """Leave out the single words that somebody else said alone: "No." is nobody's."""
        self.alone -= {words for line in text.splitlines() if len(words := _folded(line)) == 1}

    def settle(self) -> None:
        """Leave out what the study said itself."""
        said = _folded(self.material)
        for size in range(1, GRAM + 1):
            known = _runs(said, size)
            self.grams -= known
            self.alone -= known
            self.quoted -= known
            self.started -= known

    def mark(self, text: str) -> str:
        return f"[withdrawn {digest(self.salt, text.casefold(), size=6).hex()}]"  # see `MARK`

    def redacted(self, text: str, *, own: bool = False) -> str:
        """A text with marks in place of the person's words."""
        if own and self.card:
            text = text.replace(self.card, self.mark(self.card))
        words = list(_WORD.finditer(text))
        folded = [w[0].casefold() for w in words]
        theirs = [False] * len(words)
        for i in range(len(words) - GRAM + 1):
            if tuple(folded[i : i + GRAM]) in self.grams:
                theirs[i : i + GRAM] = [True] * GRAM
        for start, end in self._short(text, words, folded, own):
            theirs[start:end] = [True] * (end - start)
        spans: list[tuple[int, int]] = []
        for n, word in enumerate(words):
            theirs[n] |= n > 0 and theirs[n - 1] and text[word.end() : word.end() + 1] == "…"
            if theirs[n] and n and theirs[n - 1]:
                spans[-1] = (spans[-1][0], word.end())
            elif theirs[n]:
                spans.append((word.start(), word.end()))
        for start, end in reversed(spans):
            text = text[:start] + self.mark(text[start:end]) + text[end:]
        return text

    def _short(
        self, text: str, words: Sequence[re.Match[str]], folded: Sequence[str], own: bool
    ) -> Iterator[tuple[int, int]]:
        """Short texts of theirs that stand alone, and quotations of longer ones."""
        for i in range(len(words)):
            for size in range(1, min(GRAM, len(words) - i + 1)):
                run = tuple(folded[i : i + size])
                whole, part, start = (run in s for s in (self.alone, self.quoted, self.started))
                if not (whole or part or start):
                    continue
                before, after = text[: words[i].start()], text[words[i + size - 1].end() :]
                alone = _BEFORE.search(before[-40:]) and _AFTER.match(after)
                opened, cut = _OPENED.search(before[-40:]), _CUT.match(after)
                quoted = opened and (cut or _CLOSED.match(after))
                anywhere = size >= FEW or (own and size > 1)
                if (
                    (whole and (alone or anywhere))
                    or (part and (quoted or own))
                    or (start and opened and cut)
                ):
                    yield i, i + size

    def all_in(self, value: JsonValue, *, own: bool = False) -> JsonValue:
        """JSON data with all its texts redacted, and without the vectors of the person's texts."""
        if isinstance(value, str):
            return self.redacted(value, own=own)
        if isinstance(value, list):
            return [self.all_in(v, own=own) for v in value]
        if isinstance(value, dict):
            mine = own or any(isinstance(v, str) and v in self.ids for v in value.values())
            return {
                self.redacted(k): self.all_in(
                    _without_vectors(v) if mine or k in self.ids else v, own=mine or k in self.ids
                )
                for k, v in value.items()
            }
        return value


def _folded(text: str) -> tuple[str, ...]:
    return tuple(w.casefold() for w in _WORD.findall(text))


def _runs(words: Sequence[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def withdraw(run: RunFolder, place: Playable, by: str) -> None:
    """Take out what a person wrote; the caller holds the folder. Raises InputError where the run
    has no table of answers yet, or no person answered in this seat."""
    if not run.has_table("answers"):
        hint = "finish the run with --resume; who left is taken out at its end"
        raise InputError(Problem(f"{run.path} has no table of answers yet", hint=hint))
    answers = run.table("answers")
    rows = answers.filter(pl.col("answered_by") == HUMAN).rows(named=True)
    mine = [r for r in rows if r["speaker_id"] == place.id and _in(place, r["scope"])]
    if not mine:
        raise InputError(Problem(f"{place.name}: no person answered in this seat"))
    theirs = frozenset([*(r["address"] for r in mine), own_card_at(place)])
    material = "\n".join(run.text(name) for name in (STUDY_FILE, PLAN) if run.has(name))
    words = Words(theirs, frozenset({place.id}), material)
    free = {r["address"]: r["options"] for r in mine if r["kind"] not in ("choice", "number")}
    free[own_card_at(place)] = None
    with closing(JournalReader(run.path / JOURNAL)) as journal:
        for entry in journal.entries("ask"):
            if (address := _whose(entry.address, free)) is None:
                continue
            if address == own_card_at(place):
                words.card = _told(entry)
                words.learn(words.card)
            asked = {w for m in entry.request["messages"] for w in _folded(m["content"])}
            for text in _written(entry, free[address]):
                words.learn(text, asked)
        for entry in journal.entries("ask"):
            if _whose(entry.address, theirs) is None:
                words.leave(entry.reply)
    words.settle()
    RowFile(run.path).remove()  # of a process that was killed; a resume records the rows again
    _change_tables(run, words)
    _change_files(run, words)
    _drop_ids(run.path, place.name)
    changed = 0
    for path in sorted(run.path.rglob("*.sqlite")):
        changed += _change_journal(path, words)
    rewrite(run.path, lambda line: json.dumps(words.all_in(json.loads(line)), ensure_ascii=False))
    with closing(JournalReader(run.path / JOURNAL)) as journal:
        now = journal.content_digest()
        record = digest_of_run(journal.record_digest(), run.plan)
    data = {
        "seat": place.name,
        "answers": len(mine),
        "entries": changed,
        "addresses": sorted(theirs),
        "journal_digest": now,
        "record_digest": record,
        "hashes": {n: sha256(run.path / n) for n in run.manifest.get("hashes", {}) if run.has(n)},
    }
    amend(run.path, [Amendment(KIND, by, time_of_day(), data)])
    shutil.rmtree(cache_of(run.path), ignore_errors=True)  # what pages made of the words


def withdraw_pending(run: RunFolder) -> None:
    """Take out those who left while the run went on; the caller holds the folder."""
    known = {a.data.get("seat") for a in withdrawals(run.path)}
    for place, ended in seats_in(run.path).items():
        if ended == WITHDRAWN and place.name not in known:
            with suppress(InputError):  # who left before any answer has nothing to take out
                withdraw(run, place, "participant")


def withdrawals(run: Path) -> list[Amendment]:
    """Who withdrew, in order. Raises StorageError."""
    return [a for a in amendments(run) if a.kind == KIND]


def _in(place: Playable, scope: str) -> bool:
    return not place.scopes or not set(place.scopes).isdisjoint(scope.split("/"))


def _whose(address: str, addresses: Collection[str]) -> str | None:
    """Of these addresses, that at which an entry stands, or of which it is a further try."""
    while address not in addresses:
        address, dot, _ = address.rpartition(".")
        if not dot:
            return None
    return address


def _told(entry: Entry) -> str:
    """What a person said of themselves, as it stands in their prompts."""
    try:
        return OwnCard.model_validate_json(entry.reply).told
    except ValidationError:
        return ""


def _written(entry: Entry, options: str | None) -> Iterator[str]:
    """The free texts of an answer: all of it, or those of a JSON object, that no list offered."""
    offered = {*_offered(entry.request.get("schema")), *json.loads(options or "[]")}
    try:
        value: JsonValue = json.loads(entry.reply)
    except ValueError:
        value = entry.reply
    yield from (text for text in _texts(value) if text not in offered)


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _offered(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, part in schema.items():
            if key == "enum":
                yield from map(str, part)
            else:
                yield from _offered(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _offered(part)


def _without_vectors(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        numbers = len(value) >= VECTOR and all(isinstance(v, (int, float)) for v in value)
        return None if numbers else [_without_vectors(v) for v in value]
    if isinstance(value, dict):
        return {k: _without_vectors(v) for k, v in value.items()}
    return value


def _change_tables(run: RunFolder, words: Words) -> None:
    for name in run.tables():
        table = run.table(name)
        texts = [c for c, kind in table.schema.items() if kind in (pl.String, pl.List(pl.String))]
        plain = [c for c in texts if table.schema[c] == pl.String]
        own = table.select(pl.any_horizontal(pl.lit(False), pl.col(plain).is_in(words.ids)))
        mine = own.to_series().fill_null(False).to_list()
        changed = table.with_columns(
            pl.Series(
                c,
                [
                    words.all_in(cell, own=o)
                    for cell, o in zip(table[c].to_list(), mine, strict=True)
                ],
                table.schema[c],
            )
            for c in texts
        )
        if name == "answers":
            asked = pl.col("address").is_in(list(words.theirs))
            blank = [c for c in WITHDRAWN_CELLS if c in table.columns]
            changed = changed.with_columns(
                *(pl.when(asked).then(None).otherwise(pl.col(c)).alias(c) for c in blank),
                pl.when(asked)
                .then(pl.lit(WITHDRAWN))
                .otherwise(pl.col("missing"))
                .alias("missing"),
            )
        if not changed.equals(table):
            write_table(run.path / TABLES, name, changed)


def _change_files(run: RunFolder, words: Words) -> None:
    for path in run.path.glob("export-*"):
        shutil.rmtree(path)
    for name in DERIVED:
        (run.path / name).unlink(missing_ok=True)
    for path in sorted(p for p in run.path.rglob("*") if p.is_file()):
        inside = path.relative_to(run.path).as_posix()
        if inside in KEPT or inside.startswith(f"{TABLES}/") or path.name.startswith("."):
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:  # a journal or a picture
            continue
        changed = _changed(path.suffix, text, words)
        if changed != text:
            write_text(path, changed)


def _changed(suffix: str, text: str, words: Words) -> str:
    try:
        if suffix == ".json":
            was: JsonValue = json.loads(text)
            now = words.all_in(was)
            return text if now == was else dumps(now)
        if suffix == ".jsonl":
            lines = (
                json.dumps(words.all_in(json.loads(x)), ensure_ascii=False)
                for x in text.splitlines()
            )
            return "".join(f"{line}\n" for line in lines)
    except ValueError:
        pass
    return words.redacted(text)


def _drop_ids(run: Path, seat: str) -> None:
    known = dict(recruitment_ids(run))
    if known.pop(seat, None) is not None:
        write_private(run / PEOPLE, known)


def _change_journal(path: Path, words: Words) -> int:
    """Write a journal anew without the person's words; how many entries are not what they were.

    A new file takes the place of the old one, so that no page of it keeps what was deleted.
    """
    count = 0

    def change(entry: Entry) -> Entry:
        nonlocal count
        changed = _changed_entry(entry, words)
        count += changed != entry
        return changed

    with closing(JournalReader(path)) as old:
        new = copy_journal(old, change)
    if count:
        replace_journal(path, new)
    else:
        discard_copy(new)
    return count


def _changed_entry(entry: Entry, words: Words) -> Entry:
    own = entry.kind == "ask" and _whose(entry.address, words.theirs) is not None
    request: Any = words.all_in(dict(entry.request), own=own)
    if own:
        reply = words.mark(entry.reply) if entry.reply else ""
        return _sealed(entry._replace(reply=reply, finish=f"refused:{WITHDRAWN}"), request)
    blob = entry.blob
    if entry.kind == "embed" and request != entry.request and blob:
        blob = _without_rows(blob, entry.request["texts"], request["texts"])
    return _sealed(entry._replace(reply=_reply(entry.reply, words), blob=blob), request)


def _reply(reply: str, words: Words) -> str:
    """A reply redacted, which stays JSON where it was."""
    try:
        was: JsonValue = json.loads(reply)
    except ValueError:
        return words.redacted(reply)
    now = words.all_in(was)
    return reply if now == was else json.dumps(now, ensure_ascii=False)


def _without_rows(blob: bytes, was: Sequence[str], now: Sequence[str]) -> bytes:
    """Embeddings, with NaN in place of those whose texts are gone."""
    vectors = np.frombuffer(blob, dtype=np.float32).reshape(len(was), -1).copy()
    vectors[[a != b for a, b in zip(was, now, strict=True)]] = np.nan
    return vectors.tobytes()


def _sealed(entry: Entry, request: Mapping[str, Any]) -> Entry:
    """The entry with its request, and the fingerprint of it."""
    made = entry.fingerprint
    if request != entry.request and entry.kind == "embed":
        made = digest(request["model"], *request["texts"])
    elif request != entry.request and entry.kind == "ask":
        made = Request.from_json(request).fingerprint()
    return entry._replace(request=request, fingerprint=made)
