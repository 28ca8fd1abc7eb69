"""The pool: grows, is drawn from, survives two writers, and never overwrites what is no pool."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from folkmoot.errors import InputError, StorageError
from folkmoot.people import Persona, Pool, draw_personas, migrate_personas, target_pool_size
from folkmoot.randomness import generator


def person(i: int, **more: object) -> Persona:
    return Persona(
        id="",
        text=f"Person {i}, a baker.",
        base=f"A baker number {i}",
        demographics={"age": 30 + i % 30, "sex": "F"},
        source="test",
        extra=dict(more),
    )


def test_round_trip_order_and_ids(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "data" / "personas.json")
    assert pool.load_personas() == []
    assert pool.add_personas([person(i, shoe=i) for i in range(7)]) == 7
    back = pool.load_personas()
    assert [p.base for p in back] == [f"A baker number {i}" for i in range(7)]
    assert len({p.id for p in back}) == 7
    assert back[3].extra == {"shoe": 3}
    assert [Persona.from_json(p.to_json()) for p in back] == back


def test_the_same_base_line_is_the_same_person(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "p.json")
    pool.add_personas([person(1)])
    twin = Persona(id="", text="Somebody else.", base="a baker  NUMBER 1.")
    assert pool.add_personas([twin, person(2)]) == 1
    assert [p.text for p in pool.load_personas()] == ["Person 1, a baker.", "Person 2, a baker."]


def test_target_and_lacking(tmp_path: Path) -> None:
    assert [target_pool_size(n) for n in (0, 1, 10, 1200)] == [0, 2, 15, 1800]
    pool = Pool(tmp_path / "p.json")
    pool.add_personas(person(i) for i in range(10))
    assert pool.missing_count(10) == 5
    assert pool.missing_count(4) == 0


def test_selection_is_without_repeats_seeded_and_refuses_too_many() -> None:
    people = [person(i) for i in range(30)]
    drawn = draw_personas(people, 20, generator(1, ("x",)))
    assert len({p.base for p in drawn}) == 20
    assert drawn == draw_personas(people, 20, generator(1, ("x",)))
    assert drawn != draw_personas(people, 20, generator(2, ("x",)))
    with pytest.raises(InputError, match="31 personas are needed, 30"):
        draw_personas(people, 31, generator(1, ("x",)))


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "p.json")
    with ThreadPoolExecutor(8) as threads:
        list(
            threads.map(
                lambda k: pool.add_personas(person(i) for i in range(k, k + 10)), range(0, 80, 5)
            )
        )
    people = pool.load_personas()
    assert {p.base for p in people} == {f"A baker number {i}" for i in range(85)}
    assert len({p.id for p in people}) == len(people) == 85


@pytest.mark.parametrize(
    "content",
    [
        b"{not json",
        b'{"version": 1}',
        b'{"personas": {}}',
        b'{"personas": [7]}',
        b'{"personas": [{"id": "a"}]}',
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_pool_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    for act in (Pool(path).load_personas, lambda: Pool(path).add_personas([person(1)])):
        with pytest.raises(InputError, match="not a persona pool"):
            act()
    assert path.read_bytes() == content


def test_a_pool_below_a_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a file is where a folder is needed"):
        Pool(tmp_path / "file" / "pool.json").add_personas([Persona("p", "a nurse.")])


def test_a_failed_write_leaves_the_pool_as_it_was(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "p.json")
    pool.add_personas([person(1)])
    before = pool.path.read_bytes()
    with pytest.raises(TypeError):
        pool.add_personas([person(2, impossible=object())])
    assert pool.path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == ["p.json"]


def test_migration_takes_each_person_once(tmp_path: Path) -> None:
    def record(i: int) -> dict[str, object]:
        return {
            "participant_id": f"p_{i:04d}",
            "condition": "acp",
            "base_persona": f"A baker number {i}",
            "demographics": {"age": 40, "sex": "M", "occupation": "baker"},
            "enriched_persona": f"a baker of forty, number {i}",
            "status": "complete",
        }

    for name, rows in {
        "one": [record(1), record(2), {"participant_id": "p_9", "status": "pending"}],
        "two": [record(2), record(3)],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "participants.json").write_text(json.dumps({"participants": rows}))
    (tmp_path / "empty").mkdir()
    pool = Pool(tmp_path / "personas.json")
    pool.add_personas([person(1)])
    report = migrate_personas([tmp_path / n for n in ("one", "two", "empty")], pool)
    assert (report.added, report.known, report.unfit, report.runs) == (2, 2, 1, 2)
    assert "participants.json" in str(report.problems[0])
    people = pool.load_personas()
    assert [p.base for p in people] == [f"A baker number {i}" for i in (1, 2, 3)]
    assert people[1].text == "a baker of forty, number 2"
    assert people[1].demographics["occupation"] == "baker"
    assert migrate_personas([tmp_path / "one"], pool).added == 0
