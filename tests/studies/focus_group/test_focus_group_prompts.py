"""The prompts: the persona in words, the last known position, and the style of a phase."""

from __future__ import annotations

import re

from folkmoot.people.sources.grounded import TRAITS, PersonaGenerator, Traits
from folkmoot.randomness import generator
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.participants import (
    Participant,
    conversation_style_advice,
    length_advice,
)
from tests.studies.focus_group.at_hand import (
    AskedQuestion,
    MemoryScope,
    answer_plainly,
    discuss,
    draw_profiles,
    make_config,
)

SCOPE = MemoryScope(1, answer_plainly)


def render_system_prompt(participant: Participant) -> str:
    return participant.build_system_prompt(SCOPE)  # type: ignore[arg-type]


def test_no_score_and_no_trait_by_name_in_hundreds_of_system_prompts() -> None:
    config = make_config()
    for p in PersonaGenerator().generate_profiles(800, generator(8, ("many",))):
        text = render_system_prompt(Participant(p, config))
        assert re.findall(r"\d+", text) == [str(p.age)]
        assert not re.search("|".join((*TRAITS, "OCEAN", "VALS")), text, re.IGNORECASE)
        assert p.opinion is not None
        assert p.opinion.sentence in text
        assert text.startswith(f"You are {p.name}, a")
        assert text.index("\n\n") == text.index(".\n\n") + 1
        assert p.occupation in text and p.location in text


def test_five_bands_make_five_different_prompts() -> None:
    base = draw_profiles(1, 1)[0]
    for trait in TRAITS:
        said = set()
        for score in (10, 30, 55, 75, 95):
            traits = Traits(**{**base.traits.model_dump(), trait: score})
            said.add(
                render_system_prompt(
                    Participant(base.model_copy(update={"traits": traits}), make_config())
                )
            )
        assert len(said) == 5, trait


def test_length_and_company_follow_extraversion_and_agreeableness() -> None:
    base = draw_profiles(1, 1)[0]

    def advice(**scores: int) -> tuple[str, str]:
        traits = Traits(**{**base.traits.model_dump(), **scores})
        p = base.model_copy(update={"traits": traits})
        return length_advice(p), conversation_style_advice(p)

    assert "one short sentence" in advice(extraversion=5)[0]
    assert "three or four sentences" in advice(extraversion=95)[0]
    assert "weak spot" in advice(agreeableness=5)[1]
    assert "common ground" in advice(agreeableness=95)[1]
    assert len({advice(agreeableness=s)[1] for s in (5, 25, 50, 70, 90)}) == 5


async def test_a_shift_is_judged_against_the_last_known_position() -> None:
    asked_of: dict[str, list[str]] = {}

    def moving(asked: AskedQuestion) -> str:
        if asked.kind != "coder":
            return answer_plainly(asked)
        who = re.search(r"^(\w+)'s last known", asked.prompt, re.MULTILINE)[1]  # type: ignore[index]
        found = re.search(r"last known position: ([+-][\d.]+)", asked.prompt)
        assert found
        asked_of.setdefault(who, []).append(found[1])
        if len(asked_of[who]) % 3 == 2:
            return f'{{"changed": true, "valence": {found[1]}}}'
        return f'{{"changed": true, "valence": {-0.5 if float(found[1]) > 0 else 0.5}}}'

    t = await discuss(2, moving)
    for p in t.personas:
        assert p.opinion is not None
        now = p.opinion.valence
        own = [m for m in t.by_participants() if m.speaker_id == p.id]
        assert len(asked_of[p.first_name]) == len(own)
        for told, m in zip(asked_of[p.first_name], own, strict=True):
            assert float(told) == now
            assert m.changed_mind == (m.valence != now)
            assert m.valence is not None
            now = m.valence
        assert any(m.changed_mind for m in own)


async def test_a_difference_too_small_is_no_shift() -> None:
    def wobbling(asked: AskedQuestion) -> str:
        if asked.kind != "coder":
            return answer_plainly(asked)
        found = re.search(r"last known position: ([+-][\d.]+)", asked.prompt)
        assert found
        value = max(-1.0, min(1.0, float(found[1]) + 0.05))
        return f'{{"changed": true, "valence": {value}}}'

    t = await discuss(2, wobbling)
    assert not any(m.changed_mind for m in t.messages)


async def test_sentiment_by_lexicon_or_by_model_and_which_is_recorded() -> None:
    t = await discuss(1)
    (source,) = {m.sentiment_source for m in t.messages}
    assert str(source).startswith("vader 3.")
    assert all(m.sentiment is not None and -1 <= m.sentiment <= 1 for m in t.messages)

    def rating(asked: AskedQuestion) -> str:
        if asked.kind == "coder":
            assert "- sentiment:" in asked.prompt
            return '{"changed": false, "valence": 0, "sentiment": -0.75}'
        return answer_plainly(asked)

    t = await discuss(1, rating, make_config(sentiment="model"))
    assert {(m.sentiment, m.sentiment_source) for m in t.by_participants()} == {(-0.75, "model")}


async def test_the_guide_is_planned_for_every_phase_in_its_style_before_anybody_speaks() -> None:
    order: list[str] = []
    styles: dict[str, str] = {}

    def planning(asked: AskedQuestion) -> str:
        order.append(asked.kind)
        if asked.kind == "guide":
            styles[asked.path[-1]] = asked.prompt
        return answer_plainly(asked)

    t = await discuss(1, planning)
    assert order[:5] == ["guide"] * 5
    assert "guide" not in order[5:]
    assert sum(len(q) for q in t.guide.values()) == 10
    assert list(t.guide) == list(DiscussionPhase)
    assert "experience with kitchen appliances" in styles["warmup"]
    assert "price" in styles["deep_dive"]
    assert "available tomorrow" in styles["synthesis"] or "bought tomorrow" in styles["synthesis"]


async def test_a_guide_of_the_wrong_length_is_mended() -> None:
    for reply in (
        '{"questions": ["Only one?"]}',
        '{"questions": ["1. A?", "2. B?", "3. C?"]}',
        "?",
    ):

        def planning(asked: AskedQuestion, reply: str = reply) -> str:
            return reply if asked.kind == "guide" else answer_plainly(asked)

        t = await discuss(1, planning)
        assert all(len(q) == 2 and all(q) for q in t.guide.values())
        assert not any(re.match(r"\d", q) for qs in t.guide.values() for q in qs)
