"""What the respondent says: about the options at hand, in its own words, and out of the text."""

from __future__ import annotations

import json

import numpy as np
import pytest

from folkmoot.conversation.answers import Json
from folkmoot.models.request import Message, ProviderSettings, Request, RespondentHints
from folkmoot.people.enrichment import Demographics, demographics_prompt, enrichment_prompt
from folkmoot.respondent import Respondent, general
from folkmoot.respondent.lexicon import MIXTURES
from folkmoot.respondent.persona import meet
from folkmoot.respondent.reading import phrases, sentences
from folkmoot.respondent.roles import singled_out
from tests.respondent.town import CARE, ENTERPRISE, OPTIONS, PRUDENCE, Town, page, persona

MARKET, BUSES, POOL = OPTIONS


def test_argument_phrases_carry_words_of_their_own_camp_alone() -> None:
    book = general()
    for phrase, camp in book.phrases.items():
        words = [book.camp_of[w] for w in book.any_word.findall(phrase)]
        assert words and set(words) == {camp}, phrase


def test_people_speak_in_the_mixture_of_their_camp_and_for_the_option_they_hold() -> None:
    town, told = Town(2), [np.zeros(3) for _ in range(3)]
    for n in range(200):
        said = town.says(n, BUSES, "Why?")
        found = phrases(said, OPTIONS, general())
        assert set(found) == {BUSES}, said
        for phrase, times in found[BUSES].items():
            told[meet(persona(n), 2).camp][general().phrases[phrase]] += times
    for camp in range(3):
        assert np.abs(told[camp] / told[camp].sum() - MIXTURES[camp]).max() < 0.06


def test_every_reason_is_known_as_ones_own_wherever_it_stands() -> None:
    town = Town(3)
    for n in range(150):
        found = sentences(town.says(n, POOL, "Why?"), OPTIONS, general())
        assert any(s.first_person and POOL in s.words for s in found)


def test_an_interview_does_not_repeat_itself() -> None:
    town = Town(4)
    for n in range(40):
        turns = ["Why?"]
        for _ in range(3):
            turns += [town.says(n, MARKET, *turns), "And what else?"]
        said = [s for text in turns[1::2] for s in text.split(". ")]
        assert len(set(said)) == len(said)


LEADS = 'Zu {}.\n\n- {}\n- {}\n- {}\n\nVebo "{}". Nu "{}". Fe "DONE".'


def lead(chosen: str, opposed: str, shown: str = "") -> str:
    return LEADS.format(shown, *OPTIONS, chosen, opposed)


def test_who_leads_challenges_with_the_words_shown_for_the_option_that_is_singled_out() -> None:
    town, shown = Town(5), page()
    for n in range(30):
        said, at = [town.leads(lead(MARKET, BUSES, shown), "Begin.", at=f"{n}")], f"{n}"
        said.append(
            town.leads(
                lead(MARKET, BUSES, shown), "Begin.", said[0], f"I want {MARKET}: {CARE}.", at=at
            )
        )
        both = phrases(said[0], OPTIONS, general())
        assert set(both) == {MARKET, BUSES}
        assert set(phrases(said[1], OPTIONS, general())) == {BUSES}
        told = phrases(shown, OPTIONS, general())
        assert all(
            p in told[o]
            for text in said
            for o, ps in phrases(text, OPTIONS, general()).items()
            for p in ps
        )


def test_two_options_singled_out_in_one_sentence_are_both_known() -> None:
    told = f"{page()}\n\nThey took {POOL.upper()}, so argue for {MARKET}."
    said = Town(5).leads(told, "Begin.")
    assert set(phrases(said, OPTIONS, general())) == {MARKET, POOL}


def test_an_option_that_is_named_beside_the_list_of_them_all_is_singled_out() -> None:
    """Who led from a letter did not know what had been chosen, and put no argument at first."""
    all_of_them = f"{MARKET}, {POOL} or {BUSES}"
    told = f"They had {all_of_them}, took {POOL} and heard this. {page()} Speak for {MARKET} now."
    said = Town(5).leads(told, "Begin.")
    assert set(phrases(said, OPTIONS, general())) == {MARKET, POOL}
    assert not singled_out(f"They had {all_of_them}.", OPTIONS, general())


