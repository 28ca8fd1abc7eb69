"""Compare the answers of humans and of models to the same questions of one run."""
# Addresses of the same question differ only in the speaker and the session. A question with a
# JSON answer is divided into its fields, unless the study type names its answers. The independent
# unit is the seat, or the session if several participants share a conversation.

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from folkmoot.conversation.answer_format import match_field_names
from folkmoot.conversation.answer_types import DECLINED
from folkmoot.conversation.json_replies import json_candidates
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.questionnaire import excluded_seats
from folkmoot.engine.seats.seat_manager import read_seats
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.study.study import Study, find_study_of_run
from folkmoot.kit.claims import LEVELS, list_estimates, result_cells
from folkmoot.kit.findings import Row, interval_chart
from folkmoot.kit.reply_units import scan_participant_answers
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, Margin, Verdict
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.differences import Side, arm_means
from folkmoot.measures.inference.estimates import ALPHA, format_count
from folkmoot.measures.inference.families import judge_families
from folkmoot.measures.wording import EXPLORATORY, Sentence, word
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.report.comparison.people import MAX_LEVELS, SECTION
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.run_folder import JOURNAL, RunFolder

# The key of the finding.
KEY = "people_and_models"
# These replace the speaker and the session in a scope.
ANY_PARTICIPANT, ANY_SESSION = "*", "+"
# A share of models may differ from that of people by as much as a negative control between
# conditions.
MAX_DIFFERENCE = Margin(-0.15, 0.15)
# Most lines of the chart.
MAX_LINES = 20


class AnswererKey(NamedTuple):
    """The session and the speaker of an answer."""

    # Empty if the participant answered alone.
    session: str
    speaker_id: str


@dataclass(slots=True)
class SeatAnswers:
    """The answers of humans and of models to one question.

    Each attribute maps session and speaker to the answer.
    """

    # The name of the question in the report.
    label: str
    # Answers are options or numbers.
    people: dict[AnswererKey, str | float] = field(default_factory=dict)
    models: dict[AnswererKey, str | float] = field(default_factory=dict)


def people_and_models(run: RunFolder, study: Study | None = None) -> Finding | None:
    """Return the finding on questions that both humans and models answered.

    - `study`: the study type of the run. None means that it is looked up.

    Returns None if only humans or only models answered.
    Raises StorageError if the journal cannot be read.
    """
    asked = scan_participant_answers(run).collect()
    seats_of_humans = read_seats(run.path)
    if excluded := excluded_seats(run):
        study = study or find_study_of_run(run)
        left_out = [seat for seat in seats_of_humans if seat.name in excluded]
        asked = _without_parts_of(left_out, asked, study)
    answers = asked.filter(pl.col("missing").is_null())
    answerer_kinds = set(answers["answered_by"])
    if HUMAN_MODEL not in answerer_kinds or len(answerer_kinds) < 2:
        return None
    sessions = {scope for seat in seats_of_humans for scope in seat.scopes}
    named = (study or find_study_of_run(run)).named_answers(run)
    answers_by_question = _read_answers(run, answers, sessions, named)
    # If any human shares a session, all answers of a session form one unit. This is the cautious
    # choice.
    seats = {seat for answers in answers_by_question.values() for seat in answers.people}
    share_sessions = any(seat.session for seat in seats)
    unit = "session with people" if share_sessions else "seat"
    sides = {
        _claim(question, label, option, unit): _sides(answers, option)
        for question, answers in answers_by_question.items()
        for option, label in _question_measures(answers)
    }
    if not sides:
        return None
    results = judge_families(list(sides), lambda claim: (claim, *sides[claim]))
    rows: list[Row] = []
    for result in results:
        models, people = sides[result.claim]
        model_mean, people_mean = arm_means(models, people)
        rows.append(
            {
                "answer": result.claim.outcome,
                "people": people_mean,
                "people_n": len(people.values),
                "models": model_mean,
                "models_n": len(models.values),
                **result_cells(result, "models_minus_people"),
                "verdict": _judge_difference(result),
            }
        )
    shown_estimates = {result.claim.outcome: result.estimate for result in results[:MAX_LINES]}
    shown_text = f"The chart draws the first {MAX_LINES} of {len(results)} answers."
    return Finding(
        KEY,
        "People and models who answered the same questions",
        _describe_differences(results, list(answers_by_question.values())),
        ResultTable.from_records(
            rows,
            "An option has the share of seats that chose it, a figure the mean of seats. Every "
            "seat counts equally, and its last answer counts. Models minus people, with 95 % "
            "intervals. Verdict of a share: passed if the whole interval is within 15 points, "
            "failed if the whole interval is outside. Verdict of a figure: failed if its adjusted "
            "p is below .05, otherwise not known.",
        ),
        interval_chart(shown_estimates, "models minus people", zero=0.0),
        notes=(
            LEVELS,
            EXPLORATORY,
            "Randomly drawn seats differ only in who sits there. People who chose their seats, or "
            "answer as themselves, differ from the personas in other ways too. After a "
            "conversation both have heard each other.",
            *([shown_text] if len(results) > MAX_LINES else []),
        ),
        section=SECTION,
        headline=True,
        unit=unit,
        units=len({seat.session if share_sessions else seat for seat in seats}),
    )


