"""Answer control questions with the embedded rule-based respondent."""
# It knows no facts beyond the persona, so it derives one stable answer for each persona. Two
# settings simulate the faults that controls must find. With `drift`, reading other speakers changes
# the participant's answers, as if another persona answered. With `persona_forgetting`, talking
# makes the participant forget the attributes of the persona.

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from folkmoot.conversation.answer_types import CHOICE, NUMBER
from folkmoot.engine.settings.controls import AGE, CONFOUNDER
from folkmoot.respondent.mind.draws import uniform_draw
from folkmoot.respondent.mind.mind import SimulatedRespondent
from folkmoot.respondent.mind.part import Answering, RespondentPart
from folkmoot.respondent.mind.passages import of_kind, persona_of

_AGE = re.compile(r"\b(\d{2})\b")
_DECISION = "decision-"
# The source id of the participant whom a question to the speaker for several is for.
WHOM = "study.controls.participant"
# With this many passages of other speakers, the simulated faults reach their full size.
TURNS = 4


def _person_of(mind: SimulatedRespondent) -> tuple[SimulatedRespondent, str, str]:
    # The participant who answers, the persona text, and the participant's id: in a reply for
    # several participants, the question names one of them.
    reading = mind.reading
    named = (p.text for p in of_kind(reading.passages, "value") if p.source.id == WHOM)
    whom = next(named, "")
    if not whom:
        return mind, reading.persona or "", reading.speaker
    persona = "\n".join(persona_of(reading.passages, whom))
    return mind.mind_of(persona or whom), persona, whom


def _exposure_share(mind: SimulatedRespondent) -> float:
    # How much the participant has read of other speakers: 0 to 1, and 1 from `TURNS` passages on.
    said = of_kind(mind.reading.passages, "utterance", "summary", own=False)
    return min(1.0, len(said) / TURNS)


def _has_drifted(mind: SimulatedRespondent, knob: float) -> bool:
    at = mind.at
    # One draw for each participant and question: who drifts after little exposure also drifts after
    # more of it.
    return uniform_draw(
        at.seed, mind.who.key, mind.reading.about, "drift"
    ) < knob * _exposure_share(mind)


def answer_choice(mind: SimulatedRespondent) -> object:
    """Return the option that the persona's text states.

    If the text states no option, return an option that is always the same for this persona.
    """
    # With the setting `drift`, participants who changed in the conversation give the first option
    # instead.
    options = mind.reading.offered
    if not options:
        return None
    mind, _, whom = _person_of(mind)
    if stated := _stated(mind, whom):
        return next((option for option in options if stated.endswith(f" {option}.")), None)
    if _has_drifted(mind, mind.knobs.drift):
        return options[0]
    return _stable_option(mind, options)


def _stated(mind: SimulatedRespondent, whom: str) -> str:
    # The scope of a control question is named by the id of the question.
    id = f"{CONFOUNDER}{mind.at.address.split('/')[-2]}"
    own = (
        passage
        for passage in of_kind(mind.reading.passages, "persona")
        if passage.source.id == id and passage.source.speaker == whom
    )
    return next((passage.text for passage in own), "")


def answer_number(mind: SimulatedRespondent) -> object:
    """Return the number that the persona's text states.

    If the text states no number, return a number that is always the same for this persona.
    """
    # With the setting `drift`, participants who changed in the conversation give the middle of the
    # range in place of the number that the persona always gives.
    bounds = mind.reading.number_bounds
    if bounds is None:
        return None
    low, high, _ = bounds
    mind, persona, whom = _person_of(mind)
    age = _AGE.search(persona)
    # The setting `drift` leaves the age alone, so that each of the two faults shows in one control
    # only.
    if mind.at.address.split("/")[-2] == AGE:
        if age and not _has_drifted(mind, mind.knobs.persona_forgetting):
            return age[1]
    elif stated := _stated(mind, whom):
        return stated.rstrip(".").rpartition(" ")[2]
    elif _has_drifted(mind, mind.knobs.drift):
        return round(low + (high - low) / 2)
    share = uniform_draw(mind.at.seed, mind.who.key, mind.reading.about, "answer")
    # Stay in the lowest quarter of the range and favour small numbers, because most questions ask
    # for counts, such as siblings.
    return round(low + (high - low) * share * share / 4)


def decision_scope(control: str) -> str:
    """Return the name of the scope in which a control asks for a decision."""
    # It differs from the ids of all control questions.
    return f"{_DECISION}{control}"


def _is_control(mind: SimulatedRespondent) -> bool:
    # A session that is run again has the scope of the decision at the root.
    address = mind.at.address
    return not (address.startswith(_DECISION) or address.split("/")[-2].startswith(_DECISION))


def _stable_option(mind: SimulatedRespondent, options: Sequence[str]) -> str:
    at = mind.at
    return options[
        int(len(options) * uniform_draw(at.seed, mind.who.key, mind.reading.about, "answer"))
    ]


def part_for(
    part: RespondentPart[Any], config: object, roles: Iterable[str]
) -> RespondentPart[Any]:
    """Return the simulated answers of a study, extended by answers to control questions.

    - `config`: the configuration of the finished run about which the controls ask.
    - `roles`: the roles of the speakers in that run.
    """

    # A decision that is asked again must be answered by the study's own respondent part.
    def first_control(own: Answering, others: Answering | None) -> Answering:
        def answer_control(mind: SimulatedRespondent) -> object:
            if _is_control(mind):
                return own(mind)
            return others(mind) if others is not None else None

        return answer_control

    controls = {
        f"{role} {kind}": answer
        for role in roles
        for kind, answer in ((CHOICE, answer_choice), (NUMBER, answer_number))
    }
    joined = {key: first_control(own, part.answers.get(key)) for key, own in controls.items()}
    # Take the names from the settings of the controlled run. Later the part is given the settings
    # of the controls, which do not name the options of the study.
    names = tuple(part.option_names(config))
    return RespondentPart(lambda _config: names, {**part.answers, **joined}, part.lexicon)
