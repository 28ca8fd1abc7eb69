"""Speech: text in, text out. Interviews, moderators, summaries, descriptions, made-up people."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from folkmoot.models.synthetic.latents import meet, persona_text
from folkmoot.models.synthetic.lexicon import MIXTURES, NOUNS, VERBS, phrases_in, reasons
from tests.models.synthetic.synthetic_world import (
    OPTIONS,
    World,
    base,
    cluster_prompt,
    persona,
    summary_prompt,
)

HELD, OPPOSED = OPTIONS[0], OPTIONS[1]


def test_argument_phrases_carry_words_of_their_own_camp_alone() -> None:
    for camp in range(3):
        for phrase in (*NOUNS[camp], *VERBS[camp]):
            counts = reasons(phrase)
            assert counts[camp] > 0, phrase
            assert sum(counts) == counts[camp], phrase


def test_people_speak_in_the_mixture_of_their_camp() -> None:
    world = World(1)
    words = [[0, 0, 0] for _ in range(3)]
    for n in range(240):
        camp = meet(persona_text(base(persona(n))), 1).camp
        for said in world.interview(n, HELD)[1::2]:
            for k, count in enumerate(reasons(said)):
                words[camp][k] += count
    for camp in range(3):
        shares = [w / sum(words[camp]) for w in words[camp]]
        assert shares == pytest.approx(MIXTURES[camp], abs=0.06)


def test_an_interview_varies_and_does_not_repeat_itself() -> None:
    world = World(2)
    openings: Counter[str] = Counter()
    for n in range(60):
        answers = world.interview(n, HELD, 4)[1::2]
        sentences = [s for a in answers for s in re.split(r"(?<=[.!?]) ", a)]
        assert len(set(sentences)) >= len(sentences) - 1, answers
        openings[answers[0][:40]] += 1
        for answer in answers:
            assert 1 <= len(re.findall(r"[.!?](?:\s|$)", answer)) <= 8
            assert "{" not in answer
    assert openings.most_common(1)[0][1] <= 8


def test_moderators_stop_after_a_sensible_number_of_exchanges() -> None:
    world = World(3)
    page = world.page(
        {n: world.summary(n, OPTIONS[n % 3], ["Why?", _care(n)]) for n in range(30)},
        {n: OPTIONS[n % 3] for n in range(30)},
    )
    interviews = Counter(len(world.interview(n, HELD, 8)) // 2 for n in range(80))
    dialogues = Counter(len(world.dialogue(n, HELD, OPPOSED, page, 8)) // 2 for n in range(80))
    assert min(interviews) >= 2 and max(interviews) <= 8
    assert min(dialogues) >= 3
    assert len(interviews) > 1 and len(dialogues) > 1


def _care(n: int) -> str:
    return f"It is about {NOUNS[n % 3][n % 8]} and {NOUNS[n % 3][n % 8 + 1]}."


def test_a_challenger_argues_with_the_words_shown_for_the_opposed_option() -> None:
    world = World(4)
    page = f"## {HELD}\n\n{NOUNS[0][0]}\n\n## {OPPOSED}\n\nThey want {NOUNS[2][3]}, {NOUNS[2][5]}."
    for n in range(20):
        for said in world.dialogue(n, HELD, OPPOSED, page)[0::2]:
            assert OPPOSED in said
            assert {camp for _, camp in phrases_in(said)} <= {2}
        assert any(reasons(s)[2] for s in world.dialogue(n, HELD, OPPOSED, page)[0::2])


def test_a_challenger_who_was_shown_nothing_has_no_arguments() -> None:
    world = World(4)
    for n in range(20):
        for said in world.dialogue(n, HELD, OPPOSED, "")[0::2]:
            assert reasons(said) == (0, 0, 0)


def test_a_summary_holds_the_participants_reasons_and_not_the_moderators() -> None:
    world = World(5)
    said = [f"Is it {NOUNS[2][0]}?", f"No, I care for {NOUNS[0][1]} and {NOUNS[0][2]}."]
    text = world.summary(1, HELD, said)
    assert NOUNS[0][1] in text and NOUNS[0][2] in text and HELD in text
    assert reasons(text)[2] == 0
    assert len(re.findall(r"[.](?:\s|$)", text)) <= 3


def test_a_summary_of_foreign_words_keeps_those_words() -> None:
    world = World(5)
    text = world.summary(1, HELD, ["Why?", "Because the roof leaks and the hall smells of fish."])
    assert "the roof leaks" in text


def test_a_cluster_description_has_three_sentences_and_the_commonest_reasons() -> None:
    world = World(6)
    texts = [f"They chose it for {NOUNS[1][k]} and {NOUNS[1][0]}." for k in range(1, 6)]
    text = world.ask("c", "", cluster_prompt(HELD, texts))
    assert len(re.findall(r"[.](?:\s|$)", text)) == 3
    assert NOUNS[1][0] in text and HELD in text
    assert reasons(text)[0] == reasons(text)[2] == 0


def test_the_judge_finds_the_option_with_the_most_foreign_reasons() -> None:
    world = World(7)
    prompt = (
        "Options available: " + ", ".join(OPTIONS) + f'\n\nThe participant chose: "{HELD}"\n'
        f'Their reasoning: "{NOUNS[0][0]}"\n\n'
        f"Position 1:\nOption: {OPTIONS[1]}\nReasoning: {NOUNS[0][3]}\n\n"
        f"Position 2:\nOption: {OPTIONS[2]}\nReasoning: {NOUNS[2][3]}\n\n"
        "Which option is MOST OPPOSED? Respond with ONLY the exact option text."
    )
    assert {world.ask(f"j/{k}", "", prompt) for k in range(10)} == {OPTIONS[2]}


PERSON = (
    "Given this persona, make up fitting demographics.\n\nPersona: {P}\n\n"
    "Respond with ONLY a JSON object with these exact keys:\n- age: integer between 18 and 65\n"
    '- sex: "M" or "F"\n- education: one of ["High school", "Some college", "Bachelor\'s degree", '
    '"Master\'s degree", "Doctorate"]\n- location_type: one of ["urban", "suburban", "rural"]\n'
)


@pytest.mark.parametrize(
    ("who", "key", "values"),
    [
        ("A retired dairy farmer", "location_type", {"rural"}),
        ("A retired grandmother", "sex", {"F"}),
        ("A physicist who studies stars", "education", {"Doctorate"}),
    ],
)
def test_demographics_flow_from_the_persona(who: str, key: str, values: set[str]) -> None:
    world = World(8)
    for k in range(10):
        made = json.loads(world.ask(f"d/{k}", "", PERSON.format(P=who)))
        assert list(made) == ["age", "sex", "education", "location_type"]
        assert made[key] in values
        assert 18 <= made["age"] <= 65


def test_an_enriched_persona_keeps_base_and_demographics() -> None:
    prompt = (
        "Create a rich persona description from this base persona and these demographics.\n\n"
        "Base persona: A night nurse who plays chess\n\nDemographics:\n- Age: 44\n- Sex: F\n"
        "- Education: Some college\n- Income level: Middle income\n- Location type: urban\n"
        "- Political leaning: liberal\n"
    )
    text = World(8).ask("e", "", prompt)
    assert all(w in text for w in ("night nurse who plays chess", "44", "urban", "liberal", "She"))
    assert len(re.findall(r"[.](?:\s|$)", text)) <= 3


# --- personas ---------------------------------------------------------------------------------


def test_what_a_stage_adds_to_the_system_prompt_changes_nobody() -> None:
    plain = base(persona(3))
    later = f'{plain}\n\nYou previously chose "{HELD}".\n\nAn outgoing, stubborn moderator asks.'
    assert persona_text(plain) == persona_text(later)
    assert meet(persona_text(plain), 1) == meet(persona_text(later), 1)


def test_agreeable_people_are_easier_to_move_and_stubborn_ones_harder() -> None:
    def mean(word: str) -> float:
        texts = [f"You are a {word} clerk from street {n}." for n in range(300)]
        return sum(meet(t, 1).susceptibility for t in texts) / 300

    assert mean("stubborn") + 0.05 < mean("tall") < mean("curious and cooperative") - 0.05
    assert mean("tall") == pytest.approx(4 / 7, abs=0.03)


@pytest.mark.parametrize(
    ("text", "calling", "name"),
    [
        ("You are a retired nurse, 63 years old.", "a retired nurse", ""),
        ("You are Maria, a 43-year-old roofer from Ohio.", "a roofer", "Maria"),
        ("You are Jo Fox, 30, who earns a living as a barista and sings.", "a barista", "Jo"),
        ("You are A dedicated team of volunteers who meet.", "", ""),
    ],
)
def test_people_know_what_to_call_themselves(text: str, calling: str, name: str) -> None:
    found = meet(text, 1)
    assert found.calling == calling
    assert found.name.startswith(name)


def test_summary_prompt_of_these_tests_is_read_as_one() -> None:
    # Guards the prompts of these tests: a summary must never be taken for a vote.
    assert World(1).ask("s", "", summary_prompt(HELD, ["Why?", _care(1)])) not in OPTIONS
