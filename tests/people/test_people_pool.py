"""The persona pool: adding, drawing, concurrent writers, and files that are not pools."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from folkmoot.errors import InputError, StorageError
from folkmoot.people import Persona, Pool, draw_personas, migrate_personas, target_pool_size
from folkmoot.randomness import generator


def create_persona(i: int, **extra: object) -> Persona:
    return Persona(
        id="",
        text=f"Person {i}, a baker.",
        base=f"A baker number {i}",
        demographics={"age": 30 + i % 30, "sex": "F"},
        source="test",
        extra=dict(extra),
    )


def test_round_trip_order_and_ids(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "data" / "personas.json")
    assert pool.load_personas() == []
    assert pool.add_personas([create_persona(i, shoe=i) for i in range(7)]) == 7
    loaded = pool.load_personas()
    assert [persona.base for persona in loaded] == [f"A baker number {i}" for i in range(7)]
    assert len({persona.id for persona in loaded}) == 7
    assert loaded[3].extra == {"shoe": 3}
    assert [Persona.from_json(persona.to_json()) for persona in loaded] == loaded


def test_equal_base_lines_count_as_one_persona(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "p.json")
    pool.add_personas([create_persona(1)])
    twin = Persona(id="", text="Somebody else.", base="a baker  NUMBER 1.")
    assert pool.add_personas([twin, create_persona(2)]) == 1
    assert [persona.text for persona in pool.load_personas()] == [
        "Person 1, a baker.",
        "Person 2, a baker.",
    ]


def test_target_size_and_missing_count(tmp_path: Path) -> None:
    assert [target_pool_size(n) for n in (0, 1, 10, 1200)] == [0, 2, 15, 1800]
    pool = Pool(tmp_path / "p.json")
    pool.add_personas(create_persona(i) for i in range(10))
    assert pool.missing_count(10) == 5
    assert pool.missing_count(4) == 0


def test_a_draw_is_seeded_without_repeats_and_refuses_too_many() -> None:
    personas = [create_persona(i) for i in range(30)]
    drawn_personas = draw_personas(personas, 20, generator(1, ("x",)))
    assert len({persona.base for persona in drawn_personas}) == 20
    assert drawn_personas == draw_personas(personas, 20, generator(1, ("x",)))
    assert drawn_personas != draw_personas(personas, 20, generator(2, ("x",)))
    with pytest.raises(InputError, match="31 personas are needed, 30"):
        draw_personas(personas, 31, generator(1, ("x",)))


def test_concurrent_writers_lose_no_personas(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "p.json")
    with ThreadPoolExecutor(8) as threads:
        list(
            threads.map(
                lambda start: pool.add_personas(
                    create_persona(i) for i in range(start, start + 10)
                ),
                range(0, 80, 5),
            )
        )
    personas = pool.load_personas()
    assert {persona.base for persona in personas} == {f"A baker number {i}" for i in range(85)}
    assert len({persona.id for persona in personas}) == len(personas) == 85


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
def test_a_file_that_is_not_a_pool_is_refused_and_not_changed(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    for use_pool in (
        Pool(path).load_personas,
        lambda: Pool(path).add_personas([create_persona(1)]),
    ):
        with pytest.raises(InputError, match="not a persona pool"):
            use_pool()
    assert path.read_bytes() == content


def test_a_pool_below_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a file is where a folder is needed"):
        Pool(tmp_path / "file" / "pool.json").add_personas([Persona("p", "a nurse.")])


def test_a_failed_write_does_not_change_the_pool(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "p.json")
    pool.add_personas([create_persona(1)])
    original_bytes = pool.path.read_bytes()
    with pytest.raises(TypeError):
        pool.add_personas([create_persona(2, impossible=object())])
    assert pool.path.read_bytes() == original_bytes
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["p.json"]


def test_migration_adds_each_persona_once(tmp_path: Path) -> None:
    def create_record(i: int) -> dict[str, object]:
        return {
            "participant_id": f"p_{i:04d}",
            "condition": "acp",
            "base_persona": f"A baker number {i}",
            "demographics": {"age": 40, "sex": "M", "occupation": "baker"},
            "enriched_persona": f"a baker of forty, number {i}",
            "status": "complete",
        }

    for name, rows in {
        "one": [create_record(1), create_record(2), {"participant_id": "p_9", "status": "pending"}],
        "two": [create_record(2), create_record(3)],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "participants.json").write_text(json.dumps({"participants": rows}))
    (tmp_path / "empty").mkdir()
    pool = Pool(tmp_path / "personas.json")
    pool.add_personas([create_persona(1)])
    report = migrate_personas([tmp_path / run_name for run_name in ("one", "two", "empty")], pool)
    assert (report.added, report.known, report.unfit, report.runs) == (2, 2, 1, 2)
    assert "participants.json" in str(report.problems[0])
    personas = pool.load_personas()
    assert [persona.base for persona in personas] == [f"A baker number {i}" for i in (1, 2, 3)]
    assert personas[1].text == "a baker of forty, number 2"
    assert personas[1].demographics["occupation"] == "baker"
    assert migrate_personas([tmp_path / "one"], pool).added == 0
