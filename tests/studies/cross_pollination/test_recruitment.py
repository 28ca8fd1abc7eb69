"""Recruitment: persona-hub lines enriched in two calls, the pool, tables and quotas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Run
from folkmoot.errors import InputError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from tests.studies.cross_pollination.test_protocol import SETTINGS, Cast

JOBS = ("baker", "nurse", "pilot", "teacher", "farmer", "lawyer", "painter", "plumber")
ENGLISH = [
    f"A {age}-year-old {job} who likes quiet evenings at home"
    for age in range(30, 40)
    for job in JOBS
]
FOREIGN = [
    "一位热爱户外运动的退休教师，喜欢在周末徒步旅行和拍摄风景照片",
    "Um professor de história brasileiro apaixonado por futebol e pela cultura popular",
]
DEMOGRAPHICS = {
    "age": 41,
    "sex": "F",
    "education": "Some college",
    "income": "Middle income",
    "location_type": "rural",
    "political_leaning": "moderate",
    "occupation": "baker",
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the pool lies below the working folder


def hub(folder: Path, broken: int = 0) -> Path:
    path = folder / "hub.jsonl"
    lines = [json.dumps({"persona": p}, ensure_ascii=False) for p in [*FOREIGN, *ENGLISH]]
    path.write_text("\n".join([*lines, *["{not json"] * broken]) + "\n", "utf-8")
    return path


def enriching(cast: Cast, refuse: str = "") -> Cast:
    def recruit(request: ModelRequest, _address: str) -> str:
        asked = request.messages[-1].content
        if refuse and any(refuse in m.content for m in request.messages):
            return "I would rather not."
        if request.schema is not None:
            return json.dumps(DEMOGRAPHICS)
        line = next(p for p in ENGLISH if p in asked)
        return f"You are {line[0].lower()}{line[1:]}, born and raised in a valley."

    cast.rules |= {"recruitment": recruit, "spare_recruitment": recruit}
    return cast


def run(folder: Path, cast: Cast, name: str = "run", **personas: Any) -> Run:
    settings = {**SETTINGS, "participants_per_condition": 3, "min_responses_for_threshold": 50}
    settings["personas"] = {"source": "persona_hub", "file": str(hub(folder)), **personas}
    return folkmoot.run(
        "cross_pollination", settings, out=folder / name, provider=ScriptedProvider(cast)
    )


def people(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.folder.read_json("participants.json")["participants"]
    return found


def test_lines_become_personas_in_two_calls_and_fill_the_pool(tmp_path: Path) -> None:
    cast = enriching(Cast())
    done = run(tmp_path, cast)
    assert len(cast.of("recruitment")) == 2 * 18  # 1.5 x 12
    pool = json.loads((tmp_path / "data" / "personas.json").read_text("utf-8"))["personas"]
    assert len(pool) == 18
    assert not any(p["base_persona"] in FOREIGN for p in pool)
    for p in people(done):
        assert p["base_persona"] in ENGLISH and p["demographics"] == DEMOGRAPHICS
        assert p["enriched_persona"].startswith("a ")  # completes "You are …"


def test_a_full_pool_is_used_again_without_a_call(tmp_path: Path) -> None:
    run(tmp_path, enriching(Cast()))
    before = (tmp_path / "data" / "personas.json").read_bytes()
    again = enriching(Cast())
    second = run(tmp_path, again, "second")
    assert again.of("recruitment") == {}
    assert len({p["base_persona"] for p in people(second)}) == 12
    assert (tmp_path / "data" / "personas.json").read_bytes() == before


def test_a_resume_keeps_its_people_though_the_pool_has_grown(tmp_path: Path) -> None:
    first = run(tmp_path, enriching(Cast()))
    settings = {**SETTINGS, "participants_per_condition": 5}
    settings["personas"] = {"source": "persona_hub", "file": str(tmp_path / "hub.jsonl")}
    folkmoot.run(
        "cross_pollination",
        settings,
        out=tmp_path / "big",
        provider=ScriptedProvider(enriching(Cast())),
    )
    settings = {**SETTINGS, "participants_per_condition": 3, "min_responses_for_threshold": 50}
    settings["personas"] = {"source": "persona_hub", "file": str(tmp_path / "hub.jsonl")}
    again = folkmoot.run(
        "cross_pollination",
        settings,
        out=tmp_path / "run",
        provider=ScriptedProvider(enriching(Cast())),
    )
    assert people(again) == people(first)


def test_lines_that_cannot_be_enriched_are_replaced_by_others(tmp_path: Path) -> None:
    done = run(tmp_path, enriching(Cast(), refuse="baker"))
    assert len(people(done)) == 12
    assert not any("baker" in p["base_persona"] for p in people(done))


def test_too_few_lines_is_an_error_in_plain_words(tmp_path: Path) -> None:
    short = tmp_path / "short.jsonl"
    short.write_text('{"persona": "A baker in a small town by the sea"}\n', "utf-8")
    with pytest.raises(InputError, match=r"short\.jsonl"):
        run(tmp_path, enriching(Cast()), file=str(short))


def test_a_pool_that_is_no_pool_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "personas.json"
    path.parent.mkdir()
    path.write_text("[1, 2", "utf-8")
    with pytest.raises(InputError, match="not a persona pool"):
        run(tmp_path, enriching(Cast()))
    assert path.read_text("utf-8") == "[1, 2"


def test_people_from_a_table(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    rows = "\n".join(f'{i},"a {job} of {20 + i}",{20 + i}' for i, job in enumerate(JOBS * 2))
    table.write_text(f"id,persona,age\n{rows}\n", "utf-8")
    done = run(tmp_path, Cast(), source="table", file=str(table))
    assert all(p["enriched_persona"].startswith("a ") for p in people(done))
    assert all(p["demographics"]["age"] >= 20 for p in people(done))


def test_weights_of_a_table_are_not_applied_and_this_is_said(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    rows = "\n".join(f"{i},{job},{20 + i},{1 + i % 2}.5" for i, job in enumerate(JOBS * 2))
    table.write_text(f"id,job,age,weight\n{rows}\n", "utf-8")
    done = run(tmp_path, Cast(), source="table", file=str(table))
    assert not any("eight" in p["enriched_persona"] for p in people(done))
    assert "the column 'weight' is not applied" in (tmp_path / "run" / "run.log").read_text("utf-8")


def test_grounded_people_need_neither_network_nor_model(tmp_path: Path) -> None:
    settings = {**SETTINGS, "personas": {"source": "grounded"}}
    cast = Cast()
    done = folkmoot.run(
        "cross_pollination", settings, out=tmp_path / "run", provider=ScriptedProvider(cast)
    )
    assert len({p["enriched_persona"] for p in people(done)}) == 24
    assert not cast.of("recruitment")
