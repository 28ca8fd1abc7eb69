"""Texts of the respondent: about the options, in its own words, and from the prompt."""

from __future__ import annotations

import json

import numpy as np
import pytest

from folkmoot.conversation.answer_types import Json
from folkmoot.models.request import ProviderSettings, RespondentHints
from folkmoot.people.enrichment import Demographics, demographics_prompt, enrichment_prompt
from folkmoot.provenance import SourcedText, quote_value
from folkmoot.respondent import Respondent, general_lexicon
from folkmoot.respondent.mind.lexicon import MIXTURES
from folkmoot.respondent.mind.persona import persona_from_text
from folkmoot.respondent.mind.reading import argument_phrases
from tests.respondent.town import (
    CARE,
    ENTERPRISE,
    OPTIONS,
    PRUDENCE,
    Town,
    list_options,
    make_card,
    make_page,
    make_persona,
    make_prompt,
    make_transcript,
)

MARKET, BUSES, POOL = OPTIONS


def test_argument_phrases_carry_words_of_their_own_camp_alone() -> None:
    book = general_lexicon()
    for phrase, camp in book.phrase_camps.items():
        words = [book.camp_of[w] for w in book.any_word.findall(phrase)]
        assert words and set(words) == {camp}, phrase


def test_people_speak_in_the_mixture_of_their_camp_and_for_the_option_they_hold() -> None:
    town, told = Town(2), [np.zeros(3) for _ in range(3)]
    for n in range(200):
        said = town.says(n, BUSES, "Why?")
        found = argument_phrases(said, OPTIONS, general_lexicon())
        assert set(found) == {BUSES}, said
        for phrase, times in found[BUSES].items():
            told[persona_from_text(make_persona(n), 2).camp][
                general_lexicon().phrase_camps[phrase]
            ] += times
    for camp in range(3):
        assert np.abs(told[camp] / told[camp].sum() - MIXTURES[camp]).max() < 0.06


def test_an_interview_does_not_repeat_itself() -> None:
    town = Town(4)
    for n in range(40):
        turns = ["Why?"]
        for _ in range(3):
            turns += [town.says(n, MARKET, *turns), "And what else?"]
        said = [s for text in turns[1::2] for s in text.split(". ")]
        assert len(set(said)) == len(said)


def lead(chosen: str, opposed: str, shown: str = "") -> SourcedText:
    """Return the system prompt of a moderator: page, options, and two single options."""
    theirs = quote_value(chosen, "answer", "first/p0/ask0", "p0")
    other = quote_value(opposed, "value", "opposition.option/p0")
    return make_prompt(
        "Zu ", shown, "\n\n", list_options(), '\n\nVebo "', theirs, '". Nu "', other, '".'
    )


def test_a_moderator_challenges_with_the_arguments_of_the_chosen_option() -> None:
    town, shown = Town(5), make_page()
    for n in range(30):
        told, at = lead(MARKET, BUSES, shown), f"{n}"
        said = [town.leads(told, at=at)]
        said.append(town.leads(told, said[0], f"I want {MARKET}: {CARE}.", at=at))
        both = argument_phrases(said[0], OPTIONS, general_lexicon())
        assert set(both) == {MARKET, BUSES}
        assert set(argument_phrases(said[1], OPTIONS, general_lexicon())) == {BUSES}
        given = argument_phrases(shown, OPTIONS, general_lexicon())
        assert all(
            p in given[o]
            for text in said
            for o, ps in argument_phrases(text, OPTIONS, general_lexicon()).items()
            for p in ps
        )


def test_the_option_to_argue_for_can_be_told_by_what_is_asked_about() -> None:
    hints = RespondentHints("moderator", kind="text", about=f"{POOL} or {MARKET}", speaker="m")
    town = Town(5)
    request = town.request(
        hints, make_prompt(make_page(), "\n\n", list_options()), make_prompt("Begin.")
    )
    said = town.model.reply(request, "a").text
    assert set(argument_phrases(said, OPTIONS, general_lexicon())) == {MARKET, POOL}


def test_without_shown_texts_there_are_no_arguments() -> None:
    for n in range(30):
        said = Town(6).leads(lead(MARKET, BUSES), at=f"{n}")
        assert not argument_phrases(said, OPTIONS, general_lexicon()) and said.endswith("?")