def _without_parts_of(seats: Sequence[Seat], asked: pl.DataFrame, study: Study) -> pl.DataFrame:
    # Other figures leave out the whole part of an excluded human, such as all discussions of a set.
    # Study types that name the unit of replies name this part. Otherwise it is a session or a seat.
    if study.reply_unit is None:
        groups = [seat.group for seat in seats]
        names = pl.col("scope").str.split("/").list.concat("speaker_id")
        return asked.filter(names.list.set_intersection(groups).list.len() == 0)
    units = [study.reply_unit(row) for row in asked.iter_rows(named=True)]
    # The rows have missing answers too, because a human without any answer is excluded as well.
    left_out = {
        unit
        for unit, speaker_id, scope in zip(units, asked["speaker_id"], asked["scope"], strict=True)
        if any(seat.owns_call(Speaker(speaker_id), scope.split("/")) for seat in seats)
    }
    return asked.filter([unit not in left_out for unit in units])


def _judge_difference(result: Result) -> Verdict:
    # There is no margin for numbers, so their verdict is "failed" or "not known".
    if result.claim.kind == "share":
        return MAX_DIFFERENCE.judge_interval(result.estimate)
    return FAILED if result.is_tested and result.p < ALPHA else NOT_KNOWN


def _read_answers(
    run: RunFolder,
    answer_table: pl.DataFrame,
    sessions: set[str],
    named: Mapping[str, Mapping[str, str | float]],
) -> dict[str, SeatAnswers]:
    # `named`: see `Study.named_answers`.
    rows = answer_table.to_dicts()
    # Positions of a session name in the scopes of human answers. A position is the first part of
    # the scope, its length, and an index. The same positions in scopes of models hold sessions of
    # models.
    session_positions = {
        (parts[0], len(parts), position)
        for row in rows
        if row["answered_by"] == HUMAN_MODEL
        for parts in [row["scope"].split("/")]
        for position, part in enumerate(parts)
        if part in sessions
    }
    by_question: dict[str, list[tuple[AnswererKey, Row]]] = {}
    for row in rows:
        parts = row["scope"].split("/")
        shared_positions = [
            position
            for position in range(len(parts))
            if (parts[0], len(parts), position) in session_positions
        ]
        seat = AnswererKey(
            parts[shared_positions[0]] if shared_positions else "", row["speaker_id"]
        )
        question_parts = [
            ANY_SESSION
            if position in shared_positions
            else ANY_PARTICIPANT
            if part == seat.speaker_id
            else part
            for position, part in enumerate(parts)
        ]
        by_question.setdefault("/".join(question_parts), []).append((seat, row))
    answers_by_question: dict[str, SeatAnswers] = {}
    with closing(JournalReader(run.path / JOURNAL)) as journal:
        for question, question_rows in by_question.items():
            # The second set holds HUMAN_MODEL and "" if both humans and models answered the
            # question.
            if {HUMAN_MODEL} < {
                HUMAN_MODEL if row["answered_by"] == HUMAN_MODEL else "" for _, row in question_rows
            }:
                for seat, row in question_rows:
                    values = named.get(str(row["address"]))
                    for name, value in (
                        _answer_values(question, row, journal) if values is None else values.items()
                    ):
                        label = _label_question(name) if values is None else name
                        answers = answers_by_question.setdefault(name, SeatAnswers(label))
                        side = (
                            answers.people if row["answered_by"] == HUMAN_MODEL else answers.models
                        )
                        # The last answer of a seat overwrites earlier ones.
                        side[seat] = value
    return {
        question: seat_answers
        for question, seat_answers in answers_by_question.items()
        if seat_answers.people and seat_answers.models and _is_comparable(seat_answers)
    }


