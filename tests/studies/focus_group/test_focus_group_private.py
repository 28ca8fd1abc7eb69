"""Private answers before and after the discussion: opinion, intent, and intent by price."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.conversation.answer_types import Missing
from folkmoot.errors import InputError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.discussion import InterviewTime
from folkmoot.studies.focus_group.tables import read_talk
from tests.studies.focus_group.at_hand import AskedQuestion, answer_plainly, discuss, make_config
from tests.studies.focus_group.test_focus_group_run import reply_plainly, run_focus_group

MATERIAL, PRICE = "Meet the oven that reads. 299 dollars.", "310 dollars"
SMALL = "num_personas: 3\nmax_responses_per_question: 3\nquestions_per_phase: 1\n"


async def test_each_reads_concept_material_and_price_before_the_talk_and_is_asked_again() -> None:
    order: list[str] = []
    asked_of: dict[str, list[str]] = {"opinion": [], "intent": []}

    def watching(asked: AskedQuestion) -> str:
        order.append(asked.kind)
        if asked.kind in asked_of:
            asked_of[asked.kind].append(asked.who.id)
            assert all(words in asked.prompt for words in ("scans ready meals", MATERIAL, PRICE))
            assert bool(asked.heard) == (asked.path[0] == "after")
        return answer_plainly(asked)

    t = await discuss(1, watching, make_config(price=PRICE))
    ids = [p.id for p in t.personas]
    twice = [who for who in ids for _ in range(2)]  # before the talk, in two conversations
    assert asked_of == {"opinion": [*twice, *ids], "intent": [*ids, *ids]}
    talk = [i for i, kind in enumerate(order) if kind == "question"]
    assert sum(i < talk[0] for i, k in enumerate(order) if k in asked_of) == 24
    assert sum(i > talk[-1] for i, k in enumerate(order) if k in asked_of) == 16


async def test_the_first_opinion_is_asked_and_is_in_all_later_prompts_of_the_participant() -> None:
    seen: dict[str, list[str]] = {}

    def thinking(asked: AskedQuestion) -> str:
        if asked.kind == "opinion":
            assert ("own private reaction" in asked.who.system) == (asked.path[0] == "after")
            return json.dumps({"opinion": f"Ask {asked.who.id}.", "position": -0.8})
        if asked.kind in ("answer", "intent"):
            seen.setdefault(asked.who.id, []).append(asked.who.system)
        return answer_plainly(asked)

    t = await discuss(1, thinking)
    for who, systems in seen.items():
        assert all(f'strongly against it. In your words: "Ask {who}."' in s for s in systems)
    assert (
        t.positions(InterviewTime.BEFORE)
        == t.positions(InterviewTime.AFTER)
        == dict.fromkeys(seen, -0.8)
    )
    assert not any(s.planted for s in t.statements)


async def test_a_second_asking_before_the_talk_knows_nothing_of_the_first() -> None:
    """What differs between the two answers is the noise of asking, against which movement counts"""
    asked_before: dict[str, list[AskedQuestion]] = {}

    def thinking(asked: AskedQuestion) -> str:
        if asked.kind != "opinion" or asked.path[0] != "before":
            return answer_plainly(asked)
        own = asked_before.setdefault(asked.who.id, [])
        own.append(asked)
        return json.dumps({"opinion": f"Word {len(own)}.", "position": 0.1 * len(own)})

    t = await discuss(1, thinking)
    for first, again in asked_before.values():
        assert (first.who, first.prompt, first.heard) == (again.who, again.prompt, again.heard)
        assert first.path != again.path
    assert set(t.positions(InterviewTime.BEFORE).values()) == {0.1}
    assert set(t.positions(InterviewTime.RETEST).values()) == {0.2}
    assert (
        t.positions(InterviewTime.BEFORE).keys()
        == t.positions(InterviewTime.RETEST).keys()
        == asked_before.keys()
    )


def by_concept(request: ModelRequest, address: str) -> str:
    """Thinks well of the oven and ill of the box; buys up to 300 dollars before the talk, up to
    200 after it."""
    asked = request.messages[-1].content
    if request.schema is not None and request.schema["title"] == "PrivateOpinion":
        return json.dumps({"opinion": "So.", "position": 0.7 if "oven" in asked else -0.6})
    if "/intent/" in address:
        price = re.search(r"costs: (\d+)", asked)
        limit = 300 if "/before/" in address else 200
        return f"{'Probably' if price and int(price[1]) <= limit else 'Definitely'} would" + (
            " buy" if price and int(price[1]) <= limit else " not buy"
        )
    return reply_plainly(request, address)


def test_a_good_and_a_bad_product_start_apart(tmp_path: Path) -> None:
    stimuli = (
        "stimuli:\n  - {name: oven, product_concept: An oven}\n"
        "  - {name: box, product_concept: A box, stimulus_material: A plain box.}\n"
    )
    run = run_focus_group(tmp_path, SMALL + stimuli, provider=ScriptedProvider(by_concept))
    before = run.read_table("statements").filter(pl.col("when") == "before")
    means = dict(before.group_by("stimulus").agg(pl.col("position").mean()).rows())
    assert means == pytest.approx({"oven": 0.7, "box": -0.6})
    opinions = run.read_table("opinions").filter(pl.col("turn") == 0)
    assert opinions["valence"].to_list() == before["position"].to_list()


def findings_by_key(run: RunFolder) -> dict[str, folkmoot.Finding]:
    return {f.key: f for f in STUDY.findings(run)}


def test_a_price_ladder_gives_a_demand_curve_before_and_after(tmp_path: Path) -> None:
    ladder = "price: 250 dollars\nprices: [400 dollars, 150, 250 dollars]\nreplications: 2\n"
    scripted = ScriptedProvider(by_concept, keep_requests=True)
    run = run_focus_group(tmp_path, SMALL + ladder, provider=scripted)
    intents = run.read_table("intents")
    assert intents.height == 2 * 3 * 3 * 2  # groups, people, prices, before and after
    curve = findings_by_key(run)["demand"].grid
    at = {(str(r[0]), str(r[1])): r[3] for r in curve.rows}
    assert curve.columns[:4] == ("price", "when", "people", "would_buy_share")
    assert at == {
        ("150", "before"): 1, ("150", "after"): 1, ("250 dollars", "before"): 1,
        ("250 dollars", "after"): 0, ("400 dollars", "before"): 0, ("400 dollars", "after"): 0,
    }  # fmt: skip
    says = findings_by_key(run)["purchase_intent"].says
    assert " 0 % (no interval) would definitely or probably buy it at 250 dollars" in says
    assert "Would buy: after the discussion − before −100 points (no interval): not tested." in says
    # No prompt contains the other prices.
    for _, request in scripted.seen:
        if "Choose one of these" in request.messages[-1].content:
            asked = request.messages[-1].content.replace(MATERIAL, "")
            assert len(re.findall(r"\b(?:150|250|400)\b", asked)) == 1


def test_prices_with_many_digits_are_separate_questions(tmp_path: Path) -> None:
    ladder = "price: 1,000,001 yen\nprices: ['1,000,002 yen', '1,000,003 yen']\n"
    run = run_focus_group(tmp_path, SMALL + ladder, provider=ScriptedProvider(by_concept))
    counts = run.read_table("intents").group_by("price").len().sort("price")
    assert counts["price"].to_list() == ["1,000,001 yen", "1,000,002 yen", "1,000,003 yen"]
    assert counts["len"].n_unique() == 1


def test_without_a_ladder_there_is_no_curve(tmp_path: Path) -> None:
    assert "demand" not in findings_by_key(run_focus_group(tmp_path, SMALL))


async def test_an_opinion_that_cannot_be_had_is_unknown_and_not_undecided() -> None:
    def silent(asked: AskedQuestion) -> str | Missing:
        first = asked.kind == "opinion" and asked.who.id == "p_0002"
        return Missing("refused") if first else answer_plainly(asked)

    t = await discuss(1, silent)
    assert "p_0002" not in t.positions(InterviewTime.BEFORE) | t.positions(InterviewTime.AFTER)
    assert {s.missing for s in t.statements if s.persona_id == "p_0002"} == {"refused"}
    own = [m for m in t.by_participants() if m.speaker_id == "p_0002"]
    assert own[0].valence is not None and not own[0].changed_mind  # the first that is known
    assert len(t.positions_before_and_after()) == 7


def test_seeded_opinions_are_named_as_planted(tmp_path: Path) -> None:
    run = run_focus_group(tmp_path, "first_opinion: seeded\n")
    stated = run.read_table("statements")
    assert stated.filter(pl.col("when") == "before")["planted"].all()
    assert not stated.filter(pl.col("when") == "after")["planted"].any()
    assert "planted, not asked" in findings_by_key(run)["positions"].says
    assert "were planted" in run.text("topline.md")
    assert (
        "planted"
        not in findings_by_key(run_focus_group(make_folder(tmp_path / "asked")))["positions"].says
    )


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_there_is_no_reaction_phase_without_material(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("study: focus_group\nproduct_concept: A bar\ncategory: snacks\n")
    run = folkmoot.run(path, out=tmp_path / "run", provider=ScriptedProvider(reply_plainly)).folder
    phases = read_talk(run)["phase"].unique(maintain_order=True).to_list()
    assert phases == ["warmup", "exploration", "deep_dive", "synthesis"]
    config = make_config(stimulus_material=None)
    assert any("no reaction phase" in note for note in STUDY.notes(config, tmp_path))
    (few,) = STUDY.notes(make_config(), tmp_path)
    assert "fewer than 5 groups are an illustration" in few
    assert STUDY.notes(make_config(replications=5), tmp_path) == []


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("prices: [cheap, 20]\n", "prices", "exactly one number"),
        ("prices: [20, 20.0]\n", "prices", "only once"),
        ("price: 9,99 or 12\n", "price", "exactly one number"),
        ("appeal: 0.3\n", "appeal", "seeded"),
        ("phases: [reaction]\nstimulus_material: null\n", "phases", "no reaction phase"),
    ],
)
def test_mistakes_about_prices_and_opinions(
    tmp_path: Path, text: str, key: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        path = tmp_path / "study.yaml"
        path.write_text(f"study: focus_group\nproduct_concept: A bar\ncategory: snacks\n{text}")
        folkmoot.run(path, out=tmp_path / "run", provider=ScriptedProvider(reply_plainly))
    (problem,) = caught.value.problems
    assert problem.key.startswith(key) and words in str(problem)