def test_who_was_shown_nothing_has_no_arguments() -> None:
    for n in range(30):
        said = Town(6).leads(lead(MARKET, BUSES), "Begin.", at=f"{n}")
        assert not phrases(said, OPTIONS, general()) and said.endswith("?")


@pytest.mark.parametrize("ending", ['Fe "DONE".', "You MUST ONLY write DONE then.", "Fe: **DONE**"])
def test_the_signal_of_the_instructions_is_given_after_a_few_turns(ending: str) -> None:
    ended, told = [], lead(MARKET, BUSES, page()).replace('Fe "DONE".', f"\n\n{ending}")
    for n in range(60):
        turns, at = ["Begin."], f"s{n}"
        while len(turns) < 40:
            said = Town(7).leads(told, *turns, at=at)
            if said == "DONE":
                break
            turns += [said, f"I want {MARKET}: {CARE}."]
        ended.append(len(turns) // 2)
    assert min(ended) >= 2 and max(ended) <= 12 and len(set(ended)) > 2


def test_a_summary_binds_the_reasons_to_the_options_for_which_they_were_given() -> None:
    text = (
        f"Gabo.\n\nZu: What of {POOL}?\nFe: I want {MARKET}, it is {CARE}. But {BUSES}: {PRUDENCE}."
    )
    said = Town(8).leads("", text, role="summarizer")
    told, found = phrases(text, OPTIONS, general()), phrases(said, OPTIONS, general())
    assert {o: set(p) for o, p in found.items()} == {o: set(p) for o, p in told.items()}
    assert " I " not in said


def test_the_judge_finds_the_option_with_the_most_foreign_reasons() -> None:
    text = f"{MARKET}: {CARE}.\n\n{BUSES}: {CARE}.\n\n{POOL}: {ENTERPRISE}."
    asked = RespondentHints("judge", "", "choice", OPTIONS)
    town = Town(9)
    assert town.model.reply(town.request(asked, "", text), "j").text == POOL


def test_agreeable_people_are_easier_to_move_and_stubborn_ones_harder() -> None:
    def mean(manner: str) -> float:
        return float(
            np.mean([meet(f"Person {n}, {manner}.", 1).susceptibility for n in range(300)])
        )

    assert mean("open-minded") > mean("tall") + 0.05 > mean("stubborn") + 0.1
    # A name of a scale is not a trait: everybody of a portrait with such a scale was open.
    for mark in ("open to new things 1", "1 in being open to new things"):
        assert abs(mean(f"speaks up 3, {mark}") - mean("tall")) < 0.035


@pytest.mark.parametrize(
    ("text", "calling"),
    [
        ("Ann, a retired nurse of 70 who sings", "a retired nurse"),
        ("an engineer from Leeds", "an engineer"),
        ("Lee works as a bus driver and reads", "a bus driver"),
        ("a participant of the study", ""),
    ],
)
def test_people_know_what_to_call_themselves(text: str, calling: str) -> None:
    assert meet(text, 1).calling == calling


LINE = "A retired chemist and grandmother who keeps bees in a small village"


def test_a_line_becomes_a_persona_with_fitting_demographics() -> None:
    town, asked = Town(1), RespondentHints("recruiter", LINE)
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
    asked = "How do you look at it: who needs to mend dykes? Explain it to a friend. It worries me."
    theme = "Thank you for your time. We talk about mending the dykes of the marsh."
    for n in range(40):
        said = talk(n, theme, asked)
        assert any(word in said for word in ("dykes", "mending", "marsh"))
        for verb in ("look", "needs", "mend ", "Explain", "friend", "worries"):
            assert verb not in said.replace("I look at", "").replace("makes me careful", "")


def test_a_follow_up_without_a_matter_of_its_own_keeps_to_the_theme_of_the_talk() -> None:
    theme = "We talk about mending the dykes of the marsh. Whose task is that?"
    said = [talk(n, theme, "And what worries you most when you think of it?") for n in range(30)]
    assert all("dykes" in s or "marsh" in s or "mending" in s for s in said)


def talk(n: int, theme: str, asked: str) -> str:
    messages = (
        Message("system", f"You are number {n} of the long street."),
        Message("user", theme),
        Message("assistant", "Let me think."),
        Message("user", asked),
    )
    request = Request("synthetic", messages, asked=RespondentHints(kind="text"))
    return Respondent(ProviderSettings(seed=3)).reply(request, f"t{n}").text
