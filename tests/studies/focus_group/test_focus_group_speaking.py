"""Who is addressed by name, who speaks, and in which order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.conversation.answer_types import Missing
from folkmoot.randomness import generator
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.discussion import DiscussionMessage, MessageRole
from folkmoot.studies.focus_group.participants import (
    Participant,
    clean_reply,
    speaking_probability,
)
from folkmoot.studies.focus_group.talk.moderator import (
    Moderator,
    SpeakingShares,
    choose_respondents,
    respondent_limits,
    strip_numbering,
)
from tests.studies.focus_group.at_hand import (
    AskedQuestion,
    MemoryScope,
    answer_plainly,
    discuss,
    draw_profiles,
    make_config,
    write_question,
)


@pytest.mark.parametrize(
    ("text", "asks", "called"),
    [
        ("Ann, what do you think?", ["Ann"], ["Ann"]),
        ("Will you buy it?", [], []),  # a name that is a verb too
        ("As Bo said, it is dear. Cy?", ["Cy"], ["Cy"]),
        ("Thank you, Ann. And the rest of you?", [], []),
        ("What do you all say?", ["Ann"], []),  # a name that is not in the question does not count
        ("Annabel?", ["Ann"], []),
        ("Zoe, and you?", ["Zoe"], []),  # no participant has this name
        ("ann?", "Ann", []),
        ("Ann?", None, []),
    ],
)
async def test_the_moderator_says_whom_it_asks(
    text: str, asks: list[str] | str | None, called: list[str]
) -> None:
    scope: Any = MemoryScope(1, lambda asked: write_question(text, asks=asks))
    config = make_config()
    names = {"a": "Ann", "b": "Bo", "c": "Cy", "w": "Will"}
    moderator = Moderator(config, names)
    moderator.discussion_guide = dict.fromkeys(config.phases, ("So?", "And?"))
    found = await moderator.generate_question(scope, DiscussionPhase.EXPLORATION, 0, [])
    assert found.text == text
    assert [names[who] for who in found.asks] == called


def test_probability_and_its_levels() -> None:
    assert [speaking_probability(e) for e in (0, 33, 34, 66, 67, 100)] == [
        0.35, 0.35, 0.60, 0.60, 0.85, 0.85,
    ]  # fmt: skip


def test_should_speak_keeps_its_rates_and_always_answers_to_the_name() -> None:
    persona = draw_profiles(1, 1)[0]
    rng = generator(1, ("speak",))
    for extraversion, rate in ((90, 0.85), (50, 0.60), (10, 0.35)):
        traits = persona.traits.model_copy(update={"extraversion": extraversion})
        who = Participant(persona.model_copy(update={"traits": traits}), make_config())
        said = np.mean([who.should_speak(rng) for _ in range(4000)])
        assert said == pytest.approx(rate, abs=0.035)
        assert all(who.should_speak(rng, addressed=True) for _ in range(50))


def test_a_named_participant_changes_no_other_draw() -> None:
    table = [Participant(p, make_config()) for p in draw_profiles(2)]
    names = {p.id: p.name for p in table}
    moderator = Moderator(make_config(), names)
    plain = [p.should_speak(r) for r in [generator(4, ("x",))] for p in table]
    named = [
        p.should_speak(r, addressed=p is table[0]) for r in [generator(4, ("x",))] for p in table
    ]
    assert plain[1:] == named[1:]
    order = moderator.select_respondents(table, [table[3].id], [], 9, generator(4, ("y",)))
    assert order[0] is table[3]
    assert 3 <= len(order) <= 5


def test_room_scales_with_the_table() -> None:
    assert respondent_limits(8, 6) == (3, 6)
    assert respondent_limits(8, 5) == (3, 5)
    assert respondent_limits(8, 2) == (2, 2)
    assert respondent_limits(1, 1) == (1, 1)
    assert respondent_limits(16, 16) == (6, 12)


@given(
    st.integers(2, 12),
    st.integers(1, 8),
    st.integers(0, 2**32),
    st.data(),
)
def test_choice_of_respondents(n: int, cap: int, seed: int, data: st.DataObject) -> None:
    ids = [f"p{i}" for i in range(n)]
    counts = data.draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    willing = data.draw(st.lists(st.sampled_from(ids), unique=True))
    called = data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=3))
    left = data.draw(st.integers(0, 9))
    floor = SpeakingShares(dict(zip(ids, counts, strict=True)), dict.fromkeys(ids, 0), left)
    fewest, most = respondent_limits(n, min(cap, n))
    chosen = choose_respondents(willing, called, floor, (fewest, most), np.random.default_rng(seed))
    assert fewest <= len(chosen) <= most
    assert len(set(chosen)) == len(chosen)
    assert chosen[: len(called[:most])] == called[:most]
    waiting = [who for who in floor.silent_participants() if who not in chosen]
    assert len(waiting) <= max(left * most, n - most if left == 0 else 0) or len(chosen) == most


async def test_the_quiet_are_told_to_the_moderator_by_name_and_drawn_in() -> None:
    seen: list[tuple[str, set[str]]] = []

    def naming(asked: AskedQuestion) -> str:
        if asked.kind != "question":
            return answer_plainly(asked)
        line = next((x for x in asked.prompt.splitlines() if x.startswith("Not heard much")), "")
        names = [n for n in line.split(": ", 1)[-1].split(". Draw")[0].split(", ") if n]
        seen.append((asked.path[-2], set(names)))
        return write_question(f"What do you say, {' and '.join(names)}?", asks=names)

    t = await discuss(6, naming)
    assert sum(bool(names) for _, names in seen) >= 6
    for question, names in seen:
        number = int(question[1:])
        speakers = {m.speaker_name for m in t.by_participants() if m.question == number}
        assert names <= speakers
        before = Counter(m.speaker_name for m in t.by_participants() if m.question < number)
        if names:
            most = max(before.values())
            assert all(before[name] < most for name in names)


@pytest.mark.parametrize(
    ("raw", "asked"),
    [
        ("1. What do you think?", "What do you think?"),
        ("Question 3: And the price?", "And the price?"),
        ("Question: And the price?", "And the price?"),
        ('"Moderator: Shall we?"', '"Moderator: Shall we?"'.strip('"')),
        ("**Moderator:** 2) So, Ann?", "So, Ann?"),
        ("Welcome. First things first.", "Welcome. First things first."),
    ],
)
def test_questions_lose_numbers_and_labels(raw: str, asked: str) -> None:
    assert strip_numbering(raw) in (asked, asked.removeprefix("Moderator: "))


async def test_a_name_with_nothing_behind_it_is_no_answer() -> None:
    persona = draw_profiles(3, 1)[0]
    scope: Any = MemoryScope(3, lambda asked: f"{persona.first_name}:  ")
    config = make_config()
    asked = DiscussionMessage(
        role=MessageRole.MODERATOR, speaker_id="moderator", speaker_name="Moderator",
        content="Why?", phase=DiscussionPhase.REACTION, turn_number=1,
    )  # fmt: skip
    said = await Participant(persona, config).respond(scope, asked, ())
    assert isinstance(said, Missing) and said.reason == "empty"


def test_answers_lose_the_speakers_label() -> None:
    persona = draw_profiles(3, 1)[0]
    for raw in (
        f"{persona.first_name}: Well, yes.",
        f"**{persona.name}:** Well, yes.",
        f"{persona.first_name.upper()} : Well, yes.",
        f"{persona.first_name} ({persona.age}, Nurse): Well, yes.",
        '"Well, yes."',
        "Well,\n yes.",
    ):
        assert clean_reply(raw, persona) == "Well, yes."


# The second is what a model of 135 million parameters said at this table, in another's name too.
@pytest.mark.parametrize(
    ("raw", "said"),
    (
        ("It is dear.\nCody: I agree.\nI do, too.", "It is dear."),
        (
            "I'm not going to do that anymore.\n\nCody: What's the point of the story? I want to "
            "just do the other thing.",
            "I'm not going to do that anymore.",
        ),
        ("**Moderator:** And you?\nCody: I agree.", None),
        ("It is dear.\n**Hector Powell (48)**: No.", "It is dear."),
        ("Like Cody: I would wait.", "Like Cody: I would wait."),
        ("I say:\nit is dear.", "I say: it is dear."),
        # A name that opens the reply, and is the only one, addresses this person.
        ("Cody: I hear you, but it is dear.", "Cody: I hear you, but it is dear."),
        ("Cody: I hear you.\nIt is dear.", "Cody: I hear you. It is dear."),
        ("Cody: I like it.\n{own}: I do not.", "I do not."),
        ("{own}: It is dear.\nCody: I like it.\n{own}: Well.", "It is dear."),
    ),
)
async def test_lines_in_the_name_of_others_are_no_answer(raw: str, said: str | None) -> None:
    persona = draw_profiles(3, 1)[0]
    reply = raw.format(own=persona.first_name)
    scope: Any = MemoryScope(3, lambda asked: reply)
    heard = [
        DiscussionMessage(
            role=MessageRole.PARTICIPANT,
            speaker_id=name,
            speaker_name=name,
            content="Well.",
            phase=DiscussionPhase.REACTION,
            turn_number=1,
        )
        for name in ("Moderator", "Cody", "Hector Powell")
    ]
    answer = await Participant(persona, make_config()).respond(scope, heard[0], heard)
    if said is None:
        assert isinstance(answer, Missing)
    else:
        assert answer == said
