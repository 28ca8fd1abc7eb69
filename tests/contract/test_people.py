"""Human participants in every study type: who is shown a drawn persona."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import count, cycle, islice
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import JsonValue

import folkmoot
from folkmoot.engine.seats.personal_texts import find_personal_texts
from folkmoot.engine.seats.redaction import WITHDRAWAL_MARK
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState, read_seats
from folkmoot.engine.seats.withdrawal import withdraw_texts
from folkmoot.engine.study.study import find_study, registered_studies
from folkmoot.report.comparison.mixed import people_and_models
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.participants import LENGTH_ADVICE, STYLE_ADVICE
from folkmoot.studies.negotiation.rules.strategies import TOPICS
from tests.contract.small import people_of, small_study
from tests.engine.test_seats import build_seat_host
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

STUDIES = sorted(registered_studies())
PLAYABLE = {"negotiation": ("conditions=[C1, C2]",), "town_hall": ("levels=[4]",)}
STUDY_WITH_NAMES = """
study: negotiation
conditions: [C1]
groups:
  - id: home
    type: spouses
    members:
      - {role: spouse, name: Wilhelmina, persona: a retired judge who sings in a choir, PREFERENCES}
      - {role: spouse, name: Ottokar, persona: a beekeeper from the hills above town, PREFERENCES}
