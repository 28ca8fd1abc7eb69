"""One of the people of a run: what is recorded, each decision with what was shown, all that was
said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl
from starlette.exceptions import HTTPException

from folkmoot.engine.journal.journal import name_in
from folkmoot.kit.exposure import ExposureRow
from folkmoot.storage.findings import Cell, Grid
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.people import KEY, LONG, NAMES, frame, journal_of, names_in, people_of, records
from folkmoot.view.talk import Said, addresses_of, said, said_by_others

MOST_ROWS = 60  # of another table about one person


class Shown(NamedTuple):
    """A kind of text at a decision: how many of it stood in the prompt, which, and whether the
    design shows it there (None: it says neither)."""

    kind: str
    texts: int
    ids: tuple[str, ...]
    share: float | None
    expected: bool | None

    @property
    def wrong(self) -> bool:
        return self.expected is not None and self.expected != bool(self.texts)


class Decision(NamedTuple):
    """A decision, its outcome in words, and what stood in its prompt."""

    name: str
    outcome: str
    address: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Person:
    """All of one person. `facts` are short, `texts` long (column, words)."""

    key: str
    name: str
    facts: tuple[tuple[str, Cell], ...]
    texts: tuple[tuple[str, str], ...]
    decisions: tuple[Decision, ...]
    talk: tuple[Said, ...]
    records: tuple[tuple[str, Grid, int], ...]  # (table, first rows, all of them)


def person(run: RunFolder, key: str) -> Person:
    """One of the people by the key of the table. Raises HTTPException (404) for nobody."""
    people = people_of(run)
    everybody = frame(run, people)
    rows = everybody.filter(pl.col(KEY) == key).head(1).collect().to_dicts()
    if not rows and "/" not in key:  # an id without its conversation, where one has it
        named = everybody.filter(pl.col(people.id).cast(pl.String) == name_in(key))
        rows = named.head(2).collect().to_dicts()
        rows, key = (rows, str(rows[0][KEY])) if len(rows) == 1 else ([], key)
    parts = [name_in(part) for part in key.split("/")]
    row = {k: v for k, v in rows[0].items() if k != KEY} if rows else {}
    name = next((str(row[c]) for c in NAMES if row.get(c)), parts[-1])
    names = names_in(run, parts[:-1]) if len(parts) > 1 else {parts[-1]: name}
    talk: list[Said] = []
    if (opened := journal_of(run)) is not None:
        with opened as journal:
            addresses = addresses_of(journal, parts[:-1], parts[-1])
            talk = said(run, journal, addresses, who=parts, names=names)
            within = dict(zip(people.within, parts[:-1], strict=False))
            talk += said_by_others(run, journal, parts, within, names)
            talk.sort(key=lambda reply: reply.at)
    if not rows and not talk:
        raise HTTPException(404, f"There is nobody called {key} in {run.id}.")
    about = records(run, people, parts) if rows and people.table else ()
    return Person(
        key,
        name,
        tuple((k, v) for k, v in row.items() if v not in (None, name) and not _is_long(v)),
        tuple((k, _listed(v)) for k, v in sorted(row.items(), key=_persona_first) if _is_long(v)),
        tuple(_decisions(run, talk)),
        tuple(talk),
        tuple((table, _grid(found), found.height) for table, found in about),
    )


def _is_long(value: object) -> bool:
    return isinstance(value, str) and (len(value) > LONG or value.startswith(("[", "{")))


def _persona_first(cell: tuple[str, object]) -> bool:
    return cell[0] != "persona"


def _listed(value: str) -> str:
    """A cell of several values in words."""
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return "; ".join(map(str, found)) if isinstance(found, list) else value


def _grid(found: pl.DataFrame) -> Grid:
    kept = [c for c in found.columns if found[c].null_count() < found.height]
    return Grid(tuple(kept), tuple(found.select(kept).head(MOST_ROWS).iter_rows()))


def _decisions(run: RunFolder, talk: Sequence[Said]) -> list[Decision]:
    """The decisions in the order in which they were made; without the table, the choices."""
    outcomes = {s.address: _outcome(s) for s in talk}
    if not run.has_table(ExposureRow.table):
        return [Decision(s.place, s.value, s.address, ()) for s in talk if s.own and s.value]
    table = run.lazy(ExposureRow.table)
    mine = table.filter(pl.col("address").is_in(list(outcomes))).collect()
    found: dict[str, tuple[str, list[Shown]]] = {}
    for row in mine.iter_rows(named=True):
        _, shown = found.setdefault(row["address"], (row["decision"], []))
        ids = tuple(map(str, json.loads(row["text_ids"] or "[]")))
        shown.append(Shown(row["kind"], row["texts"], ids, row["share"], row["expected"]))
    return [
        Decision(found[a][0], outcomes[a], a, tuple(found[a][1])) for a in outcomes if a in found
    ]


def _outcome(reply: Said) -> str:
    if reply.missing:
        return ""
    return reply.value or reply.text or "; ".join(f"{k}: {v}" for k, v in reply.fields)