def test_the_signal_of_the_answer_is_given_after_a_few_turns() -> None:
    ended, told = [], lead(MARKET, BUSES, make_page())
    for n in range(60):
        turns: list[str] = []
        while len(turns) < 40:
            said = Town(7).leads(told, *turns, signal="DONE", at=f"s{n}")
            if said == "DONE":
                break
            turns += [said, f"I want {MARKET}: {CARE}."]
        ended.append(len(turns) // 2)
    assert min(ended) >= 2 and max(ended) <= 12 and len(set(ended)) > 2
    assert Town(7).leads(told, *turns, at="other") != "DONE"


def test_a_summary_binds_the_reasons_to_the_options_for_which_they_were_given() -> None:
    said = [f"What of {POOL}?", f"I want {MARKET}, it is {CARE}. But {BUSES}: {PRUDENCE}."]
    shown = make_prompt(
        "Gabo. ", list_options(), *(u.quoted_text for u in make_transcript(0, *said))
    )
    hints = RespondentHints("summarizer", kind="text", speaker="summarizer")
    town = Town(8)
    summary = town.model.reply(town.request(hints, "", shown), "s").text
    told, found = (
        argument_phrases(t, OPTIONS, general_lexicon()) for t in (" ".join(said), summary)
    )
    assert {o: set(p) for o, p in found.items()} == {o: set(p) for o, p in told.items()}
    assert " I " not in summary


def test_the_judge_finds_the_option_with_the_most_foreign_reasons() -> None:
    texts = {MARKET: CARE, BUSES: CARE, POOL: ENTERPRISE}
    shown = make_prompt(
        *(quote_value(f"{o}: {t}.", "summary", f"s.text/{o}") for o, t in texts.items())
    )
    town = Town(9)
    for about, found in (("", POOL), (POOL, MARKET)):
        hints = RespondentHints("judge", "choice", OPTIONS, about=about, speaker="judge")
        assert town.model.reply(town.request(hints, "", shown), "j").text == found


def test_agreeable_people_are_easier_to_move_and_stubborn_ones_harder() -> None:
    def mean(manner: str) -> float:
        return float(
            np.mean(
                [persona_from_text(f"Person {n}, {manner}.", 1).susceptibility for n in range(300)]
            )
        )

    assert mean("open-minded") > mean("tall") + 0.05 > mean("stubborn") + 0.1
    # Regression: the name of a scale in a persona was read as a trait.
    for mark in ("open to new things 1", "1 in being open to new things"):
        assert abs(mean(f"speaks up 3, {mark}") - mean("tall")) < 0.035


@pytest.mark.parametrize(
    ("text", "calling"),
    [
        ("Ann, a retired nurse of 70 who sings", "a retired nurse"),
        ("an engineer from Leeds", "an engineer"),
        ("Lee works as a bus driver and reads", "a bus driver"),
        ("Ann Lee, a 41-year-old woman. Occupation: a nurse; shoe size: 38.", "a nurse"),
        ("Ann Lee, a 41-year-old woman. Age: 41; occupation: a nurse.", "a nurse"),
        ("Ann Lee, a 41-year-old woman. Father occupation: a farmer.", ""),
        ("a participant of the study", ""),
    ],
)
def test_people_know_what_to_call_themselves(text: str, calling: str) -> None:
    assert persona_from_text(text, 1).calling == calling


LINE = "A retired chemist and grandmother who keeps bees in a small village"


def test_a_line_becomes_a_persona_with_fitting_demographics() -> None:
    town, asked = Town(1), RespondentHints("recruiter", speaker="recruiter")
    request = town.request(
        asked._replace(kind="json"), "", demographics_prompt(LINE), schema=Json(Demographics).schema
    )
    facts = Demographics.model_validate(json.loads(town.model.reply(request, "d").text))
    assert facts.sex == "F" and facts.age >= 56 and facts.location_type == "rural"
    assert facts.education == "Doctorate" and "chemist" in facts.occupation
    request = town.request(asked._replace(kind="text"), "", enrichment_prompt(LINE, facts))
    said = town.model.reply(request, "e").text
    assert said.startswith("a retired chemist") and str(facts.age) in said and "She lives" in said
    assert facts.income.lower() in said and facts.political_leaning in said


def test_people_talk_about_the_matter_and_not_about_what_one_does_with_it() -> None:
    about = "How do you look at it: who needs to mend dykes? Explain it to a friend. It worries me."
    theme = quote_value("We talk about mending the dykes of the marsh.", "material", "study.theme")
    for n in range(40):
        said = talk_about(n, about, theme)
        assert any(word in said for word in ("dykes", "mending", "marsh"))
        for verb in ("look", "needs", "mend ", "Explain", "friend", "worries"):
            assert verb not in said.replace("I look at", "").replace("makes me careful", "")


def test_a_follow_up_without_a_matter_of_its_own_keeps_to_the_theme_of_the_talk() -> None:
    theme = quote_value("Mending the dykes of the marsh: whose task?", "material", "study.theme")
    said = [talk_about(n, "What worries you most about it?", theme) for n in range(30)]
    assert all("dykes" in s or "marsh" in s or "mending" in s.casefold() for s in said)


def talk_about(number: int, about: str, theme: str) -> str:
    hints = RespondentHints(kind="text", about=about, speaker=f"p{number}")
    request = Town().request(
        hints, make_prompt("You are ", make_card(number)), make_prompt(theme, " Well?")
    )
    return Respondent(ProviderSettings(seed=3)).reply(request, f"t{number}").text
