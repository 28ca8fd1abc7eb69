"""Properties of every discussion, for all participants and draws."""

from __future__ import annotations

from collections import Counter

import pytest

from folkmoot.conversation.answer_types import Missing
from folkmoot.randomness import uniform_values
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.discussion import DiscussionTranscript, MessageRole
from tests.studies.focus_group.at_hand import (
    AskedQuestion,
    answer_plainly,
    discuss,
    make_config,
    write_codes,
    write_question,
)


def assert_shape(transcript: DiscussionTranscript, lowest: int, highest: int) -> None:
    phases = [message.phase for message in transcript.messages]
    assert list(dict.fromkeys(phases)) == list(DiscussionPhase)
    spoken = Counter(message.speaker_id for message in transcript.by_participants())
    assert set(spoken) == {persona.id for persona in transcript.personas}
    assert [message.turn_number for message in transcript.messages] == list(
        range(1, len(transcript.messages) + 1)
    )
    for question in range(1, 11):
        here = [message for message in transcript.messages if message.question == question]
        assert here[0].role is MessageRole.MODERATOR
        answers = [message for message in here if message.by_participant]
        assert len(answers) <= 5
        assert lowest <= len({message.speaker_id for message in answers}) <= highest
        assert [message.position for message in answers] == list(range(1, len(answers) + 1))
        for probe in (message for message in here[1:] if not message.by_participant):
            nxt = transcript.messages[probe.turn_number]
            assert nxt.speaker_id == probe.replied_to
            assert nxt.probe


@pytest.mark.parametrize("seeds", [8, pytest.param(200, marks=pytest.mark.nightly(part="seeds"))])
async def test_length_phases_and_a_turn_for_all_participants_with_all_seeds(seeds: int) -> None:
    lengths = []
    for seed in range(seeds):
        t = await discuss(seed)
        assert_shape(t, 3, 5)
        lengths.append(len(t.messages))
    assert min(lengths) >= 40 and max(lengths) <= 65
    assert len(set(lengths)) > 5


async def test_limits_hold_with_many_probes_and_addressed_names() -> None:
    def heated(asked: AskedQuestion) -> str:
        if asked.kind == "coder":
            return write_codes(stance="disagree")
        if asked.kind == "question":
            names = asked.who.system.split("At the table sit ")[1].split(".")[0].split(", ")
            asks = [names[0], names[1], names[-1]]
            return write_question(f"{' and '.join(asks)}, what do you say?", asks=asks)
        return answer_plainly(asked)

    for seed in range(6):
        t = await discuss(seed, heated)
        assert_shape(t, 3, 5)
        assert 40 <= len(t.messages) <= 65


@pytest.mark.parametrize(
    ("seeds", "tolerance"),
    [(20, 0.045), pytest.param(90, 0.045, marks=pytest.mark.nightly(part="truths"))],
)
async def test_probes_follow_about_one_in_five_surprising_answers(
    seeds: int, tolerance: float
) -> None:
    def mixed(asked: AskedQuestion) -> str:
        if asked.kind == "coder":
            contrary = uniform_values(3, "mixed", *asked.path) < 0.25
            return write_codes(stance="disagree") if contrary else write_codes()
        return answer_plainly(asked)

    surprising = probed = plain_probed = 0
    for seed in range(seeds):
        t = await discuss(seed, mixed)
        by_turn = {m.turn_number: m for m in t.messages}
        surprising += sum(m.surprising and not m.probe for m in t.by_participants())
        for m in t.messages:
            if m.rung == 1 and not m.by_participant:
                probed += 1
                plain_probed += not by_turn[m.replied_to_turn or 0].surprising
    assert plain_probed == 0
    assert probed / surprising == pytest.approx(0.2, abs=tolerance)


@pytest.mark.nightly(part="truths")
async def test_the_extraverted_speak_more() -> None:
    high = low = n_high = n_low = 0
    for seed in range(20):
        t = await discuss(seed)
        spoken = Counter(m.speaker_id for m in t.by_participants())
        for p in t.personas:
            if p.traits.extraversion >= 67:
                high, n_high = high + spoken[p.id], n_high + 1
            elif p.traits.extraversion < 34:
                low, n_low = low + spoken[p.id], n_low + 1
    assert high / n_high > low / n_low + 1.5


async def test_order_within_a_question_varies() -> None:
    t = await discuss(5)
    seats = {p.id: i for i, p in enumerate(t.personas)}
    rising = [
        [seats[m.speaker_id] for m in t.by_participants() if m.question == q] for q in range(1, 11)
    ]
    assert sum(order == sorted(order) for order in rising) < 5


@pytest.mark.parametrize(("n", "cap"), [(2, 1), (2, 2), (4, 3), (6, 2), (12, 5), (20, 4)])
async def test_other_sizes_keep_their_limits_and_let_all_participants_speak(
    n: int, cap: int
) -> None:
    for seed in range(2):
        config = make_config(num_personas=n, max_responses_per_question=cap)
        t = await discuss(seed, answer_plainly, config)
        assert {m.speaker_id for m in t.by_participants()} == {p.id for p in t.personas}
        per_question = Counter(m.question for m in t.by_participants())
        assert max(per_question.values()) <= cap


async def test_the_history_of_each_speaker_ends_before_their_turn() -> None:
    heard: dict[str, list[str]] = {}

    def listening(asked: AskedQuestion) -> str:
        if asked.kind == "answer":
            said = f"My word {len(heard)}."
            heard[said] = [u.text for u in asked.heard]
            return said
        return answer_plainly(asked)

    t = await discuss(3, listening)
    texts = [m.content for m in t.messages]
    for i, m in enumerate(t.messages):
        if m.by_participant:
            assert heard[m.content] == texts[max(0, i - 24) : i]


async def test_the_material_is_shown_from_the_reaction_on_and_not_before() -> None:
    seen: dict[str, set[bool]] = {}

    def watching(asked: AskedQuestion) -> str:
        if asked.kind in ("answer", "question"):
            shown = "Meet the oven that reads" in asked.prompt + asked.who.system
            seen.setdefault(f"{asked.kind}/{asked.path[0]}", set()).add(shown)
        return answer_plainly(asked)

    await discuss(2, watching)
    for phase in ("warmup", "exploration", "deep_dive"):
        assert seen[f"answer/{phase}"] == seen[f"question/{phase}"] == {False}
    assert seen["answer/reaction"] == seen["answer/synthesis"] == {True}
    assert seen["question/reaction"] == {True, False}


async def test_an_answer_that_cannot_be_had_leaves_a_note_and_the_talk_goes_on() -> None:
    def refusing(asked: AskedQuestion) -> str | Missing:
        if asked.kind == "answer" and uniform_values(1, *asked.path) < 0.3:
            return Missing("refused")
        if asked.kind != "answer":
            return Missing("unparsed")
        return answer_plainly(asked)

    t = await discuss(4, refusing)
    assert t.silences
    assert {reason for _, _, reason in t.silences} == {"refused"}
    assert all(m.content.strip() for m in t.messages)
    assert len({m.question for m in t.messages}) == 10
    assert [i.missing for i in t.intents] == ["unparsed"] * 16
    assert t.positions_before_and_after() == {} and all(
        s.missing == "unparsed" for s in t.statements
    )
    assert all(not m.changed_mind for m in t.messages)
    assert all(m.valence is None for m in t.by_participants())  # unknown, and not undecided


async def test_same_seed_same_discussion() -> None:
    assert await discuss(9) == await discuss(9)
    assert (await discuss(9)).messages != (await discuss(10)).messages
