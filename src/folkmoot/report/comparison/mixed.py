"""People and models at one table: how both answered the same questions of one run.

A question is a place in the protocol (its scope without who was asked, and in which session), and
of a form each figure or choice in it. The seat is the unit, or the session where several sit
together and hear each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl
from pydantic import JsonValue

from folkmoot.conversation.answer_types import DECLINED
from folkmoot.engine.journal.journal import JournalReader
from folkmoot.engine.seats.seat_manager import seats_in
from folkmoot.kit.claims import SAID
from folkmoot.kit.findings import (
    Row,
    adjusted,
    cells,
    change,
    intervals,
    p_cells,
    points,
)
from folkmoot.measures.inference.clustered import clustered_difference
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, plural
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.measures.wording import EXPLORATORY_TESTS
from folkmoot.models.catalog import HUMAN
from folkmoot.report.comparison.people import MOST_LEVELS, SECTION
from folkmoot.report.comparison.samples import asked_of_participants
from folkmoot.storage.findings import Finding, Grid
from folkmoot.storage.run_folder import JOURNAL, RunFolder

KEY = "people_and_models"  # of the finding
ANYBODY, ANY_SESSION = "*", "+"  # in place of who was asked, and in which session
MOST_LINES = 20  # of the chart


class Seat(NamedTuple):
    """Who answered, in which session (empty: alone)."""

    session: str
    who: str


@dataclass(slots=True)
class Answers:
    """The answers to one question by seat, of people and of models: options, or figures."""

    people: dict[Seat, str | float] = field(default_factory=dict)
    models: dict[Seat, str | float] = field(default_factory=dict)


def people_and_models(run: RunFolder) -> Finding | None:
    """Where people and models answered the same questions: shares and means of both, and their
    differences. None where nobody or everybody was a person. Raises StorageError."""
    asked = asked_of_participants(run).collect()
    by = set(asked["answered_by"])
    if HUMAN not in by or len(by) < 2:
        return None
    asked = asked.filter(pl.col("missing").is_null())
    sessions = {s for place in seats_in(run.path) for s in place.scopes}
    found = _read(run, asked, sessions)
    rows, differences = list[Row](), dict[str, Estimate]()
    for question, answers in found.items():
        for option, label in _measures(question, answers):
            row, e = _compared(answers, option)
            differences[label] = e
            rows.append({"answer": label, **row})
    if not rows:
        return None
    holm = adjusted(differences)
    for row, (label, e) in zip(rows, differences.items(), strict=True):
        row |= {**cells(e, "models_minus_people"), **p_cells(e, holm[label])}
    seats = {seat for answers in found.values() for seat in answers.people}
    together = any(seat.session for seat in seats)
    shown = dict(list(differences.items())[:MOST_LINES])
    return Finding(
        KEY,
        "People and models who answered the same questions",
        _aloud(differences, len(found), len(seats)),
        Grid.of(
            rows,
            "Of options the share of seats that chose it, of figures the mean of seats; the last "
            "answer of a seat counts. Models minus people, with 95 % intervals.",
        ),
        intervals(shown, "models minus people", zero=0.0),
        notes=(
            EXPLORATORY_TESTS,
            "Seats that were drawn by lot differ in who sits there alone; people who chose their "
            "seats, or speak for themselves, differ from the personas in other ways too. After a "
            "conversation both have heard each other.",
        ),
        section=SECTION,
        headline=True,
        unit="session with people" if together else "seat",
        units=len({seat.session if together else seat for seat in seats}),
    )


def _read(run: RunFolder, asked: pl.DataFrame, sessions: set[str]) -> dict[str, Answers]:
    """Question → answers, of those questions that people and models have answered."""
    rows = asked.to_dicts()
    places = {
        (parts[0], len(parts), at)
        for r in rows
        if r["answered_by"] == HUMAN
        for parts in [r["scope"].split("/")]
        for at, part in enumerate(parts)
        if part in sessions
    }
    by_question: dict[str, list[tuple[Seat, Row]]] = {}
    for row in rows:
        parts = row["scope"].split("/")
        shared = [n for n in range(len(parts)) if (parts[0], len(parts), n) in places]
        seat = Seat(parts[shared[0]] if shared else "", row["speaker_id"])
        named = [
            ANY_SESSION if n in shared else ANYBODY if part == seat.who else part
            for n, part in enumerate(parts)
        ]
        by_question.setdefault("/".join(named), []).append((seat, row))
    found: dict[str, Answers] = {}
    with closing(JournalReader(run.path / JOURNAL)) as journal:
        for question, given in by_question.items():
            if {HUMAN} < {HUMAN if r["answered_by"] == HUMAN else "" for _, r in given}:
                for seat, row in given:
                    for name, value in _values(row, journal):
                        answers = found.setdefault(f"{question}/{name}".rstrip("/"), Answers())
                        side = answers.people if row["answered_by"] == HUMAN else answers.models
                        side[seat] = value
    return {q: a for q, a in found.items() if a.people and a.models and _alike(a)}


def _alike(answers: Answers) -> bool:
    values = [*answers.people.values(), *answers.models.values()]
    return len({isinstance(v, str) for v in values}) == 1


def _values(row: Row, journal: JournalReader) -> Iterator[tuple[str, str | float]]:
    """The options and figures of one answer, each with the name of its field."""
    value = row["value"]
    if row["kind"] in ("choice", "number"):
        yield "", str(value) if row["kind"] == "choice" else float(str(value))
        return
    if row["kind"] == "text":
        return
    entry = journal.at(journal.tries(str(row["address"]))[-1])
    try:
        reply: JsonValue = json.loads(entry.reply) if entry is not None else None
    except ValueError:
        return
    schema = entry.request.get("schema") if entry is not None else None
    offered = _offered(schema)
    listed = set(json.loads(str(row["options"]))) if row["options"] else set()
    for name, part in reply.items() if isinstance(reply, dict) else [("", reply)]:
        if name == DECLINED:  # a way out, and no answer to the question
            continue
        if isinstance(part, (bool, int, float)) and math.isfinite(part):
            yield name, float(part)
        elif isinstance(part, str) and part in offered.get(name, listed):
            yield name, part


def _offered(schema: object) -> dict[str, set[str]]:
    """Field → the options that a form lists for it."""
    fields = schema.get("properties") if isinstance(schema, dict) else None
    found: dict[str, set[str]] = {}
    for name, part in fields.items() if isinstance(fields, dict) else ():
        listed = part.get("enum") if isinstance(part, dict) else None
        if isinstance(listed, list):
            found[name] = {str(option) for option in listed}
    return found


def _measures(question: str, answers: Answers) -> Iterator[tuple[str | None, str]]:
    """What is compared of a question: each option (its name), or the figure (None); its label."""
    parts = [part for part in question.split("/") if part not in (ANYBODY, ANY_SESSION)]
    label = " ".join(parts).replace("_", " ")
    values = [*answers.people.values(), *answers.models.values()]
    options = sorted({v for v in values if isinstance(v, str)})
    if not options:
        yield None, label
    elif len(options) <= MOST_LEVELS:
        yield from ((option, f"{label}: {option}") for option in options)


def _compared(answers: Answers, option: str | None) -> tuple[Row, Estimate]:
    """The cells of people and of models, and models minus people."""

    def numbers(side: Mapping[Seat, str | float]) -> list[float]:
        return [float(v == option) if option is not None else float(v) for v in side.values()]

    people, models = numbers(answers.people), numbers(answers.models)
    seats = [*answers.people, *answers.models]
    if option is not None and not any(seat.session for seat in seats):
        e = newcombe(int(sum(models)), len(models), int(sum(people)), len(people))
    else:
        clusters: list[Hashable] = [seat.session or seat for seat in seats]
        treated = [False] * len(people) + [True] * len(models)
        e = clustered_difference([*people, *models], treated, clusters)
        e = e.within(-1.0, 1.0) if option is not None else e
    if min(len(people), len(models)) < FEWEST_UNITS:
        e = replace(e, low=math.nan, high=math.nan, p=math.nan)
    row: Row = {
        "people": sum(people) / len(people),
        "people_n": len(people),
        "models": sum(models) / len(models),
        "models_n": len(models),
    }
    return row, e


def _aloud(differences: Mapping[str, Estimate], questions: int, people: int) -> str:
    """The first differences, in the order of the questions: to pick the largest would overstate
    it."""
    begins = f"{plural(people, 'person', 'people')} and models answered the same "
    begins += plural(questions, "question")
    if not any(e.has_interval for e in differences.values()):
        return f"{begins}; nothing can be tested."
    said = (
        f"{label} {points(e) if ': ' in label else change(e)}"
        for label, e in list(differences.items())[:SAID]
    )
    more = len(differences) - SAID
    rest = f" and {more} more in the table" if more > 0 else ""
    return f"{begins}. Models minus people: {'; '.join(said)}{rest}."