def _is_comparable(answers: SeatAnswers) -> bool:
    values = [*answers.people.values(), *answers.models.values()]
    return len({isinstance(value, str) for value in values}) == 1


def _answer_values(
    question: str, row: Row, journal: JournalReader
) -> Iterator[tuple[str, str | float]]:
    value = row["value"]
    if row["kind"] in ("choice", "number"):
        yield question, str(value) if row["kind"] == "choice" else float(str(value))
        return
    if row["kind"] == "text":
        return
    # The last try holds the reply that was parsed.
    entry = journal.entry_at(journal.list_ask_addresses(str(row["address"]))[-1])
    # Humans answer by a form. Models often put their JSON into a code fence or after a sentence.
    candidates = json_candidates(entry.reply if entry is not None else "", "{[")
    _, value_in_reply = next(candidates, ("", None))
    schema = entry.request.get("schema") if entry is not None else None
    reply, _ = match_field_names(value_in_reply, schema)
    options_by_field = _offered_options(schema)
    row_options = set(json.loads(str(row["options"]))) if row["options"] else set()
    for name, part in reply.items() if isinstance(reply, dict) else [("", reply)]:
        # This field lets a participant decline. It holds no answer to the question.
        if name == DECLINED:
            continue
        part_of_question = f"{question}/{name}".rstrip("/")
        if isinstance(part, (bool, int, float)) and math.isfinite(part):
            yield part_of_question, float(part)
        elif isinstance(part, str) and part in options_by_field.get(name, row_options):
            yield part_of_question, part


def _offered_options(schema: object) -> dict[str, set[str]]:
    fields = schema.get("properties") if isinstance(schema, dict) else None
    options_by_field: dict[str, set[str]] = {}
    for name, part in fields.items() if isinstance(fields, dict) else ():
        enum_values = part.get("enum") if isinstance(part, dict) else None
        if isinstance(enum_values, list):
            options_by_field[name] = {str(option) for option in enum_values}
    return options_by_field


def _label_question(question: str) -> str:
    parts = [part for part in question.split("/") if part not in (ANY_PARTICIPANT, ANY_SESSION)]
    return " ".join(parts).replace("_", " ")


def _question_measures(answers: SeatAnswers) -> Iterator[tuple[str | None, str]]:
    values = [*answers.people.values(), *answers.models.values()]
    options = sorted({value for value in values if isinstance(value, str)})
    if not options:
        yield None, answers.label
    elif len(options) <= MAX_LEVELS:
        yield from ((option, f"{answers.label}: {option}") for option in options)


def _claim(question: str, label: str, option: str | None, unit: str) -> Claim:
    return Claim(
        f"answers.{question}",
        ("models", "people"),
        "mean" if option is None else "share",
        unit=unit,
        estimand=f"{label}: models minus people in this run; independent unit: {unit}.",
        outcome=label,
    )


def _sides(answers: SeatAnswers, option: str | None) -> tuple[Side, Side]:
    # (answers of models, answers of humans). With `option`, an answer counts as 1 if it is this
    # option, and as 0 otherwise. All seats of a session are one independent unit.
    models, people = (
        Side.from_values(
            [
                float(value == option) if option is not None else float(value)
                for value in side.values()
            ],
            [seat.session or seat for seat in side],
        )
        for side in (answers.models, answers.people)
    )
    return models, people


def _describe_differences(results: Sequence[Result], questions: Sequence[SeatAnswers]) -> Sentence:
    # Show the first differences in the order of the questions. The largest ones would overstate the
    # result.
    people = {seat for answers in questions for seat in answers.people}
    models = {seat for answers in questions for seat in answers.models}
    what = word(
        "description",
        "people and models, one" if len(questions) == 1 else "people and models",
        people=format_count(len(people), "person", "people"),
        participants=format_count(len(models), "participant"),
        questions=format_count(len(questions), "question"),
    )
    if not any(result.estimate.has_interval for result in results):
        return word("refusal", "nothing to test", what=what)
    estimates = list_estimates(
        [
            word("estimate", "of a measure", about=r.claim.outcome, estimate=r.estimate_text)
            for r in results
        ]
    )
    return word("estimate", "listed of a measure", about=what, estimates=estimates)