"""
COMPARED_ANSWERS = {
    "cross_pollination": {"initial vote: Park improvements", "second vote: Safer streets"},
    "focus_group": {
        "discussion oven before opinion position",
        "discussion box after intent: Probably would not buy",
    },
    "negotiation": set[
        str
    ](),  # under C1 and C2 members are asked for words and for lists of scores
    "town_hall": {"before satisfaction", "round1 turns overall stance: neutral"},
    "workbook": {"understood: yes", "give_1", "give_3", "satisfied: very satisfied"},
}
CARD = {"age": 34, "occupation": "glazier", "about": "I keep bees on the roof."}


class SeatRecord(NamedTuple):
    """The texts that a human in a seat was sent, their persona and their name."""

    texts: list[str]
    card: str
    name: str


def run_with_humans(
    study: str, path: Path, *overrides: str
) -> tuple[dict[str, SeatRecord], RunFolder]:
    """Run a small study with humans in two randomly drawn seats. Return their records by seat."""
    people, seats = people_of(study), dict[str, SeatRecord]()

    def answer(chair: SeatState, question: PendingQuestion) -> str:
        if question.address.startswith("seats/"):
            return json.dumps(CARD)
        who, messages = question.view.speaker, question.request.messages
        card = "\n".join(
            messages[span.message].content[span.start : span.end]
            for span in question.request.spans
            if span.source.kind == "persona" and span.source.speaker == who.id
        )
        sat = seats.setdefault(chair.seat.name, SeatRecord([], card, who.name))
        sat.texts.extend(message.content for message in messages)
        return people.reply(question.request, question.address).text

    run = folkmoot.run(
        path,
        out=path.parent / overrides[-1].rpartition("=")[2],
        model="synthetic",
        overrides=(*PLAYABLE.get(study, ()), "seats.count=2", *overrides),
        seat_host=build_seat_host(answer),
    )
    return seats, run.folder


def split_card(card: str) -> set[str]:
    """Split a persona into parts that no other text would contain by chance."""
    parts = (s.strip(" .,;:") for s in re.split(r"(?<=[.!?:;,])\s|\n", card))
    return {s for s in parts if len(s) > 12 and " " in s}


@pytest.mark.parametrize(
    ("study", "settings"),
    sample_daily(
        [*((study, ()) for study in STUDIES), ("focus_group", ("first_opinion=seeded",))],
        daily=[("cross_pollination", ()), ("focus_group", ())],
        part="pages",
    ),
)
def test_prompts_of_a_self_description_contain_nothing_of_the_persona(
    study: str, settings: tuple[str, ...], tmp_path: Path
) -> None:
    """Their prompts contain no part and no name of the persona, but their self-description."""
    path = small_study(study, tmp_path)
    persona, run = run_with_humans(study, path, *settings, "seats.as=persona")
    oneself, _ = run_with_humans(study, path, *settings, "seats.as=self")
    assert len(persona) == len(oneself) == 2
    for seat, sat in oneself.items():
        drawn, everything = persona[seat], "\n".join(sat.texts)
        values = split_card(drawn.card)
        assert values and [v for v in values if v not in "\n".join(drawn.texts)] == []
        assert [v for v in values if v in everything] == []
        assert sat.name == drawn.name or not re.search(rf"\b{drawn.name}\b", everything)
        assert "yourself. age: 34; occupation: glazier. I keep bees on the roof." in everything
        if study == "focus_group":
            assert sat.name != drawn.name and sat.name in everything
            assert [a for a in (*LENGTH_ADVICE, *STYLE_ADVICE) if a in everything] == []
            assert ("private reaction" in everything) == (settings == ())  # their own, once asked
    if not settings:
        assert_same_questions_compared(study, run)


def assert_same_questions_compared(study: str, run: RunFolder) -> None:
    """Assert that the report finds the questions that humans and models both answered: options,
    numbers and fields of forms, by their place in the protocol."""
    finding = people_and_models(run)
    if not COMPARED_ANSWERS[study]:
        assert finding is None
        return
    assert finding is not None and finding.illustrates
    found = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    assert COMPARED_ANSWERS[study] <= {str(row["answer"]) for row in found}
    # One answer for each person, however often they were asked.
    assert {row["people_n"] for row in found} == {2}


def test_prompts_of_a_self_description_contain_nothing_of_the_members_file(
    tmp_path: Path,
) -> None:
    """Ready-made wishes and a name of the file are the card's; the person is asked, and is called
    by their role."""
    wishes = {t: f"somewhere like the harbour of {t}" for t in TOPICS}
    path = tmp_path / "home.yaml"
    path.write_text(
        STUDY_WITH_NAMES.replace("PREFERENCES", f"preferences: {json.dumps(wishes)}"), "utf-8"
    )
    oneself, _ = run_with_humans("negotiation", path, "conditions=[C1]", "seats.as=self")
    assert {sat.name for sat in oneself.values()} == {"Partner 1", "Partner 2"}
    everything = "\n".join(t for sat in oneself.values() for t in sat.texts)
    hidden = ("Wilhelmina", "Ottokar", "judge", "beekeeper", "harbour")
    assert [word for word in hidden if word in everything] == []


@pytest.mark.parametrize("study", ["focus_group", "negotiation", "town_hall"])
def test_checks_of_the_model_leave_out_what_humans_answered(study: str, tmp_path: Path) -> None:
    """Repeated answers and choices from lists are those of participants whom the model played, also
    where a participant of another group has the id of the human."""
    path, study_type = small_study(study, tmp_path), find_study(study)
    seats, run = run_with_humans(study, path, "seats.as=persona")
    options = {"model": "synthetic", "overrides": PLAYABLE.get(study, ())}
    models = folkmoot.run(path, out=tmp_path / "models", **options).folder
    asked, of_all = (Counter(r.unit for r in study_type.repeats(each)) for each in (run, models))
    humans = {tuple(seat.split("/")) for seat in seats}
    by_participant = {unit: n for unit, n in of_all.items() if len(unit) == 2}
    assert {unit: asked[unit] for unit in by_participant} == {
        unit: 0 if unit in humans else n for unit, n in by_participant.items()
    }
    assert asked.total() < of_all.total()
    shown, all_shown = study_type.choices(run.whole), study_type.choices(models.whole)
    assert len(shown) < len(all_shown) or not all_shown


def replace_sentences(value: JsonValue, words: Iterator[str], sizes: Iterator[int]) -> JsonValue:
    """Return an answer in which words that no other text contains replace the sentences."""
    if isinstance(value, str):
        return f"{' '.join(islice(words, next(sizes)))}." if " " in value else value
    if isinstance(value, list):
        return [replace_sentences(v, words, sizes) for v in value]
    if isinstance(value, dict):
        return {k: replace_sentences(v, words, sizes) for k, v in value.items()}
    return value


def read_cells(run: RunFolder) -> dict[tuple[str, str, int], object]:
    """Return all cells, without the places of texts in prompts, which move with other texts."""
    return {
        (name, column, n): cell
        for name in run.table_names()
        for column in run.read_table(name).columns
        for n, cell in enumerate(run.read_table(name)[column].to_list())
        if (name, column) not in ((PROVENANCE, "start"), (PROVENANCE, "end"))
    }


# Daily, test_withdrawals takes back a participant's words in another type.
@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=("workbook",), part="mutations"))
def test_a_withdrawal_removes_all_words_of_the_participant_and_no_others(
    study: str, tmp_path: Path
) -> None:
    """Long and short texts and single words of forms and self-descriptions are in no file, table or
    journal afterwards. No other cell of the tables changes."""
    people = people_of(study)
    # Prompts and files change quotation marks and other signs.
    spellings = cycle(("{}", "{}", '"{}"', "{}", "{} <b>&", "“{}”"))
    words = (next(spellings).format(f"zyq{n}w") for n in count())
    sizes = cycle((8, 2, 3, 5, 12, 1, 4))
    own = re.compile(r"zyq\d+w")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        if question.address.startswith("seats/"):
            card = {"occupation": next(words), "home": "a b".replace(" ", next(words))}
            return json.dumps({**CARD, **card, "about": replace_sentences("a b", words, sizes)})
        reply = people.reply(question.request, question.address).text
        if question.view.answer_kind in ("choice", "number"):
            return reply
        try:
            return json.dumps(replace_sentences(json.loads(reply), words, sizes))
        except ValueError:
            return str(replace_sentences(reply, words, sizes))

    run = folkmoot.run(
        small_study(study, tmp_path),
        out=tmp_path / "run",
        model="synthetic",
        overrides=(*PLAYABLE.get(study, ()), "seats.count=1", "seats.as=self"),
        seat_host=build_seat_host(answer),
    ).folder
    before = read_cells(run)
    held = [p for p in run.path.rglob("*") if p.is_file() and own.search(p.read_text("latin-1"))]
    assert run.path / "journal.sqlite" in held
    (place,) = read_seats(run.path)
    withdraw_texts(run, find_personal_texts(run, place), "researcher")
    left = {p.name: own.findall(p.read_text("latin-1")) for p in run.path.rglob("*") if p.is_file()}
    assert {name: found for name, found in left.items() if found} == {}
    after = read_cells(RunFolder(run.path))
    assert [at for at, cell in after.items() if own.search(str(cell))] == []
    gone = {at for at in before if before[at] != after[at]}
    told = ("value", "said", "recorded", "how", "agrees", "position", "missing")
    deleted = {at for at in gone if at[0] == "answers" and at[1] in told}
    deleted |= {
        at for at in gone if at[0] == "utterances" and WITHDRAWAL_MARK.fullmatch(str(after[at]))
    }
    assert [at for at in gone - deleted if not own.search(str(before[at]))] == []
    rows = run.read_table("utterances")["speaker_id"]
    assert {rows[n] for table, _, n in deleted if table == "utterances"} <= {place.id}
    wrong = find_wrong_sources(run, find_study(study).tables)
    assert [found for found in wrong if not WITHDRAWAL_MARK.search(found.text)] == []
