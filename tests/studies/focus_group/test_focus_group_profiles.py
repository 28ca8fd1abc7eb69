"""Profiles from a file: every field reaches the prompt, or its line is refused."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from folkmoot.errors import InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.people.sources.grounded import PersonaGenerator, character
from folkmoot.randomness import generator
from tests.studies.focus_group.test_focus_group_run import reply_plainly, run_focus_group

AT_TABLE = "personas: real.csv\nnum_personas: 2\nmax_responses_per_question: 2\n"


def test_text_demographics_and_every_other_column_reach_the_persons_prompt(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text(
        "name,text,sex,education,income,political_leaning,background,Favorite store,shoe size\n"
        "Ann Lee,You are the beekeeper of Elm Street.,female,doctorate,"
        '"$41,300",very conservative,Sells honey.,Corner Shop,38\n'
        "Bo Ray,,M,High school,High income,liberal,,,\n"
    )
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    run = run_focus_group(tmp_path, AT_TABLE, provider=scripted)
    systems = {r.messages[0].content for a, r in scripted.seen if "/says/" in a}
    ann, bo = (
        next(s for s in systems if s.startswith(f"You are {n}")) for n in ("Ann Lee", "Bo Ray")
    )
    for told in (
        "the beekeeper of Elm Street", "sex: female", "education: doctorate",
        "very conservative", "41,300",
        "Sells honey", "favorite store: Corner Shop", "shoe size: 38",
    ):  # fmt: skip
        assert told in ann, told
        assert told not in bo
    for told in ("a man", "a high school education", "household's income is high", "liberal"):
        assert told in bo
    assert not re.search(r"lives|\d-year-old", ann)  # nothing that was drawn beside what is known
    people = {r["name"]: r for r in run.read_table("personas").iter_rows(named=True)}
    assert (people["Ann Lee"]["income_usd"], people["Ann Lee"]["education"]) == (41300, "Doctorate")
    assert {p["source"] for p in people.values()} == {"table"}


def test_nothing_is_drawn_that_contradicts_a_column_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text(
        "name,Gender,politics,town,job\n"
        "Ann Lee,female,very conservative,Ulm,beekeeper\nBo Ray,female,liberal,Ulm,baker\n"
    )
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    run_focus_group(tmp_path, AT_TABLE, provider=scripted)
    told = next(r.messages[0].content for a, r in scripted.seen if "/says/" in a)
    who, leaning = ("beekeeper", "very conservative") if "Ann" in told else ("baker", "liberal")
    assert re.search(rf"year-old {who} who lives .* in Ulm\.", told)
    assert "You are a woman" in told and f"politically you are {leaning}" in told
    assert "What is known of you" not in told


@pytest.mark.parametrize(
    ("column", "value", "hint"),
    [
        ("adoption", "early bird", "early adopter"),
        ("income", "abc", "Low income"),
        ("income_usd", "abc", "dollars"),
        ("income_usd", "-5", "dollars"),
        ("vals", "dreamer", "thinker"),
        ("education", "PhD?", "Doctorate"),
        ("sex", "x", "F (female) or M (male)"),
        ("age", "41.5", "whole number"),
        ("openness", "high", "0 to 100"),
        ("valence", "2", "-1 to 1"),
    ],
)
def test_a_value_that_cannot_be_kept_is_refused_with_its_line(
    tmp_path: Path, column: str, value: str, hint: str
) -> None:
    (tmp_path / "real.csv").write_text(f"name,town,{column}\nAnn Lee,Ulm,\nBo Ray,,{value}\n")
    with pytest.raises(InputError) as caught:
        run_focus_group(tmp_path, AT_TABLE + "first_opinion: seeded\n")
    (problem,) = caught.value.problems
    assert problem.file.endswith("real.csv")
    assert (problem.where, problem.key) == ("3", column)
    assert repr(value) in problem.message or value in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize("key", ["adoption", "vals", "education", "income", "sex"])
def test_what_is_given_is_kept(key: str) -> None:
    given = {
        "adoption": "Laggard", "vals": "maker", "education": "bachelor’s degree",
        "income": "LOW INCOME", "sex": "male",
    }  # fmt: skip
    kept = {
        "adoption": "laggard", "vals": "maker", "education": "Bachelor's degree",
        "income": "Low income", "sex": "M",
    }  # fmt: skip
    for seed in range(5):
        (who,) = PersonaGenerator().from_profiles([{key: given[key]}], generator(seed, ()))
        assert {**who.shared_demographics(), **who.consumer.model_dump(), "vals": who.vals}[
            key
        ] == (kept[key])


def test_survey_answers_are_kept_as_the_person_gave_them(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text(
        "name,age,gender,income,politics,education\n"
        "Ann Lee,35-44,genderfluid,40k,Democrat,BA\n"
        "Bo Ray,65+,prefer not to say,prefer not to say,prefer not to say,prefer not to say\n"
    )
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    run = run_focus_group(tmp_path, AT_TABLE, provider=scripted)
    systems = {r.messages[0].content for a, r in scripted.seen if "/says/" in a}
    ann, bo = (
        next(s for s in systems if s.startswith(f"You are {n}")) for n in ("Ann Lee", "Bo Ray")
    )
    assert "You are a nonbinary person with a bachelor's degree" in ann
    assert "sex: genderfluid" in ann and "income: 40k" in ann
    assert "politically you are liberal" in ann and "political leaning: Democrat" in ann
    assert "prefer not to say" not in bo
    people = {r["name"]: r for r in run.read_table("personas").iter_rows(named=True)}
    assert 35 <= people["Ann Lee"]["age"] <= 44 and people["Ann Lee"]["income_usd"] == 40_000
    assert people["Ann Lee"]["sex"] == "X" and people["Bo Ray"]["age"] >= 65


def test_fields_of_other_countries_are_not_filled_with_american_data(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text(
        "name,age,sex,town,country\nAnn Lee,41,F,Ulm,Germany\nBo Ray,52,M,,Germany\n"
    )
    with pytest.raises(InputError) as caught:
        run_focus_group(tmp_path, AT_TABLE)
    places = [p for p in caught.value.problems if p.key == "location"]
    assert [p.where for p in places] == ["3"] and "American" in places[0].hint


def test_a_blank_place_in_a_table_of_places_stays_blank(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("name,age,town\nAnn Lee,41,Ulm\nBo Ray,52,\n")
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    run = run_focus_group(tmp_path, AT_TABLE, provider=scripted)
    people = {r["name"]: r["location"] for r in run.read_table("personas").iter_rows(named=True)}
    assert people == {"Ann Lee": "Ulm", "Bo Ray": ""}
    bo = next(r.messages[0].content for _, r in scripted.seen if "You are Bo" in str(r.messages))
    assert re.search(r"^You are Bo Ray, a 52-year-old .* who lives [^,]*\.$", bo, re.MULTILINE)
    assert " in ." not in bo and ", California" not in bo
    assert "in ," not in run.text("transcript.md")


def test_a_row_whose_column_holds_words_elsewhere_is_still_read_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("name,age\nAnn Lee,41\nBo Ray,old\n")
    with pytest.raises(InputError) as caught:
        run_focus_group(tmp_path, AT_TABLE)
    assert [p.where for p in caught.value.problems] == ["3"]


def test_a_prompt_can_be_made_without_an_income() -> None:
    (who,) = PersonaGenerator().from_profiles([{"income_usd": 0}], generator(1, ()))
    assert "income is low" in character.describe_circumstances(who)


def test_a_given_opinion_is_not_dropped_unsaid_where_opinions_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("name,opinion\nAnn Lee,Too dear.\nBo Ray,Fine.\n")
    with pytest.raises(InputError) as caught:
        run_focus_group(tmp_path, AT_TABLE)
    assert [(p.where, p.key) for p in caught.value.problems] == [("2", "opinion"), ("3", "opinion")]
    run = run_focus_group(tmp_path, AT_TABLE + "first_opinion: seeded\n")
    assert set(run.read_table("statements").filter(pl.col("when") == "before")["words"]) == {
        "Too dear.", "Fine.",
    }  # fmt: skip


def test_missing_answers_in_any_column_are_told_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text(
        "name,age,marital status,kids,weight\n"
        "Ann Lee,35,NA,prefer not to answer,1.5\nBo Ray,65,single,2,1.5\n"
    )
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    run_focus_group(tmp_path, AT_TABLE, provider=scripted)
    systems = {r.messages[0].content for a, r in scripted.seen if "/says/" in a}
    (ann,) = (s for s in systems if s.startswith("You are Ann Lee"))
    (bo,) = (s for s in systems if s.startswith("You are Bo Ray"))
    assert "marital status" not in ann and "kids" not in ann
    assert "marital status: single. kids: 2." in bo and "weight: 1.5" not in bo
    file = tmp_path / "real.csv"
    file.write_text(file.read_text().replace("single,2", "single,-99"))
    with pytest.raises(InputError, match=r"-99 looks like a code .*\(line 3, kids\)"):
        run_focus_group(tmp_path, AT_TABLE)


def test_lists_of_a_profile_are_told_without_their_empty_parts(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_text(
        '{"name": "Ann Lee", "age": 35, "pets": ["cat", null], "cars": []}\n'
        '{"name": "Bo Ray", "age": 65, "pets": ["dog"], "cars": ["van"]}\n'
    )
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    study = AT_TABLE.replace("real.csv", "real.jsonl")
    run_focus_group(tmp_path, study, provider=scripted)
    systems = {r.messages[0].content for a, r in scripted.seen if "/says/" in a}
    (ann,) = (s for s in systems if s.startswith("You are Ann Lee"))
    (bo,) = (s for s in systems if s.startswith("You are Bo Ray"))
    assert "pets: cat." in ann and "cars" not in ann and "cars: van." in bo
