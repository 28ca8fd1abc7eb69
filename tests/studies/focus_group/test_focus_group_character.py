"""Replies out of character are counted, and silent participants are not probed."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from folkmoot.conversation.answer_types import Missing
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.tables import read_talk
from folkmoot.studies.focus_group.talk.character import is_out_of_character
from folkmoot.studies.focus_group.talk.views import sentence_views, split_sentences
from tests.planted.test_planted_focus_group import run_groups as play_synthetic
from tests.studies.focus_group.at_hand import AskedQuestion, answer_plainly, discuss
from tests.studies.focus_group.test_focus_group_run import reply_plainly, run_focus_group


@pytest.mark.parametrize(
    "text",
    [
        "As an AI, I don't cook.",
        "I'm an AI language model and have no kitchen.",
        "As a large language model I cannot buy things.",
        "I am a virtual assistant.",
        "Question 3: What about the price?",
        "**Question 3:** What about the price?",
        "Thank you all. Question 4: who would buy it?",
        "Moderator: And what do you think?",
        "In this role-play I would say yes.",
        "My persona would like it.",
    ],
)
def test_signs_of_an_assistant_or_of_a_script_are_seen(text: str) -> None:
    assert is_out_of_character(text)


@pytest.mark.parametrize(
    "text",
    [
        "My question is simple: who needs this?",
        "I have two questions. First, the price.",
        "I work as an assistant manager, and I'm an aide to my mother.",
        "It is 2025: everything has a screen.",
        "The AI in my phone is bad enough.",
        "Let me ask one more question: is it safe?",
    ],
)
def test_ordinary_words_are_none(text: str) -> None:
    assert not is_out_of_character(text)


def test_replies_out_of_character_are_kept_and_counted(tmp_path: Path) -> None:
    def breaking(request: ModelRequest, address: str) -> str:
        if "/says/" in address and "p_0001" in address:
            return "As an AI, I have no opinion on ovens."
        return reply_plainly(request, address)

    run = run_focus_group(tmp_path, "num_personas: 4\n", provider=ScriptedProvider(breaking))
    said = read_talk(run)
    own = said.filter(pl.col("speaker_id") == "p_0001")
    assert own.height and own["out_of_character"].all()
    others = said.filter(
        (pl.col("speaker_id") != "p_0001") & (pl.col("speaker_role") == "participant")
    )
    assert not others["out_of_character"].any()
    (found,) = (f for f in STUDY.findings(run) if f.key == "out_of_character")
    assert f"{own.height} of {said.height} messages" in found.says
    assert run.read_json("statistics.json")["possibly_out_of_character"] == own.height
    clean = tmp_path / "clean"
    clean.mkdir()
    assert "out_of_character" not in {f.key for f in STUDY.findings(run_focus_group(clean))}


async def test_silent_participants_are_asked_twice_and_then_left_out() -> None:
    asked = 0

    def mute(asking: AskedQuestion) -> str | Missing:
        nonlocal asked
        if asking.who.id == "p_0003" and asking.kind == "answer":
            asked += 1
            return Missing("empty")
        return answer_plainly(asking)

    t = await discuss(4, mute)
    assert asked == len(t.silences) == 2
    assert {who for _, who, _ in t.silences} == {"p_0003"}
    others = {p.id for p in t.personas} - {"p_0003"}
    assert {m.speaker_id for m in t.by_participants()} == others


async def test_participants_who_answer_again_are_called_on_again() -> None:
    times = 0

    def shy(asking: AskedQuestion) -> str | Missing:
        nonlocal times
        if asking.who.id == "p_0003" and asking.kind == "answer":
            times += 1
            if times == 1:
                return Missing("empty")
        return answer_plainly(asking)

    t = await discuss(4, shy)
    assert [m for m in t.by_participants() if m.speaker_id == "p_0003"]


def test_a_question_about_the_price_gets_one(tmp_path: Path) -> None:
    run = play_synthetic(
        tmp_path,
        {
            "product_concept": "An oven that reads",
            "stimulus_material": "It is simple and quick. It breaks often. 299 dollars.",
            "guide": {"synthesis": ["What would be a fair price for the oven, all in all?"]},
        },
        groups=3,
        num_personas=5,
    )
    said = read_talk(run).filter(pl.col("speaker_role") == "participant")
    first = said.filter(~pl.col("probe"))
    assert first.height >= 9
    for text in first["text"]:
        assert re.search(r"\d[\d,]* dollars", text), text
    prices = {re.findall(r"([\d,]+) dollars", text)[0] for text in first["text"]}
    assert len(prices) > 3  # participants name different prices


def test_the_answer_to_a_probe_stays_with_what_was_probed(tmp_path: Path) -> None:
    about = {
        "product_concept": "An oven that reads",
        "stimulus_material": "It is simple and quick. It breaks often. 299 dollars.",
    }
    run = play_synthetic(tmp_path, about, groups=10, questions_per_phase=4, num_personas=5)
    checked = 0
    for _, talk in read_talk(run).group_by("group", maintain_order=True):
        rows = talk.to_dicts()
        for number, row in enumerate(rows):
            if not row["probe"] or row["speaker_role"] != "participant":
                continue
            own = [r["text"] for r in rows[:number] if r["speaker_id"] == row["speaker_id"]]
            before = [view.concern for s in split_sentences(own[-1]) for view in sentence_views(s)]
            after = {
                view.concern for s in split_sentences(row["text"]) for view in sentence_views(s)
            }
            assert not before or before[0] in after, (own[-1], row["text"])
            checked += 1
    assert checked >= 5
