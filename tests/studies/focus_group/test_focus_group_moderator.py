"""The moderator: notes, references, probes, a researcher's guide, and two controls."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.conversation.answer_types import Missing
from folkmoot.errors import InputError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.discussion import DiscussionTranscript, InterviewTime
from folkmoot.studies.focus_group.tables import read_talk
from tests.studies.focus_group.at_hand import (
    ANSWER_TEXTS,
    AskedQuestion,
    answer_plainly,
    discuss,
    make_config,
    write_codes,
    write_question,
)
from tests.studies.focus_group.test_focus_group_run import reply_plainly, run_focus_group


async def test_notes_and_what_is_unanswered_go_with_the_moderator_from_question_to_question() -> (
    None
):
    seen: list[tuple[str, str]] = []

    def noting(asked: AskedQuestion) -> str:
        if asked.kind != "question":
            return answer_plainly(asked)
        number = asked.path[-2]
        seen.append((number, asked.prompt))
        unanswered = ["None", f"Why {number}?", "nothing else"]
        return write_question("So?", summary=f"Notes of {number}.", unanswered=unanswered)

    t = await discuss(1, noting)
    for (before, _), (_, prompt) in pairwise(seen):
        assert f"Notes of {before}." in prompt and f"Why {before}?" in prompt
    assert "Notes of" not in seen[0][1]
    assert [n.summary for n in t.notes] == [f"Notes of {number}." for number, _ in seen]
    assert t.notes[-1].unanswered == ("Why q10?",)


async def test_notes_outlive_a_question_that_could_not_be_read() -> None:
    prompts: list[str] = []

    def failing(asked: AskedQuestion) -> str | Missing:
        if asked.kind != "question":
            return answer_plainly(asked)
        prompts.append(asked.prompt)
        if len(prompts) == 2:
            return Missing("unparsed")
        return write_question("So?", summary=f"Notes {len(prompts)}.")

    t = await discuss(1, failing)
    assert "Notes 1." in prompts[2]
    assert t.messages[-1].question == 10  # the talk went on, by the guide's own words


@pytest.mark.parametrize("broken", [{"asks": 3, "takes_up": "Ann", "unanswered": None}, {}])
async def test_a_question_without_readable_notes_is_still_asked(broken: dict[str, object]) -> None:
    def careless(asked: AskedQuestion) -> str:
        if asked.kind != "question":
            return answer_plainly(asked)
        return json.dumps({"question": "2. So what?", **broken})

    t = await discuss(1, careless)
    assert {m.content for m in t.messages if not m.by_participant and not m.probe} == {"So what?"}


async def test_a_remark_that_is_taken_up_is_one_that_was_made() -> None:
    def taking(asked: AskedQuestion) -> str:
        if asked.kind != "question":
            return answer_plainly(asked)
        invented = int(asked.path[-2][1:]) % 2 == 0
        words = "a word that nobody said" if invented else "don’t NEED that"
        return write_question("So?", takes_up={"name": "Ann", "words": words})

    t = await discuss(1, taking)
    by_turn = {m.turn_number: m for m in t.messages}
    taken = 0
    for m in t.messages:
        if m.by_participant or m.probe:
            continue
        if m.replied_to_turn is None:
            so_far = [x.content for x in t.messages[: m.turn_number]]
            assert m.question % 2 == 0 or ANSWER_TEXTS[1] not in so_far
        else:
            taken += 1
            assert m.question % 2 == 1
            assert by_turn[m.replied_to_turn].content == ANSWER_TEXTS[1]
            assert by_turn[m.replied_to_turn].speaker_id == m.replied_to
    assert taken >= 2


def disagree_always(asked: AskedQuestion) -> str:
    """Return replies in which all participants disagree, so that their answers deserve a probe."""
    return write_codes(stance="disagree") if asked.kind == "coder" else answer_plainly(asked)


async def test_a_probe_asks_why_and_then_why_that_matters() -> None:
    prompts: dict[int, list[str]] = {1: [], 2: []}

    def climbing(asked: AskedQuestion) -> str:
        if asked.kind == "probe":
            second = "one step further down" in asked.prompt
            prompts[1 + second].append(asked.prompt)
            return "And why does that matter?" if second else "Why is that?"
        return disagree_always(asked)

    ladders = 0
    for seed in range(6):
        t = await discuss(seed, climbing)
        by_turn = {m.turn_number: m for m in t.messages}
        for m in t.messages:
            if m.rung and not m.by_participant:
                probed = by_turn[m.replied_to_turn or 0]
                assert (m.asks, probed.rung) == ((probed.speaker_id,), m.rung - 1)
                answer = by_turn[m.turn_number + 1]
                assert (answer.speaker_id, answer.rung) == (probed.speaker_id, m.rung)
                ladders += m.rung == 2
        assert sum(m.rung > 0 and not m.by_participant for m in t.messages) <= 5
        assert 40 <= len(t.messages) <= 65
    assert ladders >= 5
    assert len(prompts[2]) == ladders


GUIDE = {
    "warmup": ["Who cooks at your place?"],
    "deep_dive": {
        "questions": ["What would it replace?", "Who would clean it?", "Where would it stand?"],
        "probes": ["What did the last one cost you?"],
    },
}


async def test_a_researchers_guide_is_asked_in_its_words_and_its_probes_are_at_hand() -> None:
    kinds: list[str] = []
    probes: dict[str, bool] = {}

    def guided(asked: AskedQuestion) -> str:
        if asked.kind == "guide":
            kinds.append(asked.path[-1])
        if asked.kind == "probe":
            at_hand = "What did the last one cost you?" in asked.prompt
            probes[asked.path[0]] = probes.get(asked.path[0], True) and at_hand
        if asked.kind == "question" and asked.path[0] == "deep_dive":
            number = int(asked.path[1][1:])
            led = "Thanks. what would it REPLACE?" if number == 4 else "What about the weather?"
            return write_question(led, asks=["Nobody"])
        return disagree_always(asked)

    for seed in range(4):
        t = await discuss(seed, guided, make_config(guide=GUIDE))
        said = list_questions_by_phase(t)
        assert said[DiscussionPhase.WARMUP] == ["Who cooks at your place?"]
        assert said[DiscussionPhase.DEEP_DIVE] == [
            "Thanks. what would it REPLACE?", "Who would clean it?", "Where would it stand?",
        ]  # fmt: skip
        assert len(t.notes) == 1 + 2 + 3 + 2 + 2
    assert set(kinds) == {"exploration", "reaction", "synthesis"}
    assert probes.pop("deep_dive") and not any(probes.values())


def test_a_guide_in_the_study_file_is_a_list_or_questions_and_probes(tmp_path: Path) -> None:
    text = (
        "phases: [warmup, synthesis]\nguide:\n  warmup: ['Who cooks?']\n"
        "  synthesis: {questions: ['Would you?', 'Why?'], probes: ['Since when?']}\n"
    )
    said = read_talk(run_focus_group(tmp_path, text)).filter(pl.col("speaker_role") == "moderator")
    asked = said.filter(~pl.col("probe"))["text"].to_list()
    assert asked == ["Who cooks?", "Would you?", "Why?"]


def list_questions_by_phase(transcript: DiscussionTranscript) -> dict[DiscussionPhase, list[str]]:
    found: dict[DiscussionPhase, list[str]] = {}
    for message in transcript.messages:
        if not message.by_participant and not message.probe:
            found.setdefault(message.phase, []).append(message.content)
    return found


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("guide: {warmup: ['']}\n", "guide.warmup", "blank"),
        ("guide: {warm: ['So?']}\n", "guide", "warmup"),
        ("phases: [warmup]\nguide: {synthesis: ['So?']}\n", "guide.synthesis", "not one of"),
        ("stimulus_material: null\nguide: {reaction: ['So?']}\n", "guide.reaction", "no material"),
        ("control: alone\nfirst_opinion: seeded\n", "control", "seeded"),
        ("control: both\n", "control", "alone"),
    ],
)
def test_mistakes_about_guide_and_control(tmp_path: Path, text: str, key: str, words: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"study: focus_group\nproduct_concept: A bar\ncategory: snacks\n{text}")
    with pytest.raises(InputError) as caught:
        folkmoot.run(path, out=tmp_path / "run", provider=ScriptedProvider(reply_plainly))
    assert any(p.key.startswith(key) and words in str(p) for p in caught.value.problems)


# --- controls ----------------------------------------------------------------------------------


async def test_alone_the_same_participants_get_the_whole_guide_and_no_history_of_others() -> None:
    heard: dict[str, set[str]] = {}
    asked_of: Counter[str] = Counter()

    def watching(asked: AskedQuestion) -> str:
        if asked.path[0] == "alone" and asked.kind == "answer":
            asked_of[asked.who.id] += 1
            heard.setdefault(asked.who.id, set()).update(u.speaker_id for u in asked.heard)
            assert "focus group" not in asked.who.system
            assert "There are only the two of you." in asked.prompt
            assert "by name" not in asked.prompt and "moderator" not in asked.prompt
        return answer_plainly(asked)

    t = await discuss(2, watching, make_config(control="alone"))
    ids = {p.id for p in t.personas}
    assert asked_of == dict.fromkeys(ids, 10)
    assert all(speakers <= {who, "moderator"} for who, speakers in heard.items())
    assert set(t.positions(InterviewTime.ALONE)) == ids
    assert set(t.intents_by_participant(InterviewTime.ALONE)) == ids
    planned = [q for questions in t.guide.values() for q in questions]
    for messages in t.interviews.values():
        assert [m.content for m in messages if not m.by_participant] == planned
    same = await discuss(2)
    assert same.messages == t.messages  # the control changes nothing in the group
    assert not same.interviews and not same.positions(InterviewTime.ALONE)


def test_a_control_reaches_tables_and_finding(tmp_path: Path) -> None:
    def pulled(request: ModelRequest, address: str) -> str:
        """Return positions of ±.8, which move near 0 in the group and not alone."""
        if request.schema is not None and request.schema["title"] == "PrivateOpinion":
            side = 0.8 if int(address.split("/p_")[1][:4]) % 2 else -0.8
            near = side / 10 if "group_001" in address else 0.0
            position = near if "/after/" in address else side
            return json.dumps({"opinion": "So.", "position": position})
        return reply_plainly(request, address)

    text = (
        "replications: 5\nnum_personas: 4\nmax_responses_per_question: 3\n"
        "phases: [warmup, synthesis]\n"
    )
    run = run_focus_group(tmp_path, text + "control: alone\n", provider=ScriptedProvider(pulled))
    (found,) = (f for f in STUDY.findings(run) if f.key == "sycophancy")
    assert "were +1.05" in found.says and "outside the margin (at most 0.05)" in found.says
    said = run.read_table("utterances").filter(
        pl.col("persona_id").is_not_null() & pl.col("turn").is_not_null()
    )
    assert said.filter(pl.col("speaker_role") == "participant").height == 5 * 4 * 4
    (tmp_path / "plain").mkdir()
    plain_run = run_focus_group(tmp_path / "plain", text, provider=ScriptedProvider(pulled))
    (found,) = (f for f in STUDY.findings(plain_run) if f.key == "sycophancy")
    assert "It is not known whether participants gave in" in found.says
    checks = {f.key: f for f in STUDY.findings(run)}["respondent_checks"]
    assert (
        "Giving in to the group: After the discussion, the positions of participants were +1.05"
        in (checks.says)
    )


async def test_with_the_order_as_control_those_asked_by_name_have_no_first_place() -> None:
    def naming(asked: AskedQuestion) -> str:
        if asked.kind != "question":
            return answer_plainly(asked)
        name = asked.who.system.split("At the table sit ")[1].split(", ")[0]
        return write_question(f"{name}, what do you say?", asks=[name])

    places: dict[str | None, Counter[int]] = {}
    for control, seeds in ((None, range(2)), ("order", range(8))):
        places[control] = Counter()
        for seed in seeds:
            t = await discuss(seed, naming, make_config(control=control))
            places[control].update(
                m.position for m in t.by_participants() if m.addressed and not m.probe
            )
    assert set(places[None]) == {1}
    at = places["order"]
    assert all(at[place] > 0.1 * at.total() for place in (1, 2, 3, 4))
